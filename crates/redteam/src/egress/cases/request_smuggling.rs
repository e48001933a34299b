//! Attacks with requests that name two hosts, or that two parsers would read as different requests.

use super::super::case::EgressCase;
use super::super::case::EgressControl::{Other, Same};
use super::super::policies::PolicyPreset::{Open, Strict};

const INSIDE: &[&str] = &[
    "connect:api.test:443",
    "tls:api.test",
    r"send:GET /inside HTTP/1.1\r\nHost: api.test\r\nAuthorization: Bearer {api}\r\n\r\n",
    "receive",
];
const PLAIN: &[&str] = &["proxy", r"send:GET http://plain.test/ HTTP/1.1\r\nHost: plain.test\r\n\r\n", "receive"];

/// A request head that must be refused, in plain text and inside inspected TLS.
macro_rules! smuggled {
    ($($id:literal $name:literal $line:literal $rest:literal,)*) => {
        &[$(
            EgressCase::blocked(concat!("PC-08.plain-", $id), concat!($name, ", in plain text"),
                &["proxy", concat!("send:", $line, r" http://plain.test/smuggled HTTP/1.1\r\nHost: plain.test\r\n", $rest), "receive"],
                "HTTP/1.1 400", Other(Strict, PLAIN)),
            EgressCase::blocked(concat!("PC-08.inside-", $id), concat!($name, ", behind TLS"),
                &["connect:api.test:443", "tls:api.test",
                    concat!("send:", $line, r" /smuggled HTTP/1.1\r\nHost: api.test\r\n", $rest), "receive"],
                "HTTP/1.1 400", Other(Strict, INSIDE)),
            EgressCase::blocked(concat!("PC-08.route-", $id), concat!($name, ", to a route"),
                &["proxy", concat!("send:", $line, r" /r/anthropic/v1/models HTTP/1.1\r\nHost: x\r\nX-Api-Key: {model}\r\n", $rest), "receive"],
                "HTTP/1.1 400", Other(Strict, ROUTE)),
        )*]
    };
}

const ROUTE: &[&str] =
    &["proxy", r"send:GET /r/anthropic/v1/models HTTP/1.1\r\nHost: x\r\nX-Api-Key: {model}\r\n\r\n", "receive"];

pub(super) const SMUGGLED: &[EgressCase] = smuggled![
    "both" "a length with chunked encoding" "POST"
        r"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\nGET /smuggled HTTP/1.1\r\n\r\n",
    "both-turned" "chunked encoding with a length" "POST"
        r"Transfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n0\r\n\r\nGET /smuggled HTTP/1.1\r\n\r\n",
    "lengths" "two lengths" "POST" r"Content-Length: 5\r\nContent-Length: 6\r\n\r\nhello!",
    "equal-lengths" "the same length twice" "POST" r"Content-Length: 5\r\nContent-Length: 5\r\n\r\nhello",
    "list" "two lengths in one header" "POST" r"Content-Length: 5, 6\r\n\r\nhello!",
    "plus" "a length with a sign" "POST" r"Content-Length: +5\r\n\r\nhello",
    "hex" "a length in hexadecimal" "POST" r"Content-Length: 0x5\r\n\r\nhello",
    "huge" "a length that overflows" "POST" r"Content-Length: 99999999999999999999\r\n\r\nhello",
    "codings" "two codings" "POST" r"Transfer-Encoding: chunked, identity\r\n\r\n0\r\n\r\n",
    "coding-twice" "a transfer encoding twice" "POST" r"Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "coding-odd" "an unknown transfer encoding" "POST" r"Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\n",
    "coding-tab" "a transfer encoding after a control character" "POST" r"Transfer-Encoding: \x0bchunked\r\n\r\n0\r\n\r\n",
    "space" "a space before a colon" "POST" r"Transfer-Encoding : chunked\r\n\r\n0\r\n\r\n",
    "fold" "a header over two lines" "GET" r"X-A: b\r\n c\r\n\r\n",
    "fold-first" "a first header over two lines" "GET" r" X-A: b\r\n\r\n",
    "bare-lf" "a bare line feed" "GET" r"X-A: b\nX-B: c\r\n\r\n",
    "bare-cr" "a bare carriage return" "GET" r"X-A: b\rX-B: c\r\n\r\n",
    "nul" "a NUL in a header" "GET" r"X-A: b\x00c\r\n\r\n",
    "name" "a space in a header's name" "GET" r"X A: b\r\n\r\n",
    "nameless" "a header without a name" "GET" r": b\r\n\r\n",
    "colonless" "a header without a colon" "GET" r"X-A\r\n\r\n",
    "hosts" "a second host" "GET" r"Host: evil.test\r\n\r\n",
    "lower" "a method in lower case" "gET" r"\r\n",
];

