//! Defines the type of a full commit hash, which is validated when it is parsed.

use std::fmt;
use std::ops::Deref;

use serde::{Deserialize, Serialize};

/// The full hash of a commit in lower-case hex: SHA-1 or SHA-256.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct CommitSha(String);

/// A text that is not the full hash of a commit.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{text}` is not the full name of a commit")]
pub struct BadCommitSha {
    text: String,
}

impl BadCommitSha {
    pub fn hint(&self) -> Option<String> {
        Some("`git rev-parse NAME` prints the full name of a commit".to_owned())
    }
}

impl CommitSha {
    pub fn parse(text: &str) -> Result<Self, BadCommitSha> {
        let hex = text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
        if hex && matches!(text.len(), 40 | 64) {
            return Ok(Self(text.to_owned()));
        }
        Err(BadCommitSha { text: crate::text::first_line(&crate::text::strip_control(text), 80).to_owned() })
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// Derefs to text, because a hash is mostly shown, compared or passed to a program.
impl Deref for CommitSha {
    type Target = str;

    fn deref(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for CommitSha {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl TryFrom<String> for CommitSha {
    type Error = BadCommitSha;

    fn try_from(text: String) -> Result<Self, BadCommitSha> {
        Self::parse(&text)
    }
}

impl From<CommitSha> for String {
    fn from(sha: CommitSha) -> Self {
        sha.0
    }
}

/// Serializes a missing commit as an empty string, which is how events store it.
pub(crate) mod empty_if_none {
    use serde::{Deserialize as _, Deserializer, Serializer, de};

    use super::CommitSha;

    #[expect(clippy::ref_option, reason = "serde calls it with a reference to the field")]
    pub(crate) fn serialize<S: Serializer>(sha: &Option<CommitSha>, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(sha.as_ref().map_or("", CommitSha::as_str))
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Option<CommitSha>, D::Error> {
        let text = String::deserialize(from)?;
        if text.is_empty() { Ok(None) } else { CommitSha::parse(&text).map(Some).map_err(de::Error::custom) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::Event;

    #[test]
    fn only_full_hashes_are_accepted() {
        let full = "5d50cd1236913b73888ca14071f708156ca584c4";
        for (text, want) in [
            (full, true),
            (&full.repeat(2)[..64], true),
            (&full[..10], false),
            (&full.to_uppercase(), false),
            ("main", false),
            ("", false),
        ] {
            assert_eq!(CommitSha::parse(text).is_ok(), want, "{text}");
        }
    }

    #[test]
    fn an_import_without_a_commit_is_an_empty_string() {
        let text = r#"{"type":"commit-imported","n":1,"sha":"","commits":0,"findings":[]}"#;
        let event: Event = serde_json::from_str(text).unwrap();
        assert_eq!(event, Event::CommitImported { n: 1, sha: None, commits: 0, findings: Vec::new() });
        assert_eq!(serde_json::to_string(&event).unwrap(), text);
    }
}
