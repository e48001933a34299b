//! Runs ralph's egress proxy as a process of its own; the only place that knows how it is set up.
//!
//! The process is given the addresses of the upstream, prints the addresses of its listeners on one line, and ends
//! when its standard input is closed.

use std::io::{self, Read as _, Write as _};
use std::net::{IpAddr, SocketAddr, TcpListener};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;

use ralph_core::money::MicroUsd;
use ralph_core::policy::{Policy, PolicyMode};
use ralph_core::price::Price;
use ralph_core::secret::Secret;
use ralph_proxy::credential::{CredentialPlacement, ProxyCredential};
use ralph_proxy::egress_events::{EgressEvent, EgressObserver};
use ralph_proxy::grant::ProxyGrant;
use ralph_proxy::inspect::MitmCa;
use ralph_proxy::ledger::{Ledger, LedgerCaps};
use ralph_proxy::limits::ProxyLimits;
use ralph_proxy::listen::{ListenerSockets, ProxyHandle, serve_with_limits};
use ralph_proxy::meter::RouteApi;
use ralph_proxy::model_gateway::{ModelRoute, RouteModel};
use ralph_proxy::upstream_network::{EgressResolver, ResolverFuture};
use ralph_testkit::bench::BenchResult;
use serde::{Deserialize, Serialize};
use tokio::net::TcpStream;

use crate::client::trusting;
use crate::setup::MODEL;
use crate::upstream::{self, BenchUpstream};

pub(crate) const NAME: &str = "ralph";
/// The argument that makes this program the proxy.
pub(crate) const SERVE_COMMAND: &str = "serve";
/// The real key, which only the proxy holds.
const KEY: &str = "sk-ant-api03-bench-0123456789-abcdefghijklmnopqrstuvwxyz-0123456789";
/// The port for the throughput measurement.
pub(crate) const THROUGHPUT_PORT: u16 = 9000;
/// The upstream has a public address, so that the address filter works as in production.
const PUBLIC: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(93, 184, 215, 14));

/// The addresses of the upstream.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct UpstreamAddresses {
    tls: SocketAddr,
    plain: SocketAddr,
    hose: SocketAddr,
    /// The CA to trust for it.
    ca: String,
}

impl UpstreamAddresses {
    pub(crate) fn of(upstream: &BenchUpstream) -> Self {
        let BenchUpstream { tls, plain, throughput: hose, ca, .. } = upstream;
        Self { tls: *tls, plain: *plain, hose: *hose, ca: ca.clone() }
    }
}

