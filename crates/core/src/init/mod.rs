//! A first task file for a repository: what its files say about how it is tested, and the task that is written then.
//!
//! Nothing here reads a file: the caller brings the names of the files and the few texts that [`wanted`] asks for.

mod detect;
mod languages;
mod make_target;
mod node;
mod project;
mod python;
mod template;

pub use detect::{TestDetection, TestStack, detect};
pub use project::{MAX_FILES, ProjectFiles, is_ignored_folder, is_relevant_file};
pub use template::{TaskTemplate, render_task};

pub(crate) use template::{default_limits, yaml_string};
