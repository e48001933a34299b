//! Checks one connection: its name before the look-up, its addresses after it, and both again when the policy changes.

use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError};

use ralph_core::egress::{AccessRequest, DecisionReason, EgressTarget, decide_address, decide_target};
use ralph_core::policy::Policy;
use tokio::sync::watch;

use super::host_addresses::kind_with_own;

/// One attempt to reach a target. It subscribes to the policy before the first decision, so that no change is missed.
#[derive(Debug)]
pub(crate) struct ConnectionPolicyCheck<'a> {
    policy: watch::Receiver<Arc<Policy>>,
    target: &'a EgressTarget,
    access: &'a AccessRequest,
}

impl<'a> ConnectionPolicyCheck<'a> {
    pub(super) fn new(
        policy: watch::Receiver<Arc<Policy>>,
        target: &'a EgressTarget,
        access: &'a AccessRequest,
    ) -> Self {
        Self { policy, target, access }
    }

    pub(crate) fn target(&self) -> &'a EgressTarget {
        self.target
    }

    /// Decides by name, before the name is resolved.
    pub(crate) fn check_name(&mut self) -> Result<(), DecisionReason> {
        let policy = Arc::clone(&self.policy.borrow_and_update());
        decide_target(&policy, self.target, self.access).map(drop)
    }

    /// Decides again by name, and by every address of the name.
    pub(crate) fn check_addresses(&mut self, addresses: &[IpAddr]) -> Result<DecisionReason, TargetRefusal> {
        // Resolving a name takes a while, and the policy may have changed meanwhile.
        let policy = Arc::clone(&self.policy.borrow_and_update());
        let why = decide_target(&policy, self.target, self.access)?;
        for address in addresses {
            // One internal address refuses them all: a legitimate public name has none.
            decide_address(&policy, kind_with_own(*address), *address, self.target.port()).map_err(|kind| {
                TargetRefusal { why: DecisionReason::InternalAddress(kind), address: Some(*address) }
            })?;
        }
        Ok(why)
    }

    /// Returns the permit for a connection that was opened to one of the checked addresses.
    pub(crate) fn into_permit(self, address: IpAddr) -> ConnectionPermit {
        let access = Arc::new(Mutex::new(self.access.clone()));
        ConnectionPermit { policy: self.policy, target: self.target.clone(), access, address }
    }
}

/// Permits the use of a connection as long as the policy allows it.
#[derive(Debug)]
pub(crate) struct ConnectionPermit {
    policy: watch::Receiver<Arc<Policy>>,
    target: EgressTarget,
    /// What the connection is currently used for.
    access: Arc<Mutex<AccessRequest>>,
    address: IpAddr,
}

impl ConnectionPermit {
    /// Returns a shared handle to what the connection is used for, so that it can be reused for another request.
    pub(crate) fn access(&self) -> Arc<Mutex<AccessRequest>> {
        Arc::clone(&self.access)
    }

    /// Returns the address that was dialled.
    pub(crate) fn address(&self) -> IpAddr {
        self.address
    }

    /// Waits until the policy no longer allows the connection.
    pub(crate) async fn wait_revoked(&mut self) {
        loop {
            // Without a sender the sandbox has ended.
            if self.policy.changed().await.is_err() {
                return;
            }
            let policy = Arc::clone(&self.policy.borrow_and_update());
            let kind = kind_with_own(self.address);
            let access = self.access.lock().unwrap_or_else(PoisonError::into_inner).clone();
            if decide_target(&policy, &self.target, &access).is_err()
                || decide_address(&policy, kind, self.address, self.target.port()).is_err()
            {
                return;
            }
        }
    }
}

/// Why a target was not reached, and which address was the reason.
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
