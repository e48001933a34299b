//! What the network policy of a sandbox says to one connection, and what this machine knows about addresses.

mod own_address;

pub use own_address::internal_address_kind;
pub(crate) use own_address::kind_with_own;
