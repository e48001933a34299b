//! The pure parts of the egress proxy: where a connection wants to go, which addresses are internal, what a policy says
//! to both, and where programs in a sandbox find the proxy.
//!
//! Nothing here resolves a name or opens a socket; that is the proxy's work.

pub mod address;
mod decision;
mod decision_reason;
mod endpoint;
mod target;

pub use address::IpAddressKind;
pub use decision::{AccessRequest, decide_address, decide_name, decide_target, is_localhost};
pub use decision_reason::{DecisionReason, RequestSummary};
pub use endpoint::EgressEndpoint;
pub use target::{BadTarget, EgressTarget, HTTP_PORT, HTTPS_PORT, printable_host};
