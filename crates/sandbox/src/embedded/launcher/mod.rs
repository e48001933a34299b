//! The launcher: what builds a cage, stands in it as process 1, and starts programs in it.
//!
//! It runs in a process of its own, the same program started again under the name [`NAME`], with one thread and three
//! descriptors: the socket to the supervisor, over which the sealed plan comes, and two that lead nowhere. That process (the *helper*) stays
//! outside and only waits; its child is process 1 of the cage; each program inside has a *keeper* between itself and
//! process 1, which answers for its end. Nothing here knows what a run, a task or a model is.

mod counter;
mod fault;
mod helper;
mod init;
mod keeper;
mod network;
mod proc;
mod root;
mod serve;
mod sys;
mod walls;
mod watch;

pub(super) use counter::{COUNTER, main as count};
pub(super) use helper::main;
pub(super) use sys::landlock_version;

/// The name the launcher is started under, and the one its processes show.
pub(super) const NAME: &str = "ralph-init";
