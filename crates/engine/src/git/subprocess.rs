//! Starts every `git` process of the host: without a shell, with a clean environment, and with settings that override
//! every config file, so that no repository can make it run a program. The individual git operations are not here.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::io;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process_group};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::process::{Child, ChildStdout, Command};

use super::Error;

/// Older versions do not read settings from the environment, which everything here relies on.
pub(crate) const MIN_GIT_VERSION: &str = "2.34";

/// The host's `git` program and its `PATH` for helpers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GitProgram {
    program: PathBuf,
    path: OsString,
}

impl GitProgram {
    /// Returns the path of the git program.
    pub fn program(&self) -> &Path {
        &self.program
    }

    /// Finds `git` on a `PATH` value; relative entries are skipped, because they would mean the current directory.
    pub async fn find(path: &OsStr) -> Result<Self, Error> {
        let folders: Vec<PathBuf> = std::env::split_paths(path).filter(|folder| folder.is_absolute()).collect();
        let program = folders.iter().map(|folder| folder.join("git")).find(|file| is_program(file));
        let program = program.ok_or(Error::Missing)?;
        let path = std::env::join_paths(&folders).map_err(|_| Error::Missing)?;
        let tool = Self { program, path };
        let output = tool.command("report its version").arg("version").text().await?;
        let number = |text: &str| -> Option<(u32, u32)> {
            let mut parts = text.split('.');
            Some((parts.next()?.parse().ok()?, parts.next()?.parse().ok()?))
        };
        let found = output.split_whitespace().nth(2).unwrap_or("?").to_owned();
        if number(&found) < number(MIN_GIT_VERSION) {
            return Err(Error::TooOld { found, need: MIN_GIT_VERSION });
        }
        Ok(tool)
    }

    pub(crate) fn command(&self, doing: &'static str) -> GitCommand<'_> {
        GitCommand {
            tool: self,
            doing,
            args: Vec::new(),
            env: BTreeMap::new(),
            config: Vec::new(),
            input: GitInput::Empty,
            folder: PathBuf::from("/"),
            cap: 64 << 20,
            overflow: GitOverflow::Fail,
            timeout: Duration::from_mins(1),
            user_config: UserGitConfig::Hidden,
        }
    }
}

/// The standard input of git.
#[derive(Debug)]
pub(crate) enum GitInput {
    Empty,
    Bytes(Vec<u8>),
    /// From the file's current position, without passing through ralph.
    File(std::fs::File),
}

/// What happens if git prints more than the cap.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum GitOverflow {
    Fail,
    Cut,
}

/// Whether the user's own git config (never a repository's) is read: only a push needs its credential helpers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum UserGitConfig {
    Hidden,
    Read,
}

/// One invocation of git.
#[derive(Debug)]
pub(crate) struct GitCommand<'a> {
    tool: &'a GitProgram,
    doing: &'static str,
    args: Vec<OsString>,
    env: BTreeMap<OsString, OsString>,
    config: Vec<(String, String)>,
    input: GitInput,
    folder: PathBuf,
    cap: usize,
    overflow: GitOverflow,
    timeout: Duration,
    user_config: UserGitConfig,
}

/// The exit code and output of git.
#[derive(Debug)]
pub(crate) struct GitOutput {
    pub(crate) code: i32,
    pub(crate) stdout: Vec<u8>,
    pub(crate) stderr: Vec<u8>,
    pub(crate) cut: bool,
}

impl GitOutput {
    pub(crate) fn stderr_tail(&self) -> String {
        let text = String::from_utf8_lossy(&self.stderr);
        ralph_core::text::strip_control(ralph_core::text::tail(text.trim(), 6, 600))
    }

    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.stdout).trim_end_matches('\n').to_owned()
    }
}

