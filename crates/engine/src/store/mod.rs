//! Where runs live on the host: folders, their one event file, their artefacts and their lock.
//!
//! No sandbox can write here. State is a fold of `events.jsonl` and is computed nowhere else.

mod events;
mod folder;
mod home;

pub use events::{Announce, Events, Follow, Moment, Silent, read_events};
pub use folder::{Folder, write_atomic, write_unflushed};
pub use home::{Found, Home};
