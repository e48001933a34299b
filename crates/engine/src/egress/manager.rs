//! Who stands at the doors of the cages of this machine.

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
use ralph_proxy::grant::ProxyGrant;
use ralph_proxy::limits::ProxyLimits;
use ralph_proxy::listen::{self, ListenerSockets, ProxyHandle, ProxyShutdown};
use ralph_proxy::observer::{EgressEvent, EgressObserver, PersistFuture};
use ralph_proxy::resolver::{EgressResolver, SystemResolver};
use ralph_sandbox::{EgressServer, EgressSockets, SandboxLabel, ServeGuard};
use tokio::time::timeout;

use super::POLICY_LABEL;
use crate::audit::{AuditLog, DenialCounter, is_refusal};
use crate::error::Error;
use crate::secret::SecretStore;
use crate::store::{RalphHome, RunFolder};

/// The way out for all sandboxes of this machine.
#[derive(Debug)]
pub struct EgressManager {
    home: RalphHome,
    secrets: SecretStore,
    /// Knows every secret of the user. Asking for them can take a while, so it is done once.
    redactor: OnceLock<Redactor>,
    resolver: Arc<dyn EgressResolver>,
    limits: ProxyLimits,
    /// Terms that were agreed on before a sandbox was made, by its name.
    leases: Mutex<HashMap<String, Arc<EgressLeaseState>>>,
    /// The doors of runs that were opened and may not be closed yet.
    run_proxies: Mutex<Vec<RunProxy>>,
}

/// Doors of a run. What may go on behind them outlives whoever kept them open, for a moment.
#[derive(Debug)]
struct RunProxy {
    run: String,
    active: Weak<ActiveProxy>,
    end: ProxyShutdown,
}

/// Doors that stand open.
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

/// What a sandbox was promised, and who keeps it at the moment.
#[derive(Debug)]
struct EgressLeaseState {
    terms: Mutex<ProxyGrant>,
    active: Mutex<Weak<ActiveProxy>>,
    /// How often whoever served the doors has died.
    restarts: AtomicU64,
    /// Where it is written down, for a sandbox that belongs to no run.
    audit_folder: Option<RunFolder>,
    /// What was refused and what raised an alarm, for a sandbox that has no run to tell it.
    collected: Mutex<EgressEventCollector>,
    /// Hosts that were refused, each once, for whoever wants to know what a command asked for.
    refused_hosts: Mutex<BTreeSet<String>>,
}

/// Sorts what is heard: a program can be refused as often as it likes, and must not hide an alarm by that.
#[derive(Debug)]
struct EgressEventCollector {
    denials: DenialCounter,
    refusals: Vec<Event>,
    /// Refusals beyond what is read.
    more: u64,
    /// Of everything else there is one of a kind, and one for every tenfold.
    others: Vec<Event>,
}

impl EgressEventCollector {
    fn new() -> Self {
        Self { denials: DenialCounter::new(Redactor::new([])), refusals: Vec::new(), more: 0, others: Vec::new() }
    }

    fn observe(&mut self, told: &EgressEvent) {
        match self.denials.observe(told) {
            Some(event @ Event::PolicyDenied { .. }) if self.refusals.len() < MAX_REFUSALS => self.refusals.push(event),
            Some(Event::PolicyDenied { .. }) => self.more += 1,
            Some(event) => self.others.push(event),
            None => (),
        }
    }
}

/// What was heard of a sandbox.
#[derive(Debug, Default, PartialEq)]
pub struct EgressReport {
    pub refusals: Vec<Event>,
    /// How many refusals there were beyond these.
    pub more: u64,
    /// Alarms, and what else is worth telling.
    pub others: Vec<Event>,
}

