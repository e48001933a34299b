//! Starts and supervises the egress proxies of this machine's sandboxes, one per sandbox.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::io;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::time::Duration;

use ralph_core::event::Event;
use ralph_core::policy::Policy;
use ralph_core::redact::Redactor;
use ralph_proxy::credential::ProxyCredential;
use ralph_proxy::egress_events::{EgressEvent, EgressObserver, PersistFuture};
use ralph_proxy::grant::ProxyGrant;
use ralph_proxy::limits::ProxyLimits;
use ralph_proxy::listen::{self, ListenerSockets, ProxyHandle, ProxyShutdown};
use ralph_proxy::upstream_network::{EgressResolver, SystemResolver};
use ralph_sandbox::{EgressServer, EgressSockets, SandboxLabel, ServeGuard};
use tokio::time::timeout;

use super::POLICY_LABEL;
use crate::audit::{AuditLog, DenialCounter, is_refusal};
use crate::error::Error;
use crate::secret::SecretStore;
use crate::store::{RalphHome, RunFolder};

/// Serves the egress proxies of all sandboxes on this machine.
#[derive(Debug)]
pub struct EgressManager {
    home: RalphHome,
    secrets: SecretStore,
    /// Masks every secret of the user. Loading them can take a while, so it is done once.
    redactor: OnceLock<Redactor>,
    resolver: Arc<dyn EgressResolver>,
    limits: ProxyLimits,
    /// Grants agreed on before a sandbox was created, by sandbox name.
    leases: Mutex<HashMap<String, Arc<EgressLeaseState>>>,
    /// Proxies of runs that were started and may not have stopped yet.
    run_proxies: Mutex<Vec<RunProxy>>,
}

/// The proxy of a run. Connections can outlive the handle that kept its listeners open for a moment.
#[derive(Debug)]
struct RunProxy {
    run: String,
    active: Weak<ActiveProxy>,
    end: ProxyShutdown,
}

/// A proxy whose listeners are open.
#[derive(Debug)]
struct ActiveProxy {
    guard: ProxyHandle,
    observer: Arc<AuditObserver>,
}

impl Drop for ActiveProxy {
    fn drop(&mut self) {
        self.observer.record_closed();
    }
}

/// The grant of a sandbox and the proxy that serves it now.
#[derive(Debug)]
struct EgressLeaseState {
    terms: Mutex<ProxyGrant>,
    active: Mutex<Weak<ActiveProxy>>,
    /// How often the proxy has died.
    restarts: AtomicU64,
    /// Where a sandbox without a run records its traffic.
    audit_folder: Option<RunFolder>,
    /// Refusals and alarms of a sandbox that has no run to report them.
    collected: Mutex<EgressEventCollector>,
    /// Refused hosts, each once, for callers that want to know what a command tried to reach.
    refused_hosts: Mutex<BTreeSet<String>>,
}

/// Sorts egress events. A program can cause any number of refusals, and must not hide an alarm by doing so.
#[derive(Debug)]
struct EgressEventCollector {
    denials: DenialCounter,
    refusals: Vec<Event>,
    /// Refusals beyond those kept.
    more: u64,
    /// One event per kind of everything else, and one for every power of ten.
    others: Vec<Event>,
}

impl EgressEventCollector {
    fn new() -> Self {
        Self { denials: DenialCounter::new(Redactor::new([])), refusals: Vec::new(), more: 0, others: Vec::new() }
    }

    fn observe(&mut self, event: &EgressEvent) {
        match self.denials.observe(event) {
            Some(event @ Event::PolicyDenied { .. }) if self.refusals.len() < MAX_REFUSALS => self.refusals.push(event),
            Some(Event::PolicyDenied { .. }) => self.more += 1,
            Some(event) => self.others.push(event),
            None => (),
        }
    }
}

/// The egress events of a sandbox.
#[derive(Debug, Default, PartialEq)]
pub struct EgressReport {
    pub refusals: Vec<Event>,
    /// How many more refusals there were.
    pub more: u64,
    /// Alarms and other events worth reporting.
    pub others: Vec<Event>,
}

/// How many refusals are kept in full; more would not be read.
const MAX_REFUSALS: usize = 20;
/// How long a proxy may take to close its listeners.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(5);

