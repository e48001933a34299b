//! One numbered attack of any suite: how it is selected and reported.

use std::time::{Duration, Instant};

use ralph_sandbox::embedded::IsolationMechanism;

use crate::report::{AttackArea, AttackReport, AttackVerdict};

/// A case that takes longer counts as hanging, and must not stop the others.
pub(crate) const CASE_TIMEOUT: Duration = Duration::from_mins(1);

/// One attack, with the payload type of its suite.
#[derive(Debug, Clone, Copy)]
pub struct AttackCase<P> {
    pub id: &'static str,
    pub name: &'static str,
    pub(crate) payload: P,
}

/// What an attack does.
pub trait AttackPayload {
    /// Returns the isolation mechanisms whose absence this attack may detect.
    fn mechanisms(&self) -> &'static [IsolationMechanism];
}

impl<P: AttackPayload> AttackCase<P> {
    pub fn area(&self) -> AttackArea {
        AttackArea::of(self.id)
    }

    /// Returns the isolation mechanisms whose absence this attack may detect.
    pub fn mechanisms(&self) -> &'static [IsolationMechanism] {
        self.payload.mechanisms()
    }

    /// Returns whether a selection includes this case: an area, a number, a prefix of a number with `*`, or `mechanism:`
    /// and the name of an isolation mechanism.
    pub fn is_selected(&self, only: &str) -> bool {
        match only.strip_prefix("mechanism:") {
            Some(mechanism) => self.mechanisms().iter().any(|one| mechanism_name(*one) == mechanism),
            None => is_id_selected(self.id, only),
        }
    }

    /// Returns the report of this case, which started at `began` and has just ended.
    pub(crate) fn report(&self, verdict: AttackVerdict, began: Instant) -> AttackReport {
        AttackReport {
            id: self.id,
            area: self.area(),
            name: self.name,
            verdict,
            mechanisms: self.mechanisms().to_vec(),
            millis: u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX),
        }
    }
}

/// Returns the verdict on a case that did not end in time.
pub(crate) fn timeout_verdict() -> AttackVerdict {
    AttackVerdict::Invalid(format!("did not end within {CASE_TIMEOUT:?}"))
}

/// Returns an isolation mechanism's name as users write it.
pub(crate) fn mechanism_name(mechanism: IsolationMechanism) -> String {
    serde_json::to_value(mechanism).ok().and_then(|value| value.as_str().map(str::to_owned)).unwrap_or_default()
}

fn is_id_selected(id: &str, only: &str) -> bool {
    let start = only.strip_suffix('*').unwrap_or(only);
    let whole = !only.ends_with('*') && start.len() > 2;
    match id.strip_prefix(start) {
        Some(rest) => !whole || rest.is_empty() || rest.starts_with('.'),
        None => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct SeccompPayload;

    impl AttackPayload for SeccompPayload {
        fn mechanisms(&self) -> &'static [IsolationMechanism] {
            &[IsolationMechanism::Seccomp, IsolationMechanism::InnerUser]
        }
    }

    #[test]
    fn selections() {
        let case = AttackCase { id: "KS-04.mount", name: "x", payload: SeccompPayload };
        let check = |only: &str, want: bool| assert_eq!(case.is_selected(only), want, "{only}");
        check("KS", true);
        check("KS-04", true);
        check("KS-04.mount", true);
        check("KS-*", true);
        check("KS-0*", true);
        check("KS-0", false);
        check("KS-04.mo", false);
        check("FS", false);
        check("mechanism:inner-user", true);
        check("mechanism:network", false);
    }

    #[test]
    fn numbers_are_unique() {
        let (cage, egress, proofs) = (crate::cage::cases(), crate::egress::cases(), crate::proofs::cases());
        let cage = cage.map(|case| case.id);
        let mut ids: Vec<&str> = cage.chain(egress.map(|case| case.id)).chain(proofs.map(|case| case.id)).collect();
        let count = ids.len();
        ids.sort_unstable();
        ids.dedup();
        assert_eq!(ids.len(), count);
    }
}
