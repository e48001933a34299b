//! One sandbox with its listeners, and a fake network whose names have public addresses but lead to this machine.

use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use ralph_core::money::MicroUsd;
use ralph_core::policy::{Policy, PolicyMode};
use ralph_core::price::Price;
use ralph_core::secret::Secret;
use ralph_proxy::credential::{CredentialPlacement, ProxyCredential};
use ralph_proxy::egress_events::{
    AlarmKind, ChargedCall, EgressAlarm, EgressEvent, EgressExchange, EgressObserver, PersistFuture,
};
use ralph_proxy::grant::ProxyGrant;
use ralph_proxy::ledger::{Ledger, LedgerCaps};
use ralph_proxy::limits::ProxyLimits;
use ralph_proxy::listen::{ListenerSockets, ProxyHandle, serve_with_limits};
use ralph_proxy::meter::RouteApi;
use ralph_proxy::model_gateway::{ModelRoute, RouteModel};
use ralph_proxy::upstream_network::{EgressResolver, ResolverFuture};
use rustls::crypto::aws_lc_rs;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use rustls::{ClientConfig, RootCertStore};
use tokio::net::TcpStream;

/// A test that waits this long has failed.
pub(crate) const TEST_TIMEOUT: Duration = Duration::from_secs(20);

/// The real key, which only its own server may receive. Long enough to be searched for in every encoding.
pub(crate) const REAL: &str = "sk-ant-api03-Q7vd2kLmN4pR8sTuW1xYz5AbC9dEfGhJ-real";

pub(crate) const PRICE: Price = Price {
    input: 3_000_000,
    output: 15_000_000,
    cached_input: 300_000,
    cache_write: 3_750_000,
    cache_write_long: Some(6_000_000),
    reasoning: None,
    above_200k: None,
    long_after: None,
};

pub(crate) const MODEL: &str = "m-1";
/// The model's longest answer, and the limit of a call that sets none.
pub(crate) const MAX_OUTPUT: u64 = 4096;
pub(crate) const DEFAULT_OUTPUT: u64 = 3000;

/// Returns a configuration that trusts these CAs and no others.
pub(crate) fn trusting(pems: &[&str]) -> Arc<ClientConfig> {
    let mut roots = RootCertStore::empty();
    for pem in pems {
        roots.add(CertificateDer::from_pem_slice(pem.as_bytes()).unwrap()).unwrap();
    }
    let config = ClientConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    Arc::new(config)
}

/// The fake network: each name has an address of its own, and each address a server on this machine.
#[derive(Debug)]
pub(crate) struct FakeResolver {
    names: HashMap<String, IpAddr>,
    places: HashMap<IpAddr, SocketAddr>,
    trust: Arc<ClientConfig>,
    dials: Mutex<Vec<SocketAddr>>,
    /// The name whose look-ups never complete.
    silent: Option<&'static str>,
}

impl FakeResolver {
    pub(crate) fn new(trust: &[&str]) -> Self {
        let (names, places, trust) = (HashMap::new(), HashMap::new(), trusting(trust));
        Self { names, places, trust, dials: Mutex::default(), silent: None }
    }

    /// Adds a server for a name, at a public address.
    pub(crate) fn with(self, name: &str, server: SocketAddr) -> Self {
        let last = u8::try_from(self.names.len() + 1).unwrap();
        self.with_at(name, IpAddr::from([93, 184, 215, last]), server)
    }

    pub(crate) fn with_at(mut self, name: &str, address: IpAddr, server: SocketAddr) -> Self {
        self.names.insert(name.to_owned(), address);
        self.places.insert(address, server);
        self
    }

    /// Makes look-ups of a name hang.
    pub(crate) fn silent(self, name: &'static str) -> Self {
        Self { silent: Some(name), ..self }
    }

    pub(crate) fn dials(&self) -> Vec<SocketAddr> {
        self.dials.lock().unwrap().clone()
    }
}

