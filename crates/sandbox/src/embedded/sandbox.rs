//! Implements one sandbox of the `embedded` backend: a folder on the host, and a cage that is built when it is needed.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;

use super::backend::EmbeddedState;
use super::cage::{RunningCage, split_exchange_path};
use super::command::{self, CommandError};
use super::launcher_process::LauncherProcess;
use super::launcher_protocol::ProgramRequest;
use super::layout::PROXY_PORT;
use super::toolchains::CageToolchains;
use super::{EXCHANGE, HOME, WORKSPACE};
use crate::files::{self, FolderWatch, RootDir};
use crate::isolation_mechanism::IsolationMechanism;
use crate::sandbox_dirs::{SandboxMeta, blocking, is_variable_name};
use crate::{DirectoryEntry, Error, ExecExit, ExecRequest, FileStamp, OutputSink, Sandbox, SandboxNetwork};

#[derive(Debug)]
pub(super) struct EmbeddedSandbox {
    shared: Arc<EmbeddedState>,
    meta: SandboxMeta,
    folder: PathBuf,
    /// The open folder, to check that the path still leads to it.
    folder_dir: RootDir,
    /// A launcher that was started with the sandbox, for its first cage.
    first_launcher: Mutex<Option<LauncherProcess>>,
}

impl EmbeddedSandbox {
    pub(super) fn new(
        shared: Arc<EmbeddedState>,
        meta: SandboxMeta,
        folder: PathBuf,
        launched: Option<LauncherProcess>,
    ) -> Result<Self, Error> {
        let place = RootDir::open(&meta.id, &folder)?;
        Ok(Self { shared, meta, folder, folder_dir: place, first_launcher: Mutex::new(launched) })
    }

    /// Returns the running cage, building it if there is none.
    async fn cage(&self) -> Result<Arc<RunningCage>, Error> {
        if !self.folder_dir.is_still_at(&self.folder) {
            return Err(Error::Gone { id: self.meta.id.clone() });
        }
        self.shared.cage(&self.meta, &self.folder, &self.first_launcher).await
    }

    /// Runs file work on a blocking thread, away from the async executor.
    async fn with_file<T, F>(&self, path: &Path, work: F) -> Result<T, Error>
    where
        T: Send + 'static,
        F: FnOnce(&RootDir, &Path) -> Result<T, Error> + Send + 'static,
    {
        let live = self.cage().await?;
        let (exchange, path) = split_exchange_path(path, Path::new(EXCHANGE));
        let path = path.to_owned();
        let root = live.roots.get(if exchange { 2 } else { 0 }).cloned();
        let root = root.ok_or_else(|| Error::Gone { id: self.meta.id.clone() })?;
        root.restore_owner_access();
        blocking(move || work(&root, &path)).await
    }

    fn program_request(&self, exec: &ExecRequest, tools: &CageToolchains) -> ProgramRequest {
        // Nothing of the host's environment is passed on, unless that mechanism is disabled.
        let host: Vec<(String, String)> = if self.shared.disabled_mechanisms.contains(&IsolationMechanism::Environment)
        {
            own_environment()
        } else {
            Vec::new()
        };
        let mut env: BTreeMap<&str, &str> = host.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
        env.extend([
            ("HOME", HOME),
            ("TMPDIR", "/tmp"),
            ("LANG", "C.UTF-8"),
            ("TERM", if exec.terminal.is_some() { "xterm-256color" } else { "dumb" }),
            ("USER", "agent"),
            ("LOGNAME", "agent"),
            ("SHELL", "/bin/sh"),
            ("XDG_RUNTIME_DIR", "/run/user/1000"),
            ("GIT_TERMINAL_PROMPT", "0"),
            // It would ask its registry whether there is a newer npm, whatever command runs.
            ("NPM_CONFIG_UPDATE_NOTIFIER", "false"),
        ]);
        env.insert("PATH", tools.path());
        env.extend(tools.env());
        let proxy = ralph_core::egress::EgressEndpoint { url: proxy_url(), ca_bundle: None };
        let proxy_env = if self.meta.network == SandboxNetwork::None { Vec::new() } else { proxy.env_vars() };
        env.extend(proxy_env.iter().map(|(name, value)| (name.as_str(), value.as_str())));
        env.extend(self.meta.env.iter().map(|(name, value)| (name.as_str(), value.as_str())));
        env.extend(exec.env.iter().map(|(name, value)| (name.as_str(), value.as_str())));
        // A check must not be able to tell in which sandbox it runs.
        env.insert("RALPH_SANDBOX", if exec.separated { "check" } else { &self.meta.id });
        ProgramRequest {
            argv: exec.argv.clone(),
            env: env.into_iter().map(|(name, value)| (name.to_owned(), value.to_owned())).collect(),
            cwd: Path::new(WORKSPACE).join(&exec.cwd).to_string_lossy().into_owned(),
            terminal: exec.terminal,
            input: !exec.stdin.is_empty(),
            separated: exec.separated,
            observed: exec.observed.then(|| WORKSPACE.to_owned()),
        }
    }
}

#[async_trait]
impl Sandbox for EmbeddedSandbox {
    fn id(&self) -> &str {
        &self.meta.id
    }

    fn workspace(&self) -> &Path {
        Path::new(WORKSPACE)
    }

