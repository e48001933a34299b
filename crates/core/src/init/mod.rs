//! A first task file for a repository: what its files say about how it is tested, and the task that is written then.
//!
//! Nothing here reads a file: the caller brings the names of the files and the few texts that [`wanted`] asks for.

mod detect;
mod languages;
mod node;
mod project;
mod python;
mod runner;
mod template;

pub use detect::{Found, Stack, detect};
pub use project::{MOST_FILES, Project, passed_over, wanted};
pub use template::{Template, task};

pub(crate) use template::{hard_stops, quoted};
