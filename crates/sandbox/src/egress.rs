//! Defines how the egress of a sandbox is served: a backend hands over the sockets that its commands connect to, and
//! the caller serves them. The server decides what may pass; a backend never does.

use std::any::Any;
use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::net::{TcpListener, UdpSocket};

use crate::SandboxNetwork;

/// How the commands of a backend's sandboxes reach the egress proxy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EgressSupport {
    /// Not at all: nothing enforces a network policy, and no credential can be granted.
    None,
    /// By the address in [`Sandbox::egress_url`](crate::Sandbox::egress_url), for programs that are configured to use
    /// it.
    Proxy,
    /// The same, and every other address and name leads to the proxy as well.
    Transparent,
}

impl EgressSupport {
    /// Returns whether a network policy is enforced and credentials can be granted.
    pub fn is_available(self) -> bool {
        self != Self::None
    }

    /// Returns the network a sandbox gets when it requests this one. A backend that enforces nothing only records the
    /// request.
    #[must_use]
    pub fn limit_network(self, asked: SandboxNetwork) -> SandboxNetwork {
        match (self, asked) {
            (Self::Proxy, SandboxNetwork::Transparent) => SandboxNetwork::Proxy,
            (_, asked) => asked,
        }
    }
}

/// The listening, non-blocking sockets of one sandbox. Only processes inside it can connect to them.
#[derive(Debug, Default)]
pub struct EgressSockets {
    /// For programs that are configured to use the proxy.
    pub explicit: Option<TcpListener>,
    /// For connections to any outside address, on the ports that the proxy serves.
    pub transparent: Vec<TcpListener>,
    pub dns_udp: Option<UdpSocket>,
    pub dns_tcp: Option<TcpListener>,
}

/// Keeps the sockets of a sandbox served; dropping it closes them.
pub struct ServeGuard(#[expect(dead_code, reason = "it is held for its drop alone")] Box<dyn Any + Send + Sync>);

impl ServeGuard {
    pub fn new(server: impl Any + Send + Sync) -> Self {
        Self(Box::new(server))
    }
}

impl fmt::Debug for ServeGuard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ServeGuard")
    }
}

/// Serves the egress sockets of sandboxes.
pub trait EgressServer: fmt::Debug + Send + Sync {
    /// Starts to serve the sockets of a sandbox that has just started and has not run anything yet.
    fn serve(&self, sandbox: &str, labels: &BTreeMap<String, String>, sockets: EgressSockets)
    -> io::Result<ServeGuard>;
}