/// More refusals than this nobody reads.
const MAX_REFUSALS: usize = 20;
/// How long doors may take to be closed.
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
        let (redactor, agreed, opened) = (OnceLock::new(), Mutex::default(), Mutex::default());
        Arc::new(Self { home, secrets, redactor, resolver: outside, limits, leases: agreed, run_proxies: opened })
    }

    /// Agrees on the terms of a sandbox that is going to be made, for as long as the pass is held.
    pub fn lease(self: &Arc<Self>, sandbox: &str, terms: ProxyGrant) -> EgressLease {
        self.new_lease(sandbox, terms, None)
    }

    /// As [`Self::lease`], for a sandbox that belongs to no run and has what leaves it written down in a folder that is
    /// there.
    pub fn lease_with_audit_folder(
        self: &Arc<Self>,
        sandbox: &str,
        terms: ProxyGrant,
        paper: RunFolder,
    ) -> EgressLease {
        self.new_lease(sandbox, terms, Some(paper))
    }

    fn new_lease(self: &Arc<Self>, sandbox: &str, terms: ProxyGrant, paper: Option<RunFolder>) -> EgressLease {
        let agreed = Arc::new(EgressLeaseState {
            terms: Mutex::new(terms),
            active: Mutex::new(Weak::new()),
            restarts: AtomicU64::new(0),
            audit_folder: paper,
            collected: Mutex::new(EgressEventCollector::new()),
            refused_hosts: Mutex::default(),
        });
        self.lock_leases().insert(sandbox.to_owned(), Arc::clone(&agreed));
        EgressLease { egress: Arc::clone(self), sandbox: sandbox.to_owned(), state: agreed }
    }

    /// Ends whoever serves the doors of a sandbox, as its death would: all is cut, and they are served anew.
    pub fn kill_proxy(&self, sandbox: &str) {
        let agreed = self.lock_leases().get(sandbox).cloned();
        if let Some(standing) = agreed.and_then(|agreed| lock(&agreed.active).upgrade()) {
            standing.guard.restart();
        }
    }

    /// Closes all doors of a run and waits until whatever came by them has been told. Cages that stand go on without.
    pub async fn close_run(&self, run: &str) {
        let of_run: Vec<RunProxy> = lock(&self.run_proxies).extract_if(.., |opened| opened.run == run).collect();
        for RunProxy { active: standing, end, .. } in of_run {
            if timeout(CLOSE_TIMEOUT, end.stop_and_wait()).await.is_err() {
                tracing::warn!(run, "the doors of a sandbox could not be closed in time");
            }
            if let Some(standing) = standing.upgrade() {
                standing.observer.record_closed();
            }
        }
    }

    /// As [`EgressLease::restarts`], for a sandbox by its name.
    pub fn restarts(&self, sandbox: &str) -> u64 {
        self.lock_leases().get(sandbox).map_or(0, |agreed| agreed.restarts.load(Ordering::Acquire))
    }

    /// Returns the hosts that a sandbox was refused since this was last asked.
    pub fn take_refused_hosts(&self, sandbox: &str) -> BTreeSet<String> {
        let agreed = self.lock_leases().get(sandbox).cloned();
        agreed.map(|agreed| std::mem::take(&mut *lock(&agreed.refused_hosts))).unwrap_or_default()
    }

    fn redactor(&self) -> Redactor {
        self.redactor.get_or_init(|| Redactor::new(self.secrets.all_values())).clone()
    }

    fn lock_leases(&self) -> MutexGuard<'_, HashMap<String, Arc<EgressLeaseState>>> {
        self.leases.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// An agreement about one sandbox. Dropping it ends the agreement, and makes what was lent worthless.
#[derive(Debug)]
pub struct EgressLease {
    egress: Arc<EgressManager>,
    sandbox: String,
    state: Arc<EgressLeaseState>,
}

impl EgressLease {
    /// Returns every credential that was granted.
    pub fn credentials(&self) -> Vec<Arc<ProxyCredential>> {
        lock(&self.state.terms).all_credentials()
    }

    /// Changes the policy, at once and for every cage that will stand over the sandbox.
    pub fn set_policy(&self, policy: Policy) {
        lock(&self.state.terms).policy = policy.clone();
        if let Some(standing) = lock(&self.state.active).upgrade() {
            standing.guard.set_policy(policy);
        }
    }

