//! Runs a command in a sandbox and keeps the results that a receipt and the user need.

use std::fmt::Write as _;
use std::path::Path;
use std::time::Duration;

use ralph_core::hash::{Sha256Hasher, sha256};
use ralph_core::proof_files::{ObservedFiles, ProofFileChanges};
use ralph_core::redact::Redactor;
use ralph_core::text::{head, tail};
use ralph_sandbox::{ExecRequest, ExecStatus, HeadTailBuffer, OutputSink, OutputStream, Sandbox};
use serde::{Deserialize, Serialize};

use crate::error::Error;
use crate::proof_file_restore::HeldFiles;

/// How much of a command's output is kept; its hash covers all of it.
const TEXT_CAP: usize = 512 << 10;

/// The source named in an alarm about a secret in a command's output.
const ALARM_SOURCE: &str = "the output of a command";

/// The exit code of a check that passed while something wrote to the files that decide it.
const TAMPERED_CODE: i32 = 1;

const MAX_PATHS_SHOWN: usize = 5;

/// How much error output is searched for a failure signature.
const STDERR_CAP: usize = 16 << 10;

/// A command that ran to its end, was killed at its timeout, or was killed by a signal.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct CommandResult {
    pub(crate) code: i32,
    pub(crate) timed_out: bool,
    pub(crate) duration_ms: u64,
    pub(crate) output_sha256: String,
    /// Both streams in order of arrival, redacted, and cut in the middle if long.
    pub(crate) text: String,
    /// The error stream, or all output if that is empty: the input of failure signatures.
    pub(crate) complaint: String,
    /// The files that decide a check and that were written to while it ran.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) tampered: Vec<String>,
    /// The files of the proof that the run had changed, and what became of them in this check.
    #[serde(default, skip_serializing_if = "ProofFileChanges::is_empty")]
    pub(crate) files: ProofFileChanges,
}

impl CommandResult {
    pub(crate) fn passed(&self) -> bool {
        self.code == 0 && !self.timed_out
    }

    /// Makes the check fail if files that decide it were written to while it ran.
    fn mark_tampered(&mut self, changed: Vec<String>) {
        if changed.is_empty() {
            return;
        }
        let paths: Vec<String> = changed.iter().take(MAX_PATHS_SHOWN).map(|path| format!("`{path}`")).collect();
        let more = if changed.len() > MAX_PATHS_SHOWN { ", …" } else { "" };
        let text = format!(
            "ralph: the check failed: files that decide it were made, moved or written to while it ran: {}{more}\n",
            paths.join(", ")
        );
        self.code = if self.code == 0 { TAMPERED_CODE } else { self.code };
        self.complaint.clone_from(&text);
        self.text = format!("{}\n{text}", self.text.trim_end());
        self.tampered = changed;
    }

    /// Returns one line on how the command ended, with the last line it printed.
    pub(crate) fn summary_line(&self, timeout: Duration) -> String {
        if self.timed_out {
            return format!("no end within {} s; the command and everything it started were killed", timeout.as_secs());
        }
        let last = self.text.lines().rev().find(|line| !line.trim().is_empty()).unwrap_or("");
        let last = head(last.trim(), 200);
        if last.is_empty() { format!("exit {}", self.code) } else { format!("exit {}: {last}", self.code) }
    }
}

/// Runs a check: alone in the sandbox, with the files that decide held to the start commit. A check during which one of
/// them was written to has failed, whatever it says.
pub(crate) async fn run_check(
    sandbox: &dyn Sandbox,
    held: &HeldFiles,
    changes: &ProofFileChanges,
    line: &str,
    timeout: Duration,
    redactor: &Redactor,
) -> Result<CommandResult, Error> {
    // What earlier commands left running could write to files or answer in the place of the work.
    sandbox.stop().await?;
    let stamps = held.restore(sandbox, changes).await?;
    let (mut ran, _) = execute(sandbox, ExecRequest::shell(line, timeout).separated(), redactor).await?;
    if !ran.passed()
        && let Some(note) = note_on_changes(changes)
    {
        ran.text = format!("{}\n{}", ran.text.trim_end(), redactor.redact(&note));
    }
    ran.files = changes.clone().recorded(|path| redactor.redact(path).into_owned());
    let found = held.changed_since(sandbox, stamps).await?;
    let mut tampered = found.all();
    // A name that is no text cannot be named to a sandbox, so the file is still there.
    tampered.extend(changes.left_out.iter().filter(|path| path.contains(char::REPLACEMENT_CHARACTER)).cloned());
    ran.mark_tampered(tampered);
    if !ran.tampered.is_empty() {
        // What the check left behind must not decide the next one, nor be taken for a change by the model.
        sandbox.stop().await?;
        let mut removed = changes.clone();
        removed.left_out.extend(found.created);
        held.restore(sandbox, &removed).await?;
    }
    Ok(ran)
}

