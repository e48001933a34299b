//! Parses `cmd://program args…`: a secret that another program prints on request.

use std::time::Duration;

use crate::text;

/// The default lifetime of the program's output.
const DEFAULT_TTL: Duration = Duration::from_mins(5);
const MAX_TTL_SECONDS: u64 = 24 * 3600;
const PREFIX: &str = "cmd://";

/// A program and its arguments, run without a shell.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CredentialCommand {
    pub argv: Vec<String>,
    /// How long its output remains valid.
    pub ttl: Duration,
}

/// The reasons why a text that starts with `cmd://` is not a command.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BadCommand {
    #[error("`cmd://` names no program")]
    Empty,
    #[error("a quote of the `cmd://` line is never closed")]
    Quote,
    #[error("the second line of a `cmd://` secret is `{line}`, not `ttl SECONDS`")]
    Ttl { line: String },
}

impl BadCommand {
    pub fn hint(&self) -> Option<String> {
        Some(
            "write `cmd://program argument 'an argument with spaces'`, and optionally `ttl 60` on a second line"
                .to_owned(),
        )
    }
}

impl CredentialCommand {
    /// Returns whether a value names a command instead of being the secret itself.
    pub fn is_command(value: &str) -> bool {
        value.trim_start().starts_with(PREFIX)
    }

    /// Parses the program, its arguments (quotes keep spaces together; nothing is expanded) and the lifetime of its
    /// output.
    pub fn parse(value: &str) -> Result<Self, BadCommand> {
        let mut lines = value.trim().lines().map(str::trim).filter(|line| !line.is_empty());
        let line = lines.next().and_then(|line| line.strip_prefix(PREFIX)).ok_or(BadCommand::Empty)?;
        let argv = split_words(line)?;
        if argv.first().is_none_or(String::is_empty) {
            return Err(BadCommand::Empty);
        }
        let ttl = match lines.next() {
            None => DEFAULT_TTL,
            Some(line) => {
                let seconds = line.strip_prefix("ttl").and_then(|rest| rest.trim().trim_end_matches('s').parse().ok());
                let seconds = seconds.filter(|seconds| *seconds <= MAX_TTL_SECONDS && lines.next().is_none());
                let wrong = || BadCommand::Ttl { line: text::strip_control(text::first_line(line, 40)) };
                Duration::from_secs(seconds.ok_or_else(wrong)?)
            }
        };
        Ok(Self { argv, ttl })
    }
}

fn split_words(line: &str) -> Result<Vec<String>, BadCommand> {
    let mut words = Vec::new();
    let mut word: Option<String> = None;
    let mut chars = line.chars();
    while let Some(c) = chars.next() {
        match c {
            '"' | '\'' => {
                let word = word.get_or_insert_default();
                loop {
                    match chars.next().ok_or(BadCommand::Quote)? {
                        end if end == c => break,
                        '\\' if c == '"' => word.push(chars.next().ok_or(BadCommand::Quote)?),
                        inside => word.push(inside),
                    }
                }
            }
            '\\' => word.get_or_insert_default().push(chars.next().ok_or(BadCommand::Quote)?),
            c if c.is_whitespace() => words.extend(word.take()),
            c => word.get_or_insert_default().push(c),
        }
    }
    words.extend(word);
    Ok(words)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[track_caller]
    fn check(value: &str, want: Result<(&[&str], u64), &str>) {
        let got = CredentialCommand::parse(value);
        let got = got
            .as_ref()
            .map(|command| (command.argv.iter().map(String::as_str).collect::<Vec<_>>(), command.ttl.as_secs()));
        let got = got.map_err(ToString::to_string);
        assert_eq!(got, want.map(|(argv, ttl)| (argv.to_vec(), ttl)).map_err(str::to_owned), "{value}");
    }

    #[test]
    fn commands() {
        check("cmd://op read op://vault/item", Ok((&["op", "read", "op://vault/item"], 300)));
        check("cmd://pass 'my key' \"a \\\" b\" c\\ d\n", Ok((&["pass", "my key", "a \" b", "c d"], 300)));
        check("cmd://x ''\nttl 60", Ok((&["x", ""], 60)));
        check("cmd://x\n\nttl 60s\n", Ok((&["x"], 60)));
        // Nothing is expanded: there is no shell.
        check("cmd://echo $HOME;id", Ok((&["echo", "$HOME;id"], 300)));
        check("cmd://", Err("`cmd://` names no program"));
        check("cmd://''", Err("`cmd://` names no program"));
        check("cmd://x 'y", Err("a quote of the `cmd://` line is never closed"));
        check("cmd://x\nrm y", Err("the second line of a `cmd://` secret is `rm y`, not `ttl SECONDS`"));
        check("cmd://x\nttl 1\nttl 2", Err("the second line of a `cmd://` secret is `ttl 1`, not `ttl SECONDS`"));
        assert!(!CredentialCommand::is_command("sk-cmd://"));
    }

    proptest! {
        #[test]
        fn never_panics(text in "(cmd://)?[\\PC'\"\\\\\n ]{0,30}") {
            if let Ok(command) = CredentialCommand::parse(&text) {
                prop_assert!(!command.argv.is_empty());
            }
        }
    }
}
