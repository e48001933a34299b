//! Implements the egress proxy, the only way from a sandbox to the network: it allows, injects, meters and reports.
//!
//! Every listener ([`listen`]) hands a canonical target to one `ConnectionContext`, which decides by name
//! ([`policy`]), resolves once, filters by address and dials exactly that address. The connection then carries HTTP
//! requests one by one, or an opaque tunnel whose first bytes were checked ([`inspect`]), or a call to a model
//! ([`model_gateway`]).

pub mod credential;
pub mod egress_events;
#[doc(hidden)]
pub mod fuzzing;
pub mod grant;
pub mod inspect;
pub mod ledger;
pub mod limits;
pub mod listen;
pub mod meter;
pub mod model_gateway;
pub mod policy;
pub mod sent_bytes_alarm;
pub mod upstream_network;

mod connection_context;
mod dial;
mod dns;
mod parse;
mod refusal_reply;
mod wrapped_streams;

#[cfg(test)]
mod tests;
