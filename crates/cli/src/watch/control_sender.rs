//! Sends controls to a run, live or at rest, and describes the result.

use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use ralph_core::control_request::Control;
use ralph_engine::Error;
use ralph_engine::control;
use ralph_engine::host_environment::HostContext;
use ralph_engine::store::RunFolder;
use tokio::sync::Mutex;
use tokio::time::{sleep, timeout};

use crate::error::CliError;

/// The name that is recorded as the origin of a control.
const REQUESTED_BY: &str = "a person";

/// How long a resumed run may take to listen on its control socket.
const RESUME_TIMEOUT: Duration = Duration::from_secs(5);

/// How often that is checked meanwhile.
const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// Sends controls; those for a run at rest one after the other, because each holds the run's lock while it is applied.
#[derive(Debug, Clone)]
pub(super) struct WatchControlSender {
    host: HostContext,
    folder: RunFolder,
    rest_lock: Arc<Mutex<()>>,
}

impl WatchControlSender {
    pub(super) fn new(host: &HostContext, folder: &RunFolder) -> Self {
        Self { host: host.clone(), folder: folder.clone(), rest_lock: Arc::default() }
    }

    /// Sends a control to the process that works on the run, or applies it here when the run rests.
    pub(super) async fn send(self, control: Control) -> Result<(), String> {
        let turn = self.rest_lock.lock().await;
        if self.folder.is_live() {
            // A live run may answer late, so other controls may be sent meanwhile.
            drop(turn);
        } else if control == Control::Resume {
            return resume_detached(&self.folder).await;
        }
        control::send(&self.host, &self.folder, &control, REQUESTED_BY).await.map(drop).map_err(error_text)
    }

    /// Waits until no control is being applied to a run at rest.
    pub(super) async fn wait_idle(&self) {
        drop(self.rest_lock.lock().await);
    }
}

/// Resumes a run in a process of its own, which outlives this screen, with the command that a user would type.
async fn resume_detached(folder: &RunFolder) -> Result<(), String> {
    let run = folder.id();
    let failed = |error: std::io::Error| format!("could not start ralph: {error}");
    let program = std::env::current_exe().map_err(failed)?;
    let mut command = tokio::process::Command::new(program);
    // In its own process group, so that signals of this terminal do not reach the run.
    command.args(["--json", "resume", &run, "--detach"]).process_group(0);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
    let output = command.output().await.map_err(failed)?;
    if !output.status.success() {
        let printed = String::from_utf8_lossy(&output.stdout).into_owned();
        return Err(parse_error(&printed).unwrap_or_else(|| format!("it could not be done; next: ralph show {run}")));
    }
    // A run that is slow to listen, or has ended already, is seen by its events.
    let up = async {
        while !folder.is_live() {
            sleep(POLL_INTERVAL).await;
        }
    };
    let _ = timeout(RESUME_TIMEOUT, up).await;
    Ok(())
}

/// Reads the error that a command with `--json` printed.
fn parse_error(printed: &str) -> Option<String> {
    let error: serde_json::Value = serde_json::from_str(printed.lines().last()?).ok()?;
    let message = error["error"]["message"].as_str()?;
    Some(match error["error"]["hint"].as_str() {
        Some(hint) => format!("{message}; next: {hint}"),
        None => message.to_owned(),
    })
}

/// Formats an error as one line: what failed, why, and what to do.
pub(super) fn error_text(error: Error) -> String {
    match error {
        Error::ControlRefused { why, .. } => why,
        Error::NotRunning { run } => format!("no process works on this run; next: ralph resume {run}"),
        error => {
            let failure = CliError::from(error);
            let mut text = [vec![failure.message], failure.causes].concat().join(": ");
            if let Some(hint) = failure.hint {
                text = format!("{text}; next: {hint}");
            }
            text
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_errors_are_parsed() {
        for (printed, want) in [
            ("{\"error\":{\"message\":\"no\",\"hint\":\"ralph ls\"}}\n", Some("no; next: ralph ls")),
            ("a remark\n{\"error\":{\"message\":\"no\",\"hint\":null}}", Some("no")),
            ("{}", None),
            ("", None),
        ] {
            assert_eq!(parse_error(printed).as_deref(), want, "{printed}");
        }
    }
}
