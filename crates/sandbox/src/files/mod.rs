//! Reads and writes files that an agent can change; the host accesses them nowhere else.
//!
//! Every function starts at an open directory ([`RootDir`]) and walks one name at a time without following links, so
//! a path can neither be swapped for another one half-way nor lead out. Only regular files are opened, never in a way
//! that could block, and reads have a cap that counts bytes instead of trusting sizes. Not here: who may write what
//! (the callers decide), and hard links, which look like any other file: a backend must not share a filesystem region
//! with files that the agent may not see.

mod change_stamps;
mod folder_watch;
mod path;
mod read;
mod remove_tree;
mod root_dir;
mod write;

pub use change_stamps::stamps;
pub use folder_watch::{FolderChanges, FolderWatch, watch_folders};
pub(crate) use read::open;
pub use read::{MAX_ENTRIES, copy_out, list, read};
pub use remove_tree::remove_tree;
pub use root_dir::RootDir;
pub use write::{append, copy_in, mkdirs, replace};