impl EgressManager {
    pub(crate) fn new(home: RalphHome, secrets: SecretStore) -> Arc<Self> {
        Self::with_resolver(home, secrets, Arc::new(SystemResolver), ProxyLimits::default())
    }

    /// Resolves and connects through `outside` instead of the host's network. Public for the attack suite, whose
    /// targets are recorders on this machine.
    pub fn with_resolver(
        home: RalphHome,
        secrets: SecretStore,
        outside: Arc<dyn EgressResolver>,
        limits: ProxyLimits,
    ) -> Arc<Self> {
        let (redactor, leases, run_proxies) = (OnceLock::new(), Mutex::default(), Mutex::default());
        Arc::new(Self { home, secrets, redactor, resolver: outside, limits, leases, run_proxies })
    }

    /// Registers the grant of a sandbox that is about to be created, for as long as the lease is held.
    pub fn lease(self: &Arc<Self>, sandbox: &str, terms: ProxyGrant) -> EgressLease {
        self.new_lease(sandbox, terms, None)
    }

    /// As [`Self::lease`], for a sandbox without a run, whose traffic is recorded in an existing folder.
    pub fn lease_with_audit_folder(
        self: &Arc<Self>,
        sandbox: &str,
        terms: ProxyGrant,
        audit_folder: RunFolder,
    ) -> EgressLease {
        self.new_lease(sandbox, terms, Some(audit_folder))
    }

    fn new_lease(self: &Arc<Self>, sandbox: &str, terms: ProxyGrant, audit_folder: Option<RunFolder>) -> EgressLease {
        let state = Arc::new(EgressLeaseState {
            terms: Mutex::new(terms),
            active: Mutex::new(Weak::new()),
            restarts: AtomicU64::new(0),
            audit_folder,
            collected: Mutex::new(EgressEventCollector::new()),
            refused_hosts: Mutex::default(),
        });
        self.lock_leases().insert(sandbox.to_owned(), Arc::clone(&state));
        EgressLease { egress: Arc::clone(self), sandbox: sandbox.to_owned(), state }
    }

    /// Kills the proxy of a sandbox, as a crash would: every connection is cut, and the proxy restarts.
    pub fn kill_proxy(&self, sandbox: &str) {
        let lease = self.lock_leases().get(sandbox).cloned();
        if let Some(proxy) = lease.and_then(|lease| lock(&lease.active).upgrade()) {
            proxy.guard.restart();
        }
    }

    /// Closes all listeners of a run and waits until everything that passed them is recorded. Running cages continue
    /// without.
    pub async fn close_run(&self, run: &str) {
        let of_run: Vec<RunProxy> = lock(&self.run_proxies).extract_if(.., |proxy| proxy.run == run).collect();
        for RunProxy { active: proxy, end, .. } in of_run {
            if timeout(CLOSE_TIMEOUT, end.stop_and_wait()).await.is_err() {
                tracing::warn!(run, "the egress proxy of a sandbox did not stop in time");
            }
            if let Some(proxy) = proxy.upgrade() {
                proxy.observer.record_closed();
            }
        }
    }

    /// As [`EgressLease::restarts`], for a sandbox given by name.
    pub fn restarts(&self, sandbox: &str) -> u64 {
        self.lock_leases().get(sandbox).map_or(0, |lease| lease.restarts.load(Ordering::Acquire))
    }

    /// Returns the hosts that the proxy refused to a sandbox since the last call.
    pub fn take_refused_hosts(&self, sandbox: &str) -> BTreeSet<String> {
        let lease = self.lock_leases().get(sandbox).cloned();
        lease.map(|lease| std::mem::take(&mut *lock(&lease.refused_hosts))).unwrap_or_default()
    }

    fn redactor(&self) -> Redactor {
        self.redactor.get_or_init(|| Redactor::new(self.secrets.all_values())).clone()
    }

    fn lock_leases(&self) -> MutexGuard<'_, HashMap<String, Arc<EgressLeaseState>>> {
        self.leases.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A lease for one sandbox. Dropping it ends the lease and revokes the granted credentials.
#[derive(Debug)]
pub struct EgressLease {
    egress: Arc<EgressManager>,
    sandbox: String,
    state: Arc<EgressLeaseState>,
}

impl EgressLease {
    /// Returns every granted credential.
    pub fn credentials(&self) -> Vec<Arc<ProxyCredential>> {
        lock(&self.state.terms).all_credentials()
    }