impl EgressResolver for FakeResolver {
    fn resolve<'a>(&'a self, host: &'a str) -> ResolverFuture<'a, Vec<IpAddr>> {
        if self.silent == Some(host) {
            return Box::pin(std::future::pending());
        }
        let found = self.names.get(host).map(|address| vec![*address]).ok_or(io::ErrorKind::NotFound.into());
        Box::pin(std::future::ready(found))
    }

    fn dial(&self, address: SocketAddr) -> ResolverFuture<'_, TcpStream> {
        self.dials.lock().unwrap().push(address);
        let place = self.places.get(&address.ip()).copied().unwrap_or(address);
        Box::pin(async move {
            if place.ip().is_loopback() { TcpStream::connect(place).await } else { Err(io::ErrorKind::NotFound.into()) }
        })
    }

    fn tls_config(&self) -> io::Result<Arc<ClientConfig>> {
        Ok(Arc::clone(&self.trust))
    }
}

/// Records every event.
#[derive(Debug, Default)]
pub(crate) struct EgressEventRecorder {
    events: Mutex<Vec<EgressEvent>>,
    /// Makes every further call fail to be persisted.
    pub(crate) full: AtomicBool,
    /// Makes the observer slow to receive that a budget is spent, which is reported while the call is open.
    pub(crate) slow: AtomicBool,
    /// How many events are being received at this moment, and the most at the same time.
    open: AtomicUsize,
    pub(crate) most_open: AtomicUsize,
}

impl EgressObserver for EgressEventRecorder {
    fn observe(&self, event: EgressEvent) {
        if matches!(event, EgressEvent::BudgetSpent { .. }) && self.slow.load(Ordering::Relaxed) {
            let open = self.open.fetch_add(1, Ordering::SeqCst) + 1;
            self.most_open.fetch_max(open, Ordering::SeqCst);
            std::thread::sleep(Duration::from_millis(20));
            self.open.fetch_sub(1, Ordering::SeqCst);
        }
        self.events.lock().unwrap().push(event);
    }

    fn persist_call(&self, calling: EgressEvent) -> PersistFuture<'_> {
        if self.full.load(Ordering::Relaxed) {
            return Box::pin(std::future::ready(Err("no space left".to_owned())));
        }
        self.observe(calling);
        Box::pin(std::future::ready(Ok(())))
    }
}

impl EgressEventRecorder {
    pub(crate) fn all(&self) -> Vec<EgressEvent> {
        self.events.lock().unwrap().clone()
    }

    /// Returns every alarm: its kind and the name of the credential.
    pub(crate) fn alarms(&self) -> Vec<(AlarmKind, String)> {
        let alarm = |event| match event {
            EgressEvent::Alarm(EgressAlarm { what, credential, .. }) => Some((what, credential)),
            _ => None,
        };
        self.all().into_iter().filter_map(alarm).collect()
    }

    pub(crate) fn exchanges(&self) -> Vec<EgressExchange> {
        let exchange = |event| if let EgressEvent::Exchange(exchanged) = event { Some(exchanged) } else { None };
        self.all().into_iter().filter_map(exchange).collect()
    }

    /// Returns every call as it was charged.
    pub(crate) fn calls(&self) -> Vec<ChargedCall> {
        self.exchanges().into_iter().filter_map(|exchanged| exchanged.call).collect()
    }

    /// Returns how many calls were started.
    pub(crate) fn started_calls(&self) -> usize {
        self.all().iter().filter(|event| matches!(event, EgressEvent::CallReserved { .. })).count()
    }

    /// Returns the reserved tokens of each call.
    pub(crate) fn reserved(&self) -> Vec<u64> {
        let tokens = |event| if let EgressEvent::CallReserved { tokens, .. } = event { Some(tokens) } else { None };
        self.all().into_iter().filter_map(tokens).collect()
    }

    /// Returns every event as text; no secret may be in it.
    pub(crate) fn text(&self) -> String {
        format!("{:?}", self.all())
    }
}

/// One sandbox.
#[derive(Debug)]
pub(crate) struct GatewayFixture {
    pub(crate) proxy: ProxyHandle,
    pub(crate) proxy_address: SocketAddr,
    pub(crate) transparent: SocketAddr,
    pub(crate) dns: SocketAddr,
    pub(crate) events: Arc<EgressEventRecorder>,
    pub(crate) resolver: Arc<FakeResolver>,
    pub(crate) ledger: Ledger,
}