/// Settings of every call; a call's own settings follow them, and the last one wins.
const SETTINGS: [(&str, &str); 36] = [
    ("core.hooksPath", "/dev/null"),
    ("core.fsmonitor", "false"),
    ("core.untrackedCache", "false"),
    ("core.attributesFile", "/dev/null"),
    ("core.pager", "cat"),
    ("core.editor", "false"),
    ("sequence.editor", "false"),
    ("core.askPass", "false"),
    ("core.quotePath", "false"),
    ("core.protectHFS", "true"),
    ("core.protectNTFS", "true"),
    ("core.bigFileThreshold", "16m"),
    ("core.alternateRefsCommand", "true"),
    // A git process of a killed ralph may still be working on the same ref.
    ("core.filesRefLockTimeout", "5000"),
    ("credential.helper", ""),
    ("protocol.allow", "never"),
    ("protocol.ext.allow", "never"),
    ("protocol.fd.allow", "never"),
    ("http.followRedirects", "false"),
    ("transfer.bundleURI", "false"),
    ("transfer.fsckObjects", "true"),
    ("fetch.fsckObjects", "true"),
    ("receive.fsckObjects", "true"),
    ("fetch.recurseSubmodules", "false"),
    ("fetch.writeCommitGraph", "false"),
    ("push.recurseSubmodules", "no"),
    ("submodule.recurse", "false"),
    ("gc.auto", "0"),
    ("maintenance.auto", "false"),
    ("init.templateDir", ""),
    ("safe.bareRepository", "explicit"),
    // The ownership check protects against programs named in a stranger's config; none of those are started here.
    ("safe.directory", "*"),
    ("commit.gpgSign", "false"),
    ("tag.gpgSign", "false"),
    ("push.gpgSign", "false"),
    ("log.showSignature", "false"),
];

const ENVIRONMENT: [(&str, &str); 14] = [
    ("LC_ALL", "C"),
    ("GIT_ATTR_NOSYSTEM", "1"),
    ("GIT_TERMINAL_PROMPT", "0"),
    ("GIT_OPTIONAL_LOCKS", "0"),
    ("GIT_NO_REPLACE_OBJECTS", "1"),
    ("GIT_NO_LAZY_FETCH", "1"),
    ("GIT_LITERAL_PATHSPECS", "1"),
    ("GIT_PAGER", "cat"),
    ("GIT_EDITOR", "false"),
    ("GIT_SEQUENCE_EDITOR", "false"),
    ("GIT_ASKPASS", "false"),
    ("SSH_ASKPASS", "false"),
    ("SSH_ASKPASS_REQUIRE", "force"),
    ("GIT_ADVICE", "0"),
];

