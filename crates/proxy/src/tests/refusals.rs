//! Tests that what is not allowed reaches nothing outside, by every entry and in every spelling.

use ralph_core::policy::{Policy, PolicyMode};

use super::fixture::{PUBLIC, ProxyFixture, allowing};
use crate::dns::tests::query;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ProxyClientKind {
    Connect,
    Http,
    Socks,
    Dns,
}

const ALL: [ProxyClientKind; 4] =
    [ProxyClientKind::Connect, ProxyClientKind::Http, ProxyClientKind::Socks, ProxyClientKind::Dns];

/// Tries to reach a host and returns whether that worked.
async fn attempt(fixture: &ProxyFixture, by: ProxyClientKind, host: &str, port: u16) -> bool {
    match by {
        ProxyClientKind::Connect => fixture.connect(&format!("{host}:{port}")).await.1.contains(" 200 "),
        ProxyClientKind::Http => {
            let text = format!("GET http://{host}:{port}/ HTTP/1.1\r\nHost: {host}:{port}\r\n\r\n");
            fixture.exchange(text.as_bytes()).await.starts_with("HTTP/1.1 200 ")
        }
        ProxyClientKind::Socks => fixture.socks(host.as_bytes(), port).await.1 == 0,
        ProxyClientKind::Dns => {
            let labels: Vec<&[u8]> = host.strip_suffix('.').unwrap_or(host).split('.').map(str::as_bytes).collect();
            fixture.query_dns(&query(&labels, 1)).await.0 == 0
        }
    }
}

fn policy(mode: PolicyMode) -> Policy {
    let allow = ["allowed.test", "allowed.test:80", "allowed.test:8080", "*.wild.test"];
    Policy::parse(mode, &allow, &["denied.test", "bad.wild.test"]).unwrap()
}

const REFUSED_HOSTS: &[&str] = &[
    "evil.test",
    "denied.test",
    "bad.wild.test",
    "wild.test",
    "evilwild.test",
    "allowed.test.evil.test",
    "notallowed.test",
    "allowed.test..",
    ".allowed.test",
    "evil\0.allowed.test",
    "evil.test\0.allowed.test",
    "allowed.test\0.evil.test",
    "allowed.test@evil.test",
    "evil.test@allowed.test",
    "user:word@allowed.test",
    "allowed.test#.evil.test",
    "allowed.test%00.evil.test",
    "allowed.test/.evil.test",
    "allowed.test\\.evil.test",
    "allowed.test:443@evil.test",
    "allowed.test\r\nX: y",
    "allowed.test .evil.test",
    "allowed\u{3002}test",
    "\u{430}llowed.test",
    "xn--llowed-2nf.test",
    "all_owed.test",
    "1.1.1.1",
    "127.0.0.1",
    "127.1",
    "0x7f.1",
    "0x7f000001",
    "2130706433",
    "0177.0.0.1",
    "0.0.0.0",
    "169.254.169.254",
    "localhost",
    "[::1]",
    "[::]",
    "[::ffff:127.0.0.1]",
    "[::ffff:7f00:1]",
    "[::127.0.0.1]",
    "[64:ff9b::7f00:1]",
    "[fe80::1%25eth0]",
    "[fd00:ec2::254]",
];

#[tokio::test]
async fn hosts_without_a_rule_are_neither_resolved_nor_dialled() {
    for by in ALL {
        let fixture = ProxyFixture::new(policy(PolicyMode::Allowlist)).await;
        for (n, host) in REFUSED_HOSTS.iter().enumerate() {
            let port = if by == ProxyClientKind::Http { 80 } else { 443 };
            assert!(!attempt(&fixture, by, host, port).await, "{by:?} {host:?}");
            let decisions = fixture.decisions.all();
            assert!(decisions.len() > n && decisions.iter().all(|note| !note.allowed), "{by:?} {host:?} {decisions:?}");
            fixture.resolver.assert_untouched(&format!("{by:?} {host:?}"));
        }
    }
}

#[tokio::test]
async fn other_ports_are_neither_resolved_nor_dialled() {
    for by in [ProxyClientKind::Connect, ProxyClientKind::Http, ProxyClientKind::Socks] {
        let fixture = ProxyFixture::new(policy(PolicyMode::Allowlist)).await;
        for port in [0, 22, 25, 53, 81, 444, 853, 65535] {
            assert!(!attempt(&fixture, by, "allowed.test", port).await, "{by:?} {port}");
            fixture.resolver.assert_untouched(&format!("{by:?} {port}"));
        }
    }
}

#[tokio::test]
async fn policy_deny_refuses_everything() {
    for by in ALL {
        let fixture = ProxyFixture::new(policy(PolicyMode::Deny)).await;
        for (host, port) in [("allowed.test", 443), ("allowed.test", 80), ("a.wild.test", 443), (PUBLIC, 443)] {
            assert!(!attempt(&fixture, by, host, port).await, "{by:?} {host}");
            fixture.resolver.assert_untouched(&format!("{by:?} {host}"));
        }
    }
}

#[tokio::test]
async fn other_spellings_of_an_allowed_name_are_allowed() {
    for (by, port) in [
        (ProxyClientKind::Connect, 443),
        (ProxyClientKind::Http, 80),
        (ProxyClientKind::Http, 8080),
        (ProxyClientKind::Socks, 443),
        (ProxyClientKind::Connect, 8080),
    ] {
        for host in ["allowed.test", "ALLOWED.Test", "allowed.test."] {
            let fixture = ProxyFixture::new(policy(PolicyMode::Allowlist)).await;
            assert!(attempt(&fixture, by, host, port).await, "{by:?} {host} {:?}", fixture.decisions.lines());
            assert_eq!(fixture.resolver.queries(), ["allowed.test"]);
            assert_eq!(fixture.resolver.dials(), [format!("{PUBLIC}:{port}")]);
        }
    }
}

