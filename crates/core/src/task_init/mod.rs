//! Writes a first task file for a repository, based on what its files show about how it is tested.
//!
//! Nothing here reads a file: the caller provides the names of the files, and the text of those for which
//! [`is_relevant_file`] returns true.

mod detect;
mod languages;
mod make_target;
mod node;
mod project_files;
mod python;
mod template;

pub use detect::{TestDetection, TestStack, detect, test_folders};
pub use project_files::{MAX_FILES, ProjectFiles, is_ignored_folder, is_relevant_file};
pub use template::{TaskTemplate, render_task};

pub(crate) use template::{default_limits, placeholder_in, yaml_string};