impl GitCommand<'_> {
    pub(crate) fn arg(mut self, arg: impl Into<OsString>) -> Self {
        self.args.push(arg.into());
        self
    }

    pub(crate) fn args<S: Into<OsString>>(mut self, args: impl IntoIterator<Item = S>) -> Self {
        self.args.extend(args.into_iter().map(Into::into));
        self
    }

    pub(crate) fn git_dir(self, path: &Path) -> Self {
        self.env("GIT_DIR", path)
    }

    /// Sets git's working directory: `/` unless it must read a work tree, which is only ever the user's.
    pub(crate) fn current_dir(mut self, path: &Path) -> Self {
        path.clone_into(&mut self.folder);
        self
    }

    pub(crate) fn env(mut self, name: &str, value: impl Into<OsString>) -> Self {
        self.env.insert(name.into(), value.into());
        self
    }

    pub(crate) fn envs(self, pairs: Vec<(&'static str, String)>) -> Self {
        pairs.into_iter().fold(self, |call, (name, value)| call.env(name, value))
    }

    pub(crate) fn config(mut self, key: impl Into<String>, value: impl Into<String>) -> Self {
        self.config.push((key.into(), value.into()));
        self
    }

    pub(crate) fn input(mut self, input: GitInput) -> Self {
        self.input = input;
        self
    }

    pub(crate) fn bytes(self, bytes: impl Into<Vec<u8>>) -> Self {
        self.input(GitInput::Bytes(bytes.into()))
    }

    pub(crate) fn cap(mut self, cap: usize, over: GitOverflow) -> Self {
        self.cap = cap;
        self.overflow = over;
        self
    }

    pub(crate) fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }

    pub(crate) fn user_config(mut self, own: UserGitConfig) -> Self {
        self.user_config = own;
        self
    }

    /// Runs to the end and returns the output whatever the exit code was.
    pub(crate) async fn run(self) -> Result<GitOutput, Error> {
        let (doing, cap, over, timeout) = (self.doing, self.cap, self.overflow, self.timeout);
        let program = self.tool.program.clone();
        let (mut command, bytes) = self.build();
        let child = command.spawn().map_err(|source| Error::Spawn { program: program.clone(), source })?;
        let mut group = GitProcessGroup::of(child);
        let work = group.communicate(bytes, cap);
        let done = match tokio::time::timeout(timeout, work).await {
            Err(_) => return Err(Error::TimedOut { doing, after: timeout }),
            Ok(done) => done.map_err(|source| Error::Spawn { program, source })?,
        };
        if done.cut && over == GitOverflow::Fail {
            return Err(Error::TooMuchOutput { doing, cap });
        }
        Ok(done)
    }

    /// Runs to the end and treats any exit code but 0 as a failure.
    pub(crate) async fn run_checked(self) -> Result<GitOutput, Error> {
        let doing = self.doing;
        let done = self.run().await?;
        if done.code == 0 || done.cut {
            return Ok(done);
        }
        Err(Error::Failed { doing, code: done.code, said: done.stderr_tail() })
    }

    /// Runs to the end and returns standard output without its last newline.
    pub(crate) async fn text(self) -> Result<String, Error> {
        Ok(self.run_checked().await?.text())
    }

    /// Lets `read` take standard output piece by piece, and ends git when it has what it wants.
    pub(crate) async fn run_streamed<T>(
        self,
        read: impl AsyncFnOnce(&mut GitOutputReader) -> io::Result<T>,
    ) -> Result<T, Error> {
        let (doing, timeout) = (self.doing, self.timeout);
        let program = self.tool.program.clone();
        let (mut command, bytes) = self.build();
        let child = command.spawn().map_err(|source| Error::Spawn { program: program.clone(), source })?;
        let mut group = GitProcessGroup::of(child);
        let read = match tokio::time::timeout(timeout, group.stream(bytes, read)).await {
            Err(_) => return Err(Error::TimedOut { doing, after: timeout }),
            Ok(read) => read.map_err(|source| Error::Spawn { program, source })?,
        };
        read.map_err(|ended| Error::Failed { doing, code: ended.code, said: ended.stderr_tail() })
    }

    fn build(self) -> (Command, Vec<u8>) {
        let mut command = Command::new(&self.tool.program);
        command.args(&self.args).current_dir(&self.folder).env_clear().env("PATH", &self.tool.path);
        command.envs(ENVIRONMENT);
        match self.user_config {
            UserGitConfig::Hidden => {
                command.env("GIT_CONFIG_NOSYSTEM", "1").env("GIT_CONFIG_SYSTEM", "/dev/null");
                command.env("GIT_CONFIG_GLOBAL", "/dev/null");
                // Overrides `core.sshCommand` of any config.
                command.env("GIT_SSH_COMMAND", "false");
            }
            UserGitConfig::Read => (),
        }
        let settings = SETTINGS
            .iter()
            .filter(|(key, _)| self.user_config == UserGitConfig::Hidden || *key != "credential.helper")
            .map(|(key, value)| ((*key).to_owned(), (*value).to_owned()))
            .chain(self.config);
        let mut count = 0_usize;
        for (key, value) in settings {
            command.env(format!("GIT_CONFIG_KEY_{count}"), key).env(format!("GIT_CONFIG_VALUE_{count}"), value);
            count += 1;
        }
        command.env("GIT_CONFIG_COUNT", count.to_string()).envs(self.env);
        let (stdin, bytes) = match self.input {
            GitInput::Empty => (Stdio::null(), Vec::new()),
            GitInput::Bytes(bytes) => (Stdio::piped(), bytes),
            GitInput::File(file) => (Stdio::from(file), Vec::new()),
        };
        command.stdin(stdin).stdout(Stdio::piped()).stderr(Stdio::piped());
        command.process_group(0).kill_on_drop(true);
        (command, bytes)
    }
}

/// The standard output of a git that is still running.
pub(crate) type GitOutputReader = BufReader<ChildStdout>;

/// A child that leads its own process group; dropping this kills the whole group if it still runs.
#[derive(Debug)]
struct GitProcessGroup {
    child: Child,
    leader: Option<Pid>,
}

