//! The pure part of the egress proxy: parses targets, classifies addresses, checks both against a policy, and names the
//! variables that make programs in a sandbox use the proxy.
//!
//! Nothing here resolves a name or opens a socket; the proxy does.

pub mod address;
mod decision;
mod decision_reason;
mod proxy_env;
mod target;

pub use address::IpAddressKind;
pub use decision::{AccessRequest, decide_address, decide_name, decide_target, is_localhost};
pub use decision_reason::{DecisionReason, RequestSummary};
pub use proxy_env::EgressEndpoint;
pub use target::{BadTarget, EgressTarget, HTTP_PORT, HTTPS_PORT, printable_host};
