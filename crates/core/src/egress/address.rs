//! Classifies internal addresses: of this machine, of its networks, and of a cloud's metadata service.
//!
//! The proxy checks this after a name was allowed and resolved, because the owner of a name can point it at any
//! address. Every address that is not clearly public unicast counts as internal.

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::fmt;

/// The kind of an internal address.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum IpAddressKind {
    Loopback,
    /// An address of a private network.
    Private,
    LinkLocal,
    /// Shared by a provider's customers (100.64.0.0/10).
    Shared,
    /// The address where clouds hand credentials to the machine.
    Metadata,
    Multicast,
    Unspecified,
    /// Not assigned, or an obsolete way to embed one address in another.
    Reserved,
    /// A public address of this machine.
    Own,
}

impl IpAddressKind {
    /// Returns whether a rule that names exactly this address may allow it.
    pub fn can_be_allowed(self) -> bool {
        match self {
            Self::Loopback | Self::Private | Self::LinkLocal | Self::Shared | Self::Own => true,
            Self::Metadata | Self::Multicast | Self::Unspecified | Self::Reserved => false,
        }
    }
}

impl fmt::Display for IpAddressKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Loopback => "a loopback address",
            Self::Private => "a private address",
            Self::LinkLocal => "a link-local address",
            Self::Shared => "an address shared by a provider's customers",
            Self::Metadata => "a cloud metadata address",
            Self::Multicast => "a multicast address",
            Self::Unspecified => "the unspecified address",
            Self::Reserved => "a reserved address",
            Self::Own => "an address of this machine",
        })
    }
}

/// Returns the kind of an internal address; `None` is a public one.
pub fn kind(address: IpAddr) -> Option<IpAddressKind> {
    match address.to_canonical() {
        IpAddr::V4(v4) => kind_v4(v4),
        IpAddr::V6(v6) => kind_v6(v6),
    }
}

fn kind_v4(address: Ipv4Addr) -> Option<IpAddressKind> {
    let kind = match address.octets() {
        // Cloud metadata: Azure, Oracle, Alibaba, then the two that all others use.
        [168, 63, 129, 16] | [192, 0, 0, 192] | [100, 100, 100, 200] | [169, 254, 169, 254] | [169, 254, 170, 2] => {
            IpAddressKind::Metadata
        }
        [0, 0, 0, 0] => IpAddressKind::Unspecified,
        [127, ..] => IpAddressKind::Loopback,
        [10, ..] | [172, 16..=31, ..] | [192, 168, ..] => IpAddressKind::Private,
        [169, 254, ..] => IpAddressKind::LinkLocal,
        [100, 64..=127, ..] => IpAddressKind::Shared,
        [224..=239, ..] => IpAddressKind::Multicast,
        // This network, protocol assignments, documentation, 6to4 relays, benchmarks (our own synthetic addresses
        // among them), and everything from class E to broadcast.
        [0 | 240..=255, ..]
        | [192, 0, 0 | 2, _]
        | [192, 88, 99, _]
        | [198, 18 | 19, ..]
        | [198, 51, 100, _]
        | [203, 0, 113, _] => IpAddressKind::Reserved,
        _ => return None,
    };
    Some(kind)
}

fn kind_v6(address: Ipv6Addr) -> Option<IpAddressKind> {
    let groups = address.segments();
    let kind = match groups {
        [0, 0, 0, 0, 0, 0, 0, 0] => IpAddressKind::Unspecified,
        [0, 0, 0, 0, 0, 0, 0, 1] => IpAddressKind::Loopback,
        // Amazon and Google.
        [0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x254] | [0xfd20, 0xce, 0, 0, 0, 0, 0, 0x254] => IpAddressKind::Metadata,
        // Unique local, and site-local, which is deprecated but still routed by some.
        [0xfc00..=0xfdff | 0xfec0..=0xfeff, ..] => IpAddressKind::Private,
        [0xfe80..=0xfebf, ..] => IpAddressKind::LinkLocal,
        [0xff00..=0xffff, ..] => IpAddressKind::Multicast,
        // ISATAP, which carries IPv4 in its second half; protocol assignments, Teredo among them; documentation.
        [_, _, _, _, 0 | 0x200, 0x5efe, _, _] | [0x2001, 0..=0x1ff | 0xdb8, ..] | [0x3fff, 0..=0xfff, ..] => {
            IpAddressKind::Reserved
        }
        // NAT64 and 6to4 are still in use: a connection to these reaches the embedded IPv4 address.
        [0x64, 0xff9b, 0, 0, 0, 0, high, low] | [0x2002, high, low, ..] => return kind_v4(embedded_ipv4(high, low)),
        [0x2000..=0x3fff, ..] => return None,
        _ => IpAddressKind::Reserved,
    };
    Some(kind)
}

