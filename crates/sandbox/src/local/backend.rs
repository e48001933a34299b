//! Making, finding and removing the folders that are sandboxes.

use std::ffi::OsString;
use std::fs::DirBuilder;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use async_trait::async_trait;

use super::mark::{self, End, Owner};
use super::sandbox::{EXCHANGE, HOME, LocalSandbox, TEMPORARY, WORKSPACE};
use super::watchdog::Watchdog;
use crate::shelf::{self, Meta, Shelf, blocking, host};
use crate::{Backend, Capabilities, Error, Isolation, Listed, Prune, Pruned, Sandbox, Spec, token};

/// Sandboxes that are folders on the host, without any isolation.
#[derive(Debug)]
pub struct Local {
    shared: Arc<Shared>,
}

/// What the backend and its sandboxes have in common.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) shelf: Shelf,
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
        Self { shared: Arc::new(Shared { shelf: Shelf::new(dir), path, owner, watchdog, execs: AtomicU64::new(0) }) }
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
        blocking(move || shared.shelf.list()).await
    }

    async fn prune(&self, rule: &Prune, dry_run: bool) -> Result<Vec<Pruned>, Error> {
        let pruned = shelf::prune(self, rule, dry_run).await?;
        if !dry_run {
            let shared = self.shared.clone();
            blocking(move || shared.shelf.sweep()).await?;
        }
        Ok(pruned)
    }
}

impl Shared {
    pub(super) fn next_exec(&self) -> u64 {
        self.execs.fetch_add(1, Ordering::Relaxed)
    }

    fn create(self: Arc<Self>, spec: &Spec) -> Result<Arc<LocalSandbox>, Error> {
        let meta = Meta::new(spec);
        let folder = self.shelf.create(&meta, furnish)?;
        Ok(Arc::new(LocalSandbox::new(self, meta, folder)?))
    }

    fn open(self: Arc<Self>, id: &str) -> Result<Arc<LocalSandbox>, Error> {
        let (meta, folder) = self.shelf.find(id)?;
        let abandoned = |mark: &mark::Mark| mark.key == meta.key && !mark.owner.alive();
        mark::end(abandoned, End::Now).map_err(|count| Error::Unkillable { id: id.to_owned(), count })?;
        Ok(Arc::new(LocalSandbox::new(self, meta, folder)?))
    }
}

/// Makes everything a sandbox consists of in a new folder.
fn furnish(folder: &Path) -> Result<(), Error> {
    for part in [WORKSPACE, HOME, TEMPORARY, EXCHANGE] {
        let path = folder.join(part);
        DirBuilder::new().mode(0o700).create(&path).map_err(host("make", &path))?;
    }
    Ok(())
}
