//! Creates, opens, lists and removes the sandboxes of the `local` backend.

use std::ffi::OsString;
use std::fs::DirBuilder;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use async_trait::async_trait;

use super::process_tag::{self, EndMode, TagOwner};
use super::sandbox::{EXCHANGE, HOME, LocalSandbox, TEMPORARY, WORKSPACE};
use super::watchdog::Watchdog;
use crate::sandbox_dirs::{self, SandboxDirs, SandboxMeta, blocking, host_error};
use crate::{
    Backend, BackendCapabilities, BackendCheck, BackendCheckStatus, EgressSupport, Error, IsolationLevel, PruneResult,
    PruneRule, Sandbox, SandboxSpec, SandboxSummary, random_name,
};

/// A backend whose sandboxes are folders on the host, without any isolation.
#[derive(Debug)]
pub struct LocalBackend {
    shared: Arc<LocalState>,
}

/// State that the backend shares with its sandboxes.
#[derive(Debug)]
pub(super) struct LocalState {
    pub(super) sandbox_dirs: SandboxDirs,
    /// The `PATH` of commands: the only thing they get from the host's environment.
    pub(super) path: OsString,
    pub(super) owner: TagOwner,
    pub(super) watchdog: Arc<Watchdog>,
    execs: AtomicU64,
}

impl LocalBackend {
    /// Keeps its sandboxes in `dir`, which is created with the first of them; programs are found in the usual system
    /// directories.
    pub fn new(dir: PathBuf) -> Self {
        Self::with_path(dir, "/usr/local/bin:/usr/bin:/bin".into())
    }

    /// Finds programs on this `PATH` instead.
    pub fn with_path(dir: PathBuf, path: OsString) -> Self {
        let owner = TagOwner::current(random_name::random());
        let watchdog = Arc::new(Watchdog::new(&owner.token));
        Self {
            shared: Arc::new(LocalState {
                sandbox_dirs: SandboxDirs::new(dir),
                path,
                owner,
                watchdog,
                execs: AtomicU64::new(0),
            }),
        }
    }
}

#[async_trait]
impl Backend for LocalBackend {
    fn capabilities(&self) -> BackendCapabilities {
        BackendCapabilities {
            name: "local",
            isolation: IsolationLevel::None,
            max_vcpu: None,
            max_memory_gib: None,
            max_disk_gib: None,
            egress: EgressSupport::None,
            host_layers: false,
            separation: false,
            snapshot: false,
            preview: false,
        }
    }

    /// Reports that there is no isolation, so that the user knows it in advance.
    async fn checks(&self) -> Vec<BackendCheck> {
        vec![BackendCheck {
            name: "isolation",
            status: BackendCheckStatus::Missing,
            found: "the local backend has none: commands run on this machine as you".to_owned(),
            next: Some("request it explicitly with `--backend local`, or use a Linux machine".to_owned()),
        }]
    }

    /// Creates the sandbox. An image has no meaning for a backend that runs on the host; it only changes the
    /// fingerprint.
    async fn create(&self, spec: &SandboxSpec) -> Result<Arc<dyn Sandbox>, Error> {
        let (shared, spec) = (self.shared.clone(), spec.clone());
        Ok(blocking(move || shared.create(&spec)).await?)
    }

    async fn open(&self, id: &str) -> Result<Arc<dyn Sandbox>, Error> {
        let (shared, id) = (self.shared.clone(), id.to_owned());
        Ok(blocking(move || shared.open(&id)).await?)
    }

    async fn list(&self) -> Result<Vec<SandboxSummary>, Error> {
        let shared = self.shared.clone();
        blocking(move || shared.sandbox_dirs.list()).await
    }

    async fn prune(&self, rule: &PruneRule, dry_run: bool) -> Result<Vec<PruneResult>, Error> {
        let pruned = sandbox_dirs::prune(self, rule, dry_run).await?;
        if !dry_run {
            let shared = self.shared.clone();
            blocking(move || shared.sandbox_dirs.remove_leftovers()).await?;
        }
        Ok(pruned)
    }
}

impl LocalState {
    pub(super) fn next_exec(&self) -> u64 {
        self.execs.fetch_add(1, Ordering::Relaxed)
    }

    fn create(self: Arc<Self>, spec: &SandboxSpec) -> Result<Arc<LocalSandbox>, Error> {
        let meta = SandboxMeta::new(spec);
        let folder = self.sandbox_dirs.create(&meta, create_dirs)?;
        Ok(Arc::new(LocalSandbox::new(self, meta, folder)?))
    }

    fn open(self: Arc<Self>, id: &str) -> Result<Arc<LocalSandbox>, Error> {
        let (meta, folder) = self.sandbox_dirs.find(id)?;
        let abandoned = |tag: &process_tag::ProcessTag| tag.key == meta.key && !tag.owner.is_alive();
        process_tag::end_tagged(abandoned, EndMode::Now)
            .map_err(|count| Error::Unkillable { id: id.to_owned(), count })?;
        Ok(Arc::new(LocalSandbox::new(self, meta, folder)?))
    }
}

/// Creates the directories of a sandbox in a new folder.
fn create_dirs(folder: &Path) -> Result<(), Error> {
    for part in [WORKSPACE, HOME, TEMPORARY, EXCHANGE] {
        let path = folder.join(part);
        DirBuilder::new().mode(0o700).create(&path).map_err(host_error("make", &path))?;
    }
    Ok(())
}
