//! Runs a helper program of the host that returns or stores a secret: without a shell, with a timeout, with its output
//! wiped.

use std::ffi::OsStr;
use std::io::{Read, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use ralph_core::env_vars::{Env, EnvSource};
use ralph_core::text;
use zeroize::Zeroizing;

/// More than any secret.
const OUTPUT_CAP: u64 = 256 * 1024;
const POLL_INTERVAL: Duration = Duration::from_millis(5);

/// The exit code and output of a program.
pub(super) struct HelperOutput {
    pub(super) code: Option<i32>,
    pub(super) stdout: Zeroizing<Vec<u8>>,
    /// One line, safe for a terminal.
    pub(super) stderr_line: String,
}

/// Finds a program: by its absolute path, or in the absolute folders of `PATH`, so that no checkout can inject one.
pub(super) fn find(program: &str, env: &Env) -> Option<PathBuf> {
    let runs = |path: &Path| path.metadata().is_ok_and(|meta| meta.is_file() && meta.permissions().mode() & 0o111 != 0);
    if program.contains('/') {
        return Some(PathBuf::from(program)).filter(|path| path.is_absolute() && runs(path));
    }
    let folders = env.get("PATH")?.split(':').map(Path::new).filter(|folder| folder.is_absolute());
    folders.map(|folder| folder.join(program)).find(|path| runs(path))
}

/// Runs a program to its end or to `timeout`; `Err` says why there is no answer.
pub(super) fn run(
    program: &Path,
    args: &[impl AsRef<OsStr>],
    env: &Env,
    input: &[u8],
    timeout: Duration,
) -> Result<HelperOutput, String> {
    // Variables from a checkout's `.env` are not for the user's programs.
    let own = env.iter().filter(|(name, _)| env.lookup(name).is_some_and(|(_, source)| source == EnvSource::Process));
    let mut command = Command::new(program);
    command.args(args).env_clear().envs(own).current_dir("/").process_group(0);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child =
        command.spawn().map_err(|error| format!("`{}` could not be started: {error}", program.display()))?;
    if let Some(mut stdin) = child.stdin.take() {
        // A program that does not read its input may already be gone; its answer tells.
        let _ = stdin.write_all(input);
    }
    let stdout = child.stdout.take().map(read_in_thread);
    let stderr = child.stderr.take().map(read_in_thread);
    let deadline = Instant::now() + timeout;
    let Some(status) = wait_or_kill(&mut child, deadline) else {
        return Err(format!("`{}` did not answer within {timeout:?}", program.display()));
    };
    // A process it left behind may hold the pipe; what was printed by then is all there is.
    let output = |pipe: Option<mpsc::Receiver<Zeroizing<Vec<u8>>>>| {
        let left = deadline.saturating_duration_since(Instant::now()).max(Duration::from_millis(200));
        pipe.and_then(|pipe| pipe.recv_timeout(left).ok()).unwrap_or_default()
    };
    let (stdout, stderr) = (output(stdout), output(stderr));
    let stderr_line = text::strip_control(text::first_line(String::from_utf8_lossy(&stderr).trim(), 200));
    Ok(HelperOutput { code: status.code(), stdout, stderr_line })
}

fn read_in_thread(pipe: impl Read + Send + 'static) -> mpsc::Receiver<Zeroizing<Vec<u8>>> {
    let (sender, receiver) = mpsc::channel();
    // The thread ends with the pipe, which ends with the program and its group.
    thread::spawn(move || {
        let mut bytes = Zeroizing::new(Vec::with_capacity(4096));
        // Bytes read before an error are still the program's output.
        let _ = pipe.take(OUTPUT_CAP).read_to_end(&mut bytes);
        // The receiver is gone once the timeout has passed.
        let _ = sender.send(bytes);
    });
    receiver
}

/// Waits for the end; past the deadline it kills the program and all its children.
fn wait_or_kill(child: &mut Child, deadline: Instant) -> Option<ExitStatus> {
    loop {
        match child.try_wait() {
            Ok(Some(status)) => return Some(status),
            Ok(None) if Instant::now() < deadline => thread::sleep(POLL_INTERVAL),
            Ok(None) | Err(_) => {
                if let Some(group) = i32::try_from(child.id()).ok().and_then(rustix::process::Pid::from_raw) {
                    // The program may have ended this very moment.
                    let _ = rustix::process::kill_process_group(group, rustix::process::Signal::KILL);
                }
                let _ = child.wait();
                return None;
            }
        }
    }
}
