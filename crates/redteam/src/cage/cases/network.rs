//! Attacks on the empty network, from inside and from outside.

use ralph_sandbox::embedded::IsolationMechanism::{self, Landlock, Network};

use super::super::arena::SandboxArena;
use super::super::case::PayloadControl::{Host, IfSupported, Without};
use super::super::case::{SandboxAttack, SandboxAttackError, attack_verdict, require_control};
use crate::report::AttackVerdict;

const NO_V6: &str = "the host has no IPv6 loopback";
const NO_SCOPE: &str = "this kernel's Landlock does not support abstract sockets";

pub(super) const CASES: &[SandboxAttack] = &[
    reach_case("NE-05.v4", "a server on the host's loopback", |r, c| {
        Box::pin(reach_listener(r, c, r#""$PROBE" connect tcp "$V4""#))
    }),
    SandboxAttack::line(
        "NE-05.v6",
        "a server on the host's IPv6 loopback",
        r#"[ -n "$V6" ] && "$PROBE" connect tcp "$V6""#,
        IfSupported(&[Network], NO_V6),
    ),
    reach_case("NE-05.udp", "a datagram to the host's loopback", |r, c| {
        Box::pin(reach_listener(r, c, r#""$PROBE" connect udp "$UDP""#))
    }),
    reach_case("NE-05.any", "the host by the unspecified address", |r, c| {
        Box::pin(reach_listener(r, c, r#""$PROBE" connect tcp "0.0.0.0:${V4##*:}""#))
    }),
    reach_case("NE-05.mapped", "the host by an IPv4-mapped address", |r, c| {
        Box::pin(reach_listener(r, c, r#""$PROBE" connect tcp "[::ffff:127.0.0.1]:${V4##*:}""#))
    }),
    reach_case("NE-05.net127", "the host by another loopback address", |r, c| {
        Box::pin(reach_listener(r, c, r#""$PROBE" connect tcp "127.0.0.1:${V4##*:}""#))
    }),
    internet_case("NE-01.tcp", "TCP to the internet", |r, c| Box::pin(reach_internet(r, c, "tcp", "192.0.2.1:443"))),
    internet_case("NE-01.alternative", "TCP to a public name server", |r, c| {
        Box::pin(reach_internet(r, c, "tcp", "1.1.1.1:443"))
    }),
    internet_case("NE-03.udp", "UDP to the internet", |r, c| Box::pin(reach_internet(r, c, "udp", "192.0.2.1:443"))),
    internet_case("NE-06.docker", "the Docker gateway", |r, c| Box::pin(reach_internet(r, c, "tcp", "172.17.0.1:80"))),
    internet_case("NE-06.private", "a host in a private network", |r, c| {
        Box::pin(reach_internet(r, c, "tcp", "10.0.0.1:80"))
    }),
    internet_case("NE-06.lan", "a host in the local network", |r, c| {
        Box::pin(reach_internet(r, c, "tcp", "192.168.1.1:80"))
    }),
    internet_case("NE-07.metadata", "AWS metadata", |r, c| Box::pin(reach_internet(r, c, "tcp", "169.254.169.254:80"))),
    internet_case("NE-07.metadata6", "AWS metadata over IPv6", |r, c| {
        Box::pin(reach_internet(r, c, "tcp", "[fd00:ec2::254]:80"))
    }),
    internet_case("NE-07.alibaba", "Alibaba Cloud metadata", |r, c| {
        Box::pin(reach_internet(r, c, "tcp", "100.100.100.200:80"))
    }),
    internet_case("NE-07.azure", "Azure metadata", |r, c| Box::pin(reach_internet(r, c, "tcp", "168.63.129.16:80"))),
    internet_case("NE-14.v6", "TCP to the internet over IPv6", |r, c| {
        Box::pin(reach_internet(r, c, "tcp", "[2001:db8::1]:443"))
    }),
    internet_case("DN-03.udp", "a public name server", |r, c| Box::pin(reach_internet(r, c, "udp", "8.8.8.8:53"))),
    internet_case("DN-03.tcp", "a public name server over TCP", |r, c| {
        Box::pin(reach_internet(r, c, "tcp", "8.8.8.8:53"))
    }),
    internet_case("DN-03.tls", "a public name server over TLS", |r, c| {
        Box::pin(reach_internet(r, c, "tcp", "1.1.1.1:853"))
    }),
    internet_case("DN-10.multicast", "a multicast name query", |r, c| {
        Box::pin(reach_internet(r, c, "udp", "224.0.0.251:5353"))
    }),
    reach_case("DN-01.question", "a secret in a DNS query", |r, c| {
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
        "a network device besides the loopback",
        "tail -n +3 /proc/net/dev | grep -qv '^ *lo:' && echo GOT",
        IfSupported(&[Network], "the host has no other device either"),
    ),
    SandboxAttack::line(
        "NE-02.routes",
        "any route",
        "tail -n +2 /proc/net/route | grep -q . && echo GOT",
        IfSupported(&[Network], "the host has no route either"),
    ),
    SandboxAttack::line(
        "NE-02.neighbours",
        "other hosts on the network",
        "tail -n +2 /proc/net/tcp | grep -qi ' 0A ' && echo GOT",
        Without(&[Network]),
    ),
    SandboxAttack::call(
        "NE-04.icmp",
        "an unprivileged ping",
        "call socket 2 2 1",
        "EACCES",
        IfSupported(&[Network], "the host does not allow unprivileged pings"),
    ),
    SandboxAttack::line(
        "NE-09.stream",
        "a socket file of the host",
        r#""$PROBE" connect stream "$FOLDER/stream""#,
        Host,
    ),
    SandboxAttack::line(
        "NE-09.any",
        "any socket file",
        r#"find "$FOLDER" /run /dev /var -maxdepth 3 -type s 2>/dev/null | grep -q . && echo GOT"#,
        Host,
    ),
    SandboxAttack::line(
        "NE-09.inherited",
        "an inherited socket descriptor",
        "ls -l /proc/self/fd | grep -q 'socket:' && echo GOT",
        Without(&[IsolationMechanism::Descriptors]),
    ),
    SandboxAttack::line(
        "NE-10.datagram",
        "a datagram to a socket file of the host",
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
        "an abstract socket of the host, without the network namespace",
        r#""$PROBE" connect stream "$HIDDEN""#,
        IfSupported(&[Landlock], NO_SCOPE),
    )
    .landlock(6)
    .without_walls(&[Network]),
    SandboxAttack::line(
        "NE-11.bus",
        "the desktop's D-Bus",
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

/// Tries to reach a listener on the host: not a single packet may arrive, and without the network namespace one must.
async fn reach_listener(
    arena: &SandboxArena<'_>,
    case: &SandboxAttack,
    line: &str,
) -> Result<AttackVerdict, SandboxAttackError> {
    arena.listeners.hits();
    let printed = arena.run_inside(case.payload.without_walls, line).await?;
    let hits = arena.listeners.hits();
    if hits > 0 {
        return attack_verdict(true, format!("{hits} arrived: {printed}"));
    }
    let there = arena.run_inside(&[Network], line).await?;
    if line.contains("ffff") && there.contains("EAFNOSUPPORT") {
        return Err(SandboxAttackError::Skip(NO_V6.to_owned()));
    }
    require_control(
        &format!("nothing arrives without the network namespace either: {there}"),
        arena.listeners.hits() > 0,
    )?;
    attack_verdict(false, "")
}

/// Tries to reach a public address, which must fail because there is no route. The control uses the host's loopback
/// on a shared network: no control leaves the host.
async fn reach_internet(
    arena: &SandboxArena<'_>,
    case: &SandboxAttack,
    kind: &str,
    to: &str,
) -> Result<AttackVerdict, SandboxAttackError> {
    if arena.options()?.disabled_mechanisms.contains(&Network) {
        return Err(SandboxAttackError::Skip("the target shares the host's network: nothing is sent there".to_owned()));
    }
    let printed = arena.run_inside(case.payload.without_walls, &format!("\"$PROBE\" connect {kind} {to}")).await?;
    let refused = ["ENETUNREACH", "EADDRNOTAVAIL", "EAFNOSUPPORT"].contains(&printed.trim());
    if !refused {
        return attack_verdict(true, format!("answered `{}`", printed.trim()));
    }
    let known = if kind == "tcp" { "$V4" } else { "$UDP" };
    arena.listeners.hits();
    arena.run_inside(&[Network], &format!("\"$PROBE\" connect {kind} \"{known}\"")).await?;
    require_control("the same command reaches nothing on a shared network", arena.listeners.hits() > 0)?;
    attack_verdict(false, "")
}

/// Starts a listener in a sandbox for a few seconds, and returns its address.
async fn start_listener(
    arena: &SandboxArena<'_>,
    sandbox: &dyn ralph_sandbox::Sandbox,
    kind: &str,
) -> Result<String, SandboxAttackError> {
    let at = if kind == "tcp" { "0.0.0.0:0".to_owned() } else { format!("@inside-{}", arena.token) };
    let line = format!(
        "\"$PROBE\" listen {kind} {at} 8 > received & for i in $(seq 100); do grep -q listening received && break; sleep 0.05; done; cat received"
    );
    let printed = arena.run_text(sandbox, &line).await?;
    let place = printed.split_whitespace().nth(1).map(str::to_owned);
    place.ok_or_else(|| SandboxAttackError::Broken(format!("nothing listens: {printed}")))
}

async fn reach_other_sandbox(
    arena: &SandboxArena<'_>,
    case: &SandboxAttack,
    kind: &str,
) -> Result<AttackVerdict, SandboxAttackError> {
    let one = arena.fresh_sandbox(case.payload.without_walls).await?;
    let other = arena.fresh_sandbox(case.payload.without_walls).await?;
    let place = start_listener(arena, &*one, kind).await?;
    let to = if kind == "tcp" { format!("127.0.0.1:{place}") } else { place };
    let line = format!("\"$PROBE\" connect {kind} {to}");
    let printed = arena.run_text(&*other, &line).await?;
    let own = arena.run_text(&*one, &line).await?;
    one.destroy().await?;
    other.destroy().await?;
    require_control(&format!("not even its own sandbox reaches it: {own}"), own.starts_with("GOT"))?;
    attack_verdict(printed.starts_with("GOT"), printed)
}

async fn inbound(arena: &SandboxArena<'_>, case: &SandboxAttack) -> Result<AttackVerdict, SandboxAttackError> {
    let sandbox = arena.fresh_sandbox(case.payload.without_walls).await?;
    let place = start_listener(arena, &*sandbox, "tcp").await?;
    let line = format!("\"$PROBE\" connect tcp 127.0.0.1:{place}");
    let printed = arena.run_on_host(&line).await?;
    let own = arena.run_text(&*sandbox, &line).await?;
    sandbox.destroy().await?;
    require_control(&format!("not even its own sandbox reaches it: {own}"), own.starts_with("GOT"))?;
    attack_verdict(printed.starts_with("GOT"), printed)
}
