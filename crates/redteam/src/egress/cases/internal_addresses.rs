//! Attacks on internal addresses: this machine, its network and cloud metadata, by address and by names that resolve
//! to them.

use super::super::arena::{EgressArena, ample_ledger};
use super::super::case::EgressControl::{Host, Other};
use super::super::case::{EgressCase, case_verdict, require_control};
use super::super::policies::PolicyPreset::{self, Denying, Listing, Open, Strict};
use crate::report::AttackVerdict;

const HOST: &[&str] = &["tcp:{plain}", r"send:GET / HTTP/1.1\r\nHost: x\r\n\r\n", "receive"];

/// The same request to a public address, which is dialled where everything is allowed.
const CONNECT: &[&str] = &["connect:93.184.215.14:443", "tls:-", r"send:GET / HTTP/1.1\r\nHost: x\r\n\r\n", "receive"];
const SOCKS: &[&str] = &["socksip:93.184.215.14:443", "tls:-", r"send:GET / HTTP/1.1\r\nHost: x\r\n\r\n", "receive"];
const NAME: &[&str] =
    &["connect:evil.test:443", "tls:evil.test", r"send:GET / HTTP/1.1\r\nHost: evil.test\r\n\r\n", "receive"];

/// An internal address by `CONNECT`, SOCKS and an absolute URL, where every public address is allowed.
macro_rules! address {
    ($($id:literal $name:literal $address:literal,)*) => {
        &[$(
            EgressCase::blocked(concat!($id, "-connect"), concat!($name, " by `CONNECT`"),
                &[concat!("connect:", $address, ":443"), "tls:-", "receive"], "HTTP/1.1 403", Other(Open, CONNECT))
                .under(Open),
            EgressCase::blocked(concat!($id, "-socks"), concat!($name, " by SOCKS"),
                &[concat!("socksip:", $address, ":443"), "tls:-", "receive"], "socks 2", Other(Open, SOCKS)).under(Open),
            EgressCase::blocked(concat!($id, "-absolute"), concat!($name, " in an absolute URL"),
                &["proxy", concat!("send:GET http://", $address, r"/ HTTP/1.1\r\nHost: ", $address, r"\r\n\r\n"), "receive"],
                "HTTP/1.1 403", Other(Open, CONNECT)).under(Open),
        )*]
    };
}

/// A name that resolves to an internal address, under a policy that allows the name.
macro_rules! leading {
    ($($id:literal $name:literal $host:literal $rules:expr,)*) => {
        &[$(
            EgressCase::custom($id, $name, |arena| Box::pin(resolves_inside(arena, $host, $rules))),
        )*]
    };
}

pub(super) const ADDRESSES: &[EgressCase] = address![
    "NE-05.v4" "the host's loopback" "127.0.0.1",
    "NE-05.v6" "the host's loopback over IPv6" "[::1]",
    "NE-05.other" "another loopback address" "127.8.8.8",
    "NE-05.any" "the unspecified address" "0.0.0.0",
    "NE-06.docker" "the Docker gateway" "172.17.0.1",
    "NE-06.private" "a private address" "10.0.0.5",
    "NE-06.lan" "a host in the local network" "192.168.1.1",
    "NE-06.shared" "a carrier-grade NAT address" "100.64.0.1",
    "NE-06.local" "a unique local IPv6 address" "[fd12::1]",
    "NE-06.link" "a link-local IPv6 address" "[fe80::1]",
    "NE-06.multicast" "a multicast address" "224.0.0.1",
    "NE-06.nat64" "the loopback behind NAT64" "[64:ff9b::7f00:1]",
    "NE-06.sixtofour" "a private address behind 6to4" "[2002:a00:1::1]",
    "NE-07.aws" "AWS metadata" "169.254.169.254",
    "NE-07.ecs" "AWS ECS metadata" "169.254.170.2",
    "NE-07.aws6" "AWS metadata over IPv6" "[fd00:ec2::254]",
    "NE-07.alibaba-proxy" "Alibaba Cloud metadata" "100.100.100.200",
    "NE-07.azure-proxy" "Azure metadata" "168.63.129.16",
    "NE-07.oracle" "Oracle Cloud metadata" "192.0.0.192",
];

pub(super) const NAMES: &[EgressCase] = leading![
    "NE-05.name" "a listed name that resolves to the host's loopback" "loop.test" Strict,
    "NE-05.name6" "a name that resolves to the IPv6 loopback" "loop6.test" Open,
    "NE-05.mapped-name" "a listed name that resolves to an IPv4-mapped loopback address" "mapped.test" Strict,
    "NE-05.nat64-name" "a name that resolves to the loopback through NAT64" "nat64.test" Open,
    "NE-05.nobody-name" "a name that resolves to the unspecified address" "nobody.test" Open,
    "NE-06.private-name" "a listed name that resolves to a private address" "private.test" Strict,
    "NE-06.home-name" "a name that resolves to the local network" "home.test" Open,
    "NE-06.docker-name" "Docker's name for the host, listed" "host.docker.internal" Strict,
    "NE-06.gateway-name" "Docker's name for the gateway" "gateway.docker.internal" Open,
    "NE-07.google" "Google Cloud metadata by its name, listed" "metadata.google.internal" Strict,
    "NE-07.aws-name" "a name that resolves to AWS metadata over IPv6" "aws.test" Open,
    "NE-07.alibaba-name" "a name that resolves to Alibaba Cloud metadata" "alibaba.test" Open,
    "NE-07.azure-name" "a name that resolves to Azure metadata" "azure.test" Open,
];