fn embedded_ipv4(high: u16, low: u16) -> Ipv4Addr {
    Ipv4Addr::from_bits(u32::from(high) << 16 | u32::from(low))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[track_caller]
    fn check(address: &str, want: Option<IpAddressKind>) {
        assert_eq!(kind(address.parse().unwrap()), want, "{address}");
    }

    #[test]
    fn public_addresses() {
        for address in [
            "1.1.1.1",
            "9.255.255.255",
            "11.0.0.0",
            "100.63.255.255",
            "100.128.0.0",
            "172.15.255.255",
            "172.32.0.0",
            "192.0.1.0",
            "198.17.255.255",
            "198.20.0.0",
            "223.255.255.255",
            "2606:4700::1111",
            "2a00::1",
            "2001:200::1",
            "64:ff9b::1.1.1.1",
            "2002:101:101::1",
            "::ffff:1.1.1.1",
        ] {
            check(address, None);
        }
    }

    #[test]
    fn internal_addresses() {
        check("0.0.0.0", Some(IpAddressKind::Unspecified));
        check("0.1.2.3", Some(IpAddressKind::Reserved));
        check("127.0.0.1", Some(IpAddressKind::Loopback));
        check("127.255.255.254", Some(IpAddressKind::Loopback));
        check("10.0.0.1", Some(IpAddressKind::Private));
        check("172.17.0.1", Some(IpAddressKind::Private));
        check("192.168.1.1", Some(IpAddressKind::Private));
        check("100.64.0.1", Some(IpAddressKind::Shared));
        check("169.254.1.1", Some(IpAddressKind::LinkLocal));
        for metadata in
            ["169.254.169.254", "169.254.170.2", "100.100.100.200", "168.63.129.16", "192.0.0.192", "fd00:ec2::254"]
        {
            check(metadata, Some(IpAddressKind::Metadata));
        }
        check("224.0.0.251", Some(IpAddressKind::Multicast));
        check("255.255.255.255", Some(IpAddressKind::Reserved));
        check("198.18.1.1", Some(IpAddressKind::Reserved));
        check("198.19.255.255", Some(IpAddressKind::Reserved));
        check("::", Some(IpAddressKind::Unspecified));
        check("::1", Some(IpAddressKind::Loopback));
        check("fd12::1", Some(IpAddressKind::Private));
        check("fe80::1", Some(IpAddressKind::LinkLocal));
        check("fec0::1", Some(IpAddressKind::Private));
        check("ff02::fb", Some(IpAddressKind::Multicast));
        check("2001:0:1::1", Some(IpAddressKind::Reserved));
        check("2001:db8::1", Some(IpAddressKind::Reserved));
        check("64:ff9b:1::1", Some(IpAddressKind::Reserved));
        check("100::1", Some(IpAddressKind::Reserved));
        check("2606:4700::5efe:a00:1", Some(IpAddressKind::Reserved));
    }

    proptest! {
        #[test]
        fn an_embedded_ipv4_address_keeps_its_kind(bits: u32) {
            let v4 = Ipv4Addr::from_bits(bits);
            let [a, b] = [(bits >> 16) as u16, (bits & 0xffff) as u16];
            let plain = kind(v4.into());
            prop_assert_eq!(kind(v4.to_ipv6_mapped().into()), plain);
            prop_assert_eq!(kind(Ipv6Addr::new(0x64, 0xff9b, 0, 0, 0, 0, a, b).into()), plain);
            prop_assert_eq!(kind(Ipv6Addr::new(0x2002, a, b, 0, 0, 0, 0, 1).into()), plain);
            prop_assert!(kind(v4.to_ipv6_compatible().into()).is_some());
        }
    }
}
