//! The one pipeline of a sandbox: every entry asks here, and nothing leaves that was not asked for here.
//!
//! Name before DNS, one resolution, the address filter, then a dial of exactly the checked address. What a request is
//! lent and what it costs is decided where requests are read; here is what they share.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use hyper::Method;
use hyper::header::HeaderMap;
use ralph_core::egress::{
    AccessRequest, EgressTarget, HTTP_PORT, HTTPS_PORT, IpAddressKind, decide_address, decide_name, decide_target,
    printable_host,
};
use ralph_core::policy::{Policy, PolicyMode, PolicyRule, decide_connection, matching_deny_rule};
use tokio::net::TcpStream;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, SemaphorePermit, watch};
use tokio::time::{Instant, timeout, timeout_at};

use crate::credential::ProxyCredential;
use crate::dns::SyntheticAddresses;
use crate::drain::DrainTasks;
use crate::endpoint_pool::EndpointPool;
use crate::grant::ProxyGrant;
use crate::leak_scan::ForbiddenTexts;
use crate::ledger::Ledger;
use crate::limits::ProxyLimits;
use crate::mitm_ca::MitmCa;
use crate::observer::{
    AlarmKind, DecisionReason, EgressAlarm, EgressDecision, EgressEntry, EgressEvent, EgressObserver, RequestSummary,
};
use crate::outflow::OutflowMeter;
use crate::policy::kind_with_own;
use crate::resolver::EgressResolver;
use crate::route::{ModelRoute, RouteUpstream};

/// More addresses of one name are not tried.
const MAX_ADDRESSES: usize = 8;

/// What all connections of one sandbox share.
#[derive(Debug)]
pub(crate) struct Pipeline {
    pub(crate) limits: ProxyLimits,
    pub(crate) observer: Arc<dyn EgressObserver>,
    pub(crate) routes: Vec<ModelRoute>,
    pub(crate) ledger: Ledger,
    outflow: OutflowMeter,
    pub(crate) endpoints: EndpointPool,
    /// What is read on after its client has gone.
    pub(crate) drains: DrainTasks,
    /// The real credentials in every form: they must not come back.
    pub(crate) forbidden: ForbiddenTexts,
    /// Their stand-ins: they must not go anywhere but where they are for.
    pub(crate) phantoms: ForbiddenTexts,
    pub(crate) resolver: Arc<dyn EgressResolver>,
    authority: Option<Arc<MitmCa>>,
    /// Every credential that is lent.
    credentials: Vec<Arc<ProxyCredential>>,
    /// Those that are lent to hosts.
    host_credentials: Vec<Arc<ProxyCredential>>,
    run: Option<String>,
    policy: watch::Sender<Arc<Policy>>,
    names: Mutex<SyntheticAddresses>,
    /// The room for bodies that are read as a whole, in pieces of [`BODY_BUFFER_UNIT`].
    body_buffer: Arc<Semaphore>,
    /// Whose turn it is to have a long body understood.
    body_parsers: Semaphore,
    /// How many names may be looked up at the same time: a look-up that nobody waits for any more still holds a thread.
    lookups: Arc<Semaphore>,
}

/// All bodies of a sandbox that are read as a whole have so much room together.
const BODY_BUFFER_BYTES: usize = 64 << 20;
const BODY_BUFFER_UNIT: usize = 64 << 10;
/// So many long bodies of a sandbox are understood at the same time: made into values, one takes far more memory than its
/// text.
const MAX_BODY_PARSERS: usize = 2;
const MAX_LOOKUPS: usize = 16;

/// An open way to a target, and the leave to use it.
#[derive(Debug)]
pub(crate) struct PermittedStream {
    pub(crate) stream: TcpStream,
    pub(crate) permit: ConnectionPermit,
}

/// The leave to use a connection, as long as the policy grants it.
#[derive(Debug)]
pub(crate) struct ConnectionPermit {
    policy: watch::Receiver<Arc<Policy>>,
    target: EgressTarget,
    /// What the connection is used for at the moment.
    access: Arc<Mutex<AccessRequest>>,
    address: IpAddr,
}

impl ConnectionPermit {
    /// Shares what the connection is used for, so that it can be used for something else.
    pub(crate) fn access(&self) -> Arc<Mutex<AccessRequest>> {
        Arc::clone(&self.access)
    }

    /// Waits until the policy no longer allows the connection.
    pub(crate) async fn wait_revoked(&mut self) {
        loop {
            // Without a sender the sandbox is over.
            if self.policy.changed().await.is_err() {
                return;
            }
            let policy = Arc::clone(&self.policy.borrow_and_update());
            let kind = kind_with_own(self.address);
            let ask = self.access.lock().unwrap_or_else(PoisonError::into_inner).clone();
            if decide_target(&policy, &self.target, &ask).is_err()
                || decide_address(&policy, kind, self.address, self.target.port()).is_err()
            {
                return;
            }
        }
    }
}