pub(super) const OTHERS: &[EgressCase] = &[
    EgressCase::blocked("NE-05.direct", "a server of the host, directly", HOST, "failed at tcp", Host(HOST)),
    EgressCase::blocked(
        "NE-05.localhost",
        "the host as `localhost`",
        &["connect:localhost:443", "receive"],
        "HTTP/1.1 403",
        Other(Open, NAME),
    ),
    EgressCase::custom("NE-05.listed", "a server of the host that is not the one listed", |arena| {
        Box::pin(listed_loopback_port(arena))
    }),
    EgressCase::blocked(
        "NE-07.denied",
        "cloud metadata, denied by its address",
        &["connect:169.254.169.254:443", "tls:-", "receive"],
        "HTTP/1.1 403",
        Other(Open, CONNECT),
    )
    .under(Denying),
    EgressCase::blocked(
        "NE-07.listed",
        "cloud metadata, listed by its address",
        &["connect:169.254.169.254:443", "tls:-", "receive"],
        "HTTP/1.1 403",
        Other(Open, CONNECT),
    )
    .under(Listing("169.254.169.254")),
    EgressCase::custom("NE-04.ping", "an unprivileged ping", |arena| Box::pin(ping(arena))),
];

/// Checks that the name may be resolved, but that its address is never dialled, by any kind of connection.
async fn resolves_inside(arena: &EgressArena, host: &str, rules: PolicyPreset) -> Result<AttackVerdict, AttackVerdict> {
    let cage = arena.shared_cage(rules).await?;
    let mut asked = 0;
    for words in access_scripts(host) {
        let (reply, happened) = arena.run_attack(&cage, &words).await?;
        asked += happened.queries.len();
        if !happened.dials.is_empty() || !happened.messages.is_empty() {
            return case_verdict(true, format!("{words:?}: {} and the client got {reply}", happened.summary()));
        }
    }
    require_control("the name was never resolved", asked > 0)?;
    // The same connections reach a recorder where the name resolves to a public address.
    let open = arena.shared_cage(Open).await?;
    for words in access_scripts("evil.test") {
        let (reply, happened) = arena.run_attack(&open, &words).await?;
        require_control(format!("{words:?}: {reply}"), !happened.messages.is_empty())?;
    }
    case_verdict(false, "")
}

/// Returns every way to connect to a name.
fn access_scripts(host: &str) -> [Vec<String>; 4] {
    let get = format!(r"send:GET / HTTP/1.1\r\nHost: {host}\r\n\r\n");
    let tls = format!("tls:{host}");
    let receive = "receive".to_owned();
    [
        vec![format!("connect:{host}:443"), tls.clone(), get.clone(), receive.clone()],
        vec![format!("socks:{host}:443"), tls.clone(), get.clone(), receive.clone()],
        vec![format!("name:{host}:443"), tls, get, receive.clone()],
        vec!["proxy".to_owned(), format!(r"send:GET http://{host}/ HTTP/1.1\r\nHost: {host}\r\n\r\n"), receive],
    ]
}

/// Checks that a rule for one port of the loopback allows that port and no other.
async fn listed_loopback_port(arena: &EgressArena) -> Result<AttackVerdict, AttackVerdict> {
    let cage = arena.new_cage(Listing("127.0.0.1:8080"), ample_ledger()).await?;
    let words = |port: u16| [format!("connect:127.0.0.1:{port}"), "send:hello".to_owned(), "receive".to_owned()];
    let (reply, happened) = arena.run_attack(&cage, &words(8081)).await?;
    let (own, reached) = arena.run_attack(&cage, &words(8080)).await?;
    let _ = cage.sandbox.destroy().await;
    require_control(own, reached.received("hello"))?;
    case_verdict(!happened.is_empty(), format!("{} and the client got {reply}", happened.summary()))
}

/// Checks an unprivileged ping, which the cage must refuse, with or without listeners; the control opens the socket
/// on the host.
async fn ping(arena: &EgressArena) -> Result<AttackVerdict, AttackVerdict> {
    let cage = arena.shared_cage(Strict).await?;
    let (reply, _) = arena.run_attack(&cage, &["ping"]).await?;
    let (there, _) = arena.run_on_host(&["ping"]).await?;
    if reply.contains("made") {
        return case_verdict(true, reply);
    }
    if !there.contains("made") {
        return Ok(AttackVerdict::Skipped("the host does not allow this user to ping either".to_owned()));
    }
    case_verdict(false, "")
}
