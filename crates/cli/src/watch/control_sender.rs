//! Asking a run for something, live or at rest, and what came of it in words.

use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use ralph_core::control::Control;
use ralph_engine::Error;
use ralph_engine::control;
use ralph_engine::store::RunFolder;
use tokio::io::AsyncWriteExt as _;
use tokio::sync::Mutex;
use tokio::time::{sleep, timeout};

use crate::error::CliError;

/// Who is named as the one who asked.
const REQUESTED_BY: &str = "a person";

/// How long a run that was taken up may take to open its door.
const RESUME_TIMEOUT: Duration = Duration::from_secs(5);

/// How often it is looked at meanwhile.
const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// Asks for things, those of a run at rest one after the other: each of them holds the run while it is done.
#[derive(Debug, Clone)]
pub(super) struct WatchControlSender {
    folder: RunFolder,
    rest_lock: Arc<Mutex<()>>,
}

impl WatchControlSender {
    pub(super) fn new(folder: &RunFolder) -> Self {
        Self { folder: folder.clone(), rest_lock: Arc::default() }
    }

    /// Asks whoever can do it: the process that works on the run, or a short one for a run at rest. It is never this
    /// one: what a process opens of a run stays open until its end.
    pub(super) async fn send(self, control: Control) -> Result<(), String> {
        let turn = self.rest_lock.lock().await;
        if self.folder.is_locked() {
            // A live run answers when it has time; others may ask meanwhile.
            drop(turn);
            return control::send(&self.folder, &control, REQUESTED_BY).await.map_err(error_text);
        }
        if control == Control::Resume {
            return resume_detached(&self.folder).await;
        }
        let run = self.folder.id();
        run_ralph(&["watch", &run, "--ask"], &serde_json::to_string(&control).unwrap_or_default(), &run).await
    }

    /// Waits until nothing is being done to a run at rest.
    pub(super) async fn wait_idle(&self) {
        drop(self.rest_lock.lock().await);
    }
}

/// Lets a run go on in the background, by the command a person would type.
async fn resume_detached(folder: &RunFolder) -> Result<(), String> {
    run_ralph(&["resume", &folder.id(), "--detach"], "", &folder.id()).await?;
    // Its process has the run once its door is open; asking for the lock before that could take it away.
    let up = async {
        while !folder.socket_path().exists() {
            sleep(POLL_INTERVAL).await;
        }
    };
    // One that is so slow, or has ended already, is seen by its events.
    let _ = timeout(RESUME_TIMEOUT, up).await;
    Ok(())
}

/// Runs ralph itself, in a group of its own: what happens to this terminal is not the run's business.
async fn run_ralph(args: &[&str], input: &str, run: &str) -> Result<(), String> {
    let failed = |error: std::io::Error| format!("could not start ralph: {error}");
    let program = std::env::current_exe().map_err(failed)?;
    let mut command = tokio::process::Command::new(program);
    command.arg("--json").args(args).process_group(0);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut child = command.spawn().map_err(failed)?;
    if let Some(mut stdin) = child.stdin.take() {
        // One that does not read has an error to tell.
        let _ = stdin.write_all(input.as_bytes()).await;
    }
    let output = child.wait_with_output().await.map_err(failed)?;
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    Err(parse_error(&said).unwrap_or_else(|| format!("it could not be done; next: ralph show {run}")))
}

/// Reads the error that a command with `--json` printed.
fn parse_error(said: &str) -> Option<String> {
    let error: serde_json::Value = serde_json::from_str(said.lines().last()?).ok()?;
    let message = error["error"]["message"].as_str()?;
    Some(match error["error"]["hint"].as_str() {
        Some(hint) => format!("{message}; next: {hint}"),
        None => message.to_owned(),
    })
}

/// Writes an error as one line: what, why, and what to do.
pub(super) fn error_text(error: Error) -> String {
    match error {
        Error::ControlRefused { why, .. } => why,
        Error::NotRunning { run } => format!("nobody drives this run; next: ralph resume {run}"),
        error => {
            let failure = CliError::from(error);
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
            assert_eq!(parse_error(said).as_deref(), want, "{said}");
        }
    }
}
