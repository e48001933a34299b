//! The attacks on a sandbox by target, one table per file.

mod command_supervisor;
mod file_traps;
mod files;
mod isolation_and_cleanup;
mod network;
mod proc_sys_dev;
mod processes;
mod resources;
mod sockets;
mod syscalls;

use super::case::SandboxAttack;

pub(super) const ALL: [&[SandboxAttack]; 10] = [
    files::CASES,
    file_traps::CASES,
    processes::CASES,
    command_supervisor::CASES,
    syscalls::CASES,
    proc_sys_dev::CASES,
    sockets::CASES,
    network::CASES,
    resources::CASES,
    isolation_and_cleanup::CASES,
];
