//! One sandbox with its doors open, and a world outside whose names have public addresses but live on this machine.

use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use ralph_core::money::Micros;
use ralph_core::policy::{Mode, Policy};
use ralph_core::price::Price;
use ralph_core::secret::Secret;
use ralph_proxy::credential::{Credential, Place};
use ralph_proxy::door::{Doors, Guard, serve_within};
use ralph_proxy::ledger::{Caps, Ledger};
use ralph_proxy::limits::Limits;
use ralph_proxy::meter::Wire;
use ralph_proxy::notice::{Alarm, Call, Exchanged, Keeping, Notice, Told, Wrong};
use ralph_proxy::resolve::{Answer, Resolve};
use ralph_proxy::route::{Model, Route};
use ralph_proxy::terms::Terms;
use rustls::crypto::aws_lc_rs;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use rustls::{ClientConfig, RootCertStore};
use tokio::net::TcpStream;

/// A test that waits this long has failed.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);

/// What is asked of no server but the one it is for. Long enough to be looked for in every form.
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
/// Its longest answer, and that to a call that names none.
pub(crate) const MOST: u64 = 4096;
pub(crate) const USUAL: u64 = 3000;

/// Trusts these authorities and no others.
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

/// The world outside: each name has an address of its own, and each address a server on this machine.
#[derive(Debug)]
pub(crate) struct World {
    names: HashMap<String, IpAddr>,
    places: HashMap<IpAddr, SocketAddr>,
    trust: Arc<ClientConfig>,
    dials: Mutex<Vec<SocketAddr>>,
    /// The name that nobody can say anything about.
    silent: Option<&'static str>,
}

impl World {
    pub(crate) fn new(trust: &[&str]) -> Self {
        let (names, places, trust) = (HashMap::new(), HashMap::new(), trusting(trust));
        Self { names, places, trust, dials: Mutex::default(), silent: None }
    }

    /// Puts a server behind a name, at a public address.
    pub(crate) fn with(self, name: &str, server: SocketAddr) -> Self {
        let last = u8::try_from(self.names.len() + 1).unwrap();
        self.with_at(name, IpAddr::from([93, 184, 215, last]), server)
    }

    pub(crate) fn with_at(mut self, name: &str, address: IpAddr, server: SocketAddr) -> Self {
        self.names.insert(name.to_owned(), address);
        self.places.insert(address, server);
        self
    }

    /// Leaves whoever asks for a name without an answer.
    pub(crate) fn silent(self, name: &'static str) -> Self {
        Self { silent: Some(name), ..self }
    }

    pub(crate) fn dials(&self) -> Vec<SocketAddr> {
        self.dials.lock().unwrap().clone()
    }
}

impl Resolve for World {
    fn resolve<'a>(&'a self, host: &'a str) -> Answer<'a, Vec<IpAddr>> {
        if self.silent == Some(host) {
            return Box::pin(std::future::pending());
        }
        let found = self.names.get(host).map(|address| vec![*address]).ok_or(io::ErrorKind::NotFound.into());
        Box::pin(std::future::ready(found))
    }

    fn dial(&self, address: SocketAddr) -> Answer<'_, TcpStream> {
        self.dials.lock().unwrap().push(address);
        let place = self.places.get(&address.ip()).copied().unwrap_or(address);
        Box::pin(async move {
            if place.ip().is_loopback() { TcpStream::connect(place).await } else { Err(io::ErrorKind::NotFound.into()) }
        })
    }

    fn tls(&self) -> io::Result<Arc<ClientConfig>> {
        Ok(Arc::clone(&self.trust))
    }
}

/// Everything that was told.
#[derive(Debug, Default)]
pub(crate) struct Notes {
    told: Mutex<Vec<Told>>,
    /// Nothing more can be written down.
    pub(crate) full: AtomicBool,
    /// It takes a while to hear that a budget is spent, which is told while the call lies open.
    pub(crate) slow: AtomicBool,
    /// How many are being heard of at this moment, and how many there were at most.
    open: AtomicUsize,
    pub(crate) most_open: AtomicUsize,
}

impl Notice for Notes {
    fn tell(&self, told: Told) {
        if matches!(told, Told::Spent { .. }) && self.slow.load(Ordering::Relaxed) {
            let open = self.open.fetch_add(1, Ordering::SeqCst) + 1;
            self.most_open.fetch_max(open, Ordering::SeqCst);
            std::thread::sleep(Duration::from_millis(20));
            self.open.fetch_sub(1, Ordering::SeqCst);
        }
        self.told.lock().unwrap().push(told);
    }

    fn keep(&self, calling: Told) -> Keeping<'_> {
        if self.full.load(Ordering::Relaxed) {
            return Box::pin(std::future::ready(Err("no space left".to_owned())));
        }
        self.tell(calling);
        Box::pin(std::future::ready(Ok(())))
    }
}

impl Notes {
    pub(crate) fn all(&self) -> Vec<Told> {
        self.told.lock().unwrap().clone()
    }

