//! Knows this machine's own public addresses, which no table can list: the kernel is asked.
//!
//! What an address is by its number alone is decided by [`ralph_core::egress::address`].

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, UdpSocket};

use ralph_core::egress::{EgressTarget, IpAddressKind, address, decide_address, is_localhost};
use ralph_core::policy::Policy;

/// As [`address::kind`], and knows this machine's own public addresses too.
pub(crate) fn kind_with_own(address: IpAddr) -> Option<IpAddressKind> {
    address::kind(address).or_else(|| is_own(address).then_some(IpAddressKind::Own))
}

/// Returns what kind of inner address a target has, if that is what keeps it from being reached: an address, or a name that
/// never means another machine. What other names mean is not known before they are looked up.
pub fn internal_address_kind(policy: &Policy, target: &EgressTarget) -> Option<IpAddressKind> {
    let address =
        target.ip_address().or_else(|| is_localhost(target.host()).then_some(IpAddr::from([127, 0, 0, 1])))?;
    decide_address(policy, kind_with_own(address), address, target.port()).err()
}

/// Services that listen on every interface are meant for the neighbours, not for the sandbox.
fn is_own(address: IpAddr) -> bool {
    // The kernel lets a socket be bound only to an address of this machine, unless an administrator turned that off;
    // then an address that nobody can have may be bound too, and the question has no answer.
    let nobody: IpAddr = match address {
        IpAddr::V4(_) => Ipv4Addr::new(192, 0, 2, 1).into(),
        IpAddr::V6(_) => Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1).into(),
    };
    UdpSocket::bind((address, 0)).is_ok() && UdpSocket::bind((nobody, 0)).is_err()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn own_addresses_are_known() {
        assert!(is_own(Ipv4Addr::LOCALHOST.into()));
        assert!(!is_own(Ipv4Addr::new(1, 1, 1, 1).into()));
    }
}
