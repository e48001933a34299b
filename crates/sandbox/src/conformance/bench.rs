//! What the cases have in common: a sandbox to work in, short words for usual steps, and ways to say what is wrong.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::Outcome;
use crate::{Backend, Error, Exec, Label, Output, Sandbox, Spec, Status, capture, token};

/// Time for commands that are not about time.
pub(super) const LONG: Duration = Duration::from_mins(1);
/// How long something that must happen is waited for.
const DEADLINE: Duration = Duration::from_secs(20);
/// A heart that does not beat for this long is dead; a beat takes a twentieth of it.
const SILENCE: Duration = Duration::from_secs(1);

pub(super) const CAP: u64 = 4 << 20;

/// Beats by growing a file, for half a minute at most so that a broken backend leaves nothing for ever.
pub(super) const HEART: &str = "i=0; while [ $i -lt 600 ]; do echo >> beat; sleep 0.05; i=$((i+1)); done";

/// Why a case did not pass.
#[derive(Debug)]
pub(super) enum Miss {
    Failed(String),
    Skipped(String),
}

pub(super) type Verdict = Result<(), Miss>;

impl From<Error> for Miss {
    fn from(error: Error) -> Self {
        let source = std::error::Error::source(&error).map_or_else(String::new, |source| format!(": {source}"));
        Self::Failed(format!("{error}{source}"))
    }
}

impl From<std::io::Error> for Miss {
    fn from(error: std::io::Error) -> Self {
        Self::Failed(format!("on the host: {error}"))
    }
}

impl From<Verdict> for Outcome {
    fn from(verdict: Verdict) -> Self {
        match verdict {
            Ok(()) => Self::Passed,
            Err(Miss::Failed(why)) => Self::Failed(why),
            Err(Miss::Skipped(why)) => Self::Skipped(why),
        }
    }
}

/// Fails unless both are equal.
#[expect(clippy::needless_pass_by_value, reason = "cases compare fresh values; a `&` before each would be noise")]
pub(super) fn want<T: PartialEq<U> + Debug, U: Debug>(what: &str, got: T, expected: U) -> Verdict {
    if got == expected { Ok(()) } else { fail(&format!("{what}: got {got:?}, expected {expected:?}")) }
}

/// Fails unless the claim holds.
pub(super) fn claim(what: &str, holds: bool) -> Verdict {
    if holds { Ok(()) } else { fail(&format!("{what}: does not hold")) }
}

/// Fails unless the result is the error meant.
pub(super) fn refuses<T: Debug>(what: &str, got: &Result<T, Error>, meant: impl Fn(&Error) -> bool) -> Verdict {
    match got {
        Err(error) if meant(error) => Ok(()),
        other => {
            let text: String = format!("{other:?}").chars().take(300).collect();
            fail(&format!("{what}: must be refused in its own way, got {text}"))
        }
    }
}

pub(super) fn fail(why: &str) -> Verdict {
    Err(Miss::Failed(why.to_owned()))
}

pub(super) fn refused(error: &Error) -> bool {
    matches!(error, Error::Refused { .. })
}

pub(super) fn gone(error: &Error) -> bool {
    matches!(error, Error::Gone { .. })
}

/// Runs a line in a sandbox and returns what it printed; anything but success is a failure.
pub(super) async fn sh(sandbox: &dyn Sandbox, line: &str) -> Result<String, Miss> {
    let output = capture(sandbox, &Exec::shell(line, LONG), 1 << 20).await?;
    if output.exit.status == Status::Code(0) {
        Ok(output.stdout_text())
    } else {
        let Output { exit, .. } = &output;
        Err(Miss::Failed(format!("`{line}` ended with {:?}: {}", exit.status, output.stderr_text())))
    }
}

/// Skips the case when a program is not there.
pub(super) async fn needs(sandbox: &dyn Sandbox, program: &str) -> Verdict {
    let output = capture(sandbox, &Exec::shell(&format!("command -v {program}"), LONG), 1024).await?;
    if output.exit.success() { Ok(()) } else { Err(Miss::Skipped(format!("no `{program}` inside"))) }
}

