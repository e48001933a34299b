//! Which hosts a sandbox may talk to: rules, presets, the one spelling of a host name, and the judgement.
//!
//! Names are judged here, before any DNS. Addresses (loopback, private, metadata) are judged by the proxy after it
//! resolved a name: a rule can never make an inner address reachable by its name alone.

mod amend;
mod canonical_host;
mod decide;
mod narrow;
mod network_policy;
mod path;
mod preset;
mod rule;
mod suggested_rule;

pub use canonical_host::{BadHost, canonical_host};
pub use decide::{PolicyDecision, decide_connection, decide_request, matching_deny_rule};
pub use narrow::{PolicyWidening, narrow};
pub use network_policy::{Policy, PolicyMode, UnknownPolicyMode, hash};
pub use preset::{HostPreset, PRESETS, shorten};
pub use rule::{BadRule, HostPattern, PolicyRule, expand};
pub use suggested_rule::{rule_for_request, shell_argument};
