//! Listens inside a sandbox's network: which sockets there are, and which protocols they serve.

pub(crate) mod socks;
pub(crate) mod transparent;

mod connect;
mod explicit;
mod listener;

pub use listener::{ListenerSockets, ProxyHandle, ProxyShutdown, serve, serve_with_limits};