/// Waits until a file in the sandbox has grown.
pub(super) async fn beats(sandbox: &dyn Sandbox, folder: &str) -> Verdict {
    let until = Instant::now() + DEADLINE;
    while Instant::now() < until {
        if beat(sandbox, folder).await? > 0 {
            return Ok(());
        }
        tokio::time::sleep(SILENCE / 50).await;
    }
    fail("the process that should beat never started")
}

/// Fails unless the heart in `folder`, which must have beaten, has stopped.
pub(super) async fn is_dead(sandbox: &dyn Sandbox, folder: &str) -> Verdict {
    let until = Instant::now() + DEADLINE / 4;
    let (mut last, mut since) = (beat(sandbox, folder).await?, Instant::now());
    claim("the process beat at all", last > 0)?;
    while Instant::now() < until {
        tokio::time::sleep(SILENCE / 20).await;
        let now = beat(sandbox, folder).await?;
        if now != last {
            (last, since) = (now, Instant::now());
        } else if since.elapsed() >= SILENCE {
            return Ok(());
        }
    }
    fail("a process is still alive that must not be")
}

async fn beat(sandbox: &dyn Sandbox, folder: &str) -> Result<usize, Error> {
    match sandbox.read(&Path::new(folder).join("beat"), CAP).await {
        Err(Error::File { source, .. }) if source.kind() == std::io::ErrorKind::NotFound => Ok(0),
        bytes => Ok(bytes?.len()),
    }
}

/// A backend, a sandbox most cases share (each in a folder of its own), and names nobody else has.
#[derive(Debug)]
pub(super) struct Bench<'a> {
    pub(super) backend: &'a dyn Backend,
    pub(super) sandbox: Arc<dyn Sandbox>,
    pub(super) token: String,
}

impl<'a> Bench<'a> {
    pub(super) async fn new(backend: &'a dyn Backend) -> Result<Self, Miss> {
        let token = token::random();
        let sandbox = backend.create(&spec(&token, "shared")).await?;
        Ok(Self { backend, sandbox, token })
    }

    pub(super) fn spec(&self, name: &str) -> Spec {
        spec(&self.token, name)
    }

    /// Makes a sandbox only one case uses.
    pub(super) async fn fresh(&self, name: &str) -> Result<Arc<dyn Sandbox>, Error> {
        self.backend.create(&self.spec(name)).await
    }

    pub(super) fn shared(&self) -> &dyn Sandbox {
        self.sandbox.as_ref()
    }

    pub(super) async fn sh(&self, line: &str) -> Result<String, Miss> {
        sh(self.shared(), line).await
    }

    /// Makes a directory on the host that disappears with the value.
    pub(super) fn host_folder(&self) -> std::io::Result<HostFolder> {
        let path = std::env::temp_dir().join(format!("ralph-conformance-{}-{}", self.token, token::random()));
        std::fs::create_dir(&path)?;
        Ok(HostFolder(path))
    }

    /// Destroys what failed cases left, and fails if anything stays.
    pub(super) async fn clean_up(bench: &Bench<'_>) -> Verdict {
        for id in bench.own().await? {
            bench.backend.open(&id).await?.destroy().await?;
        }
        want("sandboxes left", bench.own().await?, Vec::<String>::new())
    }

    async fn own(&self) -> Result<Vec<String>, Error> {
        let listed = self.backend.list().await?;
        Ok(listed.into_iter().map(|one| one.id).filter(|id| id.contains(&self.token)).collect())
    }
}

fn spec(token: &str, name: &str) -> Spec {
    Spec {
        name: format!("conformance-{token}-{name}"),
        labels: BTreeMap::from([(Label::RUN.to_owned(), format!("{token}-{name}"))]),
        env: BTreeMap::from([
            ("FROM_SPEC".to_owned(), "spec value".to_owned()),
            ("BOTH".to_owned(), "spec".to_owned()),
        ]),
        ..Spec::default()
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
        // A left-over temporary folder is no reason to fail a case that has its verdict.
        let _ = crate::files::remove_tree(&self.0);
    }
}