/// The addresses of the listeners, and what they can do.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct BenchListeners {
    /// For tunnels without inspection, and for plain HTTP.
    pub(crate) explicit: SocketAddr,
    /// A model route with a credential and metering.
    pub(crate) reverse: Result<ReverseListener, String>,
    /// A listener that inspects everything.
    pub(crate) intercept: Result<InterceptListener, String>,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct ReverseListener {
    pub(crate) address: SocketAddr,
    /// The path that stands for the provider's root, without a slash at its end.
    pub(crate) base: String,
    /// The key that the client sends.
    pub(crate) key: String,
    /// A model that the route allows.
    pub(crate) model: String,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct InterceptListener {
    pub(crate) address: SocketAddr,
    /// The certificate of the sandbox's own CA.
    pub(crate) ca: String,
    pub(crate) key: String,
}

/// Opens the listeners. The handles keep them open.
fn open(addresses: &UpstreamAddresses) -> BenchResult<(BenchListeners, Vec<ProxyHandle>)> {
    let listener = TcpListener::bind(("127.0.0.1", 0))?;
    let explicit = listener.local_addr()?;
    let sockets = ListenerSockets { explicit: Some(listener), ..ListenerSockets::default() };
    let host = upstream::NAME;
    let allowed = [host.to_owned(), format!("{host}:80"), format!("{host}:{THROUGHPUT_PORT}")];
    let policy = Policy::parse(PolicyMode::Allowlist, &allowed, &[])?;
    let limits = ProxyLimits { connections: 4096, ..ProxyLimits::default() };
    let outside: Arc<dyn EgressResolver> = Arc::new(addresses.clone());
    let guard = serve_with_limits(limits, sockets, policy, Arc::clone(&outside), Arc::new(NullObserver))?;
    let (reverse, routes) = reverse(limits, &outside)?;
    let (intercept, inside) = intercept(limits, &outside)?;
    let opened = BenchListeners { explicit, reverse: Ok(reverse), intercept: Ok(intercept) };
    Ok((opened, vec![guard, routes, inside]))
}

fn listener_sockets() -> io::Result<(SocketAddr, ListenerSockets)> {
    let listener = TcpListener::bind(("127.0.0.1", 0))?;
    let address = listener.local_addr()?;
    Ok((address, ListenerSockets { explicit: Some(listener), ..ListenerSockets::default() }))
}

/// Opens a listener with a route to the upstream: a credential is injected, and every call is metered.
fn reverse(limits: ProxyLimits, outside: &Arc<dyn EgressResolver>) -> BenchResult<(ReverseListener, ProxyHandle)> {
    let (address, sockets) = listener_sockets()?;
    let credential =
        Arc::new(ProxyCredential::new("KEY", &Secret::new(KEY), CredentialPlacement::header("x-api-key"))?);
    let price = Price::per_mtok_usd(3.0, 15.0, Some(0.3));
    // The same upstream, reached in the same way as by the others.
    let route = ModelRoute::new("bench", RouteApi::Anthropic, &format!("https://{}", upstream::NAME))?
        .with_credential(Arc::clone(&credential))
        .with_model(MODEL, RouteModel { price: Some(price), max_output: 100_000, default_output: 100_000 });
    let caps = LedgerCaps { cost: Some(MicroUsd::from_usd(1e9)), tokens: None };
    let terms = ProxyGrant {
        routes: vec![route],
        ledger: Ledger::new(caps, MicroUsd::ZERO, 0),
        ..ProxyGrant::from(Policy::default())
    };
    let guard = serve_with_limits(limits, sockets, terms, Arc::clone(outside), Arc::new(NullObserver))?;
    let (base, key, model) = ("/r/bench".to_owned(), credential.phantom().to_owned(), MODEL.to_owned());
    Ok((ReverseListener { address, base, key, model }, guard))
}

/// Opens a listener that acts as the upstream by TLS, since a credential is granted for it.
fn intercept(limits: ProxyLimits, outside: &Arc<dyn EgressResolver>) -> BenchResult<(InterceptListener, ProxyHandle)> {
    let (address, sockets) = listener_sockets()?;
    let credential = ProxyCredential::new("KEY", &Secret::new(KEY), CredentialPlacement::header("x-api-key"))?;
    let credential = Arc::new(credential.for_hosts([upstream::NAME])?);
    let authority = Arc::new(MitmCa::new("bench")?);
    let (key, ca) = (credential.phantom().to_owned(), authority.certificate().to_owned());
    let policy = Policy::parse(PolicyMode::Allowlist, &[upstream::NAME], &[])?;
    let terms = ProxyGrant { credentials: vec![credential], authority: Some(authority), ..ProxyGrant::from(policy) };
    let guard = serve_with_limits(limits, sockets, terms, Arc::clone(outside), Arc::new(NullObserver))?;
    Ok((InterceptListener { address, ca, key }, guard))
}

impl EgressResolver for UpstreamAddresses {
    fn resolve<'a>(&'a self, host: &'a str) -> ResolverFuture<'a, Vec<IpAddr>> {
        let found = if host == upstream::NAME { Ok(vec![PUBLIC]) } else { Err(io::ErrorKind::NotFound.into()) };
        Box::pin(std::future::ready(found))
    }

    fn dial(&self, address: SocketAddr) -> ResolverFuture<'_, TcpStream> {
        let address = match address.port() {
            443 => self.tls,
            THROUGHPUT_PORT => self.hose,
            _ => self.plain,
        };
        Box::pin(TcpStream::connect(address))
    }

    fn tls_config(&self) -> io::Result<Arc<rustls::ClientConfig>> {
        trusting(&self.ca).map_err(|error| io::Error::other(error.to_string()))
    }
}

/// Receives every event and records nothing.
#[derive(Debug)]
struct NullObserver;

impl EgressObserver for NullObserver {
    fn observe(&self, event: EgressEvent) {
        drop(event);
    }
}

/// Starts this program as the proxy, and returns it with its listeners.
pub(crate) fn start(addresses: &UpstreamAddresses) -> BenchResult<(Child, BenchListeners)> {
    let mut command = Command::new(std::env::current_exe()?);
    command.arg(SERVE_COMMAND).arg(serde_json::to_string(addresses)?).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = command.spawn()?;
    let mut line = String::new();
    let output = child.stdout.take().ok_or("the proxy has no stdout")?;
    io::BufRead::read_line(&mut io::BufReader::new(output), &mut line)?;
    if line.is_empty() {
        child.kill()?;
        return Err(format!("the proxy does not start ({})", child.wait()?).into());
    }
    Ok((child, serde_json::from_str(&line)?))
}

/// Serves as the proxy until standard input is closed.
pub(crate) fn serve_until_stdin_closes(addresses: &str) -> BenchResult<()> {
    let addresses: UpstreamAddresses = serde_json::from_str(addresses)?;
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let guards = {
        let _within = runtime.enter();
        let (opened, guards) = open(&addresses)?;
        writeln!(io::stdout(), "{}", serde_json::to_string(&opened)?)?;
        guards
    };
    // The parent process holds the other end.
    io::stdin().read_to_end(&mut Vec::new())?;
    drop(guards);
    runtime.shutdown_background();
    Ok(())
}
