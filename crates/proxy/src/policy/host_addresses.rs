//! Detects this machine's own public addresses by asking the kernel, since no table can list them.
//!
//! The kind of an address by its number alone is decided by [`ralph_core::egress::address`].

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, UdpSocket};

use ralph_core::egress::{EgressTarget, IpAddressKind, address, decide_address, is_localhost};
use ralph_core::policy::Policy;

/// As [`address::kind`], but also knows this machine's own public addresses.
pub(crate) fn kind_with_own(address: IpAddr) -> Option<IpAddressKind> {
    address::kind(address).or_else(|| is_own(address).then_some(IpAddressKind::Own))
}

/// Returns the kind of internal address that keeps a target from being reached: that of an address, or of a name that
/// never means another machine. What other names mean is only known after they are resolved.
pub fn internal_address_kind(policy: &Policy, target: &EgressTarget) -> Option<IpAddressKind> {
    let address =
        target.ip_address().or_else(|| is_localhost(target.host()).then_some(IpAddr::from([127, 0, 0, 1])))?;
    decide_address(policy, kind_with_own(address), address, target.port()).err()
}

/// Says whether an address is this machine's own. Services that listen on every interface are meant for the local
/// network, not for the sandbox.
fn is_own(address: IpAddr) -> bool {
    // The kernel allows binding a socket only to an address of this machine, unless an administrator turned that off;
    // then an address that no machine can have can be bound too, and the test says nothing.
    let unassigned: IpAddr = match address {
        IpAddr::V4(_) => Ipv4Addr::new(192, 0, 2, 1).into(),
        IpAddr::V6(_) => Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1).into(),
    };
    UdpSocket::bind((address, 0)).is_ok() && UdpSocket::bind((unassigned, 0)).is_err()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn own_addresses_are_detected() {
        assert!(is_own(Ipv4Addr::LOCALHOST.into()));
        assert!(!is_own(Ipv4Addr::new(1, 1, 1, 1).into()));
    }
}