/// One request to the endpoint of a route. It needs no rule for it, and none may be against it.
#[derive(Debug)]
pub(crate) struct RoutePolicyCheck {
    policy: watch::Receiver<Arc<Policy>>,
    upstream: Arc<RouteUpstream>,
    method: Method,
    path: String,
}

impl RoutePolicyCheck {
    /// Returns the rule that is against it now.
    pub(crate) fn denying_rule(&mut self) -> Option<PolicyRule> {
        let policy = Arc::clone(&self.policy.borrow_and_update());
        let (target, request) = (&self.upstream.target, Some((self.method.as_str(), self.path.as_str())));
        matching_deny_rule(&policy, target.host(), target.port(), request).cloned()
    }

    /// Returns the rule that is against it since it was last asked for.
    pub(crate) fn newly_denying_rule(&mut self) -> Option<PolicyRule> {
        // Without a sender the sandbox is over, and whoever asks with it.
        if self.policy.has_changed().unwrap_or(false) { self.denying_rule() } else { None }
    }

    /// Waits until a rule is against it.
    pub(crate) async fn wait_denied(mut self) -> PolicyRule {
        loop {
            if self.policy.changed().await.is_err() {
                // The sandbox is over, and so is whatever came of this.
                return std::future::pending().await;
            }
            if let Some(rule) = self.denying_rule() {
                return rule;
            }
        }
    }
}

/// What stood in the way of a target, and the address it was about.
#[derive(Debug)]
pub(crate) struct TargetRefusal {
    pub(crate) why: DecisionReason,
    pub(crate) address: Option<IpAddr>,
}

impl From<DecisionReason> for TargetRefusal {
    fn from(why: DecisionReason) -> Self {
        Self { why, address: None }
    }
}

impl Pipeline {
    pub(crate) fn new(
        limits: ProxyLimits,
        terms: ProxyGrant,
        resolver: Arc<dyn EgressResolver>,
        observer: Arc<dyn EgressObserver>,
    ) -> Self {
        let credentials = terms.all_credentials();
        let ProxyGrant { policy, routes, credentials: host_credentials, authority, ledger, outflow, run } = terms;
        let policy = watch::Sender::new(Arc::new(policy));
        let endpoints = EndpointPool::new(Arc::clone(&resolver), limits);
        let forbidden = ForbiddenTexts::new(credentials.iter().flat_map(|credential| credential.secret_encodings()));
        let phantoms = ForbiddenTexts::new(credentials.iter().flat_map(|credential| credential.phantom_encodings()));
        let names = Mutex::default();
        let body_buffer = Arc::new(Semaphore::new(BODY_BUFFER_BYTES / BODY_BUFFER_UNIT));
        let lookups = Arc::new(Semaphore::new(MAX_LOOKUPS));
        Self {
            limits,
            observer,
            routes,
            ledger,
            outflow,
            endpoints,
            drains: DrainTasks::default(),
            forbidden,
            phantoms,
            resolver,
            authority,
            credentials,
            host_credentials,
            run,
            policy,
            names,
            body_buffer,
            body_parsers: Semaphore::new(MAX_BODY_PARSERS),
            lookups,
        }
    }

    /// Waits for room for a body; one that does not say how long it is may be as long as any.
    pub(crate) async fn reserve_body_buffer(&self, length: Option<u64>) -> Option<OwnedSemaphorePermit> {
        let most = self.limits.body_bytes;
        let bytes = length.and_then(|length| usize::try_from(length).ok()).unwrap_or(most).min(most);
        Arc::clone(&self.body_buffer).acquire_many_owned(u32::try_from(buffer_units(bytes)).unwrap_or(1)).await.ok()
    }

