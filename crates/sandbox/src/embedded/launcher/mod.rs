//! The launcher: what builds a cage, stands in it as process 1, and starts programs in it.
//!
//! It runs in a process of its own, the same program started again under the name [`LAUNCHER_NAME`], with one thread and three
//! descriptors: the socket to the supervisor, over which the sealed plan comes, and two that lead nowhere. That process (the *helper*) stays
//! outside and only waits; its child is process 1 of the cage; each program inside has a *keeper* between itself and
//! process 1, which answers for its end. Nothing here knows what a run, a task or a model is.

mod command_supervisor;
mod confinement;
mod disk_usage;
mod init;
mod memory_watch;
mod network;
mod outer_process;
mod proc;
mod request_loop;
mod root_builder;
mod step_error;
mod sys;

pub(super) use disk_usage::{COUNTER_NAME, main as count};
pub(super) use outer_process::main;
pub(super) use sys::landlock_version;

/// The name the launcher is started under, and the one its processes show.
pub(super) const LAUNCHER_NAME: &str = "ralph-init";
