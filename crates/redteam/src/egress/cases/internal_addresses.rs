//! Ways inside: this machine, its neighbours and where clouds keep credentials, by address and by names that lead there.

use super::super::arena::{EgressArena, ample_ledger};
use super::super::case::EgressControl::{Host, Other};
use super::super::case::{EgressCase, case_verdict, require_control};
use super::super::policies::PolicyPreset::{self, Denying, Listing, Open, Strict};
use crate::report::AttackVerdict;

const HOST: &[&str] = &["tcp:{plain}", r"say:GET / HTTP/1.1\r\nHost: x\r\n\r\n", "hear"];

/// A public address by the same words, which is dialled where everything is open.
const CONNECT: &[&str] = &["connect:93.184.215.14:443", "tls:-", r"say:GET / HTTP/1.1\r\nHost: x\r\n\r\n", "hear"];
const SOCKS: &[&str] = &["socksip:93.184.215.14:443", "tls:-", r"say:GET / HTTP/1.1\r\nHost: x\r\n\r\n", "hear"];
const NAME: &[&str] =
    &["connect:evil.test:443", "tls:evil.test", r"say:GET / HTTP/1.1\r\nHost: evil.test\r\n\r\n", "hear"];

/// An inner address by `CONNECT`, SOCKS and an absolute address, where every public one is open.
macro_rules! address {
    ($($id:literal $name:literal $address:literal,)*) => {
        &[$(
            EgressCase::blocked(concat!($id, "-connect"), concat!($name, " by `CONNECT`"),
                &[concat!("connect:", $address, ":443"), "tls:-", "hear"], "HTTP/1.1 403", Other(Open, CONNECT))
                .under(Open),
            EgressCase::blocked(concat!($id, "-socks"), concat!($name, " by SOCKS"),
                &[concat!("socksip:", $address, ":443"), "tls:-", "hear"], "socks 2", Other(Open, SOCKS)).under(Open),
            EgressCase::blocked(concat!($id, "-absolute"), concat!($name, " in an absolute address"),
                &["door", concat!("say:GET http://", $address, r"/ HTTP/1.1\r\nHost: ", $address, r"\r\n\r\n"), "hear"],
                "HTTP/1.1 403", Other(Open, CONNECT)).under(Open),
        )*]
    };
}

/// A name that leads inside, under rules that allow the name.
macro_rules! leading {
    ($($id:literal $name:literal $host:literal $rules:expr,)*) => {
        &[$(
            EgressCase::custom($id, $name, |ground| Box::pin(resolves_inside(ground, $host, $rules))),
        )*]
    };
}

pub(super) const ADDRESSES: &[EgressCase] = address![
    "NE-05.v4" "the host's loopback" "127.0.0.1",
    "NE-05.v6" "the host's loopback over IPv6" "[::1]",
    "NE-05.other" "another loopback address" "127.8.8.8",
    "NE-05.any" "the address of nobody" "0.0.0.0",
    "NE-06.docker" "the gateway of containers" "172.17.0.1",
    "NE-06.private" "a private address" "10.0.0.5",
    "NE-06.lan" "a neighbour at home" "192.168.1.1",
    "NE-06.shared" "an address of the provider" "100.64.0.1",
    "NE-06.local" "a neighbour over IPv6" "[fd12::1]",
    "NE-06.link" "a neighbour on the wire" "[fe80::1]",
    "NE-06.multicast" "everybody at once" "224.0.0.1",
    "NE-06.nat64" "the loopback behind NAT64" "[64:ff9b::7f00:1]",
    "NE-06.sixtofour" "a private address behind 6to4" "[2002:a00:1::1]",
    "NE-07.aws" "the cloud's metadata" "169.254.169.254",
    "NE-07.ecs" "the metadata of containers" "169.254.170.2",
    "NE-07.aws6" "the cloud's metadata over IPv6" "[fd00:ec2::254]",
    "NE-07.alibaba-proxy" "another cloud's metadata" "100.100.100.200",
    "NE-07.azure-proxy" "a third cloud's metadata" "168.63.129.16",
    "NE-07.oracle" "a fourth cloud's metadata" "192.0.0.192",
];

pub(super) const NAMES: &[EgressCase] = leading![
    "NE-05.name" "a listed name that leads to the host's loopback" "loop.test" Strict,
    "NE-05.name6" "a name that leads there over IPv6" "loop6.test" Open,
    "NE-05.mapped-name" "a listed name that leads there by a mapped address" "mapped.test" Strict,
    "NE-05.nat64-name" "a name that leads there through NAT64" "nat64.test" Open,
    "NE-05.nobody-name" "a name that leads to nobody" "nobody.test" Open,
    "NE-06.private-name" "a listed name that leads to a private address" "private.test" Strict,
    "NE-06.home-name" "a name that leads home" "home.test" Open,
    "NE-06.docker-name" "the name of the host for containers, listed" "host.docker.internal" Strict,
    "NE-06.gateway-name" "the name of the gateway for containers" "gateway.docker.internal" Open,
    "NE-07.google" "a cloud's metadata by its name, listed" "metadata.google.internal" Strict,
    "NE-07.aws-name" "a name that leads to a cloud's metadata over IPv6" "aws.test" Open,
    "NE-07.alibaba-name" "a name that leads to another cloud's metadata" "alibaba.test" Open,
    "NE-07.azure-name" "a name that leads to a third cloud's metadata" "azure.test" Open,
];

