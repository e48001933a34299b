//! The one pipeline of a sandbox: every entry asks here, and nothing leaves that was not asked for here.
//!
//! Name before DNS, one resolution, the address filter, then a dial of exactly the checked address. What a request is
//! lent and what it costs is decided where requests are read; here is what they share.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use hyper::Method;
use hyper::header::HeaderMap;
use ralph_core::policy::{Mode, Policy, Rule, decide, denial};
use tokio::net::TcpStream;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, SemaphorePermit, watch};
use tokio::time::{Instant, timeout, timeout_at};

use crate::address::{self, Kind};
use crate::authority::Authority;
use crate::credential::Credential;
use crate::dns::Table;
use crate::judge::{Ask, admit, judge, judge_name};
use crate::late::Drains;
use crate::ledger::Ledger;
use crate::limits::Limits;
use crate::notice::{Alarm, Decided, Entry, Notice, Requested, Told, Why, Wrong};
use crate::outflow::Outflow;
use crate::resolve::Resolve;
use crate::route::{Route, Upstream};
use crate::scan::Forbidden;
use crate::target::{HTTP, HTTPS, Target, shown};
use crate::terms::Terms;
use crate::upstream::Endpoints;

/// More addresses of one name are not tried.
const MOST_ADDRESSES: usize = 8;

/// What all connections of one sandbox share.
#[derive(Debug)]
pub(crate) struct Pipeline {
    pub(crate) limits: Limits,
    pub(crate) notice: Arc<dyn Notice>,
    pub(crate) routes: Vec<Route>,
    pub(crate) ledger: Ledger,
    outflow: Outflow,
    pub(crate) endpoints: Endpoints,
    /// What is read on after its client has gone.
    pub(crate) drains: Drains,
    /// The real credentials in every form: they must not come back.
    pub(crate) forbidden: Forbidden,
    /// Their stand-ins: they must not go anywhere but where they are for.
    pub(crate) phantoms: Forbidden,
    pub(crate) resolver: Arc<dyn Resolve>,
    authority: Option<Arc<Authority>>,
    /// Every credential that is lent.
    lent: Vec<Arc<Credential>>,
    /// Those that are lent to hosts.
    bound: Vec<Arc<Credential>>,
    run: Option<String>,
    policy: watch::Sender<Arc<Policy>>,
    names: Mutex<Table>,
    /// The room for bodies that are read as a whole, in pieces of [`PIECE`].
    bodies: Arc<Semaphore>,
    /// Whose turn it is to have a long body understood.
    readers: Semaphore,
    /// How many names may be looked up at the same time: a look-up that nobody waits for any more still holds a thread.
    lookups: Arc<Semaphore>,
}

/// All bodies of a sandbox that are read as a whole have so much room together.
const ROOM: usize = 64 << 20;
const PIECE: usize = 64 << 10;
/// So many long bodies of a sandbox are understood at the same time: made into values, one takes far more memory than its
/// text.
const READERS: usize = 2;
const LOOKUPS: usize = 16;

/// An open way to a target, and the leave to use it.
#[derive(Debug)]
pub(crate) struct Way {
    pub(crate) stream: TcpStream,
    pub(crate) permit: Permit,
}

/// The leave to use a connection, as long as the policy grants it.
#[derive(Debug)]
pub(crate) struct Permit {
    policy: watch::Receiver<Arc<Policy>>,
    target: Target,
    /// What the connection is used for at the moment.
    ask: Arc<Mutex<Ask>>,
    address: IpAddr,
}

impl Permit {
    /// Shares what the connection is used for, so that it can be used for something else.
    pub(crate) fn ask(&self) -> Arc<Mutex<Ask>> {
        Arc::clone(&self.ask)
    }

    /// Waits until the policy no longer allows the connection.
    pub(crate) async fn revoked(&mut self) {
        loop {
            // Without a sender the sandbox is over.
            if self.policy.changed().await.is_err() {
                return;
            }
            let policy = Arc::clone(&self.policy.borrow_and_update());
            let kind = address::kind_here(self.address);
            let ask = self.ask.lock().unwrap_or_else(PoisonError::into_inner).clone();
            if judge(&policy, &self.target, &ask).is_err()
                || admit(&policy, kind, self.address, self.target.port()).is_err()
            {
                return;
            }
        }
    }
}

