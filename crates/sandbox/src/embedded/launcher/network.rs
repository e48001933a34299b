//! Sets up the cage's own network: a loopback device, and the sockets of the egress proxy, which is its only
//! connection to the outside.
//!
//! The sockets are opened here, inside, and passed to the supervisor: only processes of this cage can connect to
//! them, and there is no helper process to attack and no socket file to find.

use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, UdpSocket};
use std::os::fd::OwnedFd;

use rustix::net::netlink::SocketAddrNetlink;
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, recv, sendto, socket_with};

use super::super::launcher_protocol::EgressSocketKind;
use super::super::plan::CageNetwork;
use super::step_error::{StepContext as _, StepError};

const DNS_PORT: u16 = 53;

/// Brings the loopback up.
pub(super) fn bring_loopback_up() -> Result<(), StepError> {
    NetlinkSocket::open().at_step("open netlink")?.loopback_up().at_step("bring the loopback up")
}

/// Opens the egress sockets.
pub(super) fn open_sockets(network: &CageNetwork) -> Result<Vec<(EgressSocketKind, OwnedFd)>, StepError> {
    let mut sockets = Vec::new();
    if let Some(port) = network.explicit {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, port)).at_step(format_args!("listen on port {port}"))?;
        sockets.push((EgressSocketKind::Explicit, listener.into()));
    }
    if network.transparent.is_empty() && !network.dns {
        return Ok(sockets);
    }
    let link = NetlinkSocket::open().at_step("open netlink")?;
    link.route_all_to_loopback(false).at_step("route every address to the cage")?;
    // Hosts without IPv6 have nothing to route.
    let newer = link.route_all_to_loopback(true).is_ok();
    for port in &network.transparent {
        let step = format_args!("listen on port {port}").to_string();
        let any = SocketAddr::from((Ipv4Addr::UNSPECIFIED, *port));
        sockets.push((EgressSocketKind::Transparent, TcpListener::bind(any).at_step(&step)?.into()));
        if newer {
            sockets.push((EgressSocketKind::Transparent, listen_v6_only(*port).at_step(&step)?));
        }
    }
    if network.dns {
        let any = SocketAddr::from((Ipv4Addr::UNSPECIFIED, DNS_PORT));
        sockets.push((EgressSocketKind::DnsUdp, UdpSocket::bind(any).at_step("listen for DNS")?.into()));
        sockets.push((EgressSocketKind::DnsTcp, TcpListener::bind(any).at_step("listen for DNS")?.into()));
    }
    Ok(sockets)
}

/// Listens on IPv6 only, so that the IPv4 socket can have the same port.
fn listen_v6_only(port: u16) -> io::Result<OwnedFd> {
    use rustix::net::{bind, listen, sockopt};
    let socket = socket_with(AddressFamily::INET6, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
    sockopt::set_ipv6_v6only(&socket, true)?;
    sockopt::set_socket_reuseaddr(&socket, true)?;
    bind(&socket, &SocketAddr::from((Ipv6Addr::UNSPECIFIED, port)))?;
    listen(&socket, 128)?;
    Ok(socket)
}

/// A netlink socket for the two requests that configure the network.
struct NetlinkSocket(OwnedFd);

const NEWLINK: u16 = 16;
const NEWROUTE: u16 = 24;
/// Flags of a request that wants an answer, and of one that creates an entry.
const REQUEST_ACK: u16 = 0x1 | 0x4;
const CREATE: u16 = 0x400;
const LOOPBACK: u32 = 1;
const UP: u32 = 1;

impl NetlinkSocket {
    fn open() -> io::Result<Self> {
        let socket = socket_with(AddressFamily::NETLINK, SocketType::RAW, SocketFlags::CLOEXEC, None)?;
        Ok(Self(socket))
    }

    fn loopback_up(&self) -> io::Result<()> {
        // ifinfomsg: family, padding, type, index, flags, which flags change.
        let mut body = vec![0, 0, 0, 0];
        body.extend([LOOPBACK, UP, UP].iter().flat_map(|number| number.to_ne_bytes()));
        self.send_request(NEWLINK, REQUEST_ACK, &body)
    }

    /// Makes every address of a protocol a local address of this cage.
    fn route_all_to_loopback(&self, newer: bool) -> io::Result<()> {
        const INET: u8 = 2;
        const INET6: u8 = 10;
        const LOCAL_TABLE: u8 = 255;
        const BOOT: u8 = 3;
        const SCOPE_HOST: u8 = 254;
        const TYPE_LOCAL: u8 = 2;
        const OUT_DEVICE: u16 = 4;
        // rtmsg: family, lengths of destination and source (0: everything), service, table, protocol, scope, type,
        // flags.
        let family = if newer { INET6 } else { INET };
        let mut body = vec![family, 0, 0, 0, LOCAL_TABLE, BOOT, SCOPE_HOST, TYPE_LOCAL, 0, 0, 0, 0];
        body.extend(8u16.to_ne_bytes());
        body.extend(OUT_DEVICE.to_ne_bytes());
        body.extend(LOOPBACK.to_ne_bytes());
        self.send_request(NEWROUTE, REQUEST_ACK | CREATE, &body)
    }

    fn send_request(&self, kind: u16, flags: u16, body: &[u8]) -> io::Result<()> {
        const HEADER: u32 = 16;
        let length = HEADER + u32::try_from(body.len()).map_err(io::Error::other)?;
        let mut message = length.to_ne_bytes().to_vec();
        message.extend(kind.to_ne_bytes());
        message.extend(flags.to_ne_bytes());
        message.extend([0; 8]);
        message.extend_from_slice(body);
        sendto(&self.0, &message, SendFlags::empty(), &SocketAddrNetlink::new(0, 0))?;
        let mut answer = [0; 4096];
        let (got, _) = recv(&self.0, &mut answer, RecvFlags::empty())?;
        // The answer is an error message with number 0 on success.
        let errno = answer.get(16..20).filter(|_| got >= 20).and_then(|bytes| bytes.try_into().ok());
        match errno.map(i32::from_ne_bytes) {
            Some(0) => Ok(()),
            Some(errno) => Err(io::Error::from_raw_os_error(-errno)),
            None => Err(io::Error::new(io::ErrorKind::InvalidData, "the kernel's answer is too short")),
        }
    }
}
