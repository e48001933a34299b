//! Parses the paths that a model names: the lexical half of path safety.
//!
//! A [`RepoPath`] is relative, stays below its root and never touches git's own folder under any spelling a file system
//! might fold into it. The other half, symlinks that lead outside, needs the disk and is checked where files are
//! opened.

use std::fmt;

use crate::text;

const MAX_LEN: usize = 4096;
const MAX_COMPONENT: usize = 255;

/// A path inside the repository, in normal form: `a/b`, or `.` for the root where a folder is expected.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RepoPath(String);

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BadPath {
    #[error("the path is empty")]
    Empty,
    #[error("path `{path}` is absolute; paths are relative to the repository")]
    Absolute { path: String },
    #[error("path `{path}` leaves the repository by `..`")]
    Parent { path: String },
    #[error("path `{path}` is git's own folder; use git commands instead")]
    Git { path: String },
    #[error("path `{path}` has a control character, a backslash or a part of only dots and spaces")]
    Character { path: String },
    #[error("path `{path}…` is longer than {MAX_LEN} bytes, or a part of it longer than {MAX_COMPONENT}")]
    TooLong { path: String },
}

/// How the model may write a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WriteAccess {
    Free,
    AppendOnly,
}

/// A file that ralph maintains and the model may only read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{path}` is kept by ralph; write to `.ralph/progress.md` or `.ralph/notes.md`, or append to `.ralph/guardrails.md`"
)]
pub struct ReservedPath {
    path: String,
}

impl RepoPath {
    /// Parses the path of a file.
    pub fn parse(text: &str) -> Result<Self, BadPath> {
        let path = Self::parse_dir(text)?;
        if path.is_root() { Err(BadPath::Empty) } else { Ok(path) }
    }

    /// Parses the path of a folder, where `.` means the repository itself.
    pub fn parse_dir(text: &str) -> Result<Self, BadPath> {
        let shown = || text::strip_control(text::head(text, 120));
        if text.is_empty() {
            return Err(BadPath::Empty);
        }
        if text.len() > MAX_LEN || text.split('/').any(|part| part.len() > MAX_COMPONENT) {
            return Err(BadPath::TooLong { path: text::strip_control(text::head(text, 40)) });
        }
        if text.starts_with('/') {
            return Err(BadPath::Absolute { path: shown() });
        }
        if text.chars().any(|c| c.is_control() || c == '\\') {
            return Err(BadPath::Character { path: shown() });
        }
        let mut parts = Vec::new();
        for part in text.split('/').filter(|part| !part.is_empty() && *part != ".") {
            if part == ".." {
                return Err(BadPath::Parent { path: shown() });
            }
            match fold_name(part).as_str() {
                "" => return Err(BadPath::Character { path: shown() }),
                folded if is_folder(folded, "git") => return Err(BadPath::Git { path: shown() }),
                _ => parts.push(part),
            }
        }
        Ok(Self(if parts.is_empty() { ".".to_owned() } else { parts.join("/") }))
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }

    pub fn is_root(&self) -> bool {
        self.0 == "."
    }

    /// Returns whether the path is ralph's folder or inside it.
    pub fn is_ralph_state(&self) -> bool {
        self.in_ralph().is_some()
    }

    /// Returns whether the file is append-only.
    pub fn is_append_only(&self) -> bool {
        let files = ["guardrails.md", "errors.log", "activity.log", "diagnostics.md"];
        self.in_ralph().is_some_and(|file| files.contains(&file.as_str()))
    }

    /// Returns how the model may write the file, if at all.
    pub fn model_may_write(&self) -> Result<WriteAccess, ReservedPath> {
        // In ralph's folder the model may write only the files listed here, so NTFS short names are refused as well.
        match self.in_ralph().as_deref() {
            None if !self.is_root() => Ok(WriteAccess::Free),
            Some("progress.md" | "notes.md") => Ok(WriteAccess::Free),
            Some("guardrails.md") => Ok(WriteAccess::AppendOnly),
            None | Some(_) => Err(ReservedPath { path: self.0.clone() }),
        }
    }

    /// Returns the rest of a path in ralph's folder, folded as a case-insensitive file system would.
    fn in_ralph(&self) -> Option<String> {
        let mut parts = self.0.split('/').map(fold_name);
        let first = parts.next()?;
        is_folder(&first, "ralph").then(|| parts.collect::<Vec<_>>().join("/"))
    }
}

impl fmt::Display for RepoPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Returns the name as the most lenient file system would read it: HFS+ ignores some characters, NTFS cuts streams and
/// drops dots and spaces at the end, both ignore case.
fn fold_name(part: &str) -> String {
    let ignored =
        |c: char| matches!(c, '\u{200c}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{206a}'..='\u{206f}' | '\u{feff}');
    let kept: String = part.chars().filter(|c| !ignored(*c)).flat_map(char::to_lowercase).collect();
    let name = kept.split(':').next().unwrap_or("");
    name.trim_end_matches(['.', ' ']).to_owned()
}