pub(super) const CASES: &[EgressCase] = &[
    EgressCase::blocked(
        "PC-04.other",
        "a tunnel to one host with a request for another",
        &["connect:api.test:443", "tls:api.test", r"send:GET / HTTP/1.1\r\nHost: evil.test\r\nAuthorization: Bearer {api}\r\n\r\n", "receive"],
        "HTTP/1.1 400",
        Other(Strict, INSIDE),
    ),
    EgressCase::blocked(
        "PC-04.lent",
        "a tunnel to one host with a request for another that has a credential",
        &["connect:api.test:443", "tls:api.test", r"send:GET / HTTP/1.1\r\nHost: git.test\r\nAuthorization: Bearer {api}\r\n\r\n", "receive"],
        "HTTP/1.1 400",
        Other(Strict, INSIDE),
    ),
    EgressCase::blocked(
        "PC-04.port",
        "a tunnel to one host with a request for another port",
        &["connect:api.test:443", "tls:api.test", r"send:GET / HTTP/1.1\r\nHost: api.test:8443\r\nAuthorization: Bearer {api}\r\n\r\n", "receive"],
        "HTTP/1.1 400",
        Other(Strict, INSIDE),
    ),
    EgressCase::blocked(
        "PC-04.absolute",
        "a tunnel to one host with an absolute URL of another",
        &["connect:api.test:443", "tls:api.test", r"send:GET https://evil.test/ HTTP/1.1\r\nHost: api.test\r\nAuthorization: Bearer {api}\r\n\r\n", "receive"],
        "HTTP/1.1 400",
        Other(Strict, INSIDE),
    ),
    EgressCase::blocked(
        "PC-04.socks",
        "a request for another host, by SOCKS",
        &["socks:api.test:443", "tls:api.test", r"send:GET / HTTP/1.1\r\nHost: evil.test\r\nAuthorization: Bearer {api}\r\n\r\n", "receive"],
        "HTTP/1.1 400",
        Other(Strict, INSIDE),
    ),
    EgressCase::blocked(
        "PC-04.named",
        "a request for another host, by a direct connection",
        &["name:api.test:443", "tls:api.test", r"send:GET / HTTP/1.1\r\nHost: evil.test\r\nAuthorization: Bearer {api}\r\n\r\n", "receive"],
        "HTTP/1.1 400",
        Other(Strict, INSIDE),
    ),
    EgressCase::blocked(
        "PC-04.second",
        "a second request for another host",
        &[
            "connect:api.test:443",
            "tls:api.test",
            r"send:TRACE / HTTP/1.1\r\nHost: api.test\r\n\r\n",
            "receive",
            r"send:GET / HTTP/1.1\r\nHost: evil.test\r\nAuthorization: Bearer {api}\r\n\r\n",
            "receive",
        ],
        "HTTP/1.1 400",
        Other(Strict, INSIDE),
    ),
    EgressCase::blocked(
        "PC-05.sni",
        "a tunnel to a host that has a credential, with TLS to another",
        &["connect:api.test:443", "tls:evil.test", "receive"],
        "failed at tls",
        Other(Strict, INSIDE),
    ),
    EgressCase::blocked(
        "PC-05.lent",
        "a tunnel to an allowed host, with TLS to one that has a credential",
        &["connect:allowed.test:443", "tls:api.test", "receive"],
        "failed at tls",
        Other(Strict, INSIDE),
    )
    .silent(),
    EgressCase::blocked(
        "PC-05.nameless",
        "a tunnel to a host that has a credential, with TLS without SNI",
        &["connect:api.test:443", "tls:-", "receive"],
        "failed at tls",
        Other(Strict, INSIDE),
    ),
    EgressCase::blocked(
        "PC-06.host",
        "an absolute URL with another `Host`",
        &["proxy", r"send:GET http://plain.test/ HTTP/1.1\r\nHost: evil.test\r\n\r\n", "receive"],
        "HTTP/1.1 400",
        Other(Strict, PLAIN),
    ),
    EgressCase::blocked(
        "PC-06.turned",
        "an absolute URL of another host",
        &["proxy", r"send:GET http://evil.test/ HTTP/1.1\r\nHost: plain.test\r\n\r\n", "receive"],
        "HTTP/1.1 40",
        Other(Strict, PLAIN),
    ),
    EgressCase::blocked(
        "PC-06.port",
        "an absolute URL with another port",
        &["proxy", r"send:GET http://plain.test/ HTTP/1.1\r\nHost: plain.test:8080\r\n\r\n", "receive"],
        "HTTP/1.1 400",
        Other(Strict, PLAIN),
    ),
    EgressCase::blocked(
        "PC-06.forwarded",
        "no host, but a forwarded one",
        &["proxy", r"send:GET http://plain.test/ HTTP/1.1\r\nX-Forwarded-Host: plain.test\r\n\r\n", "receive"],
        "HTTP/1.1 400",
        Other(Strict, PLAIN),
    ),
    EgressCase::blocked(
        "PC-07.twice",
        "two hosts inside TLS",
        &["connect:api.test:443", "tls:api.test", r"send:GET / HTTP/1.1\r\nHost: api.test\r\nhost: api.test\r\n\r\n", "receive"],
        "HTTP/1.1 400",
        Other(Strict, INSIDE),
    ),
    EgressCase::blocked(
        "PC-07.none",
        "no host inside TLS",
        &["connect:api.test:443", "tls:api.test", r"send:GET / HTTP/1.1\r\n\r\n", "receive"],
        "HTTP/1.1 400",
        Other(Strict, INSIDE),
    ),
    EgressCase::blocked(
        "PC-07.old",
        "an HTTP/0.9 request",
        &["connect:api.test:443", "tls:api.test", r"send:GET /\r\n\r\n", "receive"],
        "HTTP/1.1 400",
        Other(Strict, INSIDE),
    ),
    EgressCase::blocked(
        "PC-07.h2",
        "HTTP/2 behind TLS, unasked",
        &["connect:api.test:443", "tls:api.test", r"send:PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x00\x04\x00\x00\x00\x00\x00", "receive"],
        "HTTP/1.1 400|HTTP/1.1 505",
        Other(Strict, INSIDE),
    ),
    EgressCase::blocked(
        "PC-07.h2-door",
        "HTTP/2 to the listener",
        &["proxy", r"send:PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x00\x04\x00\x00\x00\x00\x00", "receive"],
        "HTTP/1.1 400|HTTP/1.1 505",
        Other(Strict, PLAIN),
    ),
    EgressCase::blocked(
        "PC-07.empty",
        "an empty host",
        &["connect:api.test:443", "tls:api.test", r"send:GET / HTTP/1.1\r\nHost: \r\n\r\n", "receive"],
        "HTTP/1.1 400",
        Other(Strict, INSIDE),
    ),
    EgressCase::blocked(
        "PC-08.trailer",
        "a trailer after the last chunk",
        &["connect:api.test:443", "tls:api.test", r"send:POST /smuggled HTTP/1.1\r\nHost: api.test\r\nTransfer-Encoding: chunked\r\n\r\n0\r\nAuthorization: Bearer {api}\r\n\r\n", "receive"],
        "HTTP/1.1 400|HTTP/1.1 502|failed at receive|received \n",
        Other(Strict, INSIDE),
    )
    .silent(),
    EgressCase::blocked(
        "PC-17.websocket",
        "a protocol upgrade",
        &["connect:api.test:443", "tls:api.test", r"send:GET /ws HTTP/1.1\r\nHost: api.test\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\nAuthorization: Bearer {api}\r\n\r\n", "receive"],
        "HTTP/1.1 501",
        Other(Strict, INSIDE),
    ),
    EgressCase::blocked(
        "PC-17.h2c",
        "an upgrade to HTTP/2 in plain text",
        &["proxy", r"send:GET http://plain.test/ HTTP/1.1\r\nHost: plain.test\r\nConnection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABkAAQAAP__\r\n\r\n", "receive"],
        "HTTP/1.1 501",
        Other(Strict, PLAIN),
    ),
    EgressCase::blocked(
        "PC-17.open",
        "a protocol upgrade where every host is allowed",
        &["proxy", r"send:GET http://evil.test/ HTTP/1.1\r\nHost: evil.test\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n", "receive"],
        "HTTP/1.1 501",
        Other(Open, &["proxy", r"send:GET http://evil.test/ HTTP/1.1\r\nHost: evil.test\r\n\r\n", "receive"]),
    )
    .under(Open),
    EgressCase::blocked(
        "PC-13.trace",
        "a `TRACE` request",
        &["connect:api.test:443", "tls:api.test", r"send:TRACE / HTTP/1.1\r\nHost: api.test\r\nAuthorization: Bearer {api}\r\n\r\n", "receive"],
        "HTTP/1.1 405",
        Other(Strict, INSIDE),
    ),
    EgressCase::blocked(
        "PC-13.track",
        "a `TRACK` request",
        &["connect:api.test:443", "tls:api.test", r"send:TRACK / HTTP/1.1\r\nHost: api.test\r\nAuthorization: Bearer {api}\r\n\r\n", "receive"],
        "HTTP/1.1 405",
        Other(Strict, INSIDE),
    ),
    EgressCase::blocked(
        "PC-34.method",
        "a method that the rule does not allow",
        &["connect:look.test:443", "tls:look.test", r"send:POST /public/x HTTP/1.1\r\nHost: look.test\r\nContent-Length: 0\r\n\r\n", "receive"],
        "HTTP/1.1 403",
        Same(Open),
    ),
    EgressCase::blocked(
        "PC-34.path",
        "a path that the rule does not allow",
        &["connect:look.test:443", "tls:look.test", r"send:GET /private HTTP/1.1\r\nHost: look.test\r\n\r\n", "receive"],
        "HTTP/1.1 403",
        Same(Open),
    ),
    EgressCase::blocked(
        "PC-34.dots",
        "path traversal out of the allowed path",
        &["connect:look.test:443", "tls:look.test", r"send:GET /public/../private HTTP/1.1\r\nHost: look.test\r\n\r\n", "receive"],
        "HTTP/1.1 403",
        Same(Open),
    ),
    EgressCase::blocked(
        "PC-34.escaped",
        "path traversal out of the allowed path, escaped",
        &["connect:look.test:443", "tls:look.test", r"send:GET /public/%2e%2e/private HTTP/1.1\r\nHost: look.test\r\n\r\n", "receive"],
        "HTTP/1.1 403",
        Same(Open),
    ),
    EgressCase::blocked(
        "PC-34.override",
        "a method override header",
        &["connect:look.test:443", "tls:look.test", r"send:POST /public/x HTTP/1.1\r\nHost: look.test\r\nX-HTTP-Method-Override: GET\r\nContent-Length: 0\r\n\r\n", "receive"],
        "HTTP/1.1 403",
        Same(Open),
    ),
];
