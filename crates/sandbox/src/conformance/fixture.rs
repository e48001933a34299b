//! Shared helpers of the cases: a sandbox to work in, common steps, and assertions.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::ConformanceOutcome;
use crate::{
    Backend, Error, ExecOutput, ExecRequest, ExecStatus, Sandbox, SandboxLabel, SandboxSpec, capture, random_name,
};

/// The timeout of commands whose case is not about time.
pub(super) const LONG: Duration = Duration::from_mins(1);
/// How long to wait for something that must happen.
const DEADLINE: Duration = Duration::from_secs(20);
/// A process without a heartbeat for this long is dead; a beat takes a twentieth of it.
const HEARTBEAT_TIMEOUT: Duration = Duration::from_secs(1);

pub(super) const READ_CAP: u64 = 4 << 20;

/// Appends to a file for half a minute at most, so that a broken backend does not leave a process for ever.
pub(super) const HEARTBEAT_SCRIPT: &str = "i=0; while [ $i -lt 600 ]; do echo >> beat; sleep 0.05; i=$((i+1)); done";

/// Why a case did not pass.
#[derive(Debug)]
pub(super) enum ConformanceError {
    Failed(String),
    Skipped(String),
}

pub(super) type ConformanceResult = Result<(), ConformanceError>;

impl From<Error> for ConformanceError {
    fn from(error: Error) -> Self {
        let source = std::error::Error::source(&error).map_or_else(String::new, |source| format!(": {source}"));
        Self::Failed(format!("{error}{source}"))
    }
}

impl From<std::io::Error> for ConformanceError {
    fn from(error: std::io::Error) -> Self {
        Self::Failed(format!("on the host: {error}"))
    }
}

impl From<ConformanceResult> for ConformanceOutcome {
    fn from(verdict: ConformanceResult) -> Self {
        match verdict {
            Ok(()) => Self::Passed,
            Err(ConformanceError::Failed(why)) => Self::Failed(why),
            Err(ConformanceError::Skipped(why)) => Self::Skipped(why),
        }
    }
}

/// Fails unless both are equal.
#[expect(clippy::needless_pass_by_value, reason = "cases compare fresh values; a `&` before each would be noise")]
pub(super) fn expect_eq<T: PartialEq<U> + Debug, U: Debug>(what: &str, got: T, expected: U) -> ConformanceResult {
    if got == expected { Ok(()) } else { fail(&format!("{what}: got {got:?}, expected {expected:?}")) }
}

/// Fails unless the condition is true.
pub(super) fn expect_true(what: &str, holds: bool) -> ConformanceResult {
    if holds { Ok(()) } else { fail(&format!("{what}: does not hold")) }
}

/// Fails unless the result is the expected error.
pub(super) fn expect_error<T: Debug>(
    what: &str,
    got: &Result<T, Error>,
    meant: impl Fn(&Error) -> bool,
) -> ConformanceResult {
    match got {
        Err(error) if meant(error) => Ok(()),
        other => {
            let text: String = format!("{other:?}").chars().take(300).collect();
            fail(&format!("{what}: must fail with its own error, got {text}"))
        }
    }
}

pub(super) fn fail(why: &str) -> ConformanceResult {
    Err(ConformanceError::Failed(why.to_owned()))
}

pub(super) fn is_refused(error: &Error) -> bool {
    matches!(error, Error::Refused { .. })
}

pub(super) fn is_gone(error: &Error) -> bool {
    matches!(error, Error::Gone { .. })
}

/// Runs a shell line in a sandbox and returns its output; fails unless it succeeds.
pub(super) async fn sh(sandbox: &dyn Sandbox, line: &str) -> Result<String, ConformanceError> {
    let output = capture(sandbox, &ExecRequest::shell(line, LONG), 1 << 20).await?;
    if output.exit.status == ExecStatus::Code(0) {
        Ok(output.stdout_text())
    } else {
        let ExecOutput { exit, .. } = &output;
        Err(ConformanceError::Failed(format!("`{line}` ended with {:?}: {}", exit.status, output.stderr_text())))
    }
}

/// Skips the case if a program is missing.
pub(super) async fn require_program(sandbox: &dyn Sandbox, program: &str) -> ConformanceResult {
    let output = capture(sandbox, &ExecRequest::shell(&format!("command -v {program}"), LONG), 1024).await?;
    if output.exit.success() { Ok(()) } else { Err(ConformanceError::Skipped(format!("no `{program}` inside"))) }
}