/// One request to the endpoint of a route. It needs no rule for it, and none may be against it.
#[derive(Debug)]
pub(crate) struct Asked {
    policy: watch::Receiver<Arc<Policy>>,
    upstream: Arc<Upstream>,
    method: Method,
    path: String,
}

impl Asked {
    /// Returns the rule that is against it now.
    pub(crate) fn denied(&mut self) -> Option<Rule> {
        let policy = Arc::clone(&self.policy.borrow_and_update());
        let (target, request) = (&self.upstream.target, Some((self.method.as_str(), self.path.as_str())));
        denial(&policy, target.host(), target.port(), request).cloned()
    }

    /// Returns the rule that is against it since it was last asked for.
    pub(crate) fn denied_since(&mut self) -> Option<Rule> {
        // Without a sender the sandbox is over, and whoever asks with it.
        if self.policy.has_changed().unwrap_or(false) { self.denied() } else { None }
    }

    /// Waits until a rule is against it.
    pub(crate) async fn denial(mut self) -> Rule {
        loop {
            if self.policy.changed().await.is_err() {
                // The sandbox is over, and so is whatever came of this.
                return std::future::pending().await;
            }
            if let Some(rule) = self.denied() {
                return rule;
            }
        }
    }
}

/// What stood in the way of a target, and the address it was about.
#[derive(Debug)]
pub(crate) struct Refused {
    pub(crate) why: Why,
    pub(crate) address: Option<IpAddr>,
}

impl From<Why> for Refused {
    fn from(why: Why) -> Self {
        Self { why, address: None }
    }
}

impl Pipeline {
    pub(crate) fn new(limits: Limits, terms: Terms, resolver: Arc<dyn Resolve>, notice: Arc<dyn Notice>) -> Self {
        let lent = terms.lent();
        let Terms { policy, routes, credentials: bound, authority, ledger, outflow, run } = terms;
        let policy = watch::Sender::new(Arc::new(policy));
        let endpoints = Endpoints::new(Arc::clone(&resolver), limits);
        let forbidden = Forbidden::new(lent.iter().flat_map(|credential| credential.forms()));
        let phantoms = Forbidden::new(lent.iter().flat_map(|credential| credential.phantom_forms()));
        let names = Mutex::default();
        let bodies = Arc::new(Semaphore::new(ROOM / PIECE));
        let lookups = Arc::new(Semaphore::new(LOOKUPS));
        Self {
            limits,
            notice,
            routes,
            ledger,
            outflow,
            endpoints,
            drains: Drains::default(),
            forbidden,
            phantoms,
            resolver,
            authority,
            lent,
            bound,
            run,
            policy,
            names,
            bodies,
            readers: Semaphore::new(READERS),
            lookups,
        }
    }

    /// Waits for room for a body; one that does not say how long it is may be as long as any.
    pub(crate) async fn room(&self, length: Option<u64>) -> Option<OwnedSemaphorePermit> {
        let most = self.limits.body_bytes;
        let bytes = length.and_then(|length| usize::try_from(length).ok()).unwrap_or(most).min(most);
        Arc::clone(&self.bodies).acquire_many_owned(u32::try_from(pieces(bytes)).unwrap_or(1)).await.ok()
    }