/// Says in the output of a failed check which changes of the run it did not use, and how a task allows them.
fn note_on_changes(changes: &ProofFileChanges) -> Option<String> {
    let list = |paths: &[String]| {
        let shown: Vec<String> = paths.iter().take(MAX_PATHS_SHOWN).map(|path| format!("`{path}`")).collect();
        format!("{}{}", shown.join(", "), if paths.len() > MAX_PATHS_SHOWN { ", …" } else { "" })
    };
    let mut out = String::new();
    if !changes.put_back.is_empty() {
        let paths = list(&changes.put_back);
        writeln!(out, "ralph: this check ran with these files as they were at the start: {paths}").ok()?;
    }
    if !changes.left_out.is_empty() {
        let paths = list(&changes.left_out);
        writeln!(out, "ralph: this check ran without these new files, which a test runner loads: {paths}").ok()?;
    }
    let first = changes.put_back.first().or(changes.left_out.first())?;
    writeln!(
        out,
        "ralph: only the author of the task can let the run change them, with `may_change: [\"{first}\"]` in the task"
    )
    .ok()?;
    Some(out)
}

/// Runs a check on the start commit and records which files it uses, where the backend can.
pub(crate) async fn run_observed_check(
    sandbox: &dyn Sandbox,
    held: &HeldFiles,
    line: &str,
    timeout: Duration,
    redactor: &Redactor,
) -> Result<(CommandResult, Option<ObservedFiles>), Error> {
    sandbox.stop().await?;
    let stamps = held.restore(sandbox, &ProofFileChanges::default()).await?;
    let exec = ExecRequest::shell(line, timeout).separated().observed();
    let (mut ran, observed) = execute(sandbox, exec, redactor).await?;
    ran.mark_tampered(held.changed_since(sandbox, stamps).await?.all());
    Ok((ran, observed))
}

/// Runs a shell line in the sandbox.
pub(crate) async fn run(
    sandbox: &dyn Sandbox,
    line: &str,
    cwd: &str,
    timeout: Duration,
    redactor: &Redactor,
) -> Result<CommandResult, Error> {
    Ok(execute(sandbox, ExecRequest::shell(line, timeout).cwd(cwd), redactor).await?.0)
}

async fn execute(
    sandbox: &dyn Sandbox,
    exec: ExecRequest,
    redactor: &Redactor,
) -> Result<(CommandResult, Option<ObservedFiles>), Error> {
    let mut sink = OutputRecorder {
        stdout: Sha256Hasher::default(),
        stderr: Sha256Hasher::default(),
        text: HeadTailBuffer::new(TEXT_CAP),
        complaint: HeadTailBuffer::new(STDERR_CAP),
        observed: None,
    };
    let mut exec = exec;
    // Without its own `.git`, a clone must not be taken for a part of a repository further up.
    if let Some(above) = sandbox.workspace().parent().and_then(Path::to_str) {
        exec = exec.env("GIT_CEILING_DIRECTORIES", above);
    }
    let exit = sandbox.exec(&exec, &mut sink).await?;
    let text = redactor.redact_and_report(ALARM_SOURCE, &String::from_utf8_lossy(&sink.text.bytes())).into_owned();
    let stderr =
        redactor.redact_and_report(ALARM_SOURCE, &String::from_utf8_lossy(&sink.complaint.bytes())).into_owned();
    let complaint = if stderr.trim().is_empty() { tail(&text, 40, STDERR_CAP).to_owned() } else { stderr };
    let both = format!("{} {}", sink.stdout.finish(), sink.stderr.finish());
    let ran = CommandResult {
        code: exit.code(),
        timed_out: exit.status == ExecStatus::TimedOut,
        duration_ms: u64::try_from(exit.duration.as_millis()).unwrap_or(u64::MAX),
        output_sha256: sha256(both.as_bytes()),
        text,
        complaint,
        tampered: Vec::new(),
        files: ProofFileChanges::default(),
    };
    Ok((ran, sink.observed))
}

/// Hashes each stream separately, because the interleaving of two streams differs from run to run.
struct OutputRecorder {
    stdout: Sha256Hasher,
    stderr: Sha256Hasher,
    text: HeadTailBuffer,
    complaint: HeadTailBuffer,
    observed: Option<ObservedFiles>,
}

impl OutputSink for OutputRecorder {
    fn observed(&mut self, files: ObservedFiles) {
        self.observed = Some(files);
    }

    fn chunk(&mut self, stream: OutputStream, bytes: &[u8]) {
        match stream {
            OutputStream::Stdout => self.stdout.update(bytes),
            OutputStream::Stderr => {
                self.stderr.update(bytes);
                self.complaint.push(bytes);
            }
        }
        self.text.push(bytes);
    }
}
