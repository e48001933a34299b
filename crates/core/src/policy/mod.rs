//! Decides which hosts a sandbox may reach: rules, presets, the canonical spelling of a host name, and the decision.
//!
//! Names are checked here, before any DNS lookup. The proxy checks addresses (loopback, private, metadata) after it
//! has resolved a name: a rule can never make an internal address reachable by its name alone.

mod amend;
mod canonical_host;
mod decide;
mod network_policy;
mod path_pattern;
mod preset;
mod restrict_policy;
mod rule;
mod suggested_rule;

pub use canonical_host::{BadHost, canonical_host};
pub use decide::{PolicyDecision, decide_connection, decide_request, matching_deny_rule};
pub use network_policy::{Policy, PolicyMode, UnknownPolicyMode, hash};
pub use preset::{HostPreset, PRESETS, shorten};
pub use restrict_policy::{PolicyWidening, narrow};
pub use rule::{BadRule, HostPattern, PolicyRule, expand};
pub use suggested_rule::{rule_for_request, shell_argument};
