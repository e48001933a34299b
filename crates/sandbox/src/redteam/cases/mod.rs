//! The attacks by what they go for, each file a table.

mod calls;
mod collect;
mod files;
mod keepers;
mod kernel;
mod leftovers;
mod network;
mod processes;
mod resources;
mod sockets;

use super::case::Case;

pub(super) const ALL: [&[Case]; 10] = [
    files::CASES,
    collect::CASES,
    processes::CASES,
    keepers::CASES,
    calls::CASES,
    kernel::CASES,
    sockets::CASES,
    network::CASES,
    resources::CASES,
    leftovers::CASES,
];
