//! Defines validated names: a value of these types cannot be an option, a foreign ref or a path out of the tree.

use std::fmt;

use ralph_core::commit_sha::CommitSha;
use serde::{Deserialize, Serialize};

use super::Error;

/// The hash that a repository uses for object names.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ObjectFormat {
    Sha1,
    Sha256,
}

impl ObjectFormat {
    pub(crate) fn parse(text: &str) -> Option<Self> {
        match text {
            "sha1" => Some(Self::Sha1),
            "sha256" => Some(Self::Sha256),
            _ => None,
        }
    }

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Sha1 => "sha1",
            Self::Sha256 => "sha256",
        }
    }
}

/// A full object name in lower-case hex.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Sha(String);

impl Sha {
    pub fn parse(text: &str) -> Result<Self, Error> {
        let hex = text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
        if hex && matches!(text.len(), 40 | 64) {
            return Ok(Self(text.to_owned()));
        }
        Err(bad_name("object name", text))
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Reports whether this is git's name for "no object".
    pub fn is_null(&self) -> bool {
        self.0.bytes().all(|byte| byte == b'0')
    }
}

/// Both types accept the same names, so nothing is validated again.
impl From<&CommitSha> for Sha {
    fn from(commit: &CommitSha) -> Self {
        Self(commit.as_str().to_owned())
    }
}

impl From<&Sha> for CommitSha {
    fn from(sha: &Sha) -> Self {
        Self::parse(&sha.0).expect("both types take the same names")
    }
}

/// The id of a run as one part of a ref name.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct RunName(String);

impl RunName {
    pub fn parse(name: &str) -> Result<Self, Error> {
        if is_segment(name) && name.len() <= 100 { Ok(Self(name.to_owned())) } else { Err(bad_name("run name", name)) }
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

macro_rules! text {
    ($($name:ident),*) => {$(
        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }
        impl TryFrom<String> for $name {
            type Error = Error;
            fn try_from(text: String) -> Result<Self, Error> {
                Self::parse(&text)
            }
        }
        impl From<$name> for String {
            fn from(name: $name) -> Self {
                name.0
            }
        }
    )*};
}
text!(Sha, RunName);

/// Returns the path if it is relative, inside the tree and not part of git itself.
pub(crate) fn tree_path(path: &str) -> Result<&str, Error> {
    let fine = !path.is_empty()
        && !path.contains('\0')
        && path.split('/').all(|part| !matches!(part, "" | "." | "..") && !is_dotgit(part.as_bytes()));
    if fine { Ok(path) } else { Err(bad_name("path", path)) }
}

/// Reports whether some file system takes this name for `.git`.
pub(crate) fn is_dotgit(name: &[u8]) -> bool {
    let Ok(text) = std::str::from_utf8(name) else { return false };
    // NTFS ignores an alternate stream name and trailing dots and blanks, and a backslash is a separator there.
    text.split('\\').any(|part| {
        let seen: String = part
            .split(':')
            .next()
            .unwrap_or("")
            .chars()
            .filter(|c| !is_hfs_ignored(*c))
            .map(|c| c.to_ascii_lowercase())
            .collect();
        matches!(seen.trim_end_matches(['.', ' ']), ".git" | "git~1")
    })
}

fn is_hfs_ignored(c: char) -> bool {
    matches!(c, '\u{200c}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{206a}'..='\u{206f}' | '\u{feff}')
}

fn is_segment(part: &str) -> bool {
    part.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.'))
        && !part.is_empty()
        && !part.starts_with(['-', '.'])
        && !part.ends_with('.')
        && !part.contains("..")
        && !part.to_ascii_lowercase().ends_with(".lock")
}

fn bad_name(what: &'static str, text: &str) -> Error {
    Error::BadName { what, text: ralph_core::text::strip_control(ralph_core::text::first_line(text, 120)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shas() {
        for (text, fine) in [
            ("0123456789012345678901234567890123456789", true),
            ("0123456789012345678901234567890123456789\n", false),
            ("HEAD", false),
            ("--output=/tmp/x", false),
            ("012345678901234567890123456789012345678A", false),
            ("", false),
        ] {
            assert_eq!(Sha::parse(text).is_ok(), fine, "{text:?}");
        }
    }

    #[test]
    fn paths() {
        for (path, fine) in [
            ("src/main.rs", true),
            (".gitignore", true),
            (".github/x", true),
            ("", false),
            ("/etc/passwd", false),
            ("a/../b", false),
            ("./a", false),
            ("a//b", false),
            (".git/config", false),
            ("a/.GIT/hooks/x", false),
        ] {
            assert_eq!(tree_path(path).is_ok(), fine, "{path:?}");
        }
    }

    #[test]
    fn dotgits() {
        for (name, is) in [
            (".git", true),
            (".GiT", true),
            ("git~1", true),
            ("GIT~1", true),
            (".g\u{200c}it", true),
            (".git.", true),
            (".git ", true),
            (".git::$INDEX_ALLOCATION", true),
            ("a\\.git", true),
            (".gitignore", false),
            (".gitmodules", false),
            ("git", false),
            ("git~2", false),
        ] {
            assert_eq!(is_dotgit(name.as_bytes()), is, "{name:?}");
        }
    }
}
