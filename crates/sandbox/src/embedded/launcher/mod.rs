//! Implements the launcher, which builds a cage, runs in it as process 1, and starts programs in it.
//!
//! It runs in its own process, the same program started again under the name [`LAUNCHER_NAME`], with one thread and
//! three descriptors: the socket to the supervisor, over which it receives the sealed plan, and two that lead to
//! `/dev/null`. That process (the *outer process*) stays outside and only waits; its child is process 1 of the cage;
//! each program inside has a *command supervisor* between itself and process 1, which reports its end. Nothing here
//! depends on runs, tasks or models.

mod command_supervisor;
mod confinement;
mod disk_usage;
mod file_observer;
mod init;
mod memory_watch;
mod network;
mod outer_process;
mod proc_mount;
mod request_loop;
mod root_builder;
mod step_error;
mod syscalls;

pub(super) use disk_usage::{COUNTER_NAME, main as count};
pub(super) use outer_process::main;
pub(super) use syscalls::landlock_version;

/// The name under which the launcher is started, and which its processes show.
pub(super) const LAUNCHER_NAME: &str = "ralph-init";
