//! The only way out of a sandbox: allows, injects, meters, writes down.
//!
//! Every entry ([`door`]) brings a canonical [`target`] to one [`pipeline`]: judged by name, resolved once, filtered by
//! address, dialled at exactly that address. What travels afterwards is either one HTTP request or an opaque tunnel
//! whose first words were checked.

pub mod address;
pub mod door;
pub mod ledger;
pub mod limits;
pub mod meter;
pub mod notice;
pub mod resolve;
pub mod target;

mod connect;
mod dns;
mod explicit;
mod head;
mod hello;
mod http;
mod judge;
mod pipeline;
mod reply;
mod socks;
mod stream;
mod transparent;
mod tunnel;

#[cfg(test)]
mod tests;
