//! Git on both sides of the cage.
//!
//! [`host`] reads the user's repository, [`bare`] is the host-owned repository of a run through which everything passes
//! in and out, [`inside`] works in the sandbox over `exec`. The host never runs git in a directory an agent can write:
//! work comes out as one bundle file and is judged in [`import`] before a single object of it is kept. Pull requests are
//! not here.

mod autorun;
pub mod bare;
mod bundle;
mod call;
mod clone;
mod dirty;
mod error;
mod findings;
pub mod host;
mod import;
pub mod inside;
mod message;
mod names;
mod odb;
mod publish;
mod raw;
mod work;

pub use bare::Bare;
pub use call::Tool;
pub use clone::{clone, same_address};
pub use dirty::{Included, LeftOut};
pub use error::Error;
pub use findings::{Finding, FindingKind};
pub use host::{Base, Repo};
pub use import::{Import, Limits, Refusal, Rules, SecretScan};
pub(crate) use message::compose;
pub use message::{Stamp, Trailer};
pub use names::{Branch, Format, RunName, Sha};
pub use odb::{Caps, DiffStat, LogEntry, Odb, Patch, TreeEntry};
pub use publish::{Auth, Pushed, Remote};
pub use raw::{Change, FileStat};
pub use work::{diff, diffstat, range};
pub(crate) use work::{globs, put_in, stamp, take_out, trailers};