pub(super) const OTHERS: &[EgressCase] = &[
    EgressCase::blocked("NE-05.direct", "a server of the host, straight", HOST, "failed at tcp", Host(HOST)),
    EgressCase::blocked(
        "NE-05.localhost",
        "the host by its name for itself",
        &["connect:localhost:443", "hear"],
        "HTTP/1.1 403",
        Other(Open, NAME),
    ),
    EgressCase::custom("NE-05.listed", "a server of the host that is not the one listed", |ground| {
        Box::pin(listed_loopback_port(ground))
    }),
    EgressCase::blocked(
        "NE-07.denied",
        "the cloud's metadata, denied by its address",
        &["connect:169.254.169.254:443", "tls:-", "hear"],
        "HTTP/1.1 403",
        Other(Open, CONNECT),
    )
    .under(Denying),
    EgressCase::blocked(
        "NE-07.listed",
        "the cloud's metadata, listed by its address",
        &["connect:169.254.169.254:443", "tls:-", "hear"],
        "HTTP/1.1 403",
        Other(Open, CONNECT),
    )
    .under(Listing("169.254.169.254")),
    EgressCase::custom("NE-04.ping", "a ping without rights", |ground| Box::pin(ping(ground))),
];

/// The name may be asked for, but nothing that it leads to may be dialled, by no way in.
async fn resolves_inside(
    ground: &EgressArena,
    host: &str,
    rules: PolicyPreset,
) -> Result<AttackVerdict, AttackVerdict> {
    let cage = ground.shared_cage(rules).await?;
    let mut asked = 0;
    for words in access_scripts(host) {
        let (told, happened) = ground.run_attack(&cage, &words).await?;
        asked += happened.queries.len();
        if !happened.dials.is_empty() || !happened.messages.is_empty() {
            return case_verdict(true, format!("{words:?}: {} and was told {told}", happened.summary()));
        }
    }
    require_control("the name was never asked for", asked > 0)?;
    // The same ways reach a recorder where the name leads to a public address.
    let open = ground.shared_cage(Open).await?;
    for words in access_scripts("evil.test") {
        let (told, happened) = ground.run_attack(&open, &words).await?;
        require_control(format!("{words:?}: {told}"), !happened.messages.is_empty())?;
    }
    case_verdict(false, "")
}

/// Every way to a name.
fn access_scripts(host: &str) -> [Vec<String>; 4] {
    let get = format!(r"say:GET / HTTP/1.1\r\nHost: {host}\r\n\r\n");
    let tls = format!("tls:{host}");
    let hear = "hear".to_owned();
    [
        vec![format!("connect:{host}:443"), tls.clone(), get.clone(), hear.clone()],
        vec![format!("socks:{host}:443"), tls.clone(), get.clone(), hear.clone()],
        vec![format!("name:{host}:443"), tls, get, hear.clone()],
        vec!["door".to_owned(), format!(r"say:GET http://{host}/ HTTP/1.1\r\nHost: {host}\r\n\r\n"), hear],
    ]
}

/// A rule for one port of the loopback opens that port and no other.
async fn listed_loopback_port(ground: &EgressArena) -> Result<AttackVerdict, AttackVerdict> {
    let cage = ground.new_cage(Listing("127.0.0.1:8080"), ample_ledger()).await?;
    let words = |port: u16| [format!("connect:127.0.0.1:{port}"), "say:hello".to_owned(), "hear".to_owned()];
    let (told, happened) = ground.run_attack(&cage, &words(8081)).await?;
    let (own, reached) = ground.run_attack(&cage, &words(8080)).await?;
    let _ = cage.sandbox.destroy().await;
    require_control(own, reached.received("hello"))?;
    case_verdict(!happened.is_empty(), format!("{} and was told {told}", happened.summary()))
}

/// Pings are a matter of the cage, doors or not; the socket is asked for on the host as well.
async fn ping(ground: &EgressArena) -> Result<AttackVerdict, AttackVerdict> {
    let cage = ground.shared_cage(Strict).await?;
    let (told, _) = ground.run_attack(&cage, &["ping"]).await?;
    let (there, _) = ground.run_on_host(&["ping"]).await?;
    if told.contains("made") {
        return case_verdict(true, told);
    }
    if !there.contains("made") {
        return Ok(AttackVerdict::Skipped("the host allows this user no ping either".to_owned()));
    }
    case_verdict(false, "")
}
