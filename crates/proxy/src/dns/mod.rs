//! The name server of a sandbox: synthetic addresses for allowed names, nothing for others, and no question ever
//! passed on.

mod answer;
mod packet;
mod serve;
mod table;

pub use packet::answered;
pub(crate) use serve::{tcp, udp};
pub(crate) use table::Table;

#[cfg(test)]
pub(crate) use packet::tests;
