//! Pins sections of files: for example the keys of `package.json` that define the tests, while the run may change the
//! others.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use serde::{Deserialize, Serialize};

use crate::hash::sha256;

/// The contents of a part of a file at the start.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PinnedSection {
    pub path: String,
    /// Keys with `/` between their names, or the headings of sections.
    pub keys: Vec<String>,
    pub sha256: String,
}

impl PinnedSection {
    /// Pins the current contents of a file; `None` for a file that cannot be parsed.
    pub(super) fn pin(path: &str, keys: &BTreeSet<String>, text: Option<&str>) -> Option<Self> {
        let keys: Vec<String> = keys.iter().cloned().collect();
        let contents = pinned_text(path, &keys, text.unwrap_or_default())?;
        Some(Self { path: path.to_owned(), keys, sha256: sha256(contents.as_bytes()) })
    }

    /// Returns whether a file still has the pinned contents; `None` is a file that does not exist.
    pub fn is_unchanged(&self, bytes: Option<&[u8]>) -> bool {
        let Ok(text) = std::str::from_utf8(bytes.unwrap_or_default()) else { return false };
        pinned_text(&self.path, &self.keys, text).is_some_and(|contents| sha256(contents.as_bytes()) == self.sha256)
    }

    /// Returns a description for people and models.
    pub fn description(&self) -> String {
        format!("{} ({})", self.path, self.keys.join(", "))
    }
}

/// Returns the values of the keys of a file as text; `None` for a text that does not have its file type's syntax.
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
