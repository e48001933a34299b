//! The reasons why a plan could not be imported.

use super::MAX_BYTES;

/// A plan that could not be turned into a task.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PlanImportError {
    #[error("`{name}` has {bytes} bytes, more than {MAX_BYTES}")]
    TooLarge { name: String, bytes: usize },
    #[error("`{name}` is not JSON: {why}")]
    NotJson { name: String, why: String },
    #[error("`{name}` contains no list of stories")]
    NoStories { name: String },
    #[error("`{name}` contains no work items: it has no checkbox, no task heading and no list")]
    Nothing { name: String },
    #[error("`{name}` is already a task file")]
    Already { name: String },
    #[error("`{name}` is too large a task: {why}")]
    NoTask { name: String, why: String },
}

impl PlanImportError {
    pub fn hint(&self) -> String {
        match self {
            Self::TooLarge { .. } | Self::NoTask { .. } => {
                "split it: one task file for each piece of work that can be reviewed alone".to_owned()
            }
            Self::NotJson { .. } => "correct it, or give the file a name that ends in `.md` if it is a page".to_owned(),
            Self::NoStories { .. } => {
                "name the list `userStories`, each with a `title` and `acceptanceCriteria`".to_owned()
            }
            Self::Nothing { .. } => {
                "write each item as `- [ ] what shall be true`, or start with a new task: ralph init".to_owned()
            }
            Self::Already { name } => format!("ralph lint {name}"),
        }
    }
}
