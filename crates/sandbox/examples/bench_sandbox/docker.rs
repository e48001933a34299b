//! Starts a separate Docker engine for the benchmark in its own folder, and stops it on drop. An engine that runs
//! already belongs to the user and is not touched.

use std::fs::{self, File};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use ralph_testkit::bench::BenchResult;

use crate::peers::SandboxPeerPaths;

const IMAGE: &str = "ralph-bench:1";
const WARM_CONTAINER: &str = "ralph-bench-warm";
/// How long the engine may take to answer, and to stop.
const ENGINE_TIMEOUT: Duration = Duration::from_secs(30);

#[derive(Debug)]
pub(crate) struct DockerEngine {
    engine: Child,
    client: PathBuf,
    places: SandboxPeerPaths,
    socket: String,
    pub(crate) version: String,
    /// Its sockets and its disk; a short path, because the paths of sockets are limited.
    folder: tempfile::TempDir,
}

impl DockerEngine {
    /// Starts the engine with one small image and one container that waits.
    pub(crate) fn start(places: &SandboxPeerPaths) -> Result<Self, String> {
        let (engine, client) = (places.find("dockerd")?, places.find("docker")?);
        let busybox = places.find("busybox")?;
        if !rustix::process::geteuid().is_root() {
            return Err("the engine must be started as root".to_owned());
        }
        let message = |error: Box<dyn std::error::Error + Send + Sync>| error.to_string();
        Self::start_engine(places, &engine, client, &busybox).map_err(message)
    }

    fn start_engine(places: &SandboxPeerPaths, engine: &Path, client: PathBuf, busybox: &Path) -> BenchResult<Self> {
        let folder = tempfile::Builder::new().prefix("rb").tempdir()?;
        let socket = format!("unix://{}", folder.path().join("s").display());
        let log = File::create(folder.path().join("log"))?;
        let mut command = places.command(engine);
        for (name, below) in [("--data-root", "data"), ("--exec-root", "exec"), ("--pidfile", "pid")] {
            command.arg(name).arg(folder.path().join(below));
        }
        // Without networks, which the containers do not need here: this is the fastest configuration.
        command.args(["--host", &socket, "--bridge=none", "--iptables=false", "--ip6tables=false"]);
        command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log);
        let engine = command.spawn()?;
        let version = String::new();
        let mut docker = Self { engine, client, places: places.clone(), socket, version, folder };
        docker.version = docker.wait_for_version()?;
        docker.import(busybox)?;
        docker.run_client(&[
            "run",
            "--detach",
            "--name",
            WARM_CONTAINER,
            "--network",
            "none",
            IMAGE,
            "/bin/sleep",
            "100000",
        ])?;
        Ok(docker)
    }

    /// Waits until the engine answers, and returns its version.
    fn wait_for_version(&mut self) -> BenchResult<String> {
        let until = Instant::now() + ENGINE_TIMEOUT;
        loop {
            if let Ok(version) = self.run_client(&["version", "--format", "{{.Server.Version}}"]) {
                return Ok(format!("Docker Engine {}", version.trim()));
            }
            if self.engine.try_wait()?.is_some() || Instant::now() > until {
                let log = fs::read_to_string(self.folder.path().join("log")).unwrap_or_default();
                let last = log.lines().last().unwrap_or("its log is empty").to_owned();
                return Err(format!("the engine does not start: {last}").into());
            }
            std::thread::sleep(Duration::from_millis(100));
        }
    }

    /// Makes an image of one static program.
    fn import(&self, busybox: &Path) -> BenchResult<()> {
        let mut archive = tar::Builder::new(Vec::new());
        archive.append_path_with_name(busybox, "bin/busybox")?;
        for name in ["sh", "true", "sleep"] {
            let mut header = tar::Header::new_gnu();
            header.set_entry_type(tar::EntryType::Symlink);
            header.set_size(0);
            header.set_mode(0o777);
            archive.append_link(&mut header, format!("bin/{name}"), "busybox")?;
        }
        let bytes = archive.into_inner()?;
        let mut import = self.command(&["import", "-", IMAGE]);
        let mut import = import.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null()).spawn()?;
        import.stdin.take().ok_or("it has no standard input")?.write_all(&bytes)?;
        if import.wait()?.success() { Ok(()) } else { Err("the image could not be imported".into()) }
    }

    fn command(&self, words: &[&str]) -> Command {
        let mut command = self.places.command(&self.client);
        command.args(["--host", &self.socket]).args(words);
        command
    }

    fn run_client(&self, words: &[&str]) -> BenchResult<String> {
        let output = self.command(words).stdin(Stdio::null()).output()?;
        if output.status.success() {
            Ok(String::from_utf8_lossy(&output.stdout).into_owned())
        } else {
            Err(String::from_utf8_lossy(&output.stderr).trim().to_owned().into())
        }
    }

    pub(crate) fn run(&self, argv: &[&str]) -> Command {
        let mut command = self.command(&["run", "--rm", "--network", "none", IMAGE]);
        command.args(argv);
        command
    }

    pub(crate) fn exec(&self, argv: &[&str]) -> Command {
        let mut command = self.command(&["exec", WARM_CONTAINER]);
        command.args(argv);
        command
    }
}

impl Drop for DockerEngine {
    fn drop(&mut self) {
        let _ = self.run_client(&["rm", "--force", WARM_CONTAINER]);
        if let Some(pid) = i32::try_from(self.engine.id()).ok().and_then(rustix::process::Pid::from_raw) {
            // Terminated, not killed, so that it removes its mounts and ends its own helper.
            let _ = rustix::process::kill_process(pid, rustix::process::Signal::TERM);
        }
        let until = Instant::now() + ENGINE_TIMEOUT;
        while Instant::now() < until && matches!(self.engine.try_wait(), Ok(None)) {
            std::thread::sleep(Duration::from_millis(20));
        }
        let _ = self.engine.kill();
        let _ = self.engine.wait();
        // It bind-mounts its folder onto itself, and leaves that mount behind when it fails early.
        let _ = rustix::mount::unmount(self.folder.path().join("data"), rustix::mount::UnmountFlags::DETACH);
    }
}
