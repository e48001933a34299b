//! Attacks on the allowlist: an unlisted name by every kind of connection, and an allowed name on a port or with a
//! protocol that is not allowed.

use super::super::case::EgressCase;
use super::super::case::EgressControl::{Host, Other, Same};
use super::super::policies::PolicyPreset::{Denying, Listing, Open, Strict};

/// Steps that reach a recorder under the strict policy: the listener exists and works.
const ALLOWED: &[&str] =
    &["connect:allowed.test:443", "tls:allowed.test", r"send:GET / HTTP/1.1\r\nHost: allowed.test\r\n\r\n", "receive"];
const PLAIN: &[&str] = &["proxy", r"send:GET http://plain.test/ HTTP/1.1\r\nHost: plain.test\r\n\r\n", "receive"];
const CONNECT: &[&str] =
    &["connect:evil.test:443", "tls:evil.test", r"send:GET / HTTP/1.1\r\nHost: evil.test\r\n\r\n", "receive"];
const SOCKS: &[&str] =
    &["socks:evil.test:443", "tls:evil.test", r"send:GET / HTTP/1.1\r\nHost: evil.test\r\n\r\n", "receive"];
const ABSOLUTE: &[&str] = &["proxy", r"send:GET http://evil.test/ HTTP/1.1\r\nHost: evil.test\r\n\r\n", "receive"];
const NAMED: &[&str] =
    &["name:evil.test:443", "tls:evil.test", r"send:GET / HTTP/1.1\r\nHost: evil.test\r\n\r\n", "receive"];
const NAMED_PLAIN: &[&str] = &["name:evil.test:80", r"send:GET / HTTP/1.1\r\nHost: evil.test\r\n\r\n", "receive"];
const HOST: &[&str] = &["tcp:{plain}", r"send:GET / HTTP/1.1\r\nHost: x\r\n\r\n", "receive"];
const DATAGRAM: &[&str] = &["udp:{udp}", "send:hello", "receive"];