impl GitProcessGroup {
    fn of(child: Child) -> Self {
        let leader = child.id().and_then(|id| i32::try_from(id).ok()).and_then(Pid::from_raw);
        Self { child, leader }
    }

    async fn communicate(&mut self, input: Vec<u8>, cap: usize) -> io::Result<GitOutput> {
        let stdin = self.child.stdin.take();
        let stdout = self.child.stdout.take();
        let stderr = self.child.stderr.take();
        let feed = async {
            if let Some(mut stdin) = stdin {
                // A child that ends before it has read everything reports the reason by its exit code.
                let _ = stdin.write_all(&input).await;
            }
        };
        let out = async {
            let kept = read_capped(stdout, cap).await;
            if matches!(kept, Ok((_, true))) {
                self.kill();
            }
            kept
        };
        let ((), out, err) = tokio::join!(feed, out, read_tail(stderr, STDERR_CAP));
        let (stdout, cut) = out?;
        Ok(GitOutput { code: self.wait().await?, stdout, stderr: err?, cut })
    }

    /// Returns what `read` made of the output, or how git ended before `read` had everything.
    async fn stream<T>(
        &mut self,
        input: Vec<u8>,
        read: impl AsyncFnOnce(&mut GitOutputReader) -> io::Result<T>,
    ) -> io::Result<Result<T, GitOutput>> {
        let stdin = self.child.stdin.take();
        let stdout = self.child.stdout.take().expect("every git is started with a pipe for its output");
        let stderr = self.child.stderr.take();
        let feed = async {
            if let Some(mut stdin) = stdin {
                // As above; and a reader that has what it wants ends git.
                let _ = stdin.write_all(&input).await;
            }
        };
        let out = async {
            let mut stdout = BufReader::with_capacity(STREAM_BUFFER, stdout);
            let read = read(&mut stdout).await;
            self.kill();
            read
        };
        let ((), read, err) = tokio::join!(feed, out, read_tail(stderr, STDERR_CAP));
        let code = self.wait().await?;
        match read {
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
                Ok(Err(GitOutput { code, stdout: Vec::new(), stderr: err?, cut: false }))
            }
            read => read.map(Ok),
        }
    }

    async fn wait(&mut self) -> io::Result<i32> {
        let status = self.child.wait().await?;
        self.leader = None;
        // A signal has no exit code: shells and ralph use 128 + n.
        Ok(status
            .code()
            .unwrap_or_else(|| 128 + std::os::unix::process::ExitStatusExt::signal(&status).unwrap_or_default()))
    }

    fn kill(&self) {
        if let Some(leader) = self.leader {
            // The process may have ended by itself meanwhile.
            let _ = kill_process_group(leader, Signal::KILL);
        }
    }
}

impl Drop for GitProcessGroup {
    fn drop(&mut self) {
        self.kill();
    }
}

/// How much of standard error is kept.
const STDERR_CAP: usize = 16 << 10;
const STREAM_BUFFER: usize = 64 << 10;

/// Reads up to the cap; true if there was more.
async fn read_capped(from: Option<impl AsyncRead + Unpin>, cap: usize) -> io::Result<(Vec<u8>, bool)> {
    let mut kept = Vec::new();
    let Some(from) = from else { return Ok((kept, false)) };
    let limit = u64::try_from(cap).unwrap_or(u64::MAX).saturating_add(1);
    from.take(limit).read_to_end(&mut kept).await?;
    let cut = kept.len() > cap;
    kept.truncate(cap);
    Ok((kept, cut))
}

/// Reads everything and keeps about the last `cap` bytes.
async fn read_tail(from: Option<impl AsyncRead + Unpin>, cap: usize) -> io::Result<Vec<u8>> {
    let mut kept = Vec::new();
    let Some(mut from) = from else { return Ok(kept) };
    let mut chunk = vec![0; 4096];
    loop {
        let read = from.read(&mut chunk).await?;
        if read == 0 {
            return Ok(kept);
        }
        kept.extend_from_slice(chunk.get(..read).unwrap_or_default());
        if kept.len() > 2 * cap {
            kept.drain(..kept.len() - cap);
        }
    }
}

fn is_program(file: &Path) -> bool {
    std::fs::metadata(file).is_ok_and(|meta| meta.is_file() && meta.permissions().mode() & 0o111 != 0)
}

