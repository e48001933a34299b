//! Attacks with unusual spellings of a host: what two programs could parse differently must be refused.

use super::super::case::EgressCase;
use super::super::case::EgressControl::{Other, Same};
use super::super::policies::PolicyPreset::{Denying, Open};

const CONNECT: &[&str] =
    &["connect:evil.test:443", "tls:evil.test", r"send:GET / HTTP/1.1\r\nHost: evil.test\r\n\r\n", "receive"];
const SOCKS: &[&str] =
    &["socks:evil.test:443", "tls:evil.test", r"send:GET / HTTP/1.1\r\nHost: evil.test\r\n\r\n", "receive"];
const ABSOLUTE: &[&str] = &["proxy", r"send:GET http://evil.test/ HTTP/1.1\r\nHost: evil.test\r\n\r\n", "receive"];

/// Each spelling of a host by `CONNECT`, by SOCKS and in an absolute URL. A parser that takes it for the hidden name
/// or address would dial something.
macro_rules! spelt {
    ($($id:literal $name:literal $host:literal,)*) => {
        &[$(
            EgressCase::blocked(concat!("NE-21.connect-", $id), concat!($name, ", by `CONNECT`"),
                &[concat!("connect:", $host, ":443"), "tls:evil.test", "receive"], "HTTP/1.1 40", Other(Open, CONNECT)),
            EgressCase::blocked(concat!("NE-21.socks-", $id), concat!($name, ", by SOCKS"),
                &[concat!("socks:", $host, ":443"), "tls:evil.test", "receive"], "socks 2", Other(Open, SOCKS)),
            EgressCase::blocked(concat!("NE-21.absolute-", $id), concat!($name, ", in an absolute URL"),
                &["proxy", concat!("send:GET http://", $host, r"/ HTTP/1.1\r\nHost: ", $host, r"\r\n\r\n"), "receive"],
                "HTTP/1.1 40", Other(Open, ABSOLUTE)),
            // Where every name is allowed, an invalid name still leads nowhere.
            EgressCase::blocked(concat!("NE-22.connect-", $id), concat!($name, ", where every host is allowed"),
                &[concat!("connect:", $host, ":443"), "tls:evil.test", "receive"], "HTTP/1.1 40", Other(Open, CONNECT))
                .under(Open),
            EgressCase::blocked(concat!("NE-22.socks-", $id), concat!($name, ", by SOCKS where every host is allowed"),
                &[concat!("socks:", $host, ":443"), "tls:evil.test", "receive"], "socks 2", Other(Open, SOCKS)).under(Open),
        )*]
    };
}

/// Each spelling of a denied name, where all others are allowed.
macro_rules! denied {
    ($($id:literal $name:literal $host:literal $sni:literal,)*) => {
        &[$(
            EgressCase::blocked(concat!("NE-23.connect-", $id), concat!($name, ", by `CONNECT`"),
                &[concat!("connect:", $host, ":443"), concat!("tls:", $sni), r"send:GET / HTTP/1.1\r\nHost: x\r\n\r\n", "receive"],
                "HTTP/1.1 403", Same(Open)).under(Denying),
            EgressCase::blocked(concat!("NE-23.socks-", $id), concat!($name, ", by SOCKS"),
                &[concat!("socks:", $host, ":443"), concat!("tls:", $sni), r"send:GET / HTTP/1.1\r\nHost: x\r\n\r\n", "receive"],
                "socks 2", Same(Open)).under(Denying),
            EgressCase::blocked(concat!("NE-23.absolute-", $id), concat!($name, ", in an absolute URL"),
                &["proxy", concat!("send:GET http://", $host, r"/ HTTP/1.1\r\nHost: ", $host, r"\r\n\r\n"), "receive"],
                "HTTP/1.1 403", Same(Open)).under(Denying),
        )*]
    };
}