    /// Returns what was refused and what raised an alarm since this was last asked.
    pub fn take_report(&self) -> EgressReport {
        let mut heard = lock(&self.state.collected);
        let (refusals, others) = (std::mem::take(&mut heard.refusals), std::mem::take(&mut heard.others));
        EgressReport { refusals, more: std::mem::take(&mut heard.more), others }
    }

    /// Has the disk keep what was written down of a sandbox that belongs to no run; returns where it stands, if there is
    /// anything.
    pub fn flush_audit(&self) -> Result<Option<PathBuf>, Error> {
        let Some(paper) = self.state.audit_folder.as_ref().filter(|paper| !is_audit_empty(paper)) else {
            return Ok(None);
        };
        AuditLog::open(paper, self.egress.redactor())?.flush_and_head()?;
        Ok(Some(crate::audit::path(paper)))
    }

    /// As [`EgressManager::fail`], for this sandbox.
    pub fn kill_proxy(&self) {
        self.egress.kill_proxy(&self.sandbox);
    }

    /// Returns how often whoever served the doors has died: what was under way then was cut. It is counted before the
    /// cut, so that whoever failed for it finds it counted.
    pub fn restarts(&self) -> u64 {
        self.state.restarts.load(Ordering::Acquire)
    }
}

impl Drop for EgressLease {
    fn drop(&mut self) {
        for credential in lock(&self.state.terms).all_credentials() {
            credential.revoke();
        }
        if let Some(paper) = self.state.audit_folder.as_ref().filter(|paper| is_audit_empty(paper)) {
            // If it stays, it stays empty.
            let _ = std::fs::remove_dir_all(paper.path());
        }
        let mut all = self.egress.lock_leases();
        if all.get(&self.sandbox).is_some_and(|known| Arc::ptr_eq(known, &self.state)) {
            all.remove(&self.sandbox);
        }
    }
}

