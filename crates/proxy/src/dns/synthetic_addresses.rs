//! Maps names to synthetic addresses and back, for one sandbox.
//!
//! Addresses come from 198.18.0.0/15, which no network routes. They are assigned in turn and reused only after the
//! whole pool was used, so a stale address leads nowhere instead of to another name. The table is bounded: the least
//! recently used name is dropped first.

use std::collections::{BTreeMap, HashMap};
use std::net::Ipv4Addr;

const POOL: u32 = u32::from_be_bytes([198, 18, 0, 0]);
/// The first addresses are reserved for the sandbox's own use, such as the address of its name server.
const FIRST: u32 = 256;
/// The last one would be the broadcast address.
const LAST: u32 = (1 << 17) - 2;
const MAX_NAMES: usize = 4096;

/// Names and their addresses.
#[derive(Debug)]
pub(crate) struct SyntheticAddresses {
    capacity: usize,
    addresses: HashMap<String, Ipv4Addr>,
    names: HashMap<Ipv4Addr, SyntheticName>,
    /// The addresses by the time of their last use.
    ages: BTreeMap<u64, Ipv4Addr>,
    uses: u64,
    next: u32,
}

#[derive(Debug)]
struct SyntheticName {
    name: String,
    used: u64,
}

impl Default for SyntheticAddresses {
    fn default() -> Self {
        Self::with_capacity(MAX_NAMES)
    }
}

impl SyntheticAddresses {
    fn with_capacity(capacity: usize) -> Self {
        Self { capacity, addresses: HashMap::new(), names: HashMap::new(), ages: BTreeMap::new(), uses: 0, next: FIRST }
    }

    /// Says whether a name has an address.
    pub(crate) fn contains(&self, name: &str) -> bool {
        self.addresses.contains_key(name)
    }

    /// Returns the address of a name; assigns a new one if it has none.
    pub(crate) fn assign(&mut self, name: &str) -> Ipv4Addr {
        if let Some(address) = self.addresses.get(name).copied() {
            self.touch(address);
            return address;
        }
        while self.names.len() >= self.capacity
            && let Some((_, oldest)) = self.ages.first_key_value()
        {
            self.forget(*oldest);
        }
        let address = self.next_free();
        self.addresses.insert(name.to_owned(), address);
        self.uses += 1;
        self.names.insert(address, SyntheticName { name: name.to_owned(), used: self.uses });
        self.ages.insert(self.uses, address);
        address
    }

    /// Returns the name that an address is assigned to.
    pub(crate) fn name(&mut self, address: Ipv4Addr) -> Option<String> {
        self.touch(address);
        self.names.get(&address).map(|known| known.name.clone())
    }

    /// Drops the names that `keep` rejects.
    pub(crate) fn retain(&mut self, keep: impl Fn(&str) -> bool) {
        let gone: Vec<Ipv4Addr> =
            self.names.iter().filter(|(_, known)| !keep(&known.name)).map(|(address, _)| *address).collect();
        for address in gone {
            self.forget(address);
        }
    }

    fn touch(&mut self, address: Ipv4Addr) {
        if let Some(known) = self.names.get_mut(&address) {
            self.uses += 1;
            self.ages.remove(&known.used);
            known.used = self.uses;
            self.ages.insert(self.uses, address);
        }
    }

    fn forget(&mut self, address: Ipv4Addr) {
        if let Some(known) = self.names.remove(&address) {
            self.addresses.remove(&known.name);
            self.ages.remove(&known.used);
        }
    }

    /// Returns the next free address. The pool is far larger than the table, so this ends.
    fn next_free(&mut self) -> Ipv4Addr {
        loop {
            let address = Ipv4Addr::from_bits(POOL + self.next);
            self.next = if self.next >= LAST { FIRST } else { self.next + 1 };
            if !self.names.contains_key(&address) {
                return address;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn at(n: u32) -> Ipv4Addr {
        Ipv4Addr::from_bits(POOL + FIRST + n)
    }

    #[test]
    fn a_name_keeps_its_address() {
        let mut table = SyntheticAddresses::default();
        assert_eq!((table.assign("a.io"), table.assign("b.io"), table.assign("a.io")), (at(0), at(1), at(0)));
        assert_eq!(table.name(at(1)).as_deref(), Some("b.io"));
        assert_eq!(table.name(at(2)), None);
        assert_eq!(at(0), Ipv4Addr::new(198, 18, 1, 0));
    }

    #[test]
    fn the_least_recently_used_name_is_dropped_and_its_address_not_reused() {
        let mut table = SyntheticAddresses::with_capacity(2);
        table.assign("a.io");
        table.assign("b.io");
        table.name(at(0));
        assert_eq!(table.assign("c.io"), at(2));
        assert_eq!((table.name(at(0)), table.name(at(1))), (Some("a.io".to_owned()), None));
        assert_eq!(table.assign("b.io"), at(3));
    }

    #[test]
    fn addresses_are_reused_only_after_the_whole_pool() {
        let mut table = SyntheticAddresses::with_capacity(2);
        let first = table.assign("0.io");
        let pool = LAST - FIRST + 1;
        for n in 1..pool {
            assert_ne!(table.assign(&format!("{n}.io")), first);
        }
        assert_eq!(table.assign("last.io"), first);
    }

    #[test]
    fn addresses_of_dropped_names_have_no_name() {
        let mut table = SyntheticAddresses::default();
        table.assign("a.io");
        table.assign("b.io");
        table.retain(|name| name == "b.io");
        assert_eq!((table.name(at(0)), table.name(at(1))), (None, Some("b.io".to_owned())));
        assert_eq!(table.assign("a.io"), at(2));
    }

    proptest! {
        #[test]
        fn both_directions_agree(names in proptest::collection::vec("[a-f]", 0..60), most in 1..4usize) {
            let mut table = SyntheticAddresses::with_capacity(most);
            for name in names {
                let address = table.assign(&name);
                prop_assert_eq!(table.name(address), Some(name));
                prop_assert!(table.names.len() <= most);
                prop_assert_eq!(table.names.len(), table.addresses.len());
                prop_assert_eq!(table.names.len(), table.ages.len());
            }
        }
    }
}
