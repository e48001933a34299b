//! Composes commit messages, authors and dates: plain data, so that the same input gives the same commit.

use ralph_core::event::CommitIdentity;
use serde::{Deserialize, Serialize};

/// The author and date of one commit.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CommitStamp {
    pub identity: CommitIdentity,
    pub at: jiff::Timestamp,
}

impl CommitStamp {
    /// Returns the environment git reads author and committer from.
    pub(crate) fn env(&self) -> Vec<(&'static str, String)> {
        let date = format!("@{} +0000", self.at.as_second().max(0));
        let name = one_line(&self.identity.name);
        let email = one_line(&self.identity.email);
        let name = if name.is_empty() { "ralph".to_owned() } else { name };
        vec![
            ("GIT_AUTHOR_NAME", name.clone()),
            ("GIT_AUTHOR_EMAIL", email.clone()),
            ("GIT_AUTHOR_DATE", date.clone()),
            ("GIT_COMMITTER_NAME", name),
            ("GIT_COMMITTER_EMAIL", email),
            ("GIT_COMMITTER_DATE", date),
        ]
    }
}

/// One `Key: value` line at the end of a commit message.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CommitTrailer {
    pub key: String,
    pub value: String,
}

impl CommitTrailer {
    pub fn new(key: &str, value: impl Into<String>) -> Self {
        Self { key: key.to_owned(), value: value.into() }
    }
}

/// Joins a message and its trailers. The message may come from a model, so lines that look like ralph's trailers are
/// removed.
pub(crate) fn compose_message(message: &str, trailers: &[CommitTrailer]) -> String {
    let ours = |line: &str| {
        trailers.iter().any(|trailer| {
            line.get(..trailer.key.len()).is_some_and(|start| start.eq_ignore_ascii_case(&trailer.key))
                && line.get(trailer.key.len()..).is_some_and(|rest| rest.trim_start().starts_with(':'))
        })
    };
    let body: Vec<&str> = message.lines().filter(|line| !ours(line.trim_start())).collect();
    let body = ralph_core::text::strip_control(&body.join("\n"));
    let body = body.trim();
    let mut text = if body.is_empty() { "ralph: work in progress".to_owned() } else { body.to_owned() };
    text.push('\n');
    if !trailers.is_empty() {
        text.push('\n');
    }
    for trailer in trailers {
        text.extend([&one_line(&trailer.key), ": ", &one_line(&trailer.value), "\n"]);
    }
    text
}

fn one_line(text: &str) -> String {
    text.chars().filter(|c| !c.is_control() && !matches!(c, '<' | '>')).collect::<String>().trim().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages() {
        let run = [CommitTrailer::new("Ralph-Run", "r1"), CommitTrailer::new("Ralph-Iteration", "2\nEvil: x")];
        for (message, want) in [
            ("Fix it\n\nBecause.\n", "Fix it\n\nBecause.\n\nRalph-Run: r1\nRalph-Iteration: 2Evil: x\n"),
            ("Fix\n\nralph-run : other\n", "Fix\n\nRalph-Run: r1\nRalph-Iteration: 2Evil: x\n"),
            ("", "ralph: work in progress\n\nRalph-Run: r1\nRalph-Iteration: 2Evil: x\n"),
            ("a\u{1b}[31mb\0", "ab\n\nRalph-Run: r1\nRalph-Iteration: 2Evil: x\n"),
        ] {
            assert_eq!(compose_message(message, &run), want);
        }
        assert_eq!(compose_message("x", &[]), "x\n");
    }
}
