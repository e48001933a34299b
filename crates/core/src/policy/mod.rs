//! Which hosts a sandbox may talk to: rules, presets, the one spelling of a host name, and the judgement.
//!
//! Names are judged here, before any DNS. Addresses (loopback, private, metadata) are judged by the proxy after it
//! resolved a name: a rule can never make an inner address reachable by its name alone.

mod amend;
mod decide;
mod host;
mod narrow;
mod path;
mod preset;
mod remedy;
mod rule;
mod set;

pub use decide::{Decision, decide, decide_request, denial};
pub use host::{BadHost, canonical};
pub use narrow::{Widening, narrow};
pub use preset::{PRESETS, Preset, shorten};
pub use remedy::{argument, rule_for};
pub use rule::{BadRule, Pattern, Rule, expand};
pub use set::{Mode, Policy, UnknownMode, hash};
