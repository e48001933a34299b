//! Sorts the sockets that a launcher opened inside its cage.

use std::io;
use std::os::fd::OwnedFd;

use super::launcher_protocol::EgressSocketKind;
use crate::EgressSockets;

/// Returns the sockets by their purpose.
pub(super) fn sort_sockets(kinds: Vec<EgressSocketKind>, sockets: Vec<OwnedFd>) -> io::Result<EgressSockets> {
    let mut sorted = EgressSockets::default();
    for (kind, socket) in kinds.into_iter().zip(sockets) {
        rustix::io::ioctl_fionbio(&socket, true)?;
        match kind {
            EgressSocketKind::Explicit => sorted.explicit = Some(socket.into()),
            EgressSocketKind::Transparent => sorted.transparent.push(socket.into()),
            EgressSocketKind::DnsUdp => sorted.dns_udp = Some(socket.into()),
            EgressSocketKind::DnsTcp => sorted.dns_tcp = Some(socket.into()),
        }
    }
    Ok(sorted)
}
