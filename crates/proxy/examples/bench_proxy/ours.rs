//! Our own way out as a process of its own, and the one place that knows how it is set up.
//!
//! The process is told where the upstream is, says on one line where its doors are, and ends with its input.

use std::io::{self, Read as _, Write as _};
use std::net::{IpAddr, SocketAddr, TcpListener};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;

use ralph_core::policy::{Mode, Policy};
use ralph_proxy::door::{Doors, Guard, serve_within};
use ralph_proxy::limits::Limits;
use ralph_proxy::notice::{Notice, Told};
use ralph_proxy::resolve::{Answer, Resolve};
use serde::{Deserialize, Serialize};
use tokio::net::TcpStream;

use crate::run::Fallible;
use crate::upstream::{self, Upstream};

pub(crate) const NAME: &str = "ralph";
/// The word that makes this program the proxy.
pub(crate) const WORD: &str = "serve";
/// The port by which the hose is known.
pub(crate) const HOSE_PORT: u16 = 9000;
/// The upstream has a public address, so that the filter of addresses works as it does for everybody.
const PUBLIC: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(93, 184, 215, 14));

/// Where the upstream is.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct World {
    tls: SocketAddr,
    plain: SocketAddr,
    hose: SocketAddr,
    /// Whom to trust to reach it.
    ca: String,
}

impl World {
    pub(crate) fn of(upstream: &Upstream) -> Self {
        let Upstream { tls, plain, hose, ca, .. } = upstream;
        Self { tls: *tls, plain: *plain, hose: *hose, ca: ca.clone() }
    }
}

/// Where the doors are, and what they can do.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Opened {
    /// For tunnels that nobody looks into, and for plain HTTP.
    pub(crate) explicit: SocketAddr,
    /// A reverse route with a credential and a meter.
    pub(crate) reverse: Result<Reverse, String>,
    /// A door behind which everything is looked into.
    pub(crate) intercept: Result<Intercept, String>,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Reverse {
    pub(crate) door: SocketAddr,
    /// The path that stands for the provider's root, without a slash at its end.
    pub(crate) base: String,
    /// What the client sends as its key.
    pub(crate) key: String,
    /// A model that the route allows.
    pub(crate) model: String,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Intercept {
    pub(crate) door: SocketAddr,
    /// The certificate of the sandbox's own authority.
    pub(crate) ca: String,
    pub(crate) key: String,
}

/// Opens the doors. The guards keep them open.
fn open(world: &World) -> Fallible<(Opened, Vec<Guard>)> {
    let listener = TcpListener::bind(("127.0.0.1", 0))?;
    let explicit = listener.local_addr()?;
    let doors = Doors { explicit: Some(listener), ..Doors::default() };
    let host = upstream::NAME;
    let allowed = [host.to_owned(), format!("{host}:80"), format!("{host}:{HOSE_PORT}")];
    let policy = Policy::parse(Mode::Allowlist, &allowed, &[])?;
    let limits = Limits { connections: 4096, ..Limits::default() };
    let guard = serve_within(limits, doors, policy, Arc::new(world.clone()), Arc::new(Deaf))?;
    let lacks = |what: &str| format!("there is no {what} in this build");
    let opened = Opened { explicit, reverse: Err(lacks("reverse route")), intercept: Err(lacks("interception")) };
    Ok((opened, vec![guard]))
}

impl Resolve for World {
    fn resolve<'a>(&'a self, host: &'a str) -> Answer<'a, Vec<IpAddr>> {
        let found = if host == upstream::NAME { Ok(vec![PUBLIC]) } else { Err(io::ErrorKind::NotFound.into()) };
        Box::pin(std::future::ready(found))
    }

    fn dial(&self, address: SocketAddr) -> Answer<'_, TcpStream> {
        let address = match address.port() {
            443 => self.tls,
            HOSE_PORT => self.hose,
            _ => self.plain,
        };
        Box::pin(TcpStream::connect(address))
    }
}

/// Hears everything and writes nothing down.
#[derive(Debug)]
struct Deaf;

impl Notice for Deaf {
    fn tell(&self, told: Told) {
        drop(told);
    }
}

/// Starts this program as the proxy, and returns it with its doors.
pub(crate) fn start(world: &World) -> Fallible<(Child, Opened)> {
    let mut command = Command::new(std::env::current_exe()?);
    command.arg(WORD).arg(serde_json::to_string(world)?).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = command.spawn()?;
    let mut line = String::new();
    let said = child.stdout.take().ok_or("the proxy has no mouth")?;
    io::BufRead::read_line(&mut io::BufReader::new(said), &mut line)?;
    if line.is_empty() {
        child.kill()?;
        return Err(format!("the proxy does not start ({})", child.wait()?).into());
    }
    Ok((child, serde_json::from_str(&line)?))
}

/// Is the proxy, until its input ends.
pub(crate) fn be(world: &str) -> Fallible<()> {
    let world: World = serde_json::from_str(world)?;
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let guards = {
        let _within = runtime.enter();
        let (opened, guards) = open(&world)?;
        writeln!(io::stdout(), "{}", serde_json::to_string(&opened)?)?;
        guards
    };
    // Whoever started this holds the other end.
    io::stdin().read_to_end(&mut Vec::new())?;
    drop(guards);
    runtime.shutdown_background();
    Ok(())
}
