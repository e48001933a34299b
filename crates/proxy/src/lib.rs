//! The egress proxy: the only way out of a sandbox. It allows, injects, meters and reports.
//!
//! Every listener ([`listen`]) brings a canonical target to one `ConnectionContext`: decided by name ([`policy`]), resolved
//! once, filtered by address, dialled at exactly that address. What travels afterwards is either one HTTP request or an
//! opaque tunnel whose first bytes were checked ([`inspect`]), or a call to a model ([`model_gateway`]).

pub mod credential;
#[doc(hidden)]
pub mod fuzzing;
pub mod grant;
pub mod inspect;
pub mod ledger;
pub mod limits;
pub mod listen;
pub mod meter;
pub mod model_gateway;
pub mod observer;
pub mod outflow;
pub mod policy;
pub mod resolver;

mod context;
mod dial;
mod dns;
mod parse;
mod reply;
mod stream;

#[cfg(test)]
mod tests;