/// Returns whether a folded name is the dot folder `name`, by its own name or its short name on NTFS (`git~1`).
fn is_folder(folded: &str, name: &str) -> bool {
    if folded.strip_prefix('.') == Some(name) {
        return true;
    }
    folded
        .strip_prefix(name)
        .and_then(|rest| rest.strip_prefix('~'))
        .is_some_and(|digits| !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit()))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[track_caller]
    fn good(text: &str, want: &str) {
        assert_eq!(RepoPath::parse(text), Ok(RepoPath(want.to_owned())), "{text:?}");
    }

    #[track_caller]
    fn bad(text: &str, want: &str) {
        assert_eq!(RepoPath::parse(text).map_err(|err| err.to_string()), Err(want.to_owned()), "{text:?}");
    }

    #[test]
    fn valid_paths_are_normalised() {
        for (text, want) in [
            ("a", "a"),
            ("./a//b", "a/b"),
            ("src/", "src"),
            ("a/./b", "a/b"),
            (".github/workflows/ci.yml", ".github/workflows/ci.yml"),
            (".gitignore", ".gitignore"),
            (".gitmodules", ".gitmodules"),
            ("git", "git"),
            ("a/git~x", "a/git~x"),
            ("..a/b..", "..a/b.."),
            ("-rf", "-rf"),
            ("naïve file.txt", "naïve file.txt"),
            ("👩\u{200d}💻.md", "👩\u{200d}💻.md"),
            ("a:b", "a:b"),
        ] {
            good(text, want);
        }
        good(&format!("{}/b", "a".repeat(255)), &format!("{}/b", "a".repeat(255)));
        assert_eq!(
            RepoPath::parse_dir("./").map(|path| (path.is_root(), path.to_string())),
            Ok((true, ".".to_owned()))
        );
    }

    #[test]
    fn invalid_paths_are_refused() {
        for text in ["", ".", "./", ".//."] {
            bad(text, "the path is empty");
        }
        for text in ["/etc/passwd", "//a"] {
            bad(text, &format!("path `{text}` is absolute; paths are relative to the repository"));
        }
        for text in ["..", "../a", "a/../b", "a/.."] {
            bad(text, &format!("path `{text}` leaves the repository by `..`"));
        }
        for text in [
            ".git",
            ".git/config",
            "a/.git/hooks/pre-commit",
            ".GIT/config",
            ".Git",
            ".git.",
            ".git ",
            ".git . .",
            "git~1",
            "GIT~1/config",
            "git~23",
            ".git:x",
            ".git::$INDEX_ALLOCATION/config",
            ".git/./config",
        ] {
            bad(text, &format!("path `{text}` is git's own folder; use git commands instead"));
        }
        for text in [".g\u{200c}it", "\u{feff}.git", ".gi\u{202e}t/config", ".\u{206f}GIT"] {
            assert!(matches!(RepoPath::parse(text), Err(BadPath::Git { .. })), "{text:?}");
        }
        for text in ["a\0b", "a\nb", "a\u{7f}", "a\u{9b}b", "a\\b", "..\\a", "...", "a/.. /b", " ", ".\u{200c}.", ":x"]
        {
            assert!(matches!(RepoPath::parse(text), Err(BadPath::Character { .. })), "{text:?}");
        }
        for text in ["a".repeat(256), "a/".repeat(2049)] {
            assert!(matches!(RepoPath::parse(&text), Err(BadPath::TooLong { .. })));
        }
    }

    #[test]
    fn write_access_of_the_model() {
        for (text, state, append_only, write) in [
            ("src/main.rs", false, false, Some(WriteAccess::Free)),
            ("a/.ralph/format", false, false, Some(WriteAccess::Free)),
            ("ralph/notes.md", false, false, Some(WriteAccess::Free)),
            (".ralph/notes.md", true, false, Some(WriteAccess::Free)),
            (".ralph/progress.md", true, false, Some(WriteAccess::Free)),
            ("./.ralph//guardrails.md", true, true, Some(WriteAccess::AppendOnly)),
            (".RALPH/Guardrails.md.", true, true, Some(WriteAccess::AppendOnly)),
            (".ralph/errors.log", true, true, None),
            (".ralph/activity.log", true, true, None),
            (".ralph/diagnostics.md", true, true, None),
            (".ralph/format", true, false, None),
            (".Ralph/FORMAT", true, false, None),
            (".ralph/iterations/1/prompt.md", true, false, None),
            (".ralph/notes.md/x", true, false, None),
            (".ralph/guardr~1.md", true, false, None),
            ("ralph~1/format", true, false, None),
            (".ralph", true, false, None),
        ] {
            let path = RepoPath::parse(text).unwrap();
            assert_eq!(
                (path.is_ralph_state(), path.is_append_only(), path.model_may_write().ok()),
                (state, append_only, write),
                "{text}"
            );
        }
        assert_eq!(RepoPath::parse_dir(".").unwrap().model_may_write().ok(), None);
    }

    proptest! {
        #[test]
        fn parsed_paths_are_safe_and_stable(text in "[./a-cG gitGIT~1:\\\\\u{200c}\n-]{0,24}") {
            if let Ok(path) = RepoPath::parse(&text) {
                let parts: Vec<&str> = path.as_str().split('/').collect();
                prop_assert!(parts.iter().all(|part| !part.is_empty() && *part != "." && *part != ".."));
                let is_git = |part: &&str| {
                    let name = part.to_lowercase().replace('\u{200c}', "");
                    [".git", "git~1"].contains(&name.split(':').next().unwrap_or("").trim_end_matches(['.', ' ']))
                };
                prop_assert!(!parts.iter().any(is_git), "a folder of git");
                prop_assert_eq!(RepoPath::parse(path.as_str()), Ok(path));
            }
        }

        #[test]
        fn no_text_panics(text in "(?s).{0,300}") {
            let _path_or_not = RepoPath::parse(&text);
        }
    }
}