    /// Changes the policy, at once and for every later cage of the sandbox.
    pub fn set_policy(&self, policy: Policy) {
        lock(&self.state.terms).policy = policy.clone();
        if let Some(proxy) = lock(&self.state.active).upgrade() {
            proxy.guard.set_policy(policy);
        }
    }

    /// Returns refusals and alarms since the last call.
    pub fn take_report(&self) -> EgressReport {
        let mut collected = lock(&self.state.collected);
        let (refusals, others) = (std::mem::take(&mut collected.refusals), std::mem::take(&mut collected.others));
        EgressReport { refusals, more: std::mem::take(&mut collected.more), others }
    }

    /// Flushes the audit log of a sandbox without a run; returns its path if it has any records.
    pub fn flush_audit(&self) -> Result<Option<PathBuf>, Error> {
        let Some(folder) = self.state.audit_folder.as_ref().filter(|folder| !is_audit_empty(folder)) else {
            return Ok(None);
        };
        AuditLog::open(folder, self.egress.redactor())?.flush_and_head()?;
        Ok(Some(crate::audit::path(folder)))
    }

    /// As [`EgressManager::kill_proxy`], for this sandbox.
    pub fn kill_proxy(&self) {
        self.egress.kill_proxy(&self.sandbox);
    }

    /// Returns how often the proxy has died; connections open at that moment were cut. The count rises before the cut,
    /// so that a caller that failed because of it sees it counted.
    pub fn restarts(&self) -> u64 {
        self.state.restarts.load(Ordering::Acquire)
    }
}

impl Drop for EgressLease {
    fn drop(&mut self) {
        for credential in lock(&self.state.terms).all_credentials() {
            credential.revoke();
        }
        if let Some(folder) = self.state.audit_folder.as_ref().filter(|folder| is_audit_empty(folder)) {
            // A folder that cannot be removed stays empty.
            let _ = std::fs::remove_dir_all(folder.path());
        }
        let mut all = self.egress.lock_leases();
        if all.get(&self.sandbox).is_some_and(|known| Arc::ptr_eq(known, &self.state)) {
            all.remove(&self.sandbox);
        }
    }
}

/// Reports whether a folder has no audit records.
fn is_audit_empty(folder: &RunFolder) -> bool {
    !crate::audit::path(folder).metadata().is_ok_and(|file| file.len() > 0)
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl EgressServer for EgressManager {
    fn serve(
        &self,
        sandbox: &str,
        labels: &BTreeMap<String, String>,
        sockets: EgressSockets,
    ) -> io::Result<ServeGuard> {
        let lease = self.lock_leases().get(sandbox).cloned();
        let mut terms = match &lease {
            Some(lease) => lock(&lease.terms).clone(),
            // Without a readable policy the proxy refuses everything: an empty policy denies.
            None => match labels.get(POLICY_LABEL) {
                Some(text) => serde_json::from_str::<Policy>(text)?.into(),
                None => Policy::default().into(),
            },
        };
        let folder =
            labels.get(SandboxLabel::RUN).map(|run| self.home.run_folder(run)).filter(|folder| folder.path().is_dir());
        terms.run = folder.as_ref().map(RunFolder::id);
        let of_run = folder.is_some();
        let folder = folder.or_else(|| lease.as_ref().and_then(|lease| lease.audit_folder.clone()));
        // Traffic that cannot be recorded is not let out, so a failure here keeps the proxy closed.
        let audit_log = folder
            .map(|folder| AuditLog::open(&folder, self.redactor()).map_err(|error| io::Error::other(error.to_string())))
            .transpose()?;
        if let Some(audit_log) = &audit_log {
            terms.outflow = audit_log.outflow(&terms.outflow);
        }
        let observer = Arc::new(AuditObserver {
            sandbox: sandbox.to_owned(),
            audit_log,
            of_run,
            lease: lease.clone(),
            has_records: AtomicBool::new(false),
        });
        let EgressSockets { explicit, transparent, dns_udp, dns_tcp } = sockets;
        let sockets = ListenerSockets { explicit, transparent, dns_udp, dns_tcp };
        let (resolver, events) = (Arc::clone(&self.resolver), Arc::clone(&observer) as Arc<dyn EgressObserver>);
        let guard = listen::serve_with_limits(self.limits, sockets, terms, resolver, events)?;
        let end = guard.shutdown();
        let proxy = Arc::new(ActiveProxy { guard, observer });
        if let Some(lease) = &lease {
            *lock(&lease.active) = Arc::downgrade(&proxy);
            // The policy may have changed while the listeners were opened.
            let policy = lock(&lease.terms).policy.clone();
            proxy.guard.set_policy(policy);
        }
        if let Some(run) = labels.get(SandboxLabel::RUN) {
            let mut proxies = lock(&self.run_proxies);
            proxies.retain(|proxy| !proxy.end.is_stopped());
            proxies.push(RunProxy { run: run.clone(), active: Arc::downgrade(&proxy), end });
        }
        Ok(ServeGuard::new(proxy))
    }
}

/// Records the egress events of one cage.
#[derive(Debug)]
struct AuditObserver {
    sandbox: String,
    audit_log: Option<Arc<AuditLog>>,
    /// The sandbox belongs to a run, which reports what is in the audit log.
    of_run: bool,
    lease: Option<Arc<EgressLeaseState>>,
    /// Something was recorded, so the end is worth a record too.
    has_records: AtomicBool,
}

impl AuditObserver {
    /// Records that the listeners were closed.
    fn record_closed(&self) {
        if let Some(audit_log) = self.audit_log.as_ref().filter(|_| self.has_records.swap(false, Ordering::Relaxed)) {
            audit_log.record_closed(&self.sandbox);
        }
    }
}

impl EgressObserver for AuditObserver {
    fn observe(&self, event: EgressEvent) {
        tracing::debug!(sandbox = self.sandbox, ?event, "egress");
        if let (EgressEvent::Decision(decided), Some(lease)) = (&event, &self.lease)
            && is_refusal(decided)
        {
            let mut refused = lock(&lease.refused_hosts);
            if refused.len() < MAX_REFUSALS {
                refused.insert(decided.host.clone());
            }
        }
        if let Some(audit_log) = &self.audit_log {
            self.has_records.store(true, Ordering::Relaxed);
            audit_log.write(&self.sandbox, &event);
        }
        if let Some(lease) = self.lease.as_ref().filter(|_| !self.of_run) {
            lock(&lease.collected).observe(&event);
        }
    }

    fn listeners_failed(&self) {
        if let Some(lease) = &self.lease {
            lease.restarts.fetch_add(1, Ordering::AcqRel);
        }
    }

    fn persist_call(&self, calling: EgressEvent) -> PersistFuture<'_> {
        tracing::debug!(sandbox = self.sandbox, ?calling, "egress");
        let Some(audit_log) = &self.audit_log else { return Box::pin(std::future::ready(Ok(()))) };
        self.has_records.store(true, Ordering::Relaxed);
        Box::pin(AuditLog::persist_call(audit_log, &self.sandbox, calling))
    }
}

#[cfg(test)]
mod tests {
    use ralph_core::event::EventLogLevel;
    use ralph_core::policy::PolicyMode;
    use ralph_proxy::egress_events::{AlarmKind, DecisionReason, EgressAlarm, EgressDecision, EgressEntry};

    use super::*;

    #[test]
    fn refusals_do_not_hide_alarms() {
        let mut collector = EgressEventCollector::new();
        for n in 0..30 {
            let (entry, host, why) =
                (EgressEntry::Dns, format!("x{n}.evil.test"), DecisionReason::Mode(PolicyMode::Allowlist));
            let decided = EgressDecision { entry, host, port: 0, request: None, allowed: false, why, address: None };
            collector.observe(&EgressEvent::Decision(decided));
        }
        let (what, credential, host) = (AlarmKind::PhantomMisdirected, "KEY".to_owned(), "evil.test".to_owned());
        collector.observe(&EgressEvent::Alarm(EgressAlarm { what, credential, host, port: 80 }));
        let text = "alarm: a phantom credential was sent to a host it is not for (`KEY`, evil.test:80)".to_owned();
        assert_eq!(collector.others, [Event::Log { level: EventLogLevel::Error, text: Redactor::new([]).mask(&text) }]);
        assert_eq!((collector.refusals.len(), collector.more), (MAX_REFUSALS, 10));
    }
}
