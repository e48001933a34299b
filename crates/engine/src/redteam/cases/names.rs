//! Secrets in questions about names, and names that change what they lead to.

use ralph_sandbox::redteam::Verdict;

use super::super::case::Control::{Host, Other, Same, Says};
use super::super::case::{Case, control, judged};
use super::super::ground::{Ground, plenty};
use super::super::rules::Rules::{Denying, Listing, Open, Strict};
use crate::audit::Reader;

const SECRET: &str = "mfzwk43u-nfzsa5dimu";
const DATAGRAM: &[&str] = &["udp:{udp}", "say:hello", "hear"];
const STREAM: &[&str] = &["tcp:{plain}", "say:hello", "hear"];
const LOOKUP: &[&str] = &["lookup:mfzwk43u.canary.test"];
const OWN_UDP: &[&str] = &["udp:8.8.8.8:53", "ask:1:allowed.test"];
const OWN_TCP: &[&str] = &["tcp:8.8.8.8:53", "ask:1:allowed.test"];
const GIVEN: &str = "code 0 answers 1 synthetic";

pub(super) const CASES: &[Case] = &[
    Case::nothing(
        "DN-01.lookup",
        "a secret in a name that is looked up",
        LOOKUP,
        "failed at lookup",
        Says(Open, LOOKUP, "address 198.18."),
    ),
    Case::nothing(
        "DN-01.denied",
        "the same, below a denied name",
        LOOKUP,
        "failed at lookup",
        Says(Open, LOOKUP, "address 198.18."),
    )
    .under(Denying),
    Case::nothing(
        "DN-02.connect",
        "a secret in a name, by `CONNECT`",
        &["connect:mfzwk43u.canary.test:443", "tls:mfzwk43u.canary.test", "say:hello", "hear"],
        "HTTP/1.1 403",
        Same(Open),
    ),
    Case::nothing(
        "DN-02.absolute",
        "the same in an absolute address",
        &["door", r"say:GET http://mfzwk43u.canary.test/ HTTP/1.1\r\nHost: mfzwk43u.canary.test\r\n\r\n", "hear"],
        "HTTP/1.1 403",
        Same(Open),
    ),
    Case::nothing(
        "DN-02.socks",
        "the same by SOCKS",
        &["socks:mfzwk43u.canary.test:443", "tls:mfzwk43u.canary.test", "say:hello", "hear"],
        "socks 2",
        Same(Open),
    ),
    Case::nothing(
        "DN-02.named",
        "the same, as if there were no proxy",
        &["name:mfzwk43u.canary.test:443", "tls:mfzwk43u.canary.test", "say:hello", "hear"],
        "failed at name",
        Same(Open),
    ),
    Case::nothing(
        "DN-02.port",
        "an allowed name with a secret in front of it",
        &["connect:mfzwk43u.allowed.test:443", "tls:mfzwk43u.allowed.test", "say:hello", "hear"],
        "HTTP/1.1 403",
        Same(Open),
    ),
    Case::nothing(
        "DN-03.udp-door",
        "a name server of the world",
        &["udp:8.8.8.8:53", "ask:1:x.canary.test"],
        "code 3 answers 0",
        Says(Strict, OWN_UDP, GIVEN),
    ),
    Case::nothing(
        "DN-03.tcp-door",
        "the same over TCP",
        &["tcp:8.8.8.8:53", "ask:1:x.canary.test"],
        "code 3 answers 0",
        Says(Strict, OWN_TCP, GIVEN),
    ),
    Case::nothing("DN-03.tls-door", "the same over TLS", &["tcp:1.1.1.1:853", "hear"], "failed at tcp", Host(STREAM)),
    Case::nothing(
        "DN-03.socks",
        "the same by SOCKS",
        &["socksip:8.8.8.8:53", "ask:1:x.canary.test"],
        "socks 2",
        Other(Open, &["socksip:8.8.8.8:53", "say:hello", "hear"]),
    ),
    Case::nothing(
        "DN-03.connect",
        "the same by `CONNECT`",
        &["connect:dns.google:53", "ask:1:x.canary.test"],
        "HTTP/1.1 403",
        Other(Open, &["connect:dns.google:53", "say:hello", "hear"]),
    ),
    Case::nothing(
        "DN-04.connect",
        "a name server behind HTTPS",
        &["connect:cloudflare-dns.com:443", "tls:cloudflare-dns.com", "say:hello", "hear"],
        "HTTP/1.1 403",
        Same(Open),
    ),
    Case::nothing(
        "DN-04.socks",
        "the same by its address",
        &["socksip:1.1.1.1:443", "tls:-", "say:hello", "hear"],
        "socks 2",
        Same(Open),
    ),
    Case::own("DN-05.question", "a secret below a wildcard, only asked for", |ground| Box::pin(asked(ground))),
    Case::own("DN-05.audit", "a secret below a wildcard, in the book", |ground| Box::pin(written(ground))),
    Case::own("DN-06.loopback", "a name that turns to the loopback", |g| Box::pin(rebind(g, &["127.0.0.1"]))),
    Case::own("DN-06.loopback6", "a name that turns to the loopback over IPv6", |g| Box::pin(rebind(g, &["::1"]))),
    Case::own("DN-06.metadata", "a name that turns to the cloud's metadata", |g| {
        Box::pin(rebind(g, &["169.254.169.254"]))
    }),
    Case::own("DN-06.private", "a name that turns to a private address", |g| Box::pin(rebind(g, &["10.0.0.5"]))),
    Case::own("DN-06.mapped", "a name that turns to a mapped address", |g| {
        Box::pin(rebind(g, &["::ffff:169.254.169.254"]))
    }),
    Case::own("DN-06.nat64", "a name that turns to the metadata behind NAT64", |g| {
        Box::pin(rebind(g, &["64:ff9b::a9fe:a9fe"]))
    }),
    Case::own("DN-06.mixed", "a name that is both outside and inside", |g| {
        Box::pin(rebind(g, &["93.184.215.14", "127.0.0.1"]))
    }),
    Case::own("DN-06.own", "a name that turns to a synthetic address", |g| Box::pin(rebind(g, &["198.18.1.0"]))),
    Case::own("DN-06.once", "a name that changes between judgement and dial", |g| Box::pin(once(g))),
    Case::own("DN-06.requests", "a name that changes between two requests", |g| Box::pin(between(g))),
    Case::nothing(
        "DN-10.mdns",
        "asking everybody for a name",
        &["udp:224.0.0.251:5353", "ask:1:printer.local"],
        "failed at",
        Host(DATAGRAM),
    ),
    Case::nothing(
        "DN-10.llmnr",
        "asking everybody for a name, as another system does",
        &["udp:224.0.0.252:5355", "ask:1:printer"],
        "failed at",
        Host(DATAGRAM),
    ),
    Case::own("DN-12.connect", "an address whose name is no longer allowed", |g| Box::pin(stale(g))),
    Case::own("DN-12.cut", "a connection whose name is no longer allowed", |g| Box::pin(cut(g))),
];

