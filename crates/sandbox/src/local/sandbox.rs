//! Implements one sandbox of the `local` backend: a folder with a workspace, a home and an exchange directory.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::{OsStr, OsString};
use std::fs::DirBuilder;
use std::io;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use async_trait::async_trait;
use rustix::process::Signal;
use tokio::process::Command;

use super::backend::LocalState;
use super::process_tag::{self, EndMode, ProcessTag};
use super::program_lookup;
use super::subprocess::{RunningCommand, signal_group};
use crate::files::{self, FolderWatch, RootDir};
use crate::sandbox_dirs::{SandboxMeta, blocking, is_variable_name};
use crate::{DirectoryEntry, Error, ExecExit, ExecRequest, FileStamp, OutputSink, Sandbox};

pub(super) const WORKSPACE: &str = "workspace";
pub(super) const HOME: &str = "home";
pub(super) const TEMPORARY: &str = "tmp";
pub(super) const EXCHANGE: &str = "exchange";

/// How long `stop` lets processes end by themselves.
const STOP_GRACE: Duration = Duration::from_secs(2);
const TICK: Duration = Duration::from_millis(10);

#[derive(Debug)]
pub(super) struct LocalSandbox {
    shared: Arc<LocalState>,
    meta: SandboxMeta,
    folder: PathBuf,
    workspace: PathBuf,
    exchange: PathBuf,
    workspace_root: Arc<RootDir>,
    exchange_root: Arc<RootDir>,
}

impl LocalSandbox {
    /// Opens the sandbox in `folder`. Directories that were removed from inside are created again, empty: the caller
    /// has to notice that, but a sandbox that cannot be opened could not be destroyed either.
    pub(super) fn new(shared: Arc<LocalState>, meta: SandboxMeta, folder: PathBuf) -> Result<Self, Error> {
        let (workspace, exchange) = (folder.join(WORKSPACE), folder.join(EXCHANGE));
        for part in [WORKSPACE, HOME, TEMPORARY, EXCHANGE].map(|part| folder.join(part)) {
            match DirBuilder::new().mode(0o700).create(&part) {
                Err(source) if source.kind() != io::ErrorKind::AlreadyExists => {
                    return Err(Error::Host { doing: "make", path: part, source });
                }
                _ => (),
            }
        }
        let workspace_root = Arc::new(RootDir::open(&meta.id, &workspace)?);
        let exchange_root = Arc::new(RootDir::open(&meta.id, &exchange)?);
        Ok(Self { shared, meta, folder, workspace, exchange, workspace_root, exchange_root })
    }

    /// Checks that the path still leads to this sandbox: it may be destroyed, or another one by now.
    fn check_exists(&self) -> Result<(), Error> {
        if self.workspace_root.is_still_at(&self.workspace) {
            Ok(())
        } else {
            Err(Error::Gone { id: self.meta.id.clone() })
        }
    }

    /// Runs file work on a blocking thread, away from the async executor.
    async fn with_file<T, F>(&self, path: &Path, work: F) -> Result<T, Error>
    where
        T: Send + 'static,
        F: FnOnce(&RootDir, &Path) -> Result<T, Error> + Send + 'static,
    {
        self.check_exists()?;
        let (root, path) = match path.strip_prefix(&self.exchange) {
            Ok(inside) => (self.exchange_root.clone(), Path::new(".").join(inside)),
            Err(_) => (self.workspace_root.clone(), path.to_owned()),
        };
        blocking(move || work(&root, &path)).await
    }

    fn new_tag(&self) -> ProcessTag {
        ProcessTag { key: self.meta.key.clone(), owner: self.shared.owner.clone(), exec: self.shared.next_exec() }
    }

    fn environment(&self, exec: &ExecRequest, tag: &ProcessTag) -> BTreeMap<OsString, OsString> {
        let folder = |name: &str| self.folder.join(name).into_os_string();
        let fixed = [
            ("PATH", self.shared.path.clone()),
            ("HOME", folder(HOME)),
            ("TMPDIR", folder(TEMPORARY)),
            ("LANG", "C.UTF-8".into()),
            ("TERM", "dumb".into()),
            ("USER", "agent".into()),
            ("LOGNAME", "agent".into()),
            ("GIT_CONFIG_GLOBAL", "/dev/null".into()),
            ("GIT_CONFIG_NOSYSTEM", "1".into()),
            ("GIT_TERMINAL_PROMPT", "0".into()),
        ];
        let mut environment: BTreeMap<OsString, OsString> =
            fixed.into_iter().map(|(name, value)| (name.into(), value)).collect();
        environment.extend(self.meta.env.iter().map(|(name, value)| (name.into(), value.into())));
        environment.extend(exec.env.iter().map(|(name, value)| (name.into(), value.into())));
        // Last, so that nothing above can replace the tag by which the command is found.
        environment.insert("RALPH_SANDBOX".into(), self.meta.id.clone().into());
        environment.insert(process_tag::TAG_VARIABLE.into(), tag.value().into());
        environment
    }

