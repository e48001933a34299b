//! Making, finding and removing the folders that are sandboxes.
//!
//! A sandbox appears by a rename when it is whole and disappears by a rename before it is taken apart, so a killed ralph
//! leaves only folders with a leading dot, which are never listed. They are removed as soon as nobody holds the lock
//! under which they are made.

use std::ffi::OsString;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use async_trait::async_trait;
use rustix::fs::{FlockOperation, flock};

use super::mark::{self, End, Owner};
use super::meta::{self, Meta, check_name};
use super::sandbox::{EXCHANGE, HOME, LocalSandbox, TEMPORARY, WORKSPACE, blocking, is_variable};
use super::watchdog::Watchdog;
use crate::files::{self, Root};
use crate::{Backend, Capabilities, Error, Isolation, Label, Listed, Prune, Pruned, Sandbox, Spec, token};

const UNBORN: &str = ".new-";
const BURIED: &str = ".gone-";
const LOCK: &str = ".lock";

/// Sandboxes that are folders on the host, without any isolation.
#[derive(Debug)]
pub struct Local {
    shared: Arc<Shared>,
}

/// What the backend and its sandboxes have in common.
#[derive(Debug)]
pub(super) struct Shared {
    dir: PathBuf,
    /// Where programs are found: the one thing commands get from the host's environment.
    pub(super) path: OsString,
    pub(super) owner: Owner,
    pub(super) watchdog: Arc<Watchdog>,
    execs: AtomicU64,
}

impl Local {
    /// Keeps its sandboxes in `dir`, which is made with the first of them; programs are found where a system has them.
    pub fn new(dir: PathBuf) -> Self {
        Self::with_path(dir, "/usr/local/bin:/usr/bin:/bin".into())
    }

    /// Finds programs on this `PATH` instead.
    pub fn with_path(dir: PathBuf, path: OsString) -> Self {
        let owner = Owner::current(token::random());
        let watchdog = Arc::new(Watchdog::new(&owner.token));
        Self { shared: Arc::new(Shared { dir, path, owner, watchdog, execs: AtomicU64::new(0) }) }
    }
}

#[async_trait]
impl Backend for Local {
    fn capabilities(&self) -> Capabilities {
        Capabilities {
            name: "local",
            isolation: Isolation::None,
            max_vcpu: None,
            max_memory_gib: None,
            max_disk_gib: None,
            network_policy: false,
            snapshot: false,
            preview: false,
        }
    }

    /// An image means nothing to a backend that runs on the host; it only counts for the fingerprint.
    async fn create(&self, spec: &Spec) -> Result<Arc<dyn Sandbox>, Error> {
        let (shared, spec) = (self.shared.clone(), spec.clone());
        Ok(blocking(move || shared.create(&spec)).await?)
    }

    async fn open(&self, id: &str) -> Result<Arc<dyn Sandbox>, Error> {
        let (shared, id) = (self.shared.clone(), id.to_owned());
        Ok(blocking(move || shared.open(&id)).await?)
    }

    async fn list(&self) -> Result<Vec<Listed>, Error> {
        let shared = self.shared.clone();
        blocking(move || shared.list()).await
    }

    async fn prune(&self, rule: &Prune, dry_run: bool) -> Result<Vec<Pruned>, Error> {
        let mut pruned = Vec::new();
        for Listed { id, labels, .. } in self.list().await? {
            let why = match (rule, labels.get(Label::RUN)) {
                (Prune::All, _) => "everything is to go".to_owned(),
                (Prune::NotOfRuns(runs), Some(run)) if !runs.contains(run) => format!("run `{run}` is not kept"),
                (Prune::NotOfRuns(_), _) => continue,
            };
            if dry_run {
                pruned.push(Pruned { id, removed: false, why });
                continue;
            }
            let removed = match self.open(&id).await {
                Ok(sandbox) => sandbox.destroy().await,
                Err(error) => Err(error),
            };
            pruned.push(match removed {
                // Somebody else was faster.
                Ok(()) | Err(Error::Gone { .. }) => Pruned { id, removed: true, why },
                Err(error) => Pruned { id, removed: false, why: format!("{why}, but {}", chain(&error)) },
            });
        }
        if !dry_run {
            let shared = self.shared.clone();
            blocking(move || shared.sweep()).await?;
        }
        Ok(pruned)
    }
}

impl Shared {
    pub(super) fn next_exec(&self) -> u64 {
        self.execs.fetch_add(1, Ordering::Relaxed)
    }

    fn create(self: Arc<Self>, spec: &Spec) -> Result<Arc<LocalSandbox>, Error> {
        check_name(&spec.name)?;
        if let Some(name) = spec.env.keys().find(|name| !is_variable(name)) {
            return Err(Error::Refused { path: name.into(), why: "an environment variable cannot have this name" });
        }
        let made = DirBuilder::new().recursive(true).mode(0o700).create(&self.dir);
        made.map_err(host("make", &self.dir))?;
        let dir = self.dir()?;
        if let Err(error) = self.sweep() {
            // What others left must not keep this one from being made; `prune` tells it as an error.
            tracing::warn!(error = chain(&error), "leftovers stay");
        }
        let _lock = lock(&dir, FlockOperation::LockShared)?;
        let unborn = dir.join(format!("{UNBORN}{}", token::random()));
        let meta = Meta::new(spec);
        let folder = dir.join(&spec.name);
        let placed = furnish(&unborn, &meta).and_then(|()| place(&unborn, &folder, &spec.name));
        if let Err(error) = placed {
            files::remove_tree(&unborn)?;
            return Err(error);
        }
        Ok(Arc::new(LocalSandbox::new(self, meta, folder)?))
    }

