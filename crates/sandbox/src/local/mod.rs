//! Implements the `local` backend: a folder and plain subprocesses, for tests and for users who request it by name.
//!
//! There is no isolation here: a command can do everything the user can. The rest of the contract holds: a clean
//! environment, bounded output, all file access through [`crate::files`], and no process that outlives its time. Four
//! mechanisms end processes, each covering a gap of the one before:
//!
//! 1. Every command leads its own process group, which a timeout or a dropped future ends.
//! 2. Every command carries a tag in its environment; on Linux those that left their group are found by it in `/proc`.
//! 3. When ralph itself is killed, a watchdog process sees its pipe close and ends the groups and the tagged processes.
//! 4. When the watchdog died too, the next `open` ends the tagged processes whose owner is dead.
//!
//! Not covered: a process that left its group *and* cleared its environment, and outside Linux (where there is no
//! `/proc`) one that left its group or stayed in the background after its command.

mod backend;
mod process_tag;
mod program_lookup;
mod sandbox;
mod subprocess;
mod watchdog;

pub use backend::LocalBackend;
