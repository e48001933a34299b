//! Ways out of an empty network, and into it.

use super::super::case::Control::{Host, Maybe, Without};
use super::super::case::{Case, Trouble, control, judged};
use super::super::range::Range;
use super::super::report::Verdict;
use crate::embedded::Wall::{self, Landlock, Network};

const NO_V6: &str = "the host has no IPv6 loopback";
const NO_SCOPE: &str = "this kernel's Landlock knows nothing of abstract sockets";

pub(super) const CASES: &[Case] = &[
    recorded("NE-05.v4", "a server on the host's loopback", |r, c| {
        Box::pin(reach(r, c, r#""$PROBE" connect tcp "$V4""#))
    }),
    Case::line(
        "NE-05.v6",
        "the same over IPv6",
        r#"[ -n "$V6" ] && "$PROBE" connect tcp "$V6""#,
        Maybe(&[Network], NO_V6),
    ),
    recorded("NE-05.udp", "a datagram to the host's loopback", |r, c| {
        Box::pin(reach(r, c, r#""$PROBE" connect udp "$UDP""#))
    }),
    recorded("NE-05.any", "the host by the address of nobody", |r, c| {
        Box::pin(reach(r, c, r#""$PROBE" connect tcp "0.0.0.0:${V4##*:}""#))
    }),
    recorded("NE-05.mapped", "the host by a mapped address", |r, c| {
        Box::pin(reach(r, c, r#""$PROBE" connect tcp "[::ffff:127.0.0.1]:${V4##*:}""#))
    }),
    recorded("NE-05.net127", "the host by another loopback address", |r, c| {
        Box::pin(reach(r, c, r#""$PROBE" connect tcp "127.0.0.1:${V4##*:}""#))
    }),
    unrouted("NE-01.tcp", "TCP to the world", |r, c| Box::pin(leave(r, c, "tcp", "192.0.2.1:443"))),
    unrouted("NE-01.alternative", "TCP to a name server", |r, c| Box::pin(leave(r, c, "tcp", "1.1.1.1:443"))),
    unrouted("NE-03.udp", "UDP to the world", |r, c| Box::pin(leave(r, c, "udp", "192.0.2.1:443"))),
    unrouted("NE-06.docker", "the gateway of containers", |r, c| Box::pin(leave(r, c, "tcp", "172.17.0.1:80"))),
    unrouted("NE-06.private", "a neighbour in a private network", |r, c| Box::pin(leave(r, c, "tcp", "10.0.0.1:80"))),
    unrouted("NE-06.lan", "a neighbour at home", |r, c| Box::pin(leave(r, c, "tcp", "192.168.1.1:80"))),
    unrouted("NE-07.metadata", "the cloud's metadata", |r, c| Box::pin(leave(r, c, "tcp", "169.254.169.254:80"))),
    unrouted("NE-07.metadata6", "the cloud's metadata over IPv6", |r, c| {
        Box::pin(leave(r, c, "tcp", "[fd00:ec2::254]:80"))
    }),
    unrouted("NE-07.alibaba", "another cloud's metadata", |r, c| Box::pin(leave(r, c, "tcp", "100.100.100.200:80"))),
    unrouted("NE-07.azure", "a third cloud's metadata", |r, c| Box::pin(leave(r, c, "tcp", "168.63.129.16:80"))),
    unrouted("NE-14.v6", "TCP to the world over IPv6", |r, c| Box::pin(leave(r, c, "tcp", "[2001:db8::1]:443"))),
    unrouted("DN-03.udp", "a name server of the world", |r, c| Box::pin(leave(r, c, "udp", "8.8.8.8:53"))),
    unrouted("DN-03.tcp", "the same over TCP", |r, c| Box::pin(leave(r, c, "tcp", "8.8.8.8:53"))),
    unrouted("DN-03.tls", "the same over TLS", |r, c| Box::pin(leave(r, c, "tcp", "1.1.1.1:853"))),
    unrouted("DN-10.multicast", "asking everybody for a name", |r, c| Box::pin(leave(r, c, "udp", "224.0.0.251:5353"))),
    recorded("DN-01.question", "a secret in a question about a name", |r, c| {
        Box::pin(reach(r, c, r#""$PROBE" ask-name "$UDP""#))
    }),
    Case::line(
        "DN-01.resolver",
        "a name that the host knows",
        "getent hosts $(cat /proc/sys/kernel/hostname).canary.test >/dev/null; awk '/^nameserver/ && $2 !~ /^127\\./' /etc/resolv.conf | grep -q . && echo GOT",
        Host,
    ),
    Case::line(
        "NE-02.devices",
        "a device beside the loopback",
        "tail -n +3 /proc/net/dev | grep -qv '^ *lo:' && echo GOT",
        Maybe(&[Network], "the host has no other device either"),
    ),
    Case::line(
        "NE-02.routes",
        "a route to anywhere",
        "tail -n +2 /proc/net/route | grep -q . && echo GOT",
        Maybe(&[Network], "the host has no route either"),
    ),
    Case::line(
        "NE-02.neighbours",
        "who else is on the network",
        "tail -n +2 /proc/net/tcp | grep -qi ' 0A ' && echo GOT",
        Without(&[Network]),
    ),
    Case::call(
        "NE-04.icmp",
        "a ping without rights",
        "call socket 2 2 1",
        "EACCES",
        Maybe(&[Network], "the host allows nobody to ping without rights"),
    ),
    Case::line("NE-09.stream", "a socket in the host's files", r#""$PROBE" connect stream "$FOLDER/stream""#, Host),
    Case::line(
        "NE-09.any",
        "any socket in the files",
        r#"find "$FOLDER" /run /dev /var -maxdepth 3 -type s 2>/dev/null | grep -q . && echo GOT"#,
        Host,
    ),
    Case::line(
        "NE-09.inherited",
        "a socket among the descriptors",
        "ls -l /proc/self/fd | grep -q 'socket:' && echo GOT",
        Without(&[Wall::Descriptors]),
    ),
    Case::line(
        "NE-10.datagram",
        "a datagram to the host's files",
        r#""$PROBE" connect datagram "$FOLDER/datagram""#,
        Host,
    ),
    Case::line("NE-08.stream", "an abstract socket of the host", r#""$PROBE" connect stream "$HIDDEN""#, Host),
    Case::line(
        "NE-08.datagram",
        "a datagram to an abstract socket of the host",
        r#""$PROBE" connect datagram "$HIDDEN-d""#,
        Host,
    ),
    Case::line(
        "NE-08.scope",
        "an abstract socket of the host, without the empty network",
        r#""$PROBE" connect stream "$HIDDEN""#,
        Maybe(&[Landlock], NO_SCOPE),
    )
    .landlock(6)
    .off(&[Network]),
    Case::line(
        "NE-11.bus",
        "the desktop's bus",
        r#"env | grep -q '^DBUS_' && echo GOT; ls /run/user/*/bus /run/dbus/system_bus_socket "$FOLDER/stream" 2>/dev/null | grep -q . && echo GOT"#,
        Host,
    ),
    Case::own("NE-13.sandboxes", "a server in another sandbox", &[Network], |r, c| Box::pin(between(r, c, "tcp"))),
    Case::own("NE-12.sandboxes", "an abstract socket in another sandbox", &[], |r, c| {
        Box::pin(between(r, c, "stream"))
    }),
    Case::own("NE-20.inbound", "a server inside, from the host", &[Network], |r, c| Box::pin(inbound(r, c))),
];

const fn recorded(id: &'static str, name: &'static str, steps: super::super::case::Steps) -> Case {
    Case::own(id, name, &[Network], steps)
}

const fn unrouted(id: &'static str, name: &'static str, steps: super::super::case::Steps) -> Case {
    Case::own(id, name, &[], steps)
}

/// Tries to reach a recorder on the host: not a single packet may arrive, and without the wall one does.
async fn reach(range: &Range<'_>, case: &Case, line: &str) -> Result<Verdict, Trouble> {
    range.recorders.hits();
    let told = range.inside(case.off, line).await?;
    let hits = range.recorders.hits();
    if hits > 0 {
        return judged(true, format!("{hits} arrived: {told}"));
    }
    let there = range.inside(&[Network], line).await?;
    if line.contains("ffff") && there.contains("EAFNOSUPPORT") {
        return Err(Trouble::Skip(NO_V6.to_owned()));
    }
    control(
        &format!("the host's recorder hears nothing without the wall either: {there}"),
        range.recorders.hits() > 0,
    )?;
    judged(false, "")
}

/// Tries to reach an address of the world, which must be refused for want of any route. That the same words do
/// reach something where the network is shared is shown on the host's loopback: no control leaves the host.
async fn leave(range: &Range<'_>, case: &Case, kind: &str, to: &str) -> Result<Verdict, Trouble> {
    if range.options()?.without.contains(&Network) {
        return Err(Trouble::Skip("the target shares the host's network: nothing is sent there".to_owned()));
    }
    let told = range.inside(case.off, &format!("\"$PROBE\" connect {kind} {to}")).await?;
    let refused = ["ENETUNREACH", "EADDRNOTAVAIL", "EAFNOSUPPORT"].contains(&told.trim());
    if !refused {
        return judged(true, format!("answered `{}`", told.trim()));
    }
    let known = if kind == "tcp" { "$V4" } else { "$UDP" };
    range.recorders.hits();
    range.inside(&[Network], &format!("\"$PROBE\" connect {kind} \"{known}\"")).await?;
    control("the same words reach nothing on a shared network", range.recorders.hits() > 0)?;
    judged(false, "")
}

/// Starts a listener in a sandbox that stays for a while, and returns where it listens.
async fn listening(range: &Range<'_>, sandbox: &dyn crate::Sandbox, kind: &str) -> Result<String, Trouble> {
    let at = if kind == "tcp" { "0.0.0.0:0".to_owned() } else { format!("@inside-{}", range.token) };
    let line = format!(
        "\"$PROBE\" listen {kind} {at} 8 > heard & for i in $(seq 100); do grep -q listening heard && break; sleep 0.05; done; cat heard"
    );
    let told = range.say(sandbox, &line).await?;
    let place = told.split_whitespace().nth(1).map(str::to_owned);
    place.ok_or_else(|| Trouble::Broken(format!("nothing listens: {told}")))
}

async fn between(range: &Range<'_>, case: &Case, kind: &str) -> Result<Verdict, Trouble> {
    let one = range.fresh(case.off).await?;
    let other = range.fresh(case.off).await?;
    let place = listening(range, &*one, kind).await?;
    let to = if kind == "tcp" { format!("127.0.0.1:{place}") } else { place };
    let line = format!("\"$PROBE\" connect {kind} {to}");
    let told = range.say(&*other, &line).await?;
    let own = range.say(&*one, &line).await?;
    one.destroy().await?;
    other.destroy().await?;
    control(&format!("not even its own sandbox reaches it: {own}"), own.starts_with("GOT"))?;
    judged(told.starts_with("GOT"), told)
}

async fn inbound(range: &Range<'_>, case: &Case) -> Result<Verdict, Trouble> {
    let sandbox = range.fresh(case.off).await?;
    let place = listening(range, &*sandbox, "tcp").await?;
    let line = format!("\"$PROBE\" connect tcp 127.0.0.1:{place}");
    let told = range.outside(&line).await?;
    let own = range.say(&*sandbox, &line).await?;
    sandbox.destroy().await?;
    control(&format!("not even its own sandbox reaches it: {own}"), own.starts_with("GOT"))?;
    judged(told.starts_with("GOT"), told)
}
