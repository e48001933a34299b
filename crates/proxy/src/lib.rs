//! The only way out of a sandbox: allows, injects, meters, writes down.
//!
//! Every entry ([`door`]) brings a canonical [`target`] to one [`pipeline`]: judged by name, resolved once, filtered by
//! address, dialled at exactly that address. What travels afterwards is either one HTTP request or an opaque tunnel
//! whose first words were checked.

pub mod address;
pub mod authority;
pub mod credential;
pub mod door;
#[doc(hidden)]
pub mod fuzzing;
pub mod judge;
pub mod ledger;
pub mod limits;
pub mod meter;
pub mod notice;
pub mod outflow;
pub mod phantom;
pub mod resolve;
pub mod route;
pub mod target;
pub mod terms;

mod charge;
mod connect;
mod dns;
mod explicit;
mod gate;
mod head;
mod hello;
mod http;
mod late;
mod line;
mod passing;
mod pipeline;
mod reply;
mod reverse;
mod scan;
mod socks;
mod stream;
mod transparent;
mod tunnel;
mod upstream;
mod wash;

#[cfg(test)]
mod tests;
