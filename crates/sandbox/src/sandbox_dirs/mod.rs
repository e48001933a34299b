//! Creates, finds, lists and removes the folders of sandboxes, without ever exposing a partial one.
//!
//! A sandbox appears by a rename once it is complete and disappears by a rename before its files are removed, so a
//! killed ralph leaves only folders with a leading dot, which are never listed. They are removed as soon as no
//! process holds the lock under which they are created.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use rustix::fs::{FlockOperation, flock};

use crate::files;
use crate::{Backend, Error, PruneResult, PruneRule, SandboxLabel, SandboxSummary, random_name};

mod meta_json;

pub(crate) use meta_json::{SandboxMeta, check_name};

const TMP_PREFIX: &str = ".new-";
const TRASH_PREFIX: &str = ".gone-";
const LOCK_FILE: &str = ".lock";

/// A directory of sandboxes.
#[derive(Debug)]
pub(crate) struct SandboxDirs {
    dir: PathBuf,
    leftovers_removed: OnceLock<()>,
}

impl SandboxDirs {
    /// Keeps sandboxes in `dir`, which is created with the first of them.
    pub(crate) fn new(dir: PathBuf) -> Self {
        Self { dir, leftovers_removed: OnceLock::new() }
    }

    /// Creates a sandbox's folder, lets `fill` add its content, and returns its path.
    pub(crate) fn create(
        &self,
        meta: &SandboxMeta,
        fill: impl FnOnce(&Path) -> Result<(), Error>,
    ) -> Result<PathBuf, Error> {
        check_name(&meta.id)?;
        if let Some(name) = meta.env.keys().find(|name| !is_variable_name(name)) {
            return Err(Error::Refused { path: name.into(), why: "an environment variable cannot have this name" });
        }
        let made = DirBuilder::new().recursive(true).mode(0o700).create(&self.dir);
        made.map_err(host_error("make", &self.dir))?;
        let dir = self.dir()?;
        // Once per process: dead processes leave nothing more while this one runs.
        self.leftovers_removed.get_or_init(|| {
            if let Err(error) = self.remove_leftovers() {
                // The leftovers of others must not prevent this sandbox; `prune` reports the same error.
                tracing::warn!(error = error_chain(&error), "could not remove leftover sandbox folders");
            }
        });
        let _lock = lock(&dir, FlockOperation::LockShared)?;
        let tmp_folder = dir.join(format!("{TMP_PREFIX}{}", random_name::random()));
        let folder = dir.join(&meta.id);
        DirBuilder::new().mode(0o700).create(&tmp_folder).map_err(host_error("make", &tmp_folder))?;
        let placed = fill(&tmp_folder)
            .and_then(|()| meta.write_new(&tmp_folder))
            .and_then(|()| rename_into_place(&tmp_folder, &folder, &meta.id));
        if let Err(error) = placed {
            files::remove_tree(&tmp_folder)?;
            return Err(error);
        }
        Ok(folder)
    }

    /// Finds a sandbox's folder and reads its description.
    pub(crate) fn find(&self, id: &str) -> Result<(SandboxMeta, PathBuf), Error> {
        check_name(id)?;
        let dir = match self.dir() {
            Err(Error::Host { source, .. }) if source.kind() == io::ErrorKind::NotFound => {
                return Err(Error::Gone { id: id.to_owned() });
            }
            dir => dir?,
        };
        let folder = dir.join(id);
        Ok((SandboxMeta::read(id, &folder)?, folder))
    }

    pub(crate) fn list(&self) -> Result<Vec<SandboxSummary>, Error> {
        Ok(self.metas()?.into_iter().map(SandboxMeta::into_summary).collect())
    }

    /// Returns the descriptions of all sandboxes, sorted by name.
    pub(crate) fn metas(&self) -> Result<Vec<SandboxMeta>, Error> {
        let entries = match fs::read_dir(&self.dir) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            entries => entries.map_err(host_error("list", &self.dir))?,
        };
        let mut metas = Vec::new();
        for entry in entries {
            let name = entry.map_err(host_error("list", &self.dir))?.file_name();
            let Some(name) = name.to_str().filter(|name| check_name(name).is_ok()) else { continue };
            match SandboxMeta::read(name, &self.dir.join(name)) {
                Ok(meta) => metas.push(meta),
                Err(Error::Gone { .. }) => (),
                // One that cannot be read must not hide the others.
                Err(error) => tracing::warn!(sandbox = name, error = error_chain(&error), "sandbox not listed"),
            }
        }
        metas.sort_by(|a, b| a.id.cmp(&b.id));
        Ok(metas)
    }

    /// Renames a sandbox's folder so that it is not listed any more, to be removed.
    pub(crate) fn move_to_trash(&self, folder: &Path) -> Result<TrashDir, Error> {
        let dir = self.dir()?;
        let lock = lock(&dir, FlockOperation::LockShared)?;
        let path = dir.join(format!("{TRASH_PREFIX}{}", random_name::random()));
        fs::rename(folder, &path).map_err(host_error("move away", folder))?;
        Ok(TrashDir { path, _lock: lock })
    }

    /// Removes what interrupted processes left while they created or removed sandboxes, unless one may still be
    /// running.
    pub(crate) fn remove_leftovers(&self) -> Result<(), Error> {
        let dir = match self.dir() {
            Err(Error::Host { source, .. }) if source.kind() == io::ErrorKind::NotFound => return Ok(()),
            dir => dir?,
        };
        let leftovers: Vec<_> = fs::read_dir(&dir)
            .map_err(host_error("list", &dir))?
            .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
            .filter(|name| name.starts_with(TMP_PREFIX) || name.starts_with(TRASH_PREFIX))
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

    /// Returns the folder of all sandboxes as commands see it, with links resolved.
    pub(crate) fn dir(&self) -> Result<PathBuf, Error> {
        fs::canonicalize(&self.dir).map_err(host_error("find", &self.dir))
    }
}

