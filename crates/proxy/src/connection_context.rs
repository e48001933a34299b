//! Holds what all connections of one sandbox share: its limits, its observer, and the parts that check, dial, grant
//! and charge.
//!
//! Every listener asks here before anything leaves the sandbox. What a request is granted and what it costs is
//! decided where requests are read, not here.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ralph_core::egress::{
    AccessRequest, DecisionReason, EgressTarget, HTTP_PORT, RequestSummary, decide_name, printable_host,
};
use ralph_core::policy::{Policy, matching_deny_rule};

use crate::credential::CredentialSet;
use crate::dial::{PermittedStream, TargetDialer};
use crate::dns::SyntheticAddresses;
use crate::egress_events::{AlarmKind, EgressAlarm, EgressDecision, EgressEntry, EgressEvent, EgressObserver};
use crate::grant::ProxyGrant;
use crate::inspect::MitmCa;
use crate::ledger::Ledger;
use crate::limits::ProxyLimits;
use crate::model_gateway::{BodyBuffers, DrainTasks, EndpointPool, ModelRoute};
use crate::policy::{PolicyCheck, TargetRefusal};
use crate::sent_bytes_alarm::OutflowMeter;
use crate::upstream_network::EgressResolver;

/// The state that all connections of one sandbox share.
#[derive(Debug)]
pub(crate) struct ConnectionContext {
    pub(crate) limits: ProxyLimits,
    pub(crate) observer: Arc<dyn EgressObserver>,
    pub(crate) resolver: Arc<dyn EgressResolver>,
    pub(crate) policy: PolicyCheck,
    pub(crate) credentials: CredentialSet,
    pub(crate) routes: Vec<ModelRoute>,
    pub(crate) ledger: Ledger,
    pub(crate) endpoints: EndpointPool,
    /// Answers that are read to their end after their client hung up.
    pub(crate) drains: DrainTasks,
    pub(crate) bodies: BodyBuffers,
    dialer: TargetDialer,
    outflow: OutflowMeter,
    authority: Option<Arc<MitmCa>>,
    run: Option<String>,
    names: Mutex<SyntheticAddresses>,
}

impl ConnectionContext {
    pub(crate) fn new(
        limits: ProxyLimits,
        grant: ProxyGrant,
        resolver: Arc<dyn EgressResolver>,
        observer: Arc<dyn EgressObserver>,
    ) -> Self {
        let all_credentials = grant.all_credentials();
        let ProxyGrant { policy, routes, credentials, authority, ledger, outflow, run } = grant;
        Self {
            limits,
            observer,
            policy: PolicyCheck::new(policy),
            credentials: CredentialSet::new(all_credentials, credentials),
            routes,
            ledger,
            endpoints: EndpointPool::new(Arc::clone(&resolver), limits),
            drains: DrainTasks::default(),
            bodies: BodyBuffers::new(limits.body_bytes),
            dialer: TargetDialer::new(Arc::clone(&resolver), limits),
            resolver,
            outflow,
            authority,
            run,
            names: Mutex::default(),
        }
    }

    /// Returns the run whose policy a person can change, if there is one.
    pub(crate) fn run(&self) -> Option<&str> {
        self.run.as_deref()
    }

    /// Returns the CA that the sandbox trusts, if requests to a target have to be inspected.
    pub(crate) fn inspection_ca(&self, target: &EgressTarget) -> Option<&Arc<MitmCa>> {
        let authority = self.authority.as_ref()?;
        let granted = self.credentials.for_target(target).is_some();
        // Port 80 is inspected without TLS. On any other port the client has to speak TLS, or its requests cannot be
        // read.
        let inspected = granted || (target.port() != HTTP_PORT && self.policy.needs_inspection(target));
        inspected.then_some(authority)
    }

    /// Replaces the policy, and drops connections and synthetic addresses that it no longer allows.
    pub(crate) fn set_policy(&self, policy: Policy) {
        let policy = Arc::new(policy);
        self.policy.replace(Arc::clone(&policy));
        self.endpoints.retain(|target| matching_deny_rule(&policy, target.host(), target.port(), None).is_none());
        // After the new policy is in force, so that an address given out a moment ago under the old one is dropped as
        // well.
        self.lock_names().retain(|name| decide_name(&policy, name).is_ok());
    }

    /// Decides by name only, and reports only a refusal.
    pub(crate) fn check_policy(
        &self,
        entry: EgressEntry,
        target: &EgressTarget,
        access: &AccessRequest,
    ) -> Result<(), DecisionReason> {
        let decided = self.policy.decide_target(target, access).map(drop);
        decided.inspect_err(|why| self.report_refused_request(entry, target, access.request_summary(), why))
    }

    /// Opens a connection to a target: decides, resolves once, filters and dials. Reports the decision either way.
    pub(crate) async fn open(
        &self,
        entry: EgressEntry,
        target: &EgressTarget,
        access: AccessRequest,
    ) -> Result<PermittedStream, TargetRefusal> {
        match self.dialer.open(self.policy.connection_check(target, &access)).await {
            Ok((opened, why)) => {
                self.report_decision(entry, target, None, true, &why, Some(opened.permit.address()));
                Ok(opened)
            }
            Err(refused) => {
                let request = access.request_summary();
                self.report_decision(entry, target, request, false, &refused.why, refused.address);
                Err(refused)
            }
        }
    }

    /// Returns the synthetic address of an allowed name.
    pub(crate) fn synthetic_address(&self, host: &str) -> Result<Ipv4Addr, DecisionReason> {
        // The policy is read under the lock: see `set_policy`.
        let mut names = self.lock_names();
        let decided = self.policy.decide_name(host);
        let known = names.contains(host);
        let address = decided.is_ok().then(|| names.assign(host));
        drop(names);
        if let (true, Some(address)) = (known, address) {
            // The name was resolved before with the same result, which was reported then.
            return Ok(address);
        }
        let (allowed, why) = match &decided {
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

    /// Returns the name that a synthetic address was assigned to.
    pub(crate) fn name_of_address(&self, address: IpAddr) -> Option<String> {
        match address.to_canonical() {
            IpAddr::V4(v4) => self.lock_names().name(v4),
            IpAddr::V6(_) => None,
        }
    }

    /// Counts bytes that are sent to a target.
    pub(crate) fn count_outflow(&self, bytes: usize, target: &EgressTarget) {
        self.outflow.add(bytes as u64, target, &*self.observer);
    }

    /// Raises an alarm about a credential.
    pub(crate) fn raise_alarm(&self, what: AlarmKind, credential: String, target: &EgressTarget) {
        let (host, port) = (target.host().to_owned(), target.port());
        self.observer.observe(EgressEvent::Alarm(EgressAlarm { what, credential, host, port }));
    }

    pub(crate) fn report_refusal(&self, entry: EgressEntry, target: &EgressTarget, why: &DecisionReason) {
        self.report_decision(entry, target, None, false, why, None);
    }

    /// As [`ConnectionContext::report_refusal`], for one request.
    pub(crate) fn report_refused_request(
        &self,
        entry: EgressEntry,
        target: &EgressTarget,
        request: Option<RequestSummary>,
        why: &DecisionReason,
    ) {
        self.report_decision(entry, target, request, false, why, None);
    }

    /// Reports a refusal of a request that named no valid target.
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

    /// Locks the table. No code under the lock can panic, so the table is consistent even if the lock is poisoned.
    fn lock_names(&self) -> MutexGuard<'_, SyntheticAddresses> {
        self.names.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