    /// Ends every process of this sandbox, including those that other processes started.
    async fn end_processes(&self, how: EndMode) -> Result<(), Error> {
        let groups = || self.shared.watchdog.groups(&self.meta.key);
        if let (EndMode::Within(grace), false) = (how, cfg!(target_os = "linux")) {
            // Where tags cannot be read, the groups of running commands are all that can be signalled.
            for group in groups() {
                signal_group(group, Signal::TERM);
            }
            let until = Instant::now() + grace;
            while !groups().is_empty() && Instant::now() < until {
                tokio::time::sleep(TICK).await;
            }
        }
        let key = self.meta.key.clone();
        let left = blocking(move || Ok(process_tag::end_tagged(|tag| tag.key == key, how))).await?;
        // Ends processes in the group of a running command that have no tag.
        for group in groups() {
            signal_group(group, Signal::KILL);
        }
        left.map_err(|count| Error::Unkillable { id: self.meta.id.clone(), count })
    }
}

#[async_trait]
impl Sandbox for LocalSandbox {
    fn id(&self) -> &str {
        &self.meta.id
    }

    fn workspace(&self) -> &Path {
        &self.workspace
    }

    async fn exec(&self, exec: &ExecRequest, sink: &mut dyn OutputSink) -> Result<ExecExit, Error> {
        let (id, program) = (&self.meta.id, exec.argv.first().map_or("", String::as_str));
        let spawn = |program: &str| {
            let program = program.to_owned();
            move |source| Error::Spawn { id: id.clone(), program, source }
        };
        self.check_exists()?;
        self.workspace_root.check_directory(&exec.cwd)?;
        check_exec(exec).map_err(spawn(program))?;
        let started = Instant::now();
        let tag = self.new_tag();
        let environment = self.environment(exec, &tag);
        let found = environment.get(OsStr::new("PATH")).and_then(|path| program_lookup::find(program, path));
        let mut command = Command::new(found.as_deref().map_or(OsStr::new(program), Path::as_os_str));
        command.arg0(program).args(exec.argv.iter().skip(1)).current_dir(self.workspace.join(&exec.cwd));
        command.env_clear().envs(environment);
        self.shared.watchdog.start(&self.shared.path).map_err(spawn("sh"))?;
        let input = !exec.stdin.is_empty();
        let running = RunningCommand::start(command, tag, &self.shared.watchdog, input).map_err(spawn(program))?;
        let status = running.finish(&exec.stdin, exec.timeout, sink).await;
        let status = status.map_err(|source| Error::Wait { id: id.clone(), program: program.to_owned(), source })?;
        Ok(ExecExit { status, duration: started.elapsed(), limit: None })
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
        self.check_exists()
    }

    async fn stop(&self) -> Result<(), Error> {
        self.check_exists()?;
        self.end_processes(EndMode::Within(STOP_GRACE)).await
    }

    async fn destroy(&self) -> Result<(), Error> {
        self.end_processes(EndMode::Now).await?;
        if self.check_exists().is_err() {
            return Ok(());
        }
        // Renamed before it is removed, so that nothing can be started in it and an interrupted removal can be finished
        // later.
        let (shared, folder) = (self.shared.clone(), self.folder.clone());
        let trash = blocking(move || shared.sandbox_dirs.move_to_trash(&folder)).await?;
        // Again, for processes that started during the first search.
        self.end_processes(EndMode::Now).await?;
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
        self.exchange.clone()
    }
}

/// Refuses arguments and variables that the system would misinterpret instead of refusing.
fn check_exec(exec: &ExecRequest) -> io::Result<()> {
    let invalid = |what| Err(io::Error::new(io::ErrorKind::InvalidInput, what));
    if exec.argv.first().is_none_or(String::is_empty) {
        return invalid("there is no program to run");
    }
    if exec.env.iter().any(|(name, _)| !is_variable_name(name)) {
        return invalid("the name of an environment variable is empty or contains `=`");
    }
    Ok(())
}