/// A sandbox's folder that is about to be removed.
#[derive(Debug)]
pub(crate) struct TrashDir {
    path: PathBuf,
    _lock: File,
}

impl TrashDir {
    /// Returns where the folder is now; only cages have something else to remove first.
    #[cfg(target_os = "linux")]
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    pub(crate) fn remove(self) -> Result<(), Error> {
        files::remove_tree(&self.path)
    }
}

/// Gives a complete sandbox its name, unless the name is taken.
fn rename_into_place(tmp_folder: &Path, folder: &Path, id: &str) -> Result<(), Error> {
    if fs::symlink_metadata(folder).is_err() {
        match fs::rename(tmp_folder, folder) {
            Err(error) if is_name_taken(&error) => (),
            renamed => return renamed.map_err(host_error("make", folder)),
        }
    }
    if fs::symlink_metadata(folder.join(meta_json::META_FILE)).is_ok() {
        Err(Error::Exists { id: id.to_owned() })
    } else {
        Err(Error::Refused { path: folder.to_owned(), why: "the name is taken by something that is not a sandbox" })
    }
}

fn is_name_taken(error: &io::Error) -> bool {
    use io::ErrorKind::{AlreadyExists, DirectoryNotEmpty, NotADirectory};
    matches!(error.kind(), AlreadyExists | DirectoryNotEmpty | NotADirectory)
}

fn lock(dir: &Path, how: FlockOperation) -> Result<File, Error> {
    let path = dir.join(LOCK_FILE);
    let file =
        OpenOptions::new().create(true).append(true).mode(0o600).open(&path).map_err(host_error("lock", &path))?;
    flock(&file, how).map_err(|errno| host_error("lock", &path)(errno.into()))?;
    Ok(file)
}

pub(crate) fn host_error(doing: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Error {
    let path = path.to_owned();
    move |source| Error::Host { doing, path, source }
}

pub(crate) fn error_chain(error: &Error) -> String {
    match std::error::Error::source(error) {
        Some(source) => format!("{error}: {source}"),
        None => error.to_string(),
    }
}

/// Removes the sandboxes that a rule selects, one after the other.
pub(crate) async fn prune(backend: &dyn Backend, rule: &PruneRule, dry_run: bool) -> Result<Vec<PruneResult>, Error> {
    let mut pruned = Vec::new();
    for SandboxSummary { id, labels, .. } in backend.list().await? {
        let why = match (rule, labels.get(SandboxLabel::RUN)) {
            (PruneRule::All, _) => "everything is to go".to_owned(),
            (PruneRule::NotOfRuns(runs), Some(run)) if !runs.contains(run) => format!("run `{run}` is not kept"),
            (PruneRule::NotOfRuns(_), _) => continue,
        };
        if dry_run {
            pruned.push(PruneResult { id, removed: false, why });
            continue;
        }
        let removed = match backend.open(&id).await {
            Ok(sandbox) => sandbox.destroy().await,
            Err(error) => Err(error),
        };
        pruned.push(match removed {
            // Another process removed it first.
            Ok(()) | Err(Error::Gone { .. }) => PruneResult { id, removed: true, why },
            Err(error) => PruneResult { id, removed: false, why: format!("{why}, but {}", error_chain(&error)) },
        });
    }
    Ok(pruned)
}

pub(crate) fn is_variable_name(name: &str) -> bool {
    !name.is_empty() && !name.contains(['=', '\0'])
}

/// Runs work that may wait for a disk on a thread that may block.
pub(crate) async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, Error> + Send + 'static,
) -> Result<T, Error> {
    tokio::task::spawn_blocking(work).await.expect("file work does not panic, and nobody aborts it")
}
