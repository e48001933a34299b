//! Listens inside a sandbox's network: which sockets there are, and by which protocols clients ask to leave.

pub(crate) mod socks;
pub(crate) mod transparent;

mod connect;
mod explicit;
mod listener;

pub use listener::{ListenerSockets, ProxyHandle, ProxyShutdown, serve, serve_with_limits};
