//! Builds the egress request of a run's work sandbox.

use ralph_core::run::RunState;
use ralph_proxy::ledger::Ledger;

use crate::egress::{EgressAvailability, EgressRequest, SecretGrantError};
use crate::error::Error;

/// Returns what the work sandbox asks of the egress proxy.
pub(super) fn egress_request(state: &RunState, ledger: &Ledger) -> Result<EgressRequest, Error> {
    let parse = |text: &String| {
        text.parse().map_err(|error: SecretGrantError| Error::Grant { what: text.clone(), why: error.to_string() })
    };
    // The engine of actions calls its models from the host; an agent calls them from inside the sandbox.
    let profiles = &state.started.profiles;
    let profiles = match &state.started.agent {
        Some(_) => std::iter::once(&profiles.default).chain(&profiles.fallback).cloned().collect(),
        None => Vec::new(),
    };
    Ok(EgressRequest {
        profiles,
        secrets: state.started.lent.iter().map(parse).collect::<Result<_, _>>()?,
        ledger: ledger.clone(),
        availability: EgressAvailability::Always,
        alarm_after: state.started.alarm_after,
        ..EgressRequest::from(state.policy().clone())
    })
}