impl GatewayFixture {
    pub(crate) fn open(proxy_grant: ProxyGrant, network: FakeResolver) -> Self {
        Self::with_limits(ProxyLimits::default(), proxy_grant, network)
    }

    pub(crate) fn with_limits(limits: ProxyLimits, proxy_grant: ProxyGrant, network: FakeResolver) -> Self {
        let listen = || {
            let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
            let address = listener.local_addr().unwrap();
            (listener, address)
        };
        let ((explicit, proxy_address), (listener, transparent), (dns_tcp, dns)) = (listen(), listen(), listen());
        let sockets = ListenerSockets {
            explicit: Some(explicit),
            transparent: vec![listener],
            dns_tcp: Some(dns_tcp),
            ..ListenerSockets::default()
        };
        let (events, resolver) = (Arc::new(EgressEventRecorder::default()), Arc::new(network));
        let ledger = proxy_grant.ledger.clone();
        let proxy = serve_with_limits(limits, sockets, proxy_grant, resolver.clone(), events.clone()).unwrap();
        Self { proxy, proxy_address, transparent, dns, events, resolver, ledger }
    }

    pub(crate) async fn dial(&self) -> TcpStream {
        TcpStream::connect(self.proxy_address).await.unwrap()
    }

    /// Waits until no call is open.
    pub(crate) async fn wait_until_settled(&self) {
        let nothing = || self.ledger.reserved() == ralph_proxy::ledger::LedgerAmount::default();
        wait_until("every reservation is closed", nothing).await;
    }
}

/// Waits until a condition holds, and fails if it never does.
#[track_caller]
pub(crate) fn wait_until(what: &str, so: impl Fn() -> bool) -> impl Future<Output = ()> {
    let place = std::panic::Location::caller();
    async move {
        let begun = std::time::Instant::now();
        while !so() {
            assert!(begun.elapsed() < TEST_TIMEOUT, "{place}: timed out waiting until {what}");
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    }
}

pub(crate) fn caps(cost: u64, tokens: u64) -> LedgerCaps {
    LedgerCaps { cost: Some(MicroUsd(cost)), tokens: Some(tokens) }
}

/// Returns a ledger whose caps no test reaches.
pub(crate) fn unlimited_ledger() -> Ledger {
    Ledger::new(caps(1_000_000_000, 1_000_000_000), MicroUsd::ZERO, 0)
}

pub(crate) fn allowing(rules: &[&str]) -> Policy {
    Policy::parse(PolicyMode::Allowlist, rules, &[]).unwrap()
}

/// Returns the real key in the header that an API uses for it.
pub(crate) fn key_of(wire: RouteApi, name: &str) -> Arc<ProxyCredential> {
    let place = match wire {
        RouteApi::Anthropic => CredentialPlacement::header("x-api-key"),
        RouteApi::OpenAi => CredentialPlacement::Bearer,
        RouteApi::Gemini => CredentialPlacement::header("x-goog-api-key"),
    };
    Arc::new(ProxyCredential::new(name, &Secret::new(REAL), place).unwrap())
}

pub(crate) fn route(name: &str, wire: RouteApi, url: &str, key: Option<&Arc<ProxyCredential>>) -> ModelRoute {
    let base = match wire {
        RouteApi::OpenAi => format!("{url}/v1"),
        RouteApi::Anthropic | RouteApi::Gemini => url.to_owned(),
    };
    let route = ModelRoute::new(name, wire, &base).unwrap();
    let route = route
        .with_model(MODEL, RouteModel { price: Some(PRICE), max_output: MAX_OUTPUT, default_output: DEFAULT_OUTPUT });
    key.iter().fold(route, |route, key| route.with_credential(Arc::clone(key)))
}

pub(crate) fn grant(routes: Vec<ModelRoute>, ledger: Ledger) -> ProxyGrant {
    ProxyGrant { routes, ledger, ..ProxyGrant::from(Policy::parse(PolicyMode::Deny, &[] as &[&str], &[]).unwrap()) }
}
