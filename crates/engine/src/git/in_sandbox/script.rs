//! Runs one git script in the sandbox. The script's text is constant; everything variable is an argument.

use std::time::Duration;

use ralph_sandbox::{ExecRequest, OutputSink, OutputStream, Sandbox};

use super::super::Error;

/// The output of a script.
#[derive(Debug)]
pub(super) struct GitScriptOutput {
    pub(super) stdout: Vec<u8>,
    pub(super) cut: bool,
}

impl GitScriptOutput {
    pub(super) fn text(&self) -> String {
        String::from_utf8_lossy(&self.stdout).trim_end_matches('\n').to_owned()
    }
}

/// A script with its arguments.
#[derive(Debug)]
pub(super) struct GitScript<'a> {
    pub(super) doing: &'static str,
    pub(super) text: &'static str,
    pub(super) args: Vec<&'a str>,
    pub(super) env: Vec<(&'static str, String)>,
    pub(super) stdin: Vec<u8>,
    pub(super) timeout: Duration,
}

impl<'a> GitScript<'a> {
    pub(super) fn new(doing: &'static str, text: &'static str, args: Vec<&'a str>) -> Self {
        Self { doing, text, args, env: Vec::new(), stdin: Vec::new(), timeout: Duration::from_mins(2) }
    }

    /// Runs the script in the workspace; any exit code but 0 is an error.
    pub(super) async fn run(self, sandbox: &dyn Sandbox) -> Result<GitScriptOutput, Error> {
        let doing = self.doing;
        let text = format!("{GUARD}\n{}", self.text);
        let argv = ["sh", "-c", &text, "ralph"].into_iter().chain(self.args);
        let mut exec = with_safe_config(ExecRequest::new(argv, self.timeout).stdin(self.stdin));
        for (name, value) in &self.env {
            exec = exec.env(name, value);
        }
        let mut head = GitScriptCapture::default();
        let exit = sandbox.exec(&exec, &mut head).await.map_err(|source| Error::Sandbox { doing, source })?;
        if !exit.success() {
            let stderr = String::from_utf8_lossy(&head.stderr).into_owned();
            let stderr = ralph_core::text::strip_control(ralph_core::text::tail(stderr.trim(), 6, 600));
            return Err(Error::SandboxScript { doing, code: exit.code(), said: stderr });
        }
        Ok(GitScriptOutput { stdout: head.stdout, cut: head.cut })
    }
}

/// Adds the settings that keep the clone's own configuration from affecting a git command.
pub(super) fn with_safe_config(mut exec: ExecRequest) -> ExecRequest {
    for (name, value) in ENVIRONMENT {
        exec = exec.env(name, value);
    }
    for (n, (key, value)) in SETTINGS.iter().enumerate() {
        exec = exec.env(&format!("GIT_CONFIG_KEY_{n}"), key).env(&format!("GIT_CONFIG_VALUE_{n}"), value);
    }
    exec.env("GIT_CONFIG_COUNT", &SETTINGS.len().to_string())
}

/// In a clone whose `.git` leads elsewhere, ralph's own commands would write there.
const GUARD: &str =
    "if [ -L .git ] || [ -f .git ] || [ -e .git/commondir ]; then echo '.git leads out of the clone' >&2; exit 1; fi";

/// Settings that keep the agent's hooks and the image's defaults out of ralph's commands.
const SETTINGS: [(&str, &str); 14] = [
    ("core.hooksPath", "/dev/null"),
    ("core.fsmonitor", "false"),
    ("core.attributesFile", "/dev/null"),
    ("core.excludesFile", "/dev/null"),
    ("core.autocrlf", "false"),
    ("core.quotePath", "false"),
    ("core.pager", "cat"),
    ("commit.gpgSign", "false"),
    // What must survive a power cut is imported to the host; flushing here would only slow every iteration.
    ("core.fsync", "none"),
    ("gc.auto", "0"),
    ("maintenance.auto", "false"),
    ("advice.addEmbeddedRepo", "false"),
    ("submodule.recurse", "false"),
    // The workspace may belong to another user than the one that runs the commands.
    ("safe.directory", "*"),
];

const ENVIRONMENT: [(&str, &str); 11] = [
    ("LC_ALL", "C"),
    // Set explicitly, so that git neither searches for a repository further up nor follows `core.worktree` in a
    // damaged clone.
    ("GIT_DIR", ".git"),
    ("GIT_WORK_TREE", "."),
    ("GIT_CONFIG_NOSYSTEM", "1"),
    ("GIT_CONFIG_GLOBAL", "/dev/null"),
    ("GIT_TERMINAL_PROMPT", "0"),
    ("GIT_LITERAL_PATHSPECS", "1"),
    ("GIT_NO_REPLACE_OBJECTS", "1"),
    ("GIT_PAGER", "cat"),
    ("GIT_EDITOR", "false"),
    ("GIT_ADVICE", "0"),
];

/// Keeps the start of standard output and the end of standard error.
#[derive(Debug, Default)]
struct GitScriptCapture {
    stdout: Vec<u8>,
    stderr: Vec<u8>,
    cut: bool,
}

const CAP: usize = 8 << 20;
const STDERR_CAP: usize = 16 << 10;

impl OutputSink for GitScriptCapture {
    fn chunk(&mut self, stream: OutputStream, bytes: &[u8]) {
        match stream {
            OutputStream::Stdout => {
                let room = CAP.saturating_sub(self.stdout.len()).min(bytes.len());
                self.cut |= room < bytes.len();
                self.stdout.extend_from_slice(bytes.get(..room).unwrap_or_default());
            }
            OutputStream::Stderr => {
                self.stderr.extend_from_slice(bytes);
                if self.stderr.len() > 2 * STDERR_CAP {
                    self.stderr.drain(..self.stderr.len() - STDERR_CAP);
                }
            }
        }
    }
}