pub(super) const CASES: &[EgressCase] = &[
    EgressCase::blocked("NE-02.connect", "an unlisted name by `CONNECT`", CONNECT, "HTTP/1.1 403", Same(Open)),
    EgressCase::blocked("NE-02.absolute", "an unlisted name in an absolute URL", ABSOLUTE, "HTTP/1.1 403", Same(Open)),
    EgressCase::blocked("NE-02.socks", "an unlisted name by SOCKS", SOCKS, "socks 2", Same(Open)),
    EgressCase::blocked("NE-02.named", "an unlisted name, by a direct connection", NAMED, "failed at name", Same(Open)),
    EgressCase::blocked(
        "NE-02.named-plain",
        "an unlisted name by a direct connection without TLS",
        NAMED_PLAIN,
        "failed at name",
        Same(Open),
    ),
    EgressCase::blocked("NE-02.deny-connect", "a denied name by `CONNECT`", CONNECT, "HTTP/1.1 403", Same(Open))
        .under(Denying),
    EgressCase::blocked(
        "NE-02.deny-absolute",
        "a denied name in an absolute URL",
        ABSOLUTE,
        "HTTP/1.1 403",
        Same(Open),
    )
    .under(Denying),
    EgressCase::blocked("NE-02.deny-socks", "a denied name by SOCKS", SOCKS, "socks 2", Same(Open)).under(Denying),
    EgressCase::blocked(
        "NE-02.deny-named",
        "a denied name, by a direct connection",
        NAMED,
        "failed at name",
        Same(Open),
    )
    .under(Denying),
    EgressCase::blocked(
        "NE-02.https",
        "an absolute URL that is not plain HTTP",
        &["proxy", r"send:GET https://evil.test/ HTTP/1.1\r\nHost: evil.test\r\n\r\n", "receive"],
        "HTTP/1.1 400",
        Other(Open, ABSOLUTE),
    ),
    EgressCase::blocked(
        "NE-02.origin",
        "an unlisted name in `Host` alone",
        &["proxy", r"send:GET / HTTP/1.1\r\nHost: evil.test\r\n\r\n", "receive"],
        "HTTP/1.1 400",
        Other(Open, ABSOLUTE),
    ),
    EgressCase::blocked(
        "NE-02.route",
        "a route that does not exist",
        &["proxy", r"send:GET /r/evil.test/v1/models HTTP/1.1\r\nHost: evil.test\r\n\r\n", "receive"],
        "HTTP/1.1 404",
        Other(Open, ABSOLUTE),
    ),
    EgressCase::blocked(
        "NE-02.socks4",
        "an unlisted name by SOCKS 4",
        &["proxy", r"send:\x04\x01\x01\xbb\x00\x00\x00\x01x\x00evil.test\x00", "receive"],
        "neither HTTP nor SOCKS5",
        Other(Open, SOCKS),
    ),
    EgressCase::blocked("NE-02.bind", "asking SOCKS to listen", &["socksbind:4444"], "socks 7", Other(Strict, ALLOWED)),
    EgressCase::blocked(
        "NE-02.associate",
        "asking SOCKS for datagrams",
        &["socksudp:53"],
        "socks 7",
        Other(Strict, ALLOWED),
    ),
    EgressCase::blocked(
        "NE-02.nested",
        "a tunnel within a tunnel",
        &[
            "connect:api.test:443",
            "tls:api.test",
            r"send:CONNECT evil.test:443 HTTP/1.1\r\nHost: evil.test:443\r\n\r\n",
            "receive",
        ],
        "HTTP/1.1 40",
        Other(Open, CONNECT),
    ),
    EgressCase::blocked(
        "NE-02.second",
        "a second request for an unlisted name on the same connection",
        &[
            "proxy",
            r"send:GET /health HTTP/1.1\r\nHost: x\r\n\r\n",
            "receive",
            r"send:GET http://evil.test/ HTTP/1.1\r\nHost: evil.test\r\n\r\n",
            "receive",
        ],
        "HTTP/1.1 403",
        Same(Open),
    ),
    EgressCase::blocked(
        "NE-01.tls",
        "TLS directly to a public address",
        &["tcp:1.1.1.1:443", "tls:allowed.test", "receive"],
        "failed at tls",
        Host(HOST),
    ),
    EgressCase::blocked(
        "NE-01.plain",
        "HTTP directly to a public address",
        &["tcp:1.1.1.1:80", r"send:GET / HTTP/1.1\r\nHost: plain.test\r\n\r\n", "receive"],
        r"received|failed at receive",
        Host(HOST),
    ),
    EgressCase::blocked(
        "NE-01.other",
        "another port of a public address",
        &["tcp:1.1.1.1:22", "receive"],
        "failed at tcp",
        Host(HOST),
    ),
    EgressCase::blocked(
        "NE-01.pool",
        "a synthetic address that belongs to no name",
        &["tcp:198.18.77.77:443", "tls:allowed.test", "receive"],
        "failed at tls",
        Host(HOST),
    ),
    EgressCase::blocked(
        "NE-03.quic",
        "a datagram to the internet",
        &["udp:1.1.1.1:443", "send:hello", "receive"],
        "failed at",
        Host(DATAGRAM),
    ),
    EgressCase::blocked(
        "NE-03.loopback",
        "a datagram to the host",
        &["udp:{udp}", "send:hello", "receive"],
        "failed at",
        Host(DATAGRAM),
    ),
    EgressCase::blocked(
        "NE-14.tls",
        "TLS directly to a public IPv6 address",
        &["tcp:[2606:4700::1111]:443", "tls:allowed.test", "receive"],
        "failed at",
        Host(HOST),
    ),
    EgressCase::blocked(
        "NE-14.connect",
        "a public IPv6 address by `CONNECT`",
        &["connect:[2606:4700::1111]:443", "tls:-", r"send:GET / HTTP/1.1\r\nHost: x\r\n\r\n", "receive"],
        "HTTP/1.1 403",
        Same(Open),
    ),
    EgressCase::blocked(
        "NE-14.socks",
        "a public IPv6 address by SOCKS",
        &["socksip:[2606:4700::1111]:443", "tls:-", r"send:GET / HTTP/1.1\r\nHost: x\r\n\r\n", "receive"],
        "socks 2",
        Same(Open),
    ),
    EgressCase::blocked(
        "NE-18.smtp",
        "an allowed name on the SMTP port",
        &["connect:allowed.test:25", "send:hello", "receive"],
        "HTTP/1.1 403",
        Same(Listing("allowed.test:25")),
    ),
    EgressCase::blocked(
        "NE-18.ssh",
        "an allowed name on the SSH port, by SOCKS",
        &["socks:allowed.test:22", r"send:SSH-2.0-x\r\n", "receive"],
        "socks 2",
        Same(Listing("allowed.test:22")),
    ),
    EgressCase::blocked(
        "NE-18.plain",
        "an allowed name without TLS",
        &["proxy", r"send:GET http://allowed.test/ HTTP/1.1\r\nHost: allowed.test\r\n\r\n", "receive"],
        "HTTP/1.1 403",
        Same(Listing("allowed.test:80")),
    ),
    EgressCase::blocked(
        "NE-18.named",
        "an allowed name on another port, by a direct connection",
        &["name:allowed.test:22", r"send:SSH-2.0-x\r\n", "receive"],
        "failed at name",
        Other(Strict, ALLOWED),
    ),
    EgressCase::blocked(
        "NE-18.zero",
        "port 0 of an allowed name",
        &["connect:allowed.test:0", "receive"],
        "HTTP/1.1 403",
        Other(Strict, ALLOWED),
    ),
    EgressCase::blocked(
        "NE-18.wrapped",
        "a port that is 443 when truncated to 16 bits",
        &["connect:evil.test:65979", "receive"],
        "HTTP/1.1 403",
        Other(Open, CONNECT),
    ),
    EgressCase::blocked(
        "NE-19.ssh",
        "SSH in a tunnel for TLS",
        &["connect:allowed.test:443", r"send:SSH-2.0-x\r\n", "receive"],
        "received|failed at receive",
        Other(Strict, ALLOWED),
    )
    .silent(),
    EgressCase::blocked(
        "NE-19.http",
        "plain HTTP in a tunnel for TLS",
        &["connect:allowed.test:443", r"send:GET / HTTP/1.1\r\nHost: allowed.test\r\n\r\n", "receive"],
        "received|failed at receive",
        Other(Strict, ALLOWED),
    )
    .silent(),
    EgressCase::blocked(
        "NE-19.inside",
        "SSH to an inspected host",
        &["connect:api.test:443", r"send:SSH-2.0-x\r\n", "receive"],
        "received|failed at receive",
        Other(Strict, ALLOWED),
    ),
    EgressCase::blocked(
        "NE-19.server",
        "waiting for a server that speaks first",
        &["connect:allowed.test:443", "receive"],
        "received|failed at receive",
        Other(Strict, ALLOWED),
    )
    .silent(),
    EgressCase::blocked(
        "NE-19.absolute",
        "plain HTTP to the TLS port",
        &["proxy", r"send:GET http://allowed.test:443/ HTTP/1.1\r\nHost: allowed.test:443\r\n\r\n", "receive"],
        "HTTP/1.1 403",
        Other(Strict, PLAIN),
    ),
    EgressCase::blocked(
        "NE-19.sni",
        "a tunnel to an allowed name, with TLS to another",
        &["connect:allowed.test:443", "tls:evil.test", r"send:GET / HTTP/1.1\r\nHost: evil.test\r\n\r\n", "receive"],
        "failed at tls",
        Other(Strict, ALLOWED),
    )
    .silent(),
    EgressCase::blocked(
        "NE-19.sni-named",
        "a direct connection to an allowed name, with TLS to another",
        &["name:allowed.test:443", "tls:evil.test", "receive"],
        "failed at tls",
        Other(Strict, ALLOWED),
    ),
    EgressCase::blocked(
        "NE-19.nameless",
        "a tunnel to an allowed name, with TLS without SNI",
        &["connect:allowed.test:443", "tls:-", "receive"],
        "failed at tls",
        Other(Strict, ALLOWED),
    )
    .silent(),
];
