//! The name server of a sandbox: synthetic addresses for allowed names, nothing for others, and no question ever
//! passed on.

mod answer;
mod packet;
mod serve;
mod synthetic_addresses;

pub use packet::answer_any;
pub(crate) use serve::{serve_tcp, serve_udp};
pub(crate) use synthetic_addresses::SyntheticAddresses;

#[cfg(test)]
pub(crate) use packet::tests;