/// Says whether nothing was written down in a folder.
fn is_audit_empty(paper: &RunFolder) -> bool {
    !crate::audit::path(paper).metadata().is_ok_and(|file| file.len() > 0)
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl EgressServer for EgressManager {
    fn serve(&self, sandbox: &str, labels: &BTreeMap<String, String>, doors: EgressSockets) -> io::Result<ServeGuard> {
        let agreed = self.lock_leases().get(sandbox).cloned();
        let mut terms = match &agreed {
            Some(agreed) => lock(&agreed.terms).clone(),
            // Without a policy that can be read nobody may pass: an empty one denies.
            None => match labels.get(POLICY_LABEL) {
                Some(text) => serde_json::from_str::<Policy>(text)?.into(),
                None => Policy::default().into(),
            },
        };
        let folder =
            labels.get(SandboxLabel::RUN).map(|run| self.home.run_folder(run)).filter(|folder| folder.path().is_dir());
        terms.run = folder.as_ref().map(RunFolder::id);
        let of_run = folder.is_some();
        let folder = folder.or_else(|| agreed.as_ref().and_then(|agreed| agreed.audit_folder.clone()));
        // What cannot be written down is not let out.
        let book = folder
            .map(|folder| AuditLog::open(&folder, self.redactor()).map_err(|error| io::Error::other(error.to_string())))
            .transpose()?;
        if let Some(book) = &book {
            terms.outflow = book.outflow(&terms.outflow);
        }
        let told = AtomicBool::new(false);
        let ears = Arc::new(AuditObserver {
            sandbox: sandbox.to_owned(),
            audit_log: book,
            of_run,
            lease: agreed.clone(),
            has_records: told,
        });
        let EgressSockets { explicit, transparent, dns_udp, dns_tcp } = doors;
        let doors = ListenerSockets { explicit, transparent, dns_udp, dns_tcp };
        let (outside, notice) = (Arc::clone(&self.resolver), Arc::clone(&ears) as Arc<dyn EgressObserver>);
        let guard = listen::serve_with_limits(self.limits, doors, terms, outside, notice)?;
        let end = guard.shutdown();
        let standing = Arc::new(ActiveProxy { guard, observer: ears });
        if let Some(agreed) = &agreed {
            *lock(&agreed.active) = Arc::downgrade(&standing);
            // The policy may have changed while the doors were opened.
            let policy = lock(&agreed.terms).policy.clone();
            standing.guard.set_policy(policy);
        }
        if let Some(run) = labels.get(SandboxLabel::RUN) {
            let mut opened = lock(&self.run_proxies);
            opened.retain(|opened| !opened.end.is_stopped());
            opened.push(RunProxy { run: run.clone(), active: Arc::downgrade(&standing), end });
        }
        Ok(ServeGuard::new(standing))
    }
}

/// Hears what happens at the doors of one cage.
#[derive(Debug)]
struct AuditObserver {
    sandbox: String,
    audit_log: Option<Arc<AuditLog>>,
    /// A run tells what is in the book.
    of_run: bool,
    lease: Option<Arc<EgressLeaseState>>,
    /// Something was told, so its end is worth telling too.
    has_records: AtomicBool,
}

impl AuditObserver {
    /// Says at the end that it is the end.
    fn record_closed(&self) {
        if let Some(book) = self.audit_log.as_ref().filter(|_| self.has_records.swap(false, Ordering::Relaxed)) {
            book.record_closed(&self.sandbox);
        }
    }
}

impl EgressObserver for AuditObserver {
    fn observe(&self, told: EgressEvent) {
        tracing::debug!(sandbox = self.sandbox, ?told, "egress");
        if let (EgressEvent::Decision(decided), Some(agreed)) = (&told, &self.lease)
            && is_refusal(decided)
        {
            let mut refused = lock(&agreed.refused_hosts);
            if refused.len() < MAX_REFUSALS {
                refused.insert(decided.host.clone());
            }
        }
        if let Some(book) = &self.audit_log {
            self.has_records.store(true, Ordering::Relaxed);
            book.write(&self.sandbox, &told);
        }
        if let Some(agreed) = self.lease.as_ref().filter(|_| !self.of_run) {
            lock(&agreed.collected).observe(&told);
        }
    }

    fn listeners_failed(&self) {
        if let Some(agreed) = &self.lease {
            agreed.restarts.fetch_add(1, Ordering::AcqRel);
        }
    }

    fn persist_call(&self, calling: EgressEvent) -> PersistFuture<'_> {
        tracing::debug!(sandbox = self.sandbox, ?calling, "egress");
        let Some(book) = &self.audit_log else { return Box::pin(std::future::ready(Ok(()))) };
        self.has_records.store(true, Ordering::Relaxed);
        Box::pin(AuditLog::persist_call(book, &self.sandbox, calling))
    }
}

#[cfg(test)]
mod tests {
    use ralph_core::event::EventLogLevel;
    use ralph_core::policy::PolicyMode;
    use ralph_proxy::observer::{AlarmKind, DecisionReason, EgressAlarm, EgressDecision, EgressEntry};

    use super::*;

    #[test]
    fn refusals_hide_no_alarm() {
        let mut hearing = EgressEventCollector::new();
        for n in 0..30 {
            let (entry, host, why) =
                (EgressEntry::Dns, format!("x{n}.evil.test"), DecisionReason::Mode(PolicyMode::Allowlist));
            let decided = EgressDecision { entry, host, port: 0, request: None, allowed: false, why, address: None };
            hearing.observe(&EgressEvent::Decision(decided));
        }
        let (what, credential, host) = (AlarmKind::PhantomMisdirected, "KEY".to_owned(), "evil.test".to_owned());
        hearing.observe(&EgressEvent::Alarm(EgressAlarm { what, credential, host, port: 80 }));
        let text = "alarm: a phantom credential was sent to a host it is not for (`KEY`, evil.test:80)".to_owned();
        assert_eq!(hearing.others, [Event::Log { level: EventLogLevel::Error, text }]);
        assert_eq!((hearing.refusals.len(), hearing.more), (MAX_REFUSALS, 10));
    }
}