    fn open(self: Arc<Self>, id: &str) -> Result<Arc<LocalSandbox>, Error> {
        check_name(id)?;
        let dir = match self.dir() {
            Err(Error::Host { source, .. }) if source.kind() == io::ErrorKind::NotFound => {
                return Err(Error::Gone { id: id.to_owned() });
            }
            dir => dir?,
        };
        let folder = dir.join(id);
        let meta = Meta::read(id, &folder)?;
        let abandoned = |mark: &mark::Mark| mark.key == meta.key && !mark.owner.alive();
        mark::end(abandoned, End::Now).map_err(|count| Error::Unkillable { id: id.to_owned(), count })?;
        Ok(Arc::new(LocalSandbox::new(self, meta, folder)?))
    }

    fn list(&self) -> Result<Vec<Listed>, Error> {
        let entries = match fs::read_dir(&self.dir) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            entries => entries.map_err(host("list", &self.dir))?,
        };
        let mut listed = Vec::new();
        for entry in entries {
            let name = entry.map_err(host("list", &self.dir))?.file_name();
            let Some(name) = name.to_str().filter(|name| check_name(name).is_ok()) else { continue };
            match Meta::read(name, &self.dir.join(name)) {
                Ok(meta) => listed.push(meta.listed()),
                Err(Error::Gone { .. }) => (),
                // One that cannot be understood must not hide the others.
                Err(error) => tracing::warn!(sandbox = name, error = chain(&error), "not listed"),
            }
        }
        listed.sort_by(|a, b| a.id.cmp(&b.id));
        Ok(listed)
    }

    /// Takes a sandbox's folder out of sight.
    pub(super) fn bury(&self, folder: &Path) -> Result<Grave, Error> {
        let dir = self.dir()?;
        let lock = lock(&dir, FlockOperation::LockShared)?;
        let path = dir.join(format!("{BURIED}{}", token::random()));
        fs::rename(folder, &path).map_err(host("move away", folder))?;
        Ok(Grave { path, _lock: lock })
    }

    /// Removes what interrupted makers and removers left, unless one of them may still be at work.
    fn sweep(&self) -> Result<(), Error> {
        let dir = match self.dir() {
            Err(Error::Host { source, .. }) if source.kind() == io::ErrorKind::NotFound => return Ok(()),
            dir => dir?,
        };
        let leftovers: Vec<_> = fs::read_dir(&dir)
            .map_err(host("list", &dir))?
            .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
            .filter(|name| name.starts_with(UNBORN) || name.starts_with(BURIED))
            .collect();
        if leftovers.is_empty() {
            return Ok(());
        }
        let _lock = match lock(&dir, FlockOperation::NonBlockingLockExclusive) {
            Err(Error::Host { source, .. }) if source.kind() == io::ErrorKind::WouldBlock => return Ok(()),
            lock => lock?,
        };
        leftovers.iter().try_for_each(|name| files::remove_tree(&dir.join(name)))
    }

    /// Returns the folder of all sandboxes as commands see it, without links.
    fn dir(&self) -> Result<PathBuf, Error> {
        fs::canonicalize(&self.dir).map_err(host("find", &self.dir))
    }
}

/// A sandbox's folder that is only waiting to be removed.
#[derive(Debug)]
pub(super) struct Grave {
    path: PathBuf,
    _lock: File,
}

impl Grave {
    pub(super) fn remove(self) -> Result<(), Error> {
        files::remove_tree(&self.path)
    }
}

/// Makes everything a sandbox consists of in a new folder.
fn furnish(folder: &Path, meta: &Meta) -> Result<(), Error> {
    for part in ["", WORKSPACE, HOME, TEMPORARY, EXCHANGE] {
        let path = folder.join(part);
        DirBuilder::new().mode(0o700).create(&path).map_err(host("make", &path))?;
    }
    meta.write(&Root::open(&meta.id, folder)?)
}

/// Gives a whole sandbox its name, unless something has it.
fn place(unborn: &Path, folder: &Path, id: &str) -> Result<(), Error> {
    if fs::symlink_metadata(folder).is_err() {
        match fs::rename(unborn, folder) {
            Err(error) if taken(&error) => (),
            renamed => return renamed.map_err(host("make", folder)),
        }
    }
    if fs::symlink_metadata(folder.join(meta::FILE)).is_ok() {
        Err(Error::Exists { id: id.to_owned() })
    } else {
        Err(Error::Refused { path: folder.to_owned(), why: "something that is not a sandbox has this name" })
    }
}

fn taken(error: &io::Error) -> bool {
    use io::ErrorKind::{AlreadyExists, DirectoryNotEmpty, NotADirectory};
    matches!(error.kind(), AlreadyExists | DirectoryNotEmpty | NotADirectory)
}

fn lock(dir: &Path, how: FlockOperation) -> Result<File, Error> {
    let path = dir.join(LOCK);
    let file = OpenOptions::new().create(true).append(true).mode(0o600).open(&path).map_err(host("lock", &path))?;
    flock(&file, how).map_err(|errno| host("lock", &path)(errno.into()))?;
    Ok(file)
}

fn host(doing: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Error {
    let path = path.to_owned();
    move |source| Error::Host { doing, path, source }
}

fn chain(error: &Error) -> String {
    match std::error::Error::source(error) {
        Some(source) => format!("{error}: {source}"),
        None => error.to_string(),
    }
}