#[tokio::test]
async fn names_with_internal_addresses_are_resolved_once_and_refused() {
    for mode in [PolicyMode::Allowlist, PolicyMode::Open] {
        for (by, port) in [(ProxyClientKind::Connect, 443), (ProxyClientKind::Http, 80), (ProxyClientKind::Socks, 443)]
        {
            for host in ["inner.test", "loop.test", "meta.test", "mixed.test", "mapped.test", "nat64.test"] {
                let rules = [host.to_owned(), format!("{host}:80")];
                let fixture = ProxyFixture::new(Policy::parse(mode, &rules, &[]).unwrap()).await;
                assert!(!attempt(&fixture, by, host, port).await, "{by:?} {host}");
                assert_eq!((fixture.resolver.queries(), fixture.resolver.dials()), (vec![host.to_owned()], vec![]));
                let line = fixture.decisions.lines().concat();
                assert!(line.contains("no: its address is a"), "{line}");
            }
        }
    }
}

#[tokio::test]
async fn policy_open_still_refuses_internal_addresses() {
    let fixture = ProxyFixture::new(policy(PolicyMode::Open)).await;
    for host in ["127.0.0.1", "10.1.2.3", "169.254.169.254", "[::1]", "0.0.0.0", "100.100.100.200"] {
        for by in [ProxyClientKind::Connect, ProxyClientKind::Http, ProxyClientKind::Socks] {
            assert!(!attempt(&fixture, by, host, 8080).await, "{by:?} {host}");
            fixture.resolver.assert_untouched(&format!("{by:?} {host}"));
        }
    }
    assert!(attempt(&fixture, ProxyClientKind::Connect, "other.test", 8080).await);
    assert!(!attempt(&fixture, ProxyClientKind::Connect, "denied.test", 8080).await);
    assert_eq!(fixture.resolver.queries(), ["other.test"]);
}

#[tokio::test]
async fn a_rule_for_an_address_allows_only_that_address() {
    let fixture = ProxyFixture::new(allowing(&["127.0.0.1:8080", "loop.test:8080", "169.254.169.254:8080"])).await;
    assert!(attempt(&fixture, ProxyClientKind::Connect, "127.0.0.1", 8080).await);
    assert!(attempt(&fixture, ProxyClientKind::Socks, "loop.test", 8080).await);
    assert!(!attempt(&fixture, ProxyClientKind::Connect, "127.0.0.1", 443).await);
    assert!(!attempt(&fixture, ProxyClientKind::Connect, "127.0.0.2", 8080).await);
    assert!(!attempt(&fixture, ProxyClientKind::Connect, "169.254.169.254", 8080).await);
    assert_eq!(fixture.resolver.queries(), ["loop.test"]);
    assert_eq!(fixture.resolver.dials(), ["127.0.0.1:8080"; 2]);
}

#[tokio::test]
async fn the_checked_address_is_the_dialled_one() {
    let fixture = ProxyFixture::new(allowing(&["wrapped.test"])).await;
    assert!(attempt(&fixture, ProxyClientKind::Connect, "wrapped.test", 443).await);
    assert_eq!(fixture.resolver.dials(), [format!("{PUBLIC}:443")]);
    assert_eq!(fixture.decisions.all()[0].address, Some(PUBLIC.parse().unwrap()));
}

#[tokio::test]
async fn names_without_an_address_are_not_dialled() {
    let fixture = ProxyFixture::new(allowing(&["nowhere.test", "unknown.test"])).await;
    for host in ["nowhere.test", "unknown.test"] {
        assert!(fixture.connect(&format!("{host}:443")).await.1.starts_with("HTTP/1.1 502 Bad Gateway; ralph: "));
        assert_eq!(fixture.socks(host.as_bytes(), 443).await.1, 4);
    }
    assert_eq!(fixture.resolver.dials(), [""; 0]);
}

#[tokio::test]
async fn rules_about_requests_do_not_allow_tunnels() {
    let fixture = ProxyFixture::new(allowing(&["GET allowed.test/a", "GET allowed.test:80/a"])).await;
    assert!(!attempt(&fixture, ProxyClientKind::Connect, "allowed.test", 443).await);
    assert!(!attempt(&fixture, ProxyClientKind::Http, "allowed.test", 80).await);
    fixture.resolver.assert_untouched("neither was a request for /a");
    let answer = fixture.exchange(b"GET http://allowed.test/a HTTP/1.1\r\nHost: allowed.test\r\n\r\n").await;
    assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
}

#[tokio::test]
async fn a_refusal_names_the_allow_command() {
    let fixture = ProxyFixture::new(policy(PolicyMode::Allowlist)).await;
    let answer = fixture.exchange(b"CONNECT evil.test:443 HTTP/1.1\r\n\r\n").await;
    let line = "`evil.test:443` cannot be reached: no rule names it, and the network policy is `allowlist`; \
                a person can allow it with `ralph run --allow-host evil.test`";
    assert!(
        answer.starts_with(&format!("HTTP/1.1 403 Forbidden; ralph: {line}\r\nx-ralph-deny: {line}\r\n")),
        "{answer}"
    );
    assert!(answer.ends_with(&format!("\r\n\r\nralph: {line}\n")), "{answer}");
    assert_eq!(
        fixture.decisions.lines(),
        ["connect evil.test:443 no: no rule names it, and the network policy is `allowlist`"]
    );
}
