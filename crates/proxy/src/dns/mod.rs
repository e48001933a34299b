//! Serves DNS to a sandbox: synthetic addresses for allowed names, none for others. No question is ever forwarded.

mod answer;
mod packet;
mod serve;
mod synthetic_addresses;

pub use packet::answer_any;
pub(crate) use serve::{serve_tcp, serve_udp};
pub(crate) use synthetic_addresses::SyntheticAddresses;

#[cfg(test)]
pub(crate) use packet::tests;