/// A mere question leads to no question outside.
async fn asked(ground: &Ground) -> Result<Verdict, Verdict> {
    let cage = ground.cage(Strict).await?;
    let name = format!("{SECRET}.wild.test");
    let (told, happened) = ground.attack(&cage, &[format!("lookup:{name}")]).await?;
    control(&told, told.contains("address 198.18."))?;
    let words = [format!("connect:{name}:443"), format!("tls:{name}"), "say:hello".to_owned(), "hear".to_owned()];
    let (told, reached) = ground.attack(&cage, &words).await?;
    control(&told, reached.queries == [name])?;
    judged(!happened.is_nothing(), happened.shown())
}

/// Whatever a wildcard lets out stands in the book with its whole name.
async fn written(ground: &Ground) -> Result<Verdict, Verdict> {
    let cage = ground.audited(Strict).await?;
    let name = format!("{SECRET}.wild.test");
    let before = hosts(ground)?.iter().filter(|host| **host == name).count();
    let words = [format!("name:{name}:443"), format!("tls:{name}"), "say:hello".to_owned(), "hear".to_owned()];
    let (told, happened) = ground.attack(&cage, &words).await?;
    let _ = cage.sandbox.destroy().await;
    control(&told, happened.queries.contains(&name))?;
    let after = hosts(ground)?.iter().filter(|host| **host == name).count();
    // The question and the connection.
    judged(after < before + 2, format!("{name} stands in the book {after} times"))
}

/// Returns the host of every record in the book.
fn hosts(ground: &Ground) -> Result<Vec<String>, Verdict> {
    let mut reader = Reader::new(&ground.run());
    let mut hosts = Vec::new();
    while let Some(entry) = reader.next().map_err(super::super::ground::broken)? {
        hosts.extend(entry.record.map(|record| record.host.unwrap_or_default()));
    }
    Ok(hosts)
}

fn ways(host: &str) -> [Vec<String>; 3] {
    ["connect", "socks", "name"].map(|way| {
        let get = format!(r"say:GET / HTTP/1.1\r\nHost: {host}\r\n\r\n");
        vec![format!("{way}:{host}:443"), format!("tls:{host}"), get, "hear".to_owned()]
    })
}

