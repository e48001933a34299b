//! Describes one command in a sandbox: what to run, where its output goes, how it ended.

use std::path::PathBuf;
use std::time::Duration;

use ralph_core::proof_files::ObservedFiles;
use serde::{Deserialize, Serialize};

use crate::{Error, Sandbox};

/// A command to run. The program is looked up inside the sandbox; there is no shell unless argv names one.
#[derive(Debug, Clone)]
pub struct ExecRequest {
    pub argv: Vec<String>,
    /// Relative to the workspace.
    pub cwd: PathBuf,
    pub env: Vec<(String, String)>,
    pub stdin: Vec<u8>,
    pub timeout: Duration,
    /// Rows and columns of a terminal that the command gets instead of pipes; all output is then standard output. The
    /// input arrives as if typed: it is echoed, and has no end of file unless it contains one (`\x04`).
    pub terminal: Option<(u16, u16)>,
    /// The command decides about the work of other programs: none of its processes may look into or change another one.
    pub separated: bool,
    /// The files that it uses are recorded, where the backend can, and given to the sink at its end. It runs slower.
    pub observed: bool,
}

impl ExecRequest {
    pub fn new<S: Into<String>>(argv: impl IntoIterator<Item = S>, timeout: Duration) -> Self {
        Self {
            argv: argv.into_iter().map(Into::into).collect(),
            cwd: PathBuf::from("."),
            env: Vec::new(),
            stdin: Vec::new(),
            timeout,
            terminal: None,
            separated: false,
            observed: false,
        }
    }

    /// Runs a command line written by a person or a model in the sandbox's own shell.
    pub fn shell(line: &str, timeout: Duration) -> Self {
        Self::new(["sh", "-c", line], timeout)
    }

    pub fn cwd(mut self, cwd: impl Into<PathBuf>) -> Self {
        self.cwd = cwd.into();
        self
    }

    pub fn env(mut self, name: &str, value: &str) -> Self {
        self.env.push((name.to_owned(), value.to_owned()));
        self
    }

    pub fn separated(mut self) -> Self {
        self.separated = true;
        self
    }

    pub fn observed(mut self) -> Self {
        self.observed = true;
        self
    }

    pub fn stdin(mut self, bytes: impl Into<Vec<u8>>) -> Self {
        self.stdin = bytes.into();
        self
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum OutputStream {
    Stdout,
    Stderr,
}

/// Receives output while the command runs. It must return quickly: the command waits for it.
pub trait OutputSink: Send {
    fn chunk(&mut self, stream: OutputStream, bytes: &[u8]);

    /// Receives the files that an observed command used, once, before its end is returned.
    fn observed(&mut self, _files: ObservedFiles) {}
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ExecStatus {
    Code(i32),
    Signal(i32),
    TimedOut,
}

/// The limit of the sandbox that a command reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ResourceLimit {
    Memory,
    Processes,
    Disk,
}

/// How a command ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExecExit {
    pub status: ExecStatus,
    pub duration: Duration,
    /// The limit that was reached while it ran, which is not always the cause of its end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<ResourceLimit>,
}

impl ExecExit {
    pub fn success(&self) -> bool {
        self.status == ExecStatus::Code(0)
    }

    /// Returns the exit code a shell would show: 128 + n for a signal, 124 for a timeout.
    pub fn code(&self) -> i32 {
        match self.status {
            ExecStatus::Code(code) => code,
            ExecStatus::Signal(signal) => 128 + signal,
            ExecStatus::TimedOut => 124,
        }
    }
}

/// Keeps the first and last part of each stream, however much it carries.
#[derive(Debug)]
pub struct OutputCapture {
    stdout: HeadTailBuffer,
    stderr: HeadTailBuffer,
}

/// The first and last part of a stream, however much it carries.
#[derive(Debug)]
pub struct HeadTailBuffer {
    cap: usize,
    head: Vec<u8>,
    tail: std::collections::VecDeque<u8>,
    total: u64,
}

impl OutputCapture {
    /// Keeps at most `cap` bytes of each stream: half from its start, half from its end.
    pub fn new(cap: usize) -> Self {
        Self { stdout: HeadTailBuffer::new(cap), stderr: HeadTailBuffer::new(cap) }
    }

    fn finish(self, exit: ExecExit) -> ExecOutput {
        let truncated = self.stdout.dropped() > 0 || self.stderr.dropped() > 0;
        ExecOutput { exit, truncated, stdout: self.stdout.bytes(), stderr: self.stderr.bytes() }
    }
}

impl HeadTailBuffer {
    /// Keeps at most `cap` bytes: half from the start, half from the end.
    pub fn new(cap: usize) -> Self {
        Self { cap, head: Vec::new(), tail: std::collections::VecDeque::new(), total: 0 }
    }

    pub fn push(&mut self, bytes: &[u8]) {
        let cap = self.cap;
        self.total += bytes.len() as u64;
        let room = (cap / 2).saturating_sub(self.head.len()).min(bytes.len());
        let (head, rest) = bytes.split_at(room);
        self.head.extend_from_slice(head);
        let half = cap - cap / 2;
        let rest = &rest[rest.len().saturating_sub(half)..];
        self.tail.extend(rest);
        let over = self.tail.len().saturating_sub(half);
        self.tail.drain(..over);
    }

    fn dropped(&self) -> u64 {
        self.total - (self.head.len() + self.tail.len()) as u64
    }

    /// Returns the kept bytes, with a note in the middle that says how many were dropped.
    pub fn bytes(self) -> Vec<u8> {
        let dropped = self.dropped();
        let mut bytes = self.head;
        if dropped > 0 {
            bytes.extend_from_slice(format!("\n[… {dropped} bytes left out …]\n").as_bytes());
        }
        bytes.extend(self.tail);
        bytes
    }
}

impl OutputSink for OutputCapture {
    fn chunk(&mut self, stream: OutputStream, bytes: &[u8]) {
        match stream {
            OutputStream::Stdout => self.stdout.push(bytes),
            OutputStream::Stderr => self.stderr.push(bytes),
        }
    }
}

/// A finished command with what it printed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExecOutput {
    pub exit: ExecExit,
    pub stdout: Vec<u8>,
    pub stderr: Vec<u8>,
    pub truncated: bool,
}

impl ExecOutput {
    pub fn stdout_text(&self) -> String {
        String::from_utf8_lossy(&self.stdout).into_owned()
    }

    pub fn stderr_text(&self) -> String {
        String::from_utf8_lossy(&self.stderr).into_owned()
    }
}

/// Runs a command and keeps what it printed, up to `cap` bytes of each stream.
pub async fn capture(sandbox: &dyn Sandbox, exec: &ExecRequest, cap: usize) -> Result<ExecOutput, Error> {
    let mut sink = OutputCapture::new(cap);
    let exit = sandbox.exec(exec, &mut sink).await?;
    Ok(sink.finish(exit))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(chunks: &[&str], cap: usize, want: &str) {
        let mut kept = HeadTailBuffer::new(cap);
        for chunk in chunks {
            kept.push(chunk.as_bytes());
        }
        assert_eq!(String::from_utf8(kept.bytes()).unwrap(), want);
    }

    #[test]
    fn keeps_both_ends() {
        check(&["abc", "def"], 10, "abcdef");
        check(&["abcdefgh", "ijkl"], 6, "abc\n[… 6 bytes left out …]\njkl");
        check(&["a", "b", "c", "d", "e"], 4, "ab\n[… 1 bytes left out …]\nde");
        check(&["abcd"], 0, "\n[… 4 bytes left out …]\n");
    }
}
