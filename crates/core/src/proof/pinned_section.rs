//! Files of which only a part judges: `package.json` names the tests, and the rest of it is the run's to change.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use serde::{Deserialize, Serialize};

use crate::hash::sha256;

/// What a part of a file said at the start.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PinnedSection {
    pub path: String,
    /// Keys with `/` between their names, or the headings of sections.
    pub keys: Vec<String>,
    pub sha256: String,
}

impl PinnedSection {
    /// Pins what a file says now; `None` for one that nobody can read.
    pub(super) fn pin(path: &str, keys: &BTreeSet<String>, text: Option<&str>) -> Option<Self> {
        let keys: Vec<String> = keys.iter().cloned().collect();
        let said = pinned_text(path, &keys, text.unwrap_or_default())?;
        Some(Self { path: path.to_owned(), keys, sha256: sha256(said.as_bytes()) })
    }

    /// Tells whether a file still says what was pinned; `None` is a file that is not there.
    pub fn is_unchanged(&self, bytes: Option<&[u8]>) -> bool {
        let Ok(text) = std::str::from_utf8(bytes.unwrap_or_default()) else { return false };
        pinned_text(&self.path, &self.keys, text).is_some_and(|said| sha256(said.as_bytes()) == self.sha256)
    }

    /// Returns the words by which people and models know it.
    pub fn description(&self) -> String {
        format!("{} ({})", self.path, self.keys.join(", "))
    }
}

/// Writes down what the keys of a file say; `None` for a text that is not what its name says.
fn pinned_text(path: &str, keys: &[String], text: &str) -> Option<String> {
    let json = match path.rsplit_once('.') {
        Some((_, "json")) if text.trim().is_empty() => serde_json::Value::Null,
        Some((_, "json")) => serde_json::from_str(text).ok()?,
        Some((_, "toml")) => serde_json::to_value(toml::from_str::<toml::Table>(text).ok()?).ok()?,
        _ => return Some(section_lines(keys, text)),
    };
    let mut out = String::new();
    for key in keys {
        if let Some(value) = json.pointer(&format!("/{key}")) {
            writeln!(out, "{key}={value}").expect("writing to a String cannot fail");
        }
    }
    Some(out)
}

/// Returns the lines below these headings.
fn section_lines(keys: &[String], text: &str) -> String {
    let mut inside = false;
    let mut out = String::new();
    for line in text.lines() {
        if let Some(heading) = line.strip_prefix('[').and_then(|rest| rest.split(']').next()) {
            inside = keys.iter().any(|key| key == heading);
        }
        if inside && !line.trim().is_empty() {
            out.push_str(line.trim_end());
            out.push('\n');
        }
    }
    out
}
