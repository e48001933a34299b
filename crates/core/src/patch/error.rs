//! The reasons why a patch was not applied, in words a model can act on.

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PatchError {
    #[error("the patch has no hunk: no line starts with `@@`")]
    NoHunk,
    #[error("the patch has more than {max} hunks")]
    TooManyHunks { max: usize },
    #[error("line {line} of the patch is no context, `+` or `-` line: `{text}`")]
    Malformed { line: usize, text: String },
    #[error("line {line} of the patch begins a second file")]
    SecondFile { line: usize },
    #[error("the patch deletes the whole file")]
    DeletesFile,
    #[error("the patch creates a file that already has content")]
    Exists,
    #[error("hunk {hunk} has no `+` and no `-` line")]
    EmptyHunk { hunk: usize },
    #[error("hunk {hunk} only adds lines and has no context that says where")]
    NoContext { hunk: usize },
    #[error("hunk {hunk} does not match: the file has no line `{line}`")]
    NoSuchLine { hunk: usize, line: String },
    #[error("hunk {hunk} does not match: its lines do not stand together in the file, after the hunk before it")]
    NoSuchPlace { hunk: usize },
    #[error("hunk {hunk} matches at several places, lines {lines:?}, and its line number names none of them")]
    Ambiguous { hunk: usize, lines: Vec<usize> },
    #[error("the patch changes nothing")]
    NoChange,
}

impl PatchError {
    pub fn hint(&self) -> Option<String> {
        let hint = match self {
            Self::NoHunk | Self::EmptyHunk { .. } | Self::NoChange => {
                "write at least one `@@` hunk with `-` lines to remove and `+` lines to add"
            }
            Self::TooManyHunks { .. } => "write the file as a whole instead",
            Self::Malformed { .. } => "begin every line of a hunk with a space, `+` or `-`",
            Self::SecondFile { .. } => "patch one file per action",
            Self::DeletesFile => "remove the file with a command",
            Self::Exists => "patch the lines it has, or write it as a whole",
            Self::NoContext { .. } | Self::Ambiguous { .. } => "add unchanged lines around the change",
            Self::NoSuchLine { .. } | Self::NoSuchPlace { .. } => {
                "read the file again and copy its context and removed lines exactly"
            }
        };
        Some(hint.to_owned())
    }
}