/// Waits until the heartbeat file in the sandbox has grown.
pub(super) async fn wait_for_heartbeat(sandbox: &dyn Sandbox, folder: &str) -> ConformanceResult {
    let until = Instant::now() + DEADLINE;
    while Instant::now() < until {
        if heartbeat_count(sandbox, folder).await? > 0 {
            return Ok(());
        }
        tokio::time::sleep(HEARTBEAT_TIMEOUT / 50).await;
    }
    fail("the heartbeat process never started")
}

/// Fails unless the heartbeat in `folder`, which must have started, has stopped.
pub(super) async fn expect_heartbeat_stopped(sandbox: &dyn Sandbox, folder: &str) -> ConformanceResult {
    let until = Instant::now() + DEADLINE / 4;
    let (mut last, mut since) = (heartbeat_count(sandbox, folder).await?, Instant::now());
    expect_true("the heartbeat started", last > 0)?;
    while Instant::now() < until {
        tokio::time::sleep(HEARTBEAT_TIMEOUT / 20).await;
        let now = heartbeat_count(sandbox, folder).await?;
        if now != last {
            (last, since) = (now, Instant::now());
        } else if since.elapsed() >= HEARTBEAT_TIMEOUT {
            return Ok(());
        }
    }
    fail("a process that must be dead is still alive")
}

async fn heartbeat_count(sandbox: &dyn Sandbox, folder: &str) -> Result<usize, Error> {
    match sandbox.read(&Path::new(folder).join("beat"), READ_CAP).await {
        Err(Error::File { source, .. }) if source.kind() == std::io::ErrorKind::NotFound => Ok(0),
        bytes => Ok(bytes?.len()),
    }
}

/// A backend, a sandbox that most cases share (each in its own folder), and names that nothing else uses.
#[derive(Debug)]
pub(super) struct ConformanceFixture<'a> {
    pub(super) backend: &'a dyn Backend,
    pub(super) sandbox: Arc<dyn Sandbox>,
    pub(super) token: String,
}

impl<'a> ConformanceFixture<'a> {
    pub(super) async fn new(backend: &'a dyn Backend) -> Result<Self, ConformanceError> {
        let token = random_name::random();
        let sandbox = backend.create(&spec(&token, "shared")).await?;
        Ok(Self { backend, sandbox, token })
    }

    pub(super) fn spec(&self, name: &str) -> SandboxSpec {
        spec(&self.token, name)
    }

    /// Creates a sandbox that only one case uses.
    pub(super) async fn fresh_sandbox(&self, name: &str) -> Result<Arc<dyn Sandbox>, Error> {
        self.backend.create(&self.spec(name)).await
    }

    pub(super) fn shared(&self) -> &dyn Sandbox {
        self.sandbox.as_ref()
    }

    pub(super) async fn sh(&self, line: &str) -> Result<String, ConformanceError> {
        sh(self.shared(), line).await
    }

    /// Creates a directory on the host that is removed with the value.
    pub(super) fn host_folder(&self) -> std::io::Result<HostFolder> {
        let path = std::env::temp_dir().join(format!("ralph-conformance-{}-{}", self.token, random_name::random()));
        std::fs::create_dir(&path)?;
        Ok(HostFolder(path))
    }

    /// Destroys what failed cases left, and fails if anything remains.
    pub(super) async fn clean_up(fixture: &ConformanceFixture<'_>) -> ConformanceResult {
        for id in fixture.own_sandboxes().await? {
            fixture.backend.open(&id).await?.destroy().await?;
        }
        expect_eq("sandboxes left", fixture.own_sandboxes().await?, Vec::<String>::new())
    }

    async fn own_sandboxes(&self) -> Result<Vec<String>, Error> {
        let listed = self.backend.list().await?;
        Ok(listed.into_iter().map(|one| one.id).filter(|id| id.contains(&self.token)).collect())
    }
}

fn spec(token: &str, name: &str) -> SandboxSpec {
    SandboxSpec {
        name: format!("conformance-{token}-{name}"),
        labels: BTreeMap::from([(SandboxLabel::RUN.to_owned(), format!("{token}-{name}"))]),
        env: BTreeMap::from([
            ("FROM_SPEC".to_owned(), "spec value".to_owned()),
            ("BOTH".to_owned(), "spec".to_owned()),
        ]),
        ..SandboxSpec::default()
    }
}

#[derive(Debug)]
pub(super) struct HostFolder(std::path::PathBuf);

impl HostFolder {
    pub(super) fn join(&self, name: &str) -> std::path::PathBuf {
        self.0.join(name)
    }
}

impl Drop for HostFolder {
    fn drop(&mut self) {
        // A leftover temporary folder is no reason to fail a finished case.
        let _ = crate::files::remove_tree(&self.0);
    }
}