    /// Every alarm: what, and the name of the credential.
    pub(crate) fn alarms(&self) -> Vec<(Wrong, String)> {
        let alarm = |told| match told {
            Told::Alarm(Alarm { what, credential, .. }) => Some((what, credential)),
            _ => None,
        };
        self.all().into_iter().filter_map(alarm).collect()
    }

    pub(crate) fn exchanges(&self) -> Vec<Exchanged> {
        let exchange = |told| if let Told::Exchanged(exchanged) = told { Some(exchanged) } else { None };
        self.all().into_iter().filter_map(exchange).collect()
    }

    /// Every call as it was charged.
    pub(crate) fn calls(&self) -> Vec<Call> {
        self.exchanges().into_iter().filter_map(|exchanged| exchanged.call).collect()
    }

    /// How many calls were begun.
    pub(crate) fn begun(&self) -> usize {
        self.all().iter().filter(|told| matches!(told, Told::Calling { .. })).count()
    }

    /// What was set aside for each call, in tokens.
    pub(crate) fn reserved(&self) -> Vec<u64> {
        let tokens = |told| if let Told::Calling { tokens, .. } = told { Some(tokens) } else { None };
        self.all().into_iter().filter_map(tokens).collect()
    }

    /// Everything that was told, as text; no secret may be in it.
    pub(crate) fn text(&self) -> String {
        format!("{:?}", self.all())
    }
}

/// One sandbox.
#[derive(Debug)]
pub(crate) struct Stage {
    pub(crate) guard: Guard,
    pub(crate) door: SocketAddr,
    pub(crate) transparent: SocketAddr,
    pub(crate) dns: SocketAddr,
    pub(crate) notes: Arc<Notes>,
    pub(crate) world: Arc<World>,
    pub(crate) ledger: Ledger,
}

impl Stage {
    pub(crate) fn open(terms: Terms, world: World) -> Self {
        Self::within(Limits::default(), terms, world)
    }

    pub(crate) fn within(limits: Limits, terms: Terms, world: World) -> Self {
        let listen = || {
            let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
            let address = listener.local_addr().unwrap();
            (listener, address)
        };
        let ((explicit, door), (listener, transparent), (dns_tcp, dns)) = (listen(), listen(), listen());
        let doors =
            Doors { explicit: Some(explicit), transparent: vec![listener], dns_tcp: Some(dns_tcp), ..Doors::default() };
        let (notes, world) = (Arc::new(Notes::default()), Arc::new(world));
        let ledger = terms.ledger.clone();
        let guard = serve_within(limits, doors, terms, world.clone(), notes.clone()).unwrap();
        Self { guard, door, transparent, dns, notes, world, ledger }
    }

    pub(crate) async fn dial(&self) -> TcpStream {
        TcpStream::connect(self.door).await.unwrap()
    }

    /// Waits until no call is open any more.
    pub(crate) async fn drained(&self) {
        let nothing = || self.ledger.reserved() == ralph_proxy::ledger::Spend::default();
        wait_until("every reservation is closed", nothing).await;
    }
}

/// Waits until something is so, and fails when it never is.
#[track_caller]
pub(crate) fn wait_until(what: &str, so: impl Fn() -> bool) -> impl Future<Output = ()> {
    let place = std::panic::Location::caller();
    async move {
        let begun = std::time::Instant::now();
        while !so() {
            assert!(begun.elapsed() < PATIENCE, "{place}: it never happened that {what}");
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    }
}

pub(crate) fn caps(cost: u64, tokens: u64) -> Caps {
    Caps { cost: Some(Micros(cost)), tokens: Some(tokens) }
}

/// A book that no test here fills.
pub(crate) fn rich() -> Ledger {
    Ledger::new(caps(1_000_000_000, 1_000_000_000), Micros::ZERO, 0)
}

pub(crate) fn allowing(rules: &[&str]) -> Policy {
    Policy::parse(Mode::Allowlist, rules, &[]).unwrap()
}

/// The real key in the place that a wire has for it.
pub(crate) fn key_of(wire: Wire, name: &str) -> Arc<Credential> {
    let place = match wire {
        Wire::Anthropic => Place::header("x-api-key"),
        Wire::OpenAi => Place::Bearer,
        Wire::Gemini => Place::header("x-goog-api-key"),
    };
    Arc::new(Credential::new(name, &Secret::new(REAL), place).unwrap())
}

pub(crate) fn route(name: &str, wire: Wire, url: &str, key: Option<&Arc<Credential>>) -> Route {
    let base = match wire {
        Wire::OpenAi => format!("{url}/v1"),
        Wire::Anthropic | Wire::Gemini => url.to_owned(),
    };
    let route = Route::new(name, wire, &base).unwrap();
    let route = route.with_model(MODEL, Model { price: Some(PRICE), most_output: MOST, usual_output: USUAL });
    key.iter().fold(route, |route, key| route.with_credential(Arc::clone(key)))
}

pub(crate) fn terms(routes: Vec<Route>, ledger: Ledger) -> Terms {
    Terms { routes, ledger, ..Terms::from(Policy::parse(Mode::Deny, &[] as &[&str], &[]).unwrap()) }
}
