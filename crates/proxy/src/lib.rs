//! The egress proxy: the only way out of a sandbox. It allows, injects, meters and reports.
//!
//! Every listener brings a canonical target to one `ConnectionContext`: decided by name, resolved once, filtered by address,
//! dialled at exactly that address. What travels afterwards is either one HTTP request or an opaque tunnel whose first
//! bytes were checked.

pub mod credential;
#[doc(hidden)]
pub mod fuzzing;
pub mod grant;
pub mod ledger;
pub mod limits;
pub mod listener;
pub mod meter;
pub mod mitm_ca;
pub mod observer;
pub mod outflow;
pub mod phantom;
pub mod policy;
pub mod resolver;
pub mod route;

mod body_buffers;
mod call_charge;
mod client_hello;
mod connect;
mod context;
mod credential_set;
mod dial;
mod dns;
mod drain;
mod endpoint_pool;
mod explicit;
mod header_filter;
mod host_connection;
mod http_forward;
mod leak_scan;
mod model_gateway;
mod reply;
mod request_head;
mod response_body;
mod socks;
mod stream;
mod strict_http1;
mod transparent;
mod tunnel;

#[cfg(test)]
mod tests;