/// Quotes a path for `GIT_ALTERNATE_OBJECT_DIRECTORIES`, where a colon separates paths and a leading quote means
/// quoting.
pub(crate) fn quoted_alternate(path: &Path) -> OsString {
    use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
    let bytes = path.as_os_str().as_bytes();
    if !bytes.iter().any(|byte| matches!(byte, b':' | b'"' | b'\n' | b'\\')) {
        return path.into();
    }
    let mut quoted = vec![b'"'];
    for byte in bytes {
        match byte {
            b'"' | b'\\' => quoted.extend([b'\\', *byte]),
            b'\n' => quoted.extend(b"\\n"),
            byte => quoted.push(*byte),
        }
    }
    quoted.push(b'"');
    OsString::from_vec(quoted)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tool(script: &str) -> (tempfile::TempDir, GitProgram) {
        let folder = tempfile::tempdir().unwrap();
        let program = folder.path().join("git");
        std::fs::write(&program, format!("#!/bin/sh\n{script}\n")).unwrap();
        std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).unwrap();
        (folder, GitProgram { program, path: OsString::from("/usr/bin:/bin") })
    }

    #[tokio::test]
    async fn cancelling_kills_the_whole_process_group() {
        let (folder, tool) = tool("sh -c 'echo ready > \"$PIPE\"; exec sleep 600 >> \"$PIPE\"' & wait");
        let fifo = folder.path().join("fifo");
        rustix::fs::mknodat(rustix::fs::CWD, &fifo, rustix::fs::FileType::Fifo, 0o600.into(), 0).unwrap();
        // Also held open for writing, so that the two writers of the script leave no gap between them.
        let options = tokio::net::unix::pipe::OpenOptions::new();
        let mut reader = options.open_receiver(&fifo).unwrap();
        let holder = options.open_sender(&fifo).unwrap();
        let call = tool.command("wait").env("PIPE", &fifo).timeout(Duration::from_hours(1));
        let mut ready = [0; 6];
        tokio::select! {
            done = call.run() => panic!("it ended: {:?}", done.map(|done| done.code)),
            read = reader.read_exact(&mut ready) => assert_eq!(read.unwrap(), 6),
        }
        drop(holder);
        // The pipe ends when its last writer closes it: the grandchild is gone.
        let mut rest = Vec::new();
        reader.read_to_end(&mut rest).await.unwrap();
        assert_eq!(rest, b"");
    }

    #[tokio::test]
    async fn a_command_times_out() {
        let (_folder, tool) = tool("exec sleep 600");
        let done = tool.command("wait").timeout(Duration::from_millis(1)).run().await.map(|done| done.code);
        assert!(matches!(done, Err(Error::TimedOut { doing: "wait", .. })), "{done:?}");
    }

    #[tokio::test]
    async fn output_is_capped() {
        let (_folder, tool) = tool("yes");
        let done = tool.command("print").cap(10, GitOverflow::Cut).run().await.unwrap();
        assert_eq!((done.stdout.as_slice(), done.cut), (b"y\ny\ny\ny\ny\n".as_slice(), true));
        let failed = tool.command("print").cap(10, GitOverflow::Fail).run().await.map(|done| done.code);
        assert!(matches!(failed, Err(Error::TooMuchOutput { doing: "print", cap: 10 })), "{failed:?}");
    }

    #[tokio::test]
    async fn the_environment_is_not_inherited() {
        let (_folder, tool) = tool("env; pwd");
        let text = tool.command("look").config("a.b", "c").text().await.unwrap();
        assert!(!text.contains("CARGO"), "{text}");
        let last = format!("GIT_CONFIG_KEY_{}=a.b", SETTINGS.len());
        assert!(text.contains("GIT_CONFIG_GLOBAL=/dev/null") && text.contains(&last), "{text}");
        assert!(text.ends_with("\n/"), "{text}");
    }

    #[test]
    fn alternates_are_quoted() {
        assert_eq!(quoted_alternate(Path::new("/a/b")), OsString::from("/a/b"));
        assert_eq!(quoted_alternate(Path::new("/a:b\"c")), OsString::from("\"/a:b\\\"c\""));
    }
}
