//! Checks connections and requests against the network policy of a sandbox, and ends them when it changes.
//!
//! The decisions themselves are pure and live in [`ralph_core::egress`]; this module holds the policy in force and
//! asks the kernel about addresses.

mod connection_check;
mod host_addresses;
mod live_policy;
mod route_check;

pub(crate) use connection_check::{ConnectionPermit, ConnectionPolicyCheck, TargetRefusal};
pub use host_addresses::internal_address_kind;
pub(crate) use live_policy::PolicyCheck;
pub(crate) use route_check::RoutePolicyCheck;
