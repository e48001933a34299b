//! The doors of a cage: sockets made inside it and served outside. Who may pass is not decided here.

use std::any::Any;
use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::net::{TcpListener, UdpSocket};
use std::os::fd::OwnedFd;

use super::launcher_protocol::EgressSocketKind;

/// The listening sockets of one cage. Whoever connects to them is inside it.
#[derive(Debug, Default)]
pub struct EgressSockets {
    /// Where programs that know of the proxy find it.
    pub explicit: Option<TcpListener>,
    /// Every address of the world, on the ports that are answered.
    pub transparent: Vec<TcpListener>,
    pub dns_udp: Option<UdpSocket>,
    pub dns_tcp: Option<TcpListener>,
}

impl EgressSockets {
    pub(super) fn new(kinds: Vec<EgressSocketKind>, sockets: Vec<OwnedFd>) -> io::Result<Self> {
        let mut doors = Self::default();
        for (kind, socket) in kinds.into_iter().zip(sockets) {
            rustix::io::ioctl_fionbio(&socket, true)?;
            match kind {
                EgressSocketKind::Explicit => doors.explicit = Some(socket.into()),
                EgressSocketKind::Transparent => doors.transparent.push(socket.into()),
                EgressSocketKind::DnsUdp => doors.dns_udp = Some(socket.into()),
                EgressSocketKind::DnsTcp => doors.dns_tcp = Some(socket.into()),
            }
        }
        Ok(doors)
    }
}

/// Whoever stands at a cage's doors; dropped, the doors are closed.
pub struct ServeGuard(#[expect(dead_code, reason = "it is kept, and that is all")] Box<dyn Any + Send + Sync>);

impl ServeGuard {
    pub fn new(keeper: impl Any + Send + Sync) -> Self {
        Self(Box::new(keeper))
    }
}

impl fmt::Debug for ServeGuard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ServeGuard")
    }
}

/// Puts somebody at the doors of each cage that has any.
pub trait EgressServer: fmt::Debug + Send + Sync {
    /// Takes the doors of a cage that has just been built and has run nothing yet.
    fn serve(&self, sandbox: &str, labels: &BTreeMap<String, String>, doors: EgressSockets) -> io::Result<ServeGuard>;
}