    /// Waits for the turn of a long body to be understood.
    pub(crate) async fn turn(&self) -> Option<SemaphorePermit<'_>> {
        self.readers.acquire().await.ok()
    }

    /// Makes every stand-in worthless.
    pub(crate) fn revoke(&self) {
        for credential in &self.lent {
            credential.revoke();
        }
    }

    /// Returns the run whose policy a person can change, if there is one.
    pub(crate) fn run(&self) -> Option<&str> {
        self.run.as_deref()
    }

    pub(crate) fn mode(&self) -> Mode {
        self.policy.borrow().mode
    }

    /// Returns whom the sandbox trusts to be a host, if requests to it have to be looked into.
    pub(crate) fn looks_into(&self, target: &Target) -> Option<&Arc<Authority>> {
        let authority = self.authority.as_ref()?;
        let lent = self.credential_for(target).is_some();
        let judged = || decide(&self.policy.borrow(), target.host(), target.port()).inspect;
        // Port 80 is looked into without TLS. Whatever stands on another port has to speak it, or says nothing.
        (lent || (target.port() != HTTP && judged())).then_some(authority)
    }

    /// Returns the one credential that is lent to a host over TLS; two that claim the same host are none.
    pub(crate) fn credential_for(&self, target: &Target) -> Option<&Arc<Credential>> {
        let mut all = self.bound.iter().filter(|credential| credential.is_for(target.host()));
        match (all.next(), all.next()) {
            (Some(one), None) if target.port() == HTTPS => Some(one),
            _ => None,
        }
    }

    /// Finds a stand-in in a request to a place it is not for, and returns its name.
    pub(crate) fn astray(&self, headers: &HeaderMap, path: &str, own: Option<&Arc<Credential>>) -> Option<String> {
        let strange = |credential: &&Arc<Credential>| !own.is_some_and(|own| Arc::ptr_eq(own, credential));
        let found = self.lent.iter().filter(strange).find(|credential| {
            credential.stands_in(path) || headers.iter().any(|(_, value)| credential.is_held_by(value))
        });
        found.map(|credential| credential.name().to_owned())
    }

    /// Finds the credentials whose stand-ins a body holds, in whatever form.
    pub(crate) fn held_by(&self, body: &[u8]) -> Vec<&Arc<Credential>> {
        if self.phantoms.found(body).is_none() {
            return Vec::new();
        }
        let held = |credential: &&Arc<Credential>| Forbidden::new(credential.phantom_forms()).found(body).is_some();
        self.lent.iter().filter(held).collect()
    }

    /// Returns the leave to ask an endpoint of a route for something, as long as no rule is against it.
    pub(crate) fn asked(&self, upstream: &Arc<Upstream>, method: &Method, path: &str) -> Asked {
        let (policy, upstream) = (self.policy.subscribe(), Arc::clone(upstream));
        Asked { policy, upstream, method: method.clone(), path: path.to_owned() }
    }

    pub(crate) fn set_policy(&self, policy: Policy) {
        let policy = Arc::new(policy);
        self.policy.send_replace(Arc::clone(&policy));
        self.endpoints.retain(|target| denial(&policy, target.host(), target.port(), None).is_none());
        // After the new policy is in force: an answer given a moment ago under the old one is forgotten as well.
        self.lock_names().retain(|name| judge_name(&policy, name).is_ok());
    }

    /// Judges by name only and tells nobody, unless the answer is no.
    pub(crate) fn judge(&self, entry: Entry, target: &Target, ask: &Ask) -> Result<(), Why> {
        let policy = Arc::clone(&self.policy.borrow());
        let judged = judge(&policy, target, ask).map(drop);
        judged.inspect_err(|why| self.refused_request(entry, target, ask.request(), why))
    }

    /// Takes a target all the way: judged, resolved once, filtered, dialled. The decision is told either way.
    pub(crate) async fn open(&self, entry: Entry, target: &Target, ask: Ask) -> Result<Way, Refused> {
        match self.reach(target, &ask).await {
            Ok((way, why)) => {
                self.tell(entry, target, None, true, &why, Some(way.permit.address));
                Ok(way)
            }
            Err(refused) => {
                self.tell(entry, target, ask.request(), false, &refused.why, refused.address);
                Err(refused)
            }
        }
    }

    async fn reach(&self, target: &Target, ask: &Ask) -> Result<(Way, Why), Refused> {
        // Subscribed before the judgement, so that no change falls between the two.
        let mut changes = self.policy.subscribe();
        judge(&Arc::clone(&changes.borrow_and_update()), target, ask)?;
        let addresses = self.addresses(target).await?;
        // Looking a name up takes a while, and the policy may have changed meanwhile.
        let policy = Arc::clone(&changes.borrow_and_update());
        let why = judge(&policy, target, ask)?;
        for address in &addresses {
            // One inner address spoils them all: an honest public name has none.
            admit(&policy, address::kind_here(*address), *address, target.port())
                .map_err(|kind: Kind| Refused { why: Why::Inner(kind), address: Some(*address) })?;
        }
        let deadline = Instant::now() + self.limits.dial_time;
        let mut last = None;
        for address in addresses.into_iter().take(MOST_ADDRESSES) {
            last = Some(address);
            let dial = self.resolver.dial(SocketAddr::new(address, target.port()));
            if let Ok(Ok(stream)) = timeout_at(deadline, dial).await {
                // Only speed is lost without it.
                stream.set_nodelay(true).ok();
                let ask = Arc::new(Mutex::new(ask.clone()));
                let permit = Permit { policy: changes, target: target.clone(), ask, address };
                return Ok((Way { stream, permit }, why));
            }
        }
        Err(Refused { why: Why::Unreachable, address: last })
    }

    async fn addresses(&self, target: &Target) -> Result<Vec<IpAddr>, Refused> {
        if let Some(address) = target.literal() {
            return Ok(vec![address]);
        }
        let (resolver, host, lookups) =
            (Arc::clone(&self.resolver), target.host().to_owned(), Arc::clone(&self.lookups));
        let look_up = async move {
            let _one = lookups.acquire_owned().await.map_err(io::Error::other)?;
            resolver.resolve(&host).await
        };
        // In a task of its own, so that a look-up is counted until it ends, not until nobody waits for it.
        match timeout(self.limits.resolve_time, tokio::spawn(look_up)).await {
            // A mapped address is dialled as the one it maps, so it is judged as that one too.
            Ok(Ok(Ok(found))) if !found.is_empty() => {
                Ok(found.into_iter().map(|address| address.to_canonical()).collect())
            }
            _ => Err(Why::Unresolved.into()),
        }
    }

    /// Gives an allowed name its synthetic address.
    pub(crate) fn name_address(&self, host: &str) -> Result<std::net::Ipv4Addr, Why> {
        // The policy is read under the lock: see `set_policy`.
        let mut names = self.lock_names();
        let policy = Arc::clone(&self.policy.borrow());
        let judged = judge_name(&policy, host);
        let known = names.knows(host);
        let address = judged.is_ok().then(|| names.give(host));
        drop(names);
        if let (true, Some(address)) = (known, address) {
            // Asked again and answered the same: it was told the first time.
            return Ok(address);
        }
        let (allowed, why) = match &judged {
            Ok(why) => (true, why),
            Err(why) => (false, why),
        };
        self.notice.tell(Told::Decided(Decided {
            entry: Entry::Dns,
            host: host.to_owned(),
            port: 0,
            request: None,
            allowed,
            why: why.clone(),
            address: address.map(IpAddr::V4),
        }));
        address.ok_or_else(|| why.clone())
    }

    /// Returns the name that a synthetic address was given out for.
    pub(crate) fn named(&self, address: IpAddr) -> Option<String> {
        match address.to_canonical() {
            IpAddr::V4(v4) => self.lock_names().name(v4),
            IpAddr::V6(_) => None,
        }
    }

    pub(crate) fn refused(&self, entry: Entry, target: &Target, why: &Why) {
        self.tell(entry, target, None, false, why, None);
    }

    /// As [`Pipeline::refused`], for one request.
    pub(crate) fn refused_request(&self, entry: Entry, target: &Target, request: Option<Requested>, why: &Why) {
        self.tell(entry, target, request, false, why, None);
    }

    /// Counts what goes to a target.
    pub(crate) fn leaves(&self, bytes: usize, target: &Target) {
        self.outflow.add(bytes as u64, target, &*self.notice);
    }

    /// Tells of something that was refused before it named a proper target.
    pub(crate) fn refused_text(&self, entry: Entry, host: &str, port: u16, why: &Why) {
        let host = shown(host);
        let (request, allowed, why, address) = (None, false, why.clone(), None);
        self.notice.tell(Told::Decided(Decided { entry, host, port, request, allowed, why, address }));
    }

    fn tell(
        &self,
        entry: Entry,
        target: &Target,
        request: Option<Requested>,
        allowed: bool,
        why: &Why,
        address: Option<IpAddr>,
    ) {
        let (host, port, why) = (target.host().to_owned(), target.port(), why.clone());
        self.notice.tell(Told::Decided(Decided { entry, host, port, request, allowed, why, address }));
    }

    /// No code under the lock can panic, so a poisoned table is still a true one.
    fn lock_names(&self) -> MutexGuard<'_, Table> {
        self.names.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns how much room a body of so many bytes takes.
fn pieces(bytes: usize) -> usize {
    bytes.div_ceil(PIECE).clamp(1, ROOM / PIECE)
}

/// Gives back the room that a body turned out not to need.
pub(crate) fn fit(room: &mut OwnedSemaphorePermit, bytes: usize) {
    drop(room.split(room.num_permits().saturating_sub(pieces(bytes))));
}

/// Raises an alarm.
pub(crate) fn alarm(notice: &dyn Notice, what: Wrong, credential: String, target: &Target) {
    let (host, port) = (target.host().to_owned(), target.port());
    notice.tell(Told::Alarm(Alarm { what, credential, host, port }));
}
