//! Describes the peers: where they are, which version, and how each runs a command in a sandbox like ralph's.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

use ralph_testkit::bench::BenchResult;

pub(crate) const BWRAP: &str = "bwrap";
pub(crate) const SRT: &str = "srt";
pub(crate) const CODEX: &str = "codex sandbox";
pub(crate) const DOCKER_RUN: &str = "docker run";
pub(crate) const DOCKER_EXEC: &str = "docker exec";
pub(crate) const BARE: &str = "bare fork+exec";

/// The directories in which programs are searched.
#[derive(Debug, Clone)]
pub(crate) struct SandboxPeerPaths {
    folders: Vec<PathBuf>,
    libraries: Option<PathBuf>,
}

impl SandboxPeerPaths {
    /// Searches where `--install` puts programs first, then on `path`.
    pub(crate) fn new(peers: Option<&Path>, path: &str) -> Self {
        // Absolute: some of them are started from other folders.
        let peers = peers.and_then(|peers| std::path::absolute(peers).ok());
        let own = |below: &str| peers.as_ref().map(|peers| peers.join(below));
        let mut folders: Vec<PathBuf> = ["root/usr/bin", "root/usr/sbin", "root/bin", "npm/node_modules/.bin"]
            .iter()
            .filter_map(|below| own(below))
            .collect();
        folders.extend(std::env::split_paths(path));
        let libraries = own(&format!("root/usr/lib/{}-linux-gnu", std::env::consts::ARCH));
        Self { folders, libraries: libraries.filter(|folder| folder.is_dir()) }
    }

    pub(crate) fn find(&self, name: &str) -> Result<PathBuf, String> {
        let found = self.folders.iter().map(|folder| folder.join(name)).find(|file| file.is_file());
        found.ok_or_else(|| format!("`{name}` is not installed"))
    }

    /// Returns a command that finds the other programs it needs.
    pub(crate) fn command(&self, program: &Path) -> Command {
        let mut command = Command::new(program);
        command.env("PATH", std::env::join_paths(&self.folders).unwrap_or_else(|_| OsString::new()));
        command
    }

    /// Adds the libraries that were unpacked together with the programs.
    pub(crate) fn with_libraries(&self, command: &mut Command) {
        if let Some(libraries) = &self.libraries {
            command.env("LD_LIBRARY_PATH", libraries);
        }
    }

    /// Returns the first line that a program prints for `--version`.
    pub(crate) fn version(&self, program: &Path) -> String {
        let output = self.command(program).arg("--version").stdin(Stdio::null()).output();
        let text = output.map(|output| String::from_utf8_lossy(&output.stdout).into_owned()).unwrap_or_default();
        text.lines().next().unwrap_or("").trim().to_owned()
    }
}

/// Returns the `bwrap` command for a sandbox like ralph's: every namespace, a read-only system, a writable workspace.
pub(crate) fn bwrap(places: &SandboxPeerPaths, program: &Path, workspace: &Path, argv: &[&str]) -> Command {
    let mut command = places.command(program);
    command.args(["--unshare-all", "--die-with-parent", "--new-session", "--ro-bind", "/usr", "/usr"]);
    for (name, to) in [("/bin", "usr/bin"), ("/sbin", "usr/sbin"), ("/lib", "usr/lib"), ("/lib64", "usr/lib64")] {
        command.args(["--symlink", to, name]);
    }
    command.args(["--proc", "/proc", "--dev", "/dev", "--tmpfs", "/tmp", "--bind"]);
    command.arg(workspace).args(["/workspace", "--chdir", "/workspace"]).args(argv);
    command
}

pub(crate) fn srt(places: &SandboxPeerPaths, program: &Path, workspace: &Path, argv: &[&str]) -> Command {
    let mut command = places.command(program);
    places.with_libraries(&mut command);
    command.args(argv).current_dir(workspace);
    command
}

pub(crate) fn codex(places: &SandboxPeerPaths, program: &Path, workspace: &Path, argv: &[&str]) -> Command {
    let mut command = places.command(program);
    command.args(["sandbox", "--"]).args(argv).current_dir(workspace);
    command
}

pub(crate) fn bare(workspace: &Path, argv: &[&str]) -> Command {
    let mut command = Command::new(argv.first().copied().unwrap_or_default());
    command.args(argv.iter().skip(1)).current_dir(workspace);
    command
}

/// Runs a command, reads its output, and returns how long it took, in ms.
pub(crate) fn time_command(command: &mut Command) -> BenchResult<f64> {
    command.stdin(Stdio::null());
    let began = Instant::now();
    let output = command.output()?;
    let took = elapsed_ms(began);
    if output.status.success() {
        Ok(took)
    } else {
        let errors = String::from_utf8_lossy(&output.stderr);
        let first = errors.lines().find(|line| !line.trim().is_empty()).unwrap_or("without a message");
        Err(format!("it fails here ({}): {first}", output.status).into())
    }
}

pub(crate) fn elapsed_ms(since: Instant) -> f64 {
    since.elapsed().as_secs_f64() * 1000.0
}
