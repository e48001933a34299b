//! Our own way out as a process of its own, and the one place that knows how it is set up.
//!
//! The process is told where the upstream is, says on one line where its doors are, and ends with its input.

use std::io::{self, Read as _, Write as _};
use std::net::{IpAddr, SocketAddr, TcpListener};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;

use ralph_core::money::Micros;
use ralph_core::policy::{Mode, Policy};
use ralph_core::price::Price;
use ralph_core::secret::Secret;
use ralph_proxy::authority::Authority;
use ralph_proxy::credential::{Credential, Place};
use ralph_proxy::door::{Doors, Guard, serve_within};
use ralph_proxy::ledger::{Caps, Ledger};
use ralph_proxy::limits::Limits;
use ralph_proxy::meter::Wire;
use ralph_proxy::notice::{Notice, Told};
use ralph_proxy::resolve::{Answer, Resolve};
use ralph_proxy::route::{Model, Route};
use ralph_proxy::terms::Terms;
use serde::{Deserialize, Serialize};
use tokio::net::TcpStream;

use crate::client::trusting;
use crate::run::Fallible;
use crate::stage::MODEL;
use crate::upstream::{self, Upstream};

pub(crate) const NAME: &str = "ralph";
/// The word that makes this program the proxy.
pub(crate) const WORD: &str = "serve";
/// What only the proxy holds.
const KEY: &str = "sk-ant-api03-bench-0123456789-abcdefghijklmnopqrstuvwxyz-0123456789";
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
    let outside: Arc<dyn Resolve> = Arc::new(world.clone());
    let guard = serve_within(limits, doors, policy, Arc::clone(&outside), Arc::new(Deaf))?;
    let (reverse, routes) = reverse(limits, &outside)?;
    let (intercept, inside) = intercept(limits, &outside)?;
    let opened = Opened { explicit, reverse: Ok(reverse), intercept: Ok(intercept) };
    Ok((opened, vec![guard, routes, inside]))
}

fn door() -> io::Result<(SocketAddr, Doors)> {
    let listener = TcpListener::bind(("127.0.0.1", 0))?;
    let address = listener.local_addr()?;
    Ok((address, Doors { explicit: Some(listener), ..Doors::default() }))
}

/// A door with a route to the upstream: a credential is lent, and every call is metered.
fn reverse(limits: Limits, outside: &Arc<dyn Resolve>) -> Fallible<(Reverse, Guard)> {
    let (address, doors) = door()?;
    let credential = Arc::new(Credential::new("KEY", &Secret::new(KEY), Place::header("x-api-key"))?);
    let price = Price::per_mtok_usd(3.0, 15.0, Some(0.3));
    // The same upstream, in the same way, as the others reach it.
    let route = Route::new("bench", Wire::Anthropic, &format!("https://{}", upstream::NAME))?
        .with_credential(Arc::clone(&credential))
        .with_model(MODEL, Model { price: Some(price), most_output: 100_000, usual_output: 100_000 });
    let caps = Caps { cost: Some(Micros::from_usd(1e9)), tokens: None };
    let terms =
        Terms { routes: vec![route], ledger: Ledger::new(caps, Micros::ZERO, 0), ..Terms::from(Policy::default()) };
    let guard = serve_within(limits, doors, terms, Arc::clone(outside), Arc::new(Deaf))?;
    let (base, key, model) = ("/r/bench".to_owned(), credential.phantom().to_owned(), MODEL.to_owned());
    Ok((Reverse { door: address, base, key, model }, guard))
}

/// A door behind which the upstream is spoken for, since a credential is lent to it.
fn intercept(limits: Limits, outside: &Arc<dyn Resolve>) -> Fallible<(Intercept, Guard)> {
    let (address, doors) = door()?;
    let credential = Credential::new("KEY", &Secret::new(KEY), Place::header("x-api-key"))?;
    let credential = Arc::new(credential.for_hosts([upstream::NAME])?);
    let authority = Arc::new(Authority::new("bench")?);
    let (key, ca) = (credential.phantom().to_owned(), authority.certificate().to_owned());
    let policy = Policy::parse(Mode::Allowlist, &[upstream::NAME], &[])?;
    let terms = Terms { credentials: vec![credential], authority: Some(authority), ..Terms::from(policy) };
    let guard = serve_within(limits, doors, terms, Arc::clone(outside), Arc::new(Deaf))?;
    Ok((Intercept { door: address, ca, key }, guard))
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

    fn tls(&self) -> io::Result<Arc<rustls::ClientConfig>> {
        trusting(&self.ca).map_err(|error| io::Error::other(error.to_string()))
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