pub(super) const MISSPELT: &[EgressCase] = spelt![
    "user" "a user name before an unlisted name" "allowed.test@evil.test",
    "user-port" "a user name with a port before an unlisted name" "allowed.test:443@evil.test",
    "nul" "a NUL before the allowed end" r"evil.test\x00.allowed.test",
    "percent" "an escaped NUL before the allowed end" "evil.test%00.allowed.test",
    "percent-dot" "an escaped dot" "evil%2etest",
    "hash" "a fragment" "evil.test#.allowed.test",
    "question" "a query" "evil.test?.allowed.test",
    "slash" "a slash" "evil.test/.allowed.test",
    "backslash" "a backslash" r"evil.test\\.allowed.test",
    "tab" "a tab" r"evil.test\t.allowed.test",
    "crlf" "a CRLF" r"evil.test\r\n.allowed.test",
    "space" "a space" "evil.test allowed.test",
    "comma" "two names" "evil.test,allowed.test",
    "underscore" "a character no host name has" "evil_x.test",
    "wide" "full-width letters" r"\xef\xbd\x85vil.test",
    "stop" "an ideographic full stop" r"evil\xe3\x80\x82test",
    "puny" "invalid punycode" "xn--.test-",
    "empty" "an empty label" "evil..test",
    "long" "a label that is too long" "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa.evil.test",
    "hex" "an address in hexadecimal" "0x7f.1",
    "hex-whole" "an address as one hexadecimal number" "0x7f000001",
    "octal" "an address in octal" "0177.0.0.1",
    "decimal" "an address as one number" "2130706433",
    "short" "an address with omitted parts" "127.1",
    "zero" "the shortest address" "0",
    "dotted" "an address with a trailing dot" "127.0.0.1.",
    "mapped" "an IPv4-mapped address" "[::ffff:127.0.0.1]",
    "mapped-hex" "an IPv4-mapped address in hexadecimal" "[::ffff:7f00:1]",
    "compatible" "an IPv4-compatible address" "[::127.0.0.1]",
    "zone" "an address with a zone" "[fe80::1%25eth0]",
    "bare" "an IPv6 address without brackets" "::1",
    "half" "an unclosed bracket" "[::1",
];

pub(super) const DENIED: &[EgressCase] = denied![
    "upper" "a denied name in capitals" "EVIL.TEST" "evil.test",
    "dot" "a denied name with a trailing dot" "evil.test." "evil.test",
    "both" "both" "eViL.TeSt." "evil.test",
    "below" "a subdomain of a denied name" "a.b.canary.test" "a.b.canary.test",
    "below-upper" "a subdomain of a denied name in capitals" "A.CANARY.TEST." "a.canary.test",
];

pub(super) const OTHERS: &[EgressCase] = &[
    EgressCase::blocked(
        "NE-21.injected",
        "a second request head inside the name",
        &["proxy", r"send:CONNECT evil.test:443 HTTP/1.1\r\nHost: allowed.test:443\r\n\r\n", "receive"],
        "HTTP/1.1 400",
        Other(Open, CONNECT),
    ),
    EgressCase::blocked(
        "NE-21.twice",
        "two `Host` headers in a `CONNECT`",
        &[
            "proxy",
            r"send:CONNECT evil.test:443 HTTP/1.1\r\nHost: evil.test:443\r\nHost: allowed.test\r\n\r\n",
            "receive",
        ],
        "HTTP/1.1 400",
        Other(Open, CONNECT),
    ),
    EgressCase::blocked(
        "NE-21.body",
        "a `CONNECT` with a body",
        &[
            "proxy",
            r"send:CONNECT allowed.test:443 HTTP/1.1\r\nHost: allowed.test:443\r\nContent-Length: 5\r\n\r\nhello",
            "receive",
        ],
        "HTTP/1.1 400",
        Other(Open, CONNECT),
    ),
    EgressCase::blocked(
        "NE-21.path",
        "a path in a `CONNECT`",
        &["connect:allowed.test:443/../evil.test:443", "receive"],
        "HTTP/1.1 40",
        Other(Open, CONNECT),
    ),
    EgressCase::blocked(
        "NE-21.scheme",
        "a URL with a scheme in a `CONNECT`",
        &["connect:https://evil.test:443", "receive"],
        "HTTP/1.1 40",
        Other(Open, CONNECT),
    ),
    EgressCase::blocked(
        "NE-21.three-slashes",
        "an absolute URL without a host",
        &["proxy", r"send:GET http:///evil.test/ HTTP/1.1\r\nHost: evil.test\r\n\r\n", "receive"],
        "HTTP/1.1 40",
        Other(Open, ABSOLUTE),
    ),
    EgressCase::blocked(
        "NE-21.other-scheme",
        "an absolute URL with another scheme",
        &["proxy", r"send:GET ftp://evil.test/ HTTP/1.1\r\nHost: evil.test\r\n\r\n", "receive"],
        "HTTP/1.1 40",
        Other(Open, ABSOLUTE),
    ),
    EgressCase::blocked(
        "NE-21.options",
        "an asterisk as the target",
        &["proxy", r"send:OPTIONS * HTTP/1.1\r\nHost: evil.test\r\n\r\n", "receive"],
        "HTTP/1.1 40",
        Other(Open, ABSOLUTE),
    ),
];