    async fn exec(&self, exec: &ExecRequest, sink: &mut dyn OutputSink) -> Result<ExecExit, Error> {
        let (id, program) = (&self.meta.id, exec.argv.first().map_or("", String::as_str));
        let spawn = |source| Error::Spawn { id: id.clone(), program: program.to_owned(), source };
        let live = self.cage().await?;
        if let Some(workspace) = live.roots.first() {
            workspace.restore_owner_access();
            workspace.check_directory(&exec.cwd)?;
        }
        check_exec(exec).map_err(spawn)?;
        let tools = self.shared.toolchains(&self.meta)?;
        match command::run(&live, exec, &self.program_request(exec, &tools), sink).await {
            Ok(exit) => Ok(exit),
            Err(CommandError::NotStarted(source)) => Err(spawn(source)),
            Err(CommandError::LostTrack(source)) => {
                Err(Error::Wait { id: id.clone(), program: program.to_owned(), source })
            }
        }
    }

    async fn read(&self, path: &Path, cap: u64) -> Result<Vec<u8>, Error> {
        self.with_file(path, move |root, path| files::read(root, path, cap)).await
    }

    async fn write(&self, path: &Path, bytes: &[u8], mode: Option<u32>) -> Result<(), Error> {
        let bytes = bytes.to_vec();
        self.with_file(path, move |root, path| files::replace(root, path, &bytes, mode)).await
    }

    async fn append(&self, path: &Path, bytes: &[u8]) -> Result<(), Error> {
        let bytes = bytes.to_vec();
        self.with_file(path, move |root, path| files::append(root, path, &bytes)).await
    }

    async fn stamps(&self, paths: &[PathBuf]) -> Result<Vec<Option<FileStamp>>, Error> {
        let paths = paths.to_vec();
        self.with_file(Path::new("."), move |root, _| Ok(files::stamps(root, &paths))).await
    }

    async fn watch_folders(&self, folders: BTreeSet<PathBuf>) -> Result<Option<FolderWatch>, Error> {
        self.with_file(Path::new("."), move |root, _| files::watch_folders(root, &folders)).await
    }

    async fn list(&self, path: &Path) -> Result<Vec<DirectoryEntry>, Error> {
        self.with_file(path, files::list).await
    }

    async fn mkdirs(&self, path: &Path) -> Result<(), Error> {
        self.with_file(path, files::mkdirs).await
    }

    async fn start(&self) -> Result<(), Error> {
        self.cage().await.map(drop)
    }

    async fn stop(&self) -> Result<(), Error> {
        if !self.folder_dir.is_still_at(&self.folder) {
            return Err(Error::Gone { id: self.meta.id.clone() });
        }
        self.shared.end_cages(&self.meta, &self.folder).await
    }

    async fn release(&self) -> Result<(), Error> {
        drop(self.first_launcher.lock().unwrap_or_else(PoisonError::into_inner).take());
        self.shared.end_own_cage(&self.meta).await;
        Ok(())
    }

    async fn destroy(&self) -> Result<(), Error> {
        drop(self.first_launcher.lock().unwrap_or_else(PoisonError::into_inner).take());
        if !self.folder_dir.is_still_at(&self.folder) {
            return Ok(());
        }
        self.shared.end_cages(&self.meta, &self.folder).await?;
        // Renamed before it is removed, so that nothing can be started in it and an interrupted removal can be finished
        // later.
        let (shared, folder) = (self.shared.clone(), self.folder.clone());
        let trash = blocking(move || shared.sandbox_dirs.move_to_trash(&folder)).await?;
        // Again, for cages that started meanwhile.
        self.shared.end_cages(&self.meta, trash.path()).await?;
        self.shared.forget(&self.meta);
        blocking(move || trash.remove()).await
    }

    async fn copy_in(&self, host: &Path, path: &Path) -> Result<(), Error> {
        let host = host.to_owned();
        self.with_file(path, move |root, path| files::copy_in(root, &host, path)).await
    }

    async fn copy_out(&self, path: &Path, host: &Path, cap: u64) -> Result<u64, Error> {
        let host = host.to_owned();
        self.with_file(path, move |root, path| files::copy_out(root, path, &host, cap)).await
    }

    fn exchange(&self) -> PathBuf {
        PathBuf::from(EXCHANGE)
    }

    fn egress_url(&self) -> Option<String> {
        Some(proxy_url())
    }

    async fn snapshot(&self) -> Result<String, Error> {
        self.stop().await?;
        let (shared, id, folder) = (self.shared.clone(), self.meta.id.clone(), self.folder.clone());
        blocking(move || shared.snapshot(&id, &folder)).await
    }
}

/// Returns where the egress proxy listens in every cage that has a network.
fn proxy_url() -> String {
    format!("http://127.0.0.1:{PROXY_PORT}")
}

/// Refuses arguments and variables that the system would misinterpret instead of refusing.
fn check_exec(exec: &ExecRequest) -> std::io::Result<()> {
    let invalid = |what| Err(std::io::Error::new(std::io::ErrorKind::InvalidInput, what));
    if exec.argv.first().is_none_or(String::is_empty) {
        return invalid("there is no program to run");
    }
    if exec.env.iter().any(|(name, _)| !is_variable_name(name)) {
        return invalid("the name of an environment variable is empty or contains `=`");
    }
    if exec.argv.iter().chain(exec.env.iter().map(|(_, value)| value)).any(|word| word.contains('\0')) {
        return invalid("an argument or variable contains a NUL byte");
    }
    Ok(())
}

/// Returns the environment of this process, as the kernel reports it.
fn own_environment() -> Vec<(String, String)> {
    let all = std::fs::read("/proc/self/environ").unwrap_or_default();
    let pair = |bytes: &[u8]| {
        let text = String::from_utf8_lossy(bytes).into_owned();
        text.split_once('=').map(|(name, value)| (name.to_owned(), value.to_owned()))
    };
    all.split(|byte| *byte == 0).filter_map(pair).collect()
}