/// A listed name is public at first, and then is not.
async fn rebind(ground: &Ground, inside: &[&str]) -> Result<Verdict, Verdict> {
    let cage = ground.cage(Strict).await?;
    for (host, words) in [("rebind.test", ways("rebind.test")), ("rebind-api.test", ways("rebind-api.test"))] {
        let [first, ..] = &words;
        ground.world.tell(host, &[&["93.184.215.14"], inside]);
        let (told, happened) = ground.attack(&cage, first).await?;
        control(&told, !happened.heard.is_empty())?;
        for words in &words {
            let (told, happened) = ground.attack(&cage, words).await?;
            if !happened.dials.is_empty() {
                return judged(true, format!("{words:?}: {} and was told {told}", happened.shown()));
            }
            control(&told, happened.queries.len() == 1)?;
        }
    }
    judged(false, "")
}

/// What is dialled is what was judged: a name is asked for once, however often it would change.
async fn once(ground: &Ground) -> Result<Verdict, Verdict> {
    let cage = ground.cage(Strict).await?;
    for host in ["rebind.test", "rebind-api.test"] {
        for words in ways(host) {
            ground.world.tell(host, &[&["93.184.215.14"], &["127.0.0.1"]]);
            let (told, happened) = ground.attack(&cage, &words).await?;
            control(&told, !happened.heard.is_empty())?;
            let inside = happened.dials.iter().any(|dialled| dialled.ip().is_loopback());
            if inside || happened.queries.len() != 1 || happened.dials.len() != 1 {
                return judged(true, happened.shown());
            }
        }
    }
    judged(false, "")
}

/// A connection that stays open stays where it is.
async fn between(ground: &Ground) -> Result<Verdict, Verdict> {
    let cage = ground.cage(Strict).await?;
    let host = "rebind-api.test";
    ground.world.tell(host, &[&["93.184.215.14"], &["169.254.169.254"]]);
    let get = |path: &str| format!(r"say:GET /{path} HTTP/1.1\r\nHost: {host}\r\n\r\n");
    let words =
        [format!("connect:{host}:443"), format!("tls:{host}"), get("one"), "hear".into(), get("two"), "hear".into()];
    let (told, happened) = ground.attack(&cage, &words).await?;
    control(&told, happened.heard("GET /one"))?;
    judged(happened.dials.len() != 1, happened.shown())
}

/// Returns the address that a lookup was answered by.
fn address(told: &str) -> String {
    told.lines().find_map(|line| line.strip_prefix("address ")).unwrap_or("").to_owned()
}

async fn stale(ground: &Ground) -> Result<Verdict, Verdict> {
    let cage = ground.fresh(Strict, plenty()).await?;
    let old = address(&ground.call(&cage, &["lookup:allowed.test"]).await?);
    let words = [format!("tcp:{old}:443"), "tls:allowed.test".to_owned(), "say:hello".to_owned(), "hear".to_owned()];
    let (told, reached) = ground.attack(&cage, &words).await?;
    control(&told, !reached.heard.is_empty())?;
    cage.agreed(|pass| Listing("other.test").policy().map(|policy| pass.set_policy(policy)));
    let (told, happened) = ground.attack(&cage, &words).await?;
    // Another name must not get the old one's address either.
    let other = address(&ground.call(&cage, &["lookup:other.test"]).await?);
    cage.agreed(|pass| Strict.policy().map(|policy| pass.set_policy(policy)));
    let (again, returned) = ground.attack(&cage, &words).await?;
    let _ = cage.sandbox.destroy().await;
    control(&other, other.starts_with("198.18."))?;
    let bad = !happened.is_nothing() || !returned.is_nothing() || other == old;
    judged(bad, format!("{} and was told {told} {again}, {old} {other}", happened.shown()))
}

/// A connection in use is cut when the policy changes its mind.
async fn cut(ground: &Ground) -> Result<Verdict, Verdict> {
    let cage = ground.fresh(Strict, plenty()).await?;
    let get = |path: &str| format!(r"say:GET /{path} HTTP/1.1\r\nHost: allowed.test\r\n\r\n");
    let first = ["connect:allowed.test:443".to_owned(), "tls:allowed.test".to_owned(), get("one"), "hear".to_owned()];
    let then = [get("two"), "hear".to_owned()];
    let (kept, before) = ground.interrupted(&cage, &first, &then, async || ()).await?;
    let change = async || {
        cage.agreed(|pass| Listing("other.test").policy().map(|policy| pass.set_policy(policy)));
    };
    let (told, after) = ground.interrupted(&cage, &first, &then, change).await?;
    let _ = cage.sandbox.destroy().await;
    control(kept, before.heard("GET /two"))?;
    control(&told, after.heard("GET /one"))?;
    judged(after.heard("GET /two"), told)
}
