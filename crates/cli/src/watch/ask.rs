//! Asking a run for something, live or at rest, and what came of it in words.

use std::process::Stdio;

use ralph_core::control::Control;
use ralph_engine::Error;
use ralph_engine::control;
use ralph_engine::host::Host;
use ralph_engine::run::at_rest;
use ralph_engine::store::{Folder, Silent};

use crate::error::Failure;

/// Who is named as the one who asked.
const BY: &str = "a person";

/// Asks the process that works on the run.
pub(super) async fn of_live(folder: Folder, control: Control) -> Result<(), String> {
    control::ask(&folder, &control, BY).await.map_err(words)
}

/// Carries a control out on a run nobody works on.
pub(super) async fn of_resting(host: Host, folder: Folder, control: Control) -> Result<(), String> {
    Box::pin(at_rest(&host, folder, control, BY, Box::new(Silent))).await.map_err(words)
}

/// Lets a run go on in the background, by the command a person would type.
pub(super) async fn take_up(folder: Folder) -> Result<(), String> {
    let failed = |error: std::io::Error| format!("could not start ralph: {error}");
    let program = std::env::current_exe().map_err(failed)?;
    let mut command = tokio::process::Command::new(program);
    command.args(["--json", "resume", &folder.id(), "--detach"]);
    // A group of its own: what happens to this terminal is not the run's business.
    command.stdin(Stdio::null()).process_group(0).kill_on_drop(false);
    let output = command.output().await.map_err(failed)?;
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    Err(refusal(&said).unwrap_or_else(|| format!("it could not go on; next: ralph resume {}", folder.id())))
}

/// Reads the error that a command with `--json` printed.
fn refusal(said: &str) -> Option<String> {
    let error: serde_json::Value = serde_json::from_str(said.lines().last()?).ok()?;
    let message = error["error"]["message"].as_str()?;
    Some(match error["error"]["hint"].as_str() {
        Some(hint) => format!("{message}; next: {hint}"),
        None => message.to_owned(),
    })
}

/// Writes an error as one line: what, why, and what to do.
pub(super) fn words(error: Error) -> String {
    match error {
        Error::ControlRefused { why, .. } => why,
        Error::NotRunning { run } => format!("nobody drives this run; next: ralph resume {run}"),
        error => {
            let failure = Failure::from(error);
            let mut said = [vec![failure.message], failure.causes].concat().join(": ");
            if let Some(hint) = failure.hint {
                said = format!("{said}; next: {hint}");
            }
            said
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refusals_are_read() {
        for (said, want) in [
            ("{\"error\":{\"message\":\"no\",\"hint\":\"ralph ls\"}}\n", Some("no; next: ralph ls")),
            ("a remark\n{\"error\":{\"message\":\"no\",\"hint\":null}}", Some("no")),
            ("{}", None),
            ("", None),
        ] {
            assert_eq!(refusal(said).as_deref(), want, "{said}");
        }
    }
}
