//! The doors of a cage: sockets made inside it and served outside. Who may pass is not decided here.

use std::any::Any;
use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::net::{TcpListener, UdpSocket};
use std::os::fd::OwnedFd;

use super::wire::Socket;

/// The listening sockets of one cage. Whoever connects to them is inside it.
#[derive(Debug, Default)]
pub struct Doors {
    /// Where programs that know of the proxy find it.
    pub explicit: Option<TcpListener>,
    /// Every address of the world, on the ports that are answered.
    pub transparent: Vec<TcpListener>,
    pub dns_udp: Option<UdpSocket>,
    pub dns_tcp: Option<TcpListener>,
}

impl Doors {
    pub(super) fn new(kinds: Vec<Socket>, sockets: Vec<OwnedFd>) -> io::Result<Self> {
        let mut doors = Self::default();
        for (kind, socket) in kinds.into_iter().zip(sockets) {
            rustix::io::ioctl_fionbio(&socket, true)?;
            match kind {
                Socket::Explicit => doors.explicit = Some(socket.into()),
                Socket::Transparent => doors.transparent.push(socket.into()),
                Socket::DnsUdp => doors.dns_udp = Some(socket.into()),
                Socket::DnsTcp => doors.dns_tcp = Some(socket.into()),
            }
        }
        Ok(doors)
    }
}

/// Whoever stands at a cage's doors; dropped, the doors are closed.
pub struct Keeper(#[expect(dead_code, reason = "it is kept, and that is all")] Box<dyn Any + Send + Sync>);

impl Keeper {
    pub fn new(keeper: impl Any + Send + Sync) -> Self {
        Self(Box::new(keeper))
    }
}

impl fmt::Debug for Keeper {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Keeper")
    }
}

/// Puts somebody at the doors of each cage that has any.
pub trait Door: fmt::Debug + Send + Sync {
    /// Takes the doors of a cage that has just been built and has run nothing yet.
    fn stand(&self, sandbox: &str, labels: &BTreeMap<String, String>, doors: Doors) -> io::Result<Keeper>;
}
