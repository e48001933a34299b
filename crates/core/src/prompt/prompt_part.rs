//! The parts of a prompt that come from outside: how much of each is shown, and how it is fenced.
//!
//! The agent can write most of these texts, and it can read old prompts with their nonce. So a fence holds because the
//! text inside is changed, not because the nonce is secret: everything that looks like the nonce or like a fence line
//! is removed from it.

use std::fmt::Write as _;

use aho_corasick::AhoCorasick;
use serde::{Deserialize, Serialize};

use super::last_actions::{LINE_BYTES, OUTPUT_BYTES, SHOWN_ACTIONS};
use crate::{hash, text};

/// The maximum size of a whole prompt, without the action schema and its examples.
pub const MAX_PROMPT_BYTES: usize = 200 * 1024;

/// The number of lines of `errors.log` that are shown.
pub const ERROR_LINES: usize = 200;

/// One text in a prompt.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum PromptPart {
    Task,
    Guardrails,
    Progress,
    Notes,
    Errors,
    GitStatus,
    Diffstat,
    TestOutput,
    TestCommand,
    Boxes,
    ProtectedPaths,
    RotatedBecause,
    LastActions,
    Refused,
}

/// The end of a text that is kept when it does not fit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ShownEnd {
    Start,
    End,
}

/// A part that was too long for the prompt.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TruncatedPart {
    pub part: PromptPart,
    pub bytes_left_out: u64,
    /// Where the complete text is: a path in the repository, or the git command that prints it.
    pub path: String,
}

/// The part of a text that was not read, because only the end that is shown was needed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UnreadBytes {
    pub part: PromptPart,
    pub bytes: u64,
}

const KIB: usize = 1024;

/// Every part with its name in the fence, the maximum number of bytes shown, and the end that is kept.
#[rustfmt::skip]
const PARTS: [(PromptPart, &str, usize, ShownEnd); 14] = [
    (PromptPart::Task,           "task",            60 * KIB, ShownEnd::Start),
    (PromptPart::Guardrails,     "guardrails",      16 * KIB, ShownEnd::End),
    (PromptPart::Progress,       "progress",         8 * KIB, ShownEnd::Start),
    (PromptPart::Notes,          "notes",            8 * KIB, ShownEnd::End),
    (PromptPart::Errors,         "errors-log",      16 * KIB, ShownEnd::End),
    (PromptPart::GitStatus,      "git-status",       6 * KIB, ShownEnd::Start),
    (PromptPart::Diffstat,       "diffstat",         4 * KIB, ShownEnd::End),
    (PromptPart::TestOutput,     "test-output",     16 * KIB, ShownEnd::End),
    (PromptPart::TestCommand,    "test-command",         KIB, ShownEnd::Start),
    (PromptPart::Boxes,          "boxes",            6 * KIB, ShownEnd::Start),
    (PromptPart::ProtectedPaths, "protected-paths",  4 * KIB, ShownEnd::Start),
    (PromptPart::RotatedBecause, "rotated-because",      KIB, ShownEnd::Start),
    (PromptPart::LastActions,    "last-actions",    30 * KIB, ShownEnd::End),
    (PromptPart::Refused,        "refused",          4 * KIB, ShownEnd::Start),
];

/// Room for ralph's own text: rules, headings, fences and the numbers.
const OWN_TEXT_BYTES: usize = 16 * KIB;

const _: () = {
    let (mut sum, mut at) = (OWN_TEXT_BYTES, 0);
    while at < PARTS.len() {
        assert!(PARTS[at].0 as usize == at, "the table is in the order of the parts");
        sum += PARTS[at].2;
        at += 1;
    }
    assert!(sum <= MAX_PROMPT_BYTES, "the parts fit into the whole");
    let actions = OUTPUT_BYTES + SHOWN_ACTIONS * LINE_BYTES;
    assert!(actions <= PARTS[PromptPart::LastActions as usize].2, "lines and outputs fit into their part");
};

impl PromptPart {
    fn row(self) -> &'static (PromptPart, &'static str, usize, ShownEnd) {
        &PARTS[self as usize]
    }

    /// Returns the name in the fence.
    pub(super) fn name(self) -> &'static str {
        self.row().1
    }

    /// Returns the maximum number of bytes of it that are shown.
    pub fn cap(self) -> usize {
        self.row().2
    }

    /// Returns which end of it is shown when it is longer: a caller that reads it from a file needs no more than that.
    pub fn shown_end(self) -> ShownEnd {
        self.row().3
    }

    /// Returns the piece of a text that is shown, without reading more of it than the cap.
    pub(super) fn shown_text(self, text: &str) -> &str {
        let cap = self.cap();
        let kept = match self.shown_end() {
            ShownEnd::Start => text::head(text, cap),
            ShownEnd::End => tail_bytes(text, cap),
        };
        if self == Self::Errors { text::tail(kept, ERROR_LINES, cap) } else { kept }
    }
}

/// As [`text::tail`] without counting lines, which would scan all of a huge text.
pub(super) fn tail_bytes(text: &str, bytes: usize) -> &str {
    let mut start = text.len().saturating_sub(bytes);
    while !text.is_char_boundary(start) {
        start += 1;
    }
    text.get(start..).unwrap_or_default()
}

/// Encloses texts in markers that they cannot forge.
pub(crate) struct PromptFence {
    mark: String,
    forgeries: AhoCorasick,
}

impl PromptFence {
    pub(crate) fn new(nonce: &str) -> Self {
        // A short or unusual nonce could be part of ordinary text, and removing it would damage that text.
        let usable = (8..=64).contains(&nonce.len()) && nonce.bytes().all(|byte| byte.is_ascii_alphanumeric());
        let mark = if usable { nonce.to_owned() } else { text::head(&hash::sha256(nonce.as_bytes()), 16).to_owned() };
        let forgeries = AhoCorasick::builder()
            .ascii_case_insensitive(true)
            .build([mark.as_str(), "[ralph:"])
            .expect("two short patterns are far below every limit");
        Self { mark, forgeries }
    }

    pub(crate) fn mark(&self) -> &str {
        &self.mark
    }

    /// Removes escape sequences and forged fences from a text.
    ///
    /// Their replacement has no letter or digit, so it cannot complete another forgery.
    pub(crate) fn sanitise(&self, text: &str) -> String {
        self.forgeries.replace_all(&text::strip_control(text), &["[…]", "[…:"])
    }

    /// Writes a text as fenced data; an empty one as `nothing`.
    pub(super) fn write(&self, out: &mut String, part: PromptPart, text: &str, nothing: &str) {
        let text = self.sanitise(text);
        let text = text.trim_end();
        let (name, mark) = (part.name(), &self.mark);
        if text.is_empty() {
            writeln!(out, "{nothing}").expect("writing to a String cannot fail");
            return;
        }
        writeln!(out, "[ralph:begin {name} {mark}]\n{text}\n[ralph:end {name} {mark}]")
            .expect("writing to a String cannot fail");
    }

    /// Sanitises an external text for use in one line of ralph's own.
    pub(super) fn inline(&self, text: &str) -> String {
        self.sanitise(text).split_whitespace().collect::<Vec<_>>().join(" ")
    }
}