    /// Waits for the turn of a long body to be understood.
    pub(crate) async fn acquire_body_parser(&self) -> Option<SemaphorePermit<'_>> {
        self.body_parsers.acquire().await.ok()
    }

    /// Makes every stand-in worthless.
    pub(crate) fn revoke_phantoms(&self) {
        for credential in &self.credentials {
            credential.revoke();
        }
    }

    /// Returns the run whose policy a person can change, if there is one.
    pub(crate) fn run(&self) -> Option<&str> {
        self.run.as_deref()
    }

    pub(crate) fn mode(&self) -> PolicyMode {
        self.policy.borrow().mode
    }

    /// Returns whom the sandbox trusts to be a host, if requests to it have to be looked into.
    pub(crate) fn inspection_ca(&self, target: &EgressTarget) -> Option<&Arc<MitmCa>> {
        let authority = self.authority.as_ref()?;
        let lent = self.credential_for(target).is_some();
        let judged = || decide_connection(&self.policy.borrow(), target.host(), target.port()).inspect;
        // Port 80 is looked into without TLS. Whatever stands on another port has to speak it, or says nothing.
        (lent || (target.port() != HTTP_PORT && judged())).then_some(authority)
    }

    /// Returns the one credential that is lent to a host over TLS; two that claim the same host are none.
    pub(crate) fn credential_for(&self, target: &EgressTarget) -> Option<&Arc<ProxyCredential>> {
        let mut all = self.host_credentials.iter().filter(|credential| credential.is_for_host(target.host()));
        match (all.next(), all.next()) {
            (Some(one), None) if target.port() == HTTPS_PORT => Some(one),
            _ => None,
        }
    }

    /// Finds a stand-in in a request to a place it is not for, and returns its name.
    pub(crate) fn find_misdirected_phantom(
        &self,
        headers: &HeaderMap,
        path: &str,
        own: Option<&Arc<ProxyCredential>>,
    ) -> Option<String> {
        let strange = |credential: &&Arc<ProxyCredential>| !own.is_some_and(|own| Arc::ptr_eq(own, credential));
        let found = self.credentials.iter().filter(strange).find(|credential| {
            credential.phantom_in_text(path) || headers.iter().any(|(_, value)| credential.phantom_in_value(value))
        });
        found.map(|credential| credential.name().to_owned())
    }

    /// Finds the credentials whose stand-ins a body holds, in whatever form.
    pub(crate) fn credentials_with_phantom_in(&self, body: &[u8]) -> Vec<&Arc<ProxyCredential>> {
        if self.phantoms.find(body).is_none() {
            return Vec::new();
        }
        let held = |credential: &&Arc<ProxyCredential>| {
            ForbiddenTexts::new(credential.phantom_encodings()).find(body).is_some()
        };
        self.credentials.iter().filter(held).collect()
    }

    /// Returns the leave to ask an endpoint of a route for something, as long as no rule is against it.
    pub(crate) fn route_policy_check(
        &self,
        upstream: &Arc<RouteUpstream>,
        method: &Method,
        path: &str,
    ) -> RoutePolicyCheck {
        let (policy, upstream) = (self.policy.subscribe(), Arc::clone(upstream));
        RoutePolicyCheck { policy, upstream, method: method.clone(), path: path.to_owned() }
    }

    pub(crate) fn set_policy(&self, policy: Policy) {
        let policy = Arc::new(policy);
        self.policy.send_replace(Arc::clone(&policy));
        self.endpoints.retain(|target| matching_deny_rule(&policy, target.host(), target.port(), None).is_none());
        // After the new policy is in force: an answer given a moment ago under the old one is forgotten as well.
        self.lock_names().retain(|name| decide_name(&policy, name).is_ok());
    }

    /// Judges by name only and tells nobody, unless the answer is no.
    pub(crate) fn check_policy(
        &self,
        entry: EgressEntry,
        target: &EgressTarget,
        ask: &AccessRequest,
    ) -> Result<(), DecisionReason> {
        let policy = Arc::clone(&self.policy.borrow());
        let judged = decide_target(&policy, target, ask).map(drop);
        judged.inspect_err(|why| self.report_refused_request(entry, target, ask.request_summary(), why))
    }

    /// Takes a target all the way: judged, resolved once, filtered, dialled. The decision is told either way.
    pub(crate) async fn open(
        &self,
        entry: EgressEntry,
        target: &EgressTarget,
        ask: AccessRequest,
    ) -> Result<PermittedStream, TargetRefusal> {
        match self.resolve_and_dial(target, &ask).await {
            Ok((way, why)) => {
                self.report_decision(entry, target, None, true, &why, Some(way.permit.address));
                Ok(way)
            }
            Err(refused) => {
                self.report_decision(entry, target, ask.request_summary(), false, &refused.why, refused.address);
                Err(refused)
            }
        }
    }

    async fn resolve_and_dial(
        &self,
        target: &EgressTarget,
        ask: &AccessRequest,
    ) -> Result<(PermittedStream, DecisionReason), TargetRefusal> {
        // Subscribed before the judgement, so that no change falls between the two.
        let mut changes = self.policy.subscribe();
        decide_target(&Arc::clone(&changes.borrow_and_update()), target, ask)?;
        let addresses = self.resolve_target(target).await?;
        // Looking a name up takes a while, and the policy may have changed meanwhile.
        let policy = Arc::clone(&changes.borrow_and_update());
        let why = decide_target(&policy, target, ask)?;
        for address in &addresses {
            // One inner address spoils them all: an honest public name has none.
            decide_address(&policy, kind_with_own(*address), *address, target.port()).map_err(
                |kind: IpAddressKind| TargetRefusal {
                    why: DecisionReason::InternalAddress(kind),
                    address: Some(*address),
                },
            )?;
        }
        let deadline = Instant::now() + self.limits.dial_time;
        let mut last = None;
        for address in addresses.into_iter().take(MAX_ADDRESSES) {
            last = Some(address);
            let dial = self.resolver.dial(SocketAddr::new(address, target.port()));
            if let Ok(Ok(stream)) = timeout_at(deadline, dial).await {
                // Only speed is lost without it.
                stream.set_nodelay(true).ok();
                let ask = Arc::new(Mutex::new(ask.clone()));
                let permit = ConnectionPermit { policy: changes, target: target.clone(), access: ask, address };
                return Ok((PermittedStream { stream, permit }, why));
            }
        }
        Err(TargetRefusal { why: DecisionReason::Unreachable, address: last })
    }

    async fn resolve_target(&self, target: &EgressTarget) -> Result<Vec<IpAddr>, TargetRefusal> {
        if let Some(address) = target.ip_address() {
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
            _ => Err(DecisionReason::Unresolved.into()),
        }
    }

    /// Gives an allowed name its synthetic address.
    pub(crate) fn synthetic_address(&self, host: &str) -> Result<std::net::Ipv4Addr, DecisionReason> {
        // The policy is read under the lock: see `set_policy`.
        let mut names = self.lock_names();
        let policy = Arc::clone(&self.policy.borrow());
        let judged = decide_name(&policy, host);
        let known = names.contains(host);
        let address = judged.is_ok().then(|| names.assign(host));
        drop(names);
        if let (true, Some(address)) = (known, address) {
            // Asked again and answered the same: it was told the first time.
            return Ok(address);
        }
        let (allowed, why) = match &judged {
            Ok(why) => (true, why),
            Err(why) => (false, why),
        };
        self.observer.observe(EgressEvent::Decision(EgressDecision {
            entry: EgressEntry::Dns,
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
    pub(crate) fn name_of_address(&self, address: IpAddr) -> Option<String> {
        match address.to_canonical() {
            IpAddr::V4(v4) => self.lock_names().name(v4),
            IpAddr::V6(_) => None,
        }
    }

    pub(crate) fn report_refusal(&self, entry: EgressEntry, target: &EgressTarget, why: &DecisionReason) {
        self.report_decision(entry, target, None, false, why, None);
    }

    /// As [`Pipeline::report_refusal`], for one request.
    pub(crate) fn report_refused_request(
        &self,
        entry: EgressEntry,
        target: &EgressTarget,
        request: Option<RequestSummary>,
        why: &DecisionReason,
    ) {
        self.report_decision(entry, target, request, false, why, None);
    }

    /// Counts what goes to a target.
    pub(crate) fn count_outflow(&self, bytes: usize, target: &EgressTarget) {
        self.outflow.add(bytes as u64, target, &*self.observer);
    }

    /// Tells of something that was refused before it named a proper target.
    pub(crate) fn report_refused_text(&self, entry: EgressEntry, host: &str, port: u16, why: &DecisionReason) {
        let host = printable_host(host);
        let (request, allowed, why, address) = (None, false, why.clone(), None);
        self.observer.observe(EgressEvent::Decision(EgressDecision {
            entry,
            host,
            port,
            request,
            allowed,
            why,
            address,
        }));
    }

    fn report_decision(
        &self,
        entry: EgressEntry,
        target: &EgressTarget,
        request: Option<RequestSummary>,
        allowed: bool,
        why: &DecisionReason,
        address: Option<IpAddr>,
    ) {
        let (host, port, why) = (target.host().to_owned(), target.port(), why.clone());
        self.observer.observe(EgressEvent::Decision(EgressDecision {
            entry,
            host,
            port,
            request,
            allowed,
            why,
            address,
        }));
    }

    /// No code under the lock can panic, so a poisoned table is still a true one.
    fn lock_names(&self) -> MutexGuard<'_, SyntheticAddresses> {
        self.names.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns how much room a body of so many bytes takes.
fn buffer_units(bytes: usize) -> usize {
    bytes.div_ceil(BODY_BUFFER_UNIT).clamp(1, BODY_BUFFER_BYTES / BODY_BUFFER_UNIT)
}

/// Gives back the room that a body turned out not to need.
pub(crate) fn release_unused_buffer(room: &mut OwnedSemaphorePermit, bytes: usize) {
    drop(room.split(room.num_permits().saturating_sub(buffer_units(bytes))));
}

/// Raises an alarm.
pub(crate) fn raise_alarm(notice: &dyn EgressObserver, what: AlarmKind, credential: String, target: &EgressTarget) {
    let (host, port) = (target.host().to_owned(), target.port());
    notice.observe(EgressEvent::Alarm(EgressAlarm { what, credential, host, port }));
}
