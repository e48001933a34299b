//! Ways out of an empty network, and into it.

use ralph_sandbox::embedded::IsolationMechanism::{self, Landlock, Network};

use super::super::arena::SandboxArena;
use super::super::case::PayloadControl::{Host, IfSupported, Without};
use super::super::case::{SandboxAttack, SandboxAttackError, attack_verdict, require_control};
use crate::report::AttackVerdict;

const NO_V6: &str = "the host has no IPv6 loopback";
const NO_SCOPE: &str = "this kernel's Landlock knows nothing of abstract sockets";

pub(super) const CASES: &[SandboxAttack] = &[
    reach_case("NE-05.v4", "a server on the host's loopback", |r, c| {
        Box::pin(reach_listener(r, c, r#""$PROBE" connect tcp "$V4""#))
    }),
    SandboxAttack::line(
        "NE-05.v6",
        "the same over IPv6",
        r#"[ -n "$V6" ] && "$PROBE" connect tcp "$V6""#,
        IfSupported(&[Network], NO_V6),
    ),
    reach_case("NE-05.udp", "a datagram to the host's loopback", |r, c| {
        Box::pin(reach_listener(r, c, r#""$PROBE" connect udp "$UDP""#))
    }),
    reach_case("NE-05.any", "the host by the address of nobody", |r, c| {
        Box::pin(reach_listener(r, c, r#""$PROBE" connect tcp "0.0.0.0:${V4##*:}""#))
    }),
    reach_case("NE-05.mapped", "the host by a mapped address", |r, c| {
        Box::pin(reach_listener(r, c, r#""$PROBE" connect tcp "[::ffff:127.0.0.1]:${V4##*:}""#))
    }),
    reach_case("NE-05.net127", "the host by another loopback address", |r, c| {
        Box::pin(reach_listener(r, c, r#""$PROBE" connect tcp "127.0.0.1:${V4##*:}""#))
    }),
    internet_case("NE-01.tcp", "TCP to the world", |r, c| Box::pin(reach_internet(r, c, "tcp", "192.0.2.1:443"))),
    internet_case("NE-01.alternative", "TCP to a name server", |r, c| {
        Box::pin(reach_internet(r, c, "tcp", "1.1.1.1:443"))
    }),
    internet_case("NE-03.udp", "UDP to the world", |r, c| Box::pin(reach_internet(r, c, "udp", "192.0.2.1:443"))),
    internet_case("NE-06.docker", "the gateway of containers", |r, c| {
        Box::pin(reach_internet(r, c, "tcp", "172.17.0.1:80"))
    }),
    internet_case("NE-06.private", "a neighbour in a private network", |r, c| {
        Box::pin(reach_internet(r, c, "tcp", "10.0.0.1:80"))
    }),
    internet_case("NE-06.lan", "a neighbour at home", |r, c| Box::pin(reach_internet(r, c, "tcp", "192.168.1.1:80"))),
    internet_case("NE-07.metadata", "the cloud's metadata", |r, c| {
        Box::pin(reach_internet(r, c, "tcp", "169.254.169.254:80"))
    }),
    internet_case("NE-07.metadata6", "the cloud's metadata over IPv6", |r, c| {
        Box::pin(reach_internet(r, c, "tcp", "[fd00:ec2::254]:80"))
    }),
    internet_case("NE-07.alibaba", "another cloud's metadata", |r, c| {
        Box::pin(reach_internet(r, c, "tcp", "100.100.100.200:80"))
    }),
    internet_case("NE-07.azure", "a third cloud's metadata", |r, c| {
        Box::pin(reach_internet(r, c, "tcp", "168.63.129.16:80"))
    }),
    internet_case("NE-14.v6", "TCP to the world over IPv6", |r, c| {
        Box::pin(reach_internet(r, c, "tcp", "[2001:db8::1]:443"))
    }),
    internet_case("DN-03.udp", "a name server of the world", |r, c| {
        Box::pin(reach_internet(r, c, "udp", "8.8.8.8:53"))
    }),
    internet_case("DN-03.tcp", "the same over TCP", |r, c| Box::pin(reach_internet(r, c, "tcp", "8.8.8.8:53"))),
    internet_case("DN-03.tls", "the same over TLS", |r, c| Box::pin(reach_internet(r, c, "tcp", "1.1.1.1:853"))),
    internet_case("DN-10.multicast", "asking everybody for a name", |r, c| {
        Box::pin(reach_internet(r, c, "udp", "224.0.0.251:5353"))
    }),
    reach_case("DN-01.question", "a secret in a question about a name", |r, c| {
        Box::pin(reach_listener(r, c, r#""$PROBE" ask-name "$UDP""#))
    }),
    SandboxAttack::line(
        "DN-01.resolver",
        "a name that the host knows",
        "getent hosts $(cat /proc/sys/kernel/hostname).canary.test >/dev/null; awk '/^nameserver/ && $2 !~ /^127\\./' /etc/resolv.conf | grep -q . && echo GOT",
        Host,
    ),
    SandboxAttack::line(
        "NE-02.devices",
        "a device beside the loopback",
        "tail -n +3 /proc/net/dev | grep -qv '^ *lo:' && echo GOT",
        IfSupported(&[Network], "the host has no other device either"),
    ),
    SandboxAttack::line(
        "NE-02.routes",
        "a route to anywhere",
        "tail -n +2 /proc/net/route | grep -q . && echo GOT",
        IfSupported(&[Network], "the host has no route either"),
    ),
    SandboxAttack::line(
        "NE-02.neighbours",
        "who else is on the network",
        "tail -n +2 /proc/net/tcp | grep -qi ' 0A ' && echo GOT",
        Without(&[Network]),
    ),
    SandboxAttack::call(
        "NE-04.icmp",
        "a ping without rights",
        "call socket 2 2 1",
        "EACCES",
        IfSupported(&[Network], "the host allows nobody to ping without rights"),
    ),
    SandboxAttack::line(
        "NE-09.stream",
        "a socket in the host's files",
        r#""$PROBE" connect stream "$FOLDER/stream""#,
        Host,
    ),
    SandboxAttack::line(
        "NE-09.any",
        "any socket in the files",
        r#"find "$FOLDER" /run /dev /var -maxdepth 3 -type s 2>/dev/null | grep -q . && echo GOT"#,
        Host,
    ),
    SandboxAttack::line(
        "NE-09.inherited",
        "a socket among the descriptors",
        "ls -l /proc/self/fd | grep -q 'socket:' && echo GOT",
        Without(&[IsolationMechanism::Descriptors]),
    ),
    SandboxAttack::line(
        "NE-10.datagram",
        "a datagram to the host's files",
        r#""$PROBE" connect datagram "$FOLDER/datagram""#,
        Host,
    ),
    SandboxAttack::line("NE-08.stream", "an abstract socket of the host", r#""$PROBE" connect stream "$HIDDEN""#, Host),
    SandboxAttack::line(
        "NE-08.datagram",
        "a datagram to an abstract socket of the host",
        r#""$PROBE" connect datagram "$HIDDEN-d""#,
        Host,
    ),
    SandboxAttack::line(
        "NE-08.scope",
        "an abstract socket of the host, without the empty network",
        r#""$PROBE" connect stream "$HIDDEN""#,
        IfSupported(&[Landlock], NO_SCOPE),
    )
    .landlock(6)
    .without_walls(&[Network]),
    SandboxAttack::line(
        "NE-11.bus",
        "the desktop's bus",
        r#"env | grep -q '^DBUS_' && echo GOT; ls /run/user/*/bus /run/dbus/system_bus_socket "$FOLDER/stream" 2>/dev/null | grep -q . && echo GOT"#,
        Host,
    ),
    SandboxAttack::custom("NE-13.sandboxes", "a server in another sandbox", &[Network], |r, c| {
        Box::pin(reach_other_sandbox(r, c, "tcp"))
    }),
    SandboxAttack::custom("NE-12.sandboxes", "an abstract socket in another sandbox", &[], |r, c| {
        Box::pin(reach_other_sandbox(r, c, "stream"))
    }),
    SandboxAttack::custom("NE-20.inbound", "a server inside, from the host", &[Network], |r, c| {
        Box::pin(inbound(r, c))
    }),
];

const fn reach_case(
    id: &'static str,
    name: &'static str,
    steps: super::super::case::SandboxAttackSteps,
) -> SandboxAttack {
    SandboxAttack::custom(id, name, &[Network], steps)
}

const fn internet_case(
    id: &'static str,
    name: &'static str,
    steps: super::super::case::SandboxAttackSteps,
) -> SandboxAttack {
    SandboxAttack::custom(id, name, &[], steps)
}

/// Tries to reach a recorder on the host: not a single packet may arrive, and without the wall one does.
async fn reach_listener(
    range: &SandboxArena<'_>,
    case: &SandboxAttack,
    line: &str,
) -> Result<AttackVerdict, SandboxAttackError> {
    range.listeners.hits();
    let told = range.run_inside(case.payload.without_walls, line).await?;
    let hits = range.listeners.hits();
    if hits > 0 {
        return attack_verdict(true, format!("{hits} arrived: {told}"));
    }
    let there = range.run_inside(&[Network], line).await?;
    if line.contains("ffff") && there.contains("EAFNOSUPPORT") {
        return Err(SandboxAttackError::Skip(NO_V6.to_owned()));
    }
    require_control(
        &format!("the host's recorder hears nothing without the wall either: {there}"),
        range.listeners.hits() > 0,
    )?;
    attack_verdict(false, "")
}

/// Tries to reach an address of the world, which must be refused for want of any route. That the same words do
/// reach something where the network is shared is shown on the host's loopback: no control leaves the host.
async fn reach_internet(
    range: &SandboxArena<'_>,
    case: &SandboxAttack,
    kind: &str,
    to: &str,
) -> Result<AttackVerdict, SandboxAttackError> {
    if range.options()?.disabled_mechanisms.contains(&Network) {
        return Err(SandboxAttackError::Skip("the target shares the host's network: nothing is sent there".to_owned()));
    }
    let told = range.run_inside(case.payload.without_walls, &format!("\"$PROBE\" connect {kind} {to}")).await?;
    let refused = ["ENETUNREACH", "EADDRNOTAVAIL", "EAFNOSUPPORT"].contains(&told.trim());
    if !refused {
        return attack_verdict(true, format!("answered `{}`", told.trim()));
    }
    let known = if kind == "tcp" { "$V4" } else { "$UDP" };
    range.listeners.hits();
    range.run_inside(&[Network], &format!("\"$PROBE\" connect {kind} \"{known}\"")).await?;
    require_control("the same words reach nothing on a shared network", range.listeners.hits() > 0)?;
    attack_verdict(false, "")
}

/// Starts a listener in a sandbox that stays for a while, and returns where it listens.
async fn start_listener(
    range: &SandboxArena<'_>,
    sandbox: &dyn ralph_sandbox::Sandbox,
    kind: &str,
) -> Result<String, SandboxAttackError> {
    let at = if kind == "tcp" { "0.0.0.0:0".to_owned() } else { format!("@inside-{}", range.token) };
    let line = format!(
        "\"$PROBE\" listen {kind} {at} 8 > heard & for i in $(seq 100); do grep -q listening heard && break; sleep 0.05; done; cat heard"
    );
    let told = range.run_text(sandbox, &line).await?;
    let place = told.split_whitespace().nth(1).map(str::to_owned);
    place.ok_or_else(|| SandboxAttackError::Broken(format!("nothing listens: {told}")))
}

async fn reach_other_sandbox(
    range: &SandboxArena<'_>,
    case: &SandboxAttack,
    kind: &str,
) -> Result<AttackVerdict, SandboxAttackError> {
    let one = range.fresh_sandbox(case.payload.without_walls).await?;
    let other = range.fresh_sandbox(case.payload.without_walls).await?;
    let place = start_listener(range, &*one, kind).await?;
    let to = if kind == "tcp" { format!("127.0.0.1:{place}") } else { place };
    let line = format!("\"$PROBE\" connect {kind} {to}");
    let told = range.run_text(&*other, &line).await?;
    let own = range.run_text(&*one, &line).await?;
    one.destroy().await?;
    other.destroy().await?;
    require_control(&format!("not even its own sandbox reaches it: {own}"), own.starts_with("GOT"))?;
    attack_verdict(told.starts_with("GOT"), told)
}

async fn inbound(range: &SandboxArena<'_>, case: &SandboxAttack) -> Result<AttackVerdict, SandboxAttackError> {
    let sandbox = range.fresh_sandbox(case.payload.without_walls).await?;
    let place = start_listener(range, &*sandbox, "tcp").await?;
    let line = format!("\"$PROBE\" connect tcp 127.0.0.1:{place}");
    let told = range.run_on_host(&line).await?;
    let own = range.run_text(&*sandbox, &line).await?;
    sandbox.destroy().await?;
    require_control(&format!("not even its own sandbox reaches it: {own}"), own.starts_with("GOT"))?;
    attack_verdict(told.starts_with("GOT"), told)
}
