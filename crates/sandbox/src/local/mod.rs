//! The `local` backend: a folder and plain subprocesses, for tests and for people who ask for it by name.
//!
//! There is no isolation here: a command can do everything the user can. What is kept is the contract's meaning: a clean
//! environment, bounded output, files through one door, and no process that outlives its time. Four nets catch
//! processes, each where the one before has a hole:
//!
//! 1. Every command leads its own process group, which a timeout or a dropped future ends.
//! 2. Every command carries a mark in its environment; on Linux those that left their group are found by it in `/proc`.
//! 3. When ralph itself is killed, a watchdog process sees its pipe close and ends the groups and the marked.
//! 4. When the watchdog died too, the next `open` ends the marked whose owner is no more.
//!
//! What no net catches: a process that left its group *and* cleared its environment, and outside Linux (where there is
//! no `/proc`) one that left its group or stayed in the background after its command.

mod backend;
mod process_tag;
mod program_lookup;
mod sandbox;
mod subprocess;
mod watchdog;

pub use backend::LocalBackend;
