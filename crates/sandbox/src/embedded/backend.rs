//! Creates, opens, lists and removes sandboxes, and keeps at most one running cage for each.

use std::collections::{BTreeMap, HashMap};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use ralph_core::config::ToolchainSelection;

use super::cage::RunningCage;
use super::cage_build_failure::{NamespaceSettings, explain_failure};
use super::cage_owner_processes::{self, CagePidFile};
use super::cgroup::{self, CageCgroups, CgroupLimits, CgroupParents};
use super::disk_watch::{self, DiskWatch};
use super::host_requirements;
use super::launcher_process::{LauncherProcess, LauncherProgram};
use super::layout::{self, CageRequest};
use super::plan::{IdMapping, LauncherConfig};
use super::sandbox::EmbeddedSandbox;
use super::snapshots;
use super::toolchains::CageToolchains;
use super::transient_retry::TransientRetry;
use super::visible_host_paths::{self, HostSystem};
use crate::image;
use crate::isolation_mechanism::IsolationMechanism;
use crate::platform::HostUser;
use crate::sandbox_dirs::{self, SandboxDirs, SandboxMeta, blocking, host_error};
use crate::{
    Backend, BackendCapabilities, BackendCheck, EgressServer, EgressSupport, Error, IsolationLevel, PruneResult,
    PruneRule, Sandbox, SandboxSpec, SandboxSummary,
};

/// How the backend is set up.
#[derive(Debug, Clone, Default)]
pub struct EmbeddedOptions {
    /// Where sandboxes, snapshots and images are stored.
    pub dir: PathBuf,
    /// The program that becomes the launcher; without one, the running program.
    pub program: Option<PathBuf>,
    /// Where to look for the user's toolchains; without it none are visible inside.
    pub user: Option<HostUser>,
    /// Lets sandboxes read what the user's toolchains have downloaded, below a writable layer of their own.
    pub share_caches: bool,
    /// Further host directories to mount read-only at their host paths, and what to cover in them.
    pub binds: Vec<PathBuf>,
    pub masks: Vec<PathBuf>,
    /// Serves the egress sockets of sandboxes that have a network.
    pub egress_server: Option<Arc<dyn EgressServer>>,
    /// Creates no control groups, even where this user may.
    pub no_cgroups: bool,
    /// Mechanisms to leave out, to show that an attack succeeds without the one that stops it. No setting sets this.
    pub disabled_mechanisms: Vec<IsolationMechanism>,
}

/// A backend whose sandboxes are cages of this kernel's namespaces.
#[derive(Debug)]
pub struct EmbeddedBackend {
    pub(super) shared: Arc<EmbeddedState>,
}

/// State that the backend shares with its sandboxes.
#[derive(Debug)]
pub(super) struct EmbeddedState {
    pub(super) sandbox_dirs: SandboxDirs,
    layers: PathBuf,
    /// Where the copy of the host's settings is stored.
    etc: PathBuf,
    images: image::ImageStore,
    prepared: Mutex<BTreeMap<String, image::ImageRootfs>>,
    launcher: Arc<LauncherProgram>,
    spare_launcher: Mutex<Option<LauncherProcess>>,
    system: OnceLock<HostSystem>,
    user: Option<HostUser>,
    share_caches: bool,
    toolchains: Mutex<BTreeMap<ToolchainSelection, Arc<CageToolchains>>>,
    binds: Vec<PathBuf>,
    masks: Vec<PathBuf>,
    egress_server: Option<Arc<dyn EgressServer>>,
    no_cgroups: bool,
    pub(super) disabled_mechanisms: Vec<IsolationMechanism>,
    ids: IdMapping,
    cgroup_parents: OnceLock<CgroupParents>,
    dead_cgroups_removed: OnceLock<()>,
    /// The cages by the keys of their sandboxes. Each has its own lock, so building one does not block the others.
    cages: Mutex<HashMap<String, CageSlot>>,
}

/// How long to wait before starting a spare launcher, so as not to slow down the cage that took the last one.
const SPARE_LAUNCHER_DELAY: Duration = Duration::from_millis(20);

type CageSlot = Arc<tokio::sync::Mutex<Option<Arc<RunningCage>>>>;

impl EmbeddedBackend {
    pub fn new(options: EmbeddedOptions) -> Self {
        let dir = options.dir;
        let program = options.program.unwrap_or_else(|| PathBuf::from("/proc/self/exe"));
        Self {
            shared: Arc::new(EmbeddedState {
                sandbox_dirs: SandboxDirs::new(dir.join("boxes")),
                layers: dir.join("layers"),
                etc: dir.join("etc"),
                images: image::ImageStore::new(dir.join("images")),
                prepared: Mutex::default(),
                launcher: Arc::new(LauncherProgram::new(program)),
                spare_launcher: Mutex::default(),
                system: OnceLock::new(),
                user: options.user,
                share_caches: options.share_caches,
                toolchains: Mutex::default(),
                binds: options.binds,
                masks: options.masks,
                egress_server: options.egress_server,
                no_cgroups: options.no_cgroups,
                disabled_mechanisms: options.disabled_mechanisms,
                ids: layout::detect_ids(),
                cgroup_parents: OnceLock::new(),
                dead_cgroups_removed: OnceLock::new(),
                cages: Mutex::default(),
            }),
        }
    }

    /// Returns notes for the user about the toolchains that a selection makes visible, and those it does not.
    pub(super) fn toolchain_notes(&self, asked: &ToolchainSelection) -> Result<Vec<String>, Error> {
        Ok(CageToolchains::find(asked, self.shared.user.as_ref())?.notes().to_vec())
    }

    /// Returns whether the kernel limits the memory and the processes of a cage here.
    pub fn kernel_limits(&self) -> (bool, bool) {
        let places = self.shared.cgroup_parents();
        (places.memory(), places.pids())
    }

    /// Returns the version of Landlock that restricts a sandbox's commands, 0 for none.
    pub async fn landlock_version(&self, id: &str) -> Result<u8, Error> {
        let (shared, id) = (self.shared.clone(), id.to_owned());
        let (meta, folder) = blocking(move || shared.sandbox_dirs.find(&id)).await?;
        Ok(self.shared.cage(&meta, &folder, &Mutex::default()).await?.landlock)
    }

    /// Lists the snapshots by name.
    pub async fn snapshots(&self) -> Result<Vec<String>, Error> {
        let layers = self.shared.layers.clone();
        blocking(move || Ok(snapshots::list(&layers))).await
    }
}

#[async_trait]
impl Backend for EmbeddedBackend {
    fn capabilities(&self) -> BackendCapabilities {
        BackendCapabilities {
            name: super::NAME,
            isolation: IsolationLevel::Namespaces,
            max_vcpu: None,
            max_memory_gib: None,
            max_disk_gib: None,
            egress: EgressSupport::Transparent,
            host_layers: true,
            separation: true,
            snapshot: true,
            preview: false,
        }
    }

    async fn checks(&self) -> Vec<BackendCheck> {
        host_requirements::check_host(self)
    }

    fn explain(&self, error: &Error) -> Option<String> {
        let Error::Cage { step, source, .. } = error else { return None };
        let explanation = explain_failure(step, source, &NamespaceSettings::read());
        Some(format!("{}; next: {}", explanation.why, explanation.remedies.join(", or ")))
    }

    async fn create(&self, spec: &SandboxSpec) -> Result<Arc<dyn Sandbox>, Error> {
        let (shared, meta) = (self.shared.clone(), SandboxMeta::new(spec));
        let (early, launching) = (self.shared.clone(), self.shared.clone());
        // The launcher starts while the folder is created, which takes about as long. A failure to start it is reported
        // when a cage needs it.
        let (made, launched) =
            tokio::join!(blocking(move || shared.create(meta)), blocking(move || Ok(launching.take_launcher().ok())),);
        let (meta, folder) = made?;
        Ok(Arc::new(EmbeddedSandbox::new(early, meta, folder, launched?)?))
    }

    async fn open(&self, id: &str) -> Result<Arc<dyn Sandbox>, Error> {
        let (shared, id) = (self.shared.clone(), id.to_owned());
        // Nothing to end here: the commands of a dead owner died with it.
        let opened = blocking(move || {
            let (meta, folder) = shared.sandbox_dirs.find(&id)?;
            Ok(Arc::new(EmbeddedSandbox::new(shared, meta, folder, None)?))
        });
        Ok(opened.await?)
    }

    async fn list(&self) -> Result<Vec<SandboxSummary>, Error> {
        let shared = self.shared.clone();
        blocking(move || shared.sandbox_dirs.list()).await
    }

    async fn prune(&self, rule: &PruneRule, dry_run: bool) -> Result<Vec<PruneResult>, Error> {
        let pruned = sandbox_dirs::prune(self, rule, dry_run).await?;
        if !dry_run {
            let (shared, all) = (self.shared.clone(), *rule == PruneRule::All);
            blocking(move || {
                shared.sandbox_dirs.remove_leftovers()?;
                cgroup::remove_dead_cgroups(shared.cgroup_parents(), cage_owner_processes::is_dead_cgroup);
                if all { snapshots::remove_unused(&shared.layers, &shared.sandbox_dirs.metas()?) } else { Ok(()) }
            })
            .await?;
        }
        Ok(pruned)
    }

    async fn fork(&self, snapshot: &str, spec: &SandboxSpec) -> Result<Arc<dyn Sandbox>, Error> {
        let (shared, snapshot, mut meta) = (self.shared.clone(), snapshot.to_owned(), SandboxMeta::new(spec));
        let forked = blocking(move || {
            meta.layers = snapshots::chain(&shared.layers, &snapshot)?;
            let (meta, folder) = shared.create(meta)?;
            Ok(Arc::new(EmbeddedSandbox::new(shared, meta, folder, None)?))
        });
        Ok(forked.await?)
    }

    async fn remove_snapshot(&self, snapshot: &str) -> Result<(), Error> {
        let (shared, snapshot) = (self.shared.clone(), snapshot.to_owned());
        blocking(move || snapshots::remove(&shared.layers, &snapshot, &shared.sandbox_dirs.metas()?)).await
    }
}

impl EmbeddedState {
    fn create(&self, meta: SandboxMeta) -> Result<(SandboxMeta, PathBuf), Error> {
        let ids = self.ids;
        let tools = self.toolchains(&meta)?;
        let fresh = meta.layers.is_empty();
        let fill = |folder: &Path| {
            layout::create_volumes(folder, &ids).map_err(host_error("set up", folder))?;
            if fresh { tools.write_home_files(&meta.id, &folder.join("home")) } else { Ok(()) }
        };
        let folder = self.sandbox_dirs.create(&meta, fill)?;
        Ok((meta, folder))
    }

    /// Returns the spare launcher, or starts a new one.
    fn take_launcher(&self) -> std::io::Result<LauncherProcess> {
        let spare = self.spare_launcher.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(mut spare) = spare
            && matches!(spare.child.try_wait(), Ok(None))
        {
            return Ok(spare);
        }
        self.launcher.start(self.launcher_config())
    }

    /// Starts a spare launcher shortly after a cage was built, so that the next cage does not wait for its
    /// namespaces. It has no information about any sandbox, and ends with this process.
    fn start_spare_launcher(self: &Arc<Self>) {
        let shared = Arc::downgrade(self);
        tokio::spawn(async move {
            tokio::time::sleep(SPARE_LAUNCHER_DELAY).await;
            let Some(shared) = shared.upgrade() else { return };
            // If it cannot be started now, it is started when a cage needs it, and the failure is reported then.
            let _ = blocking(move || {
                let has =
                    |shared: &Self| shared.spare_launcher.lock().unwrap_or_else(PoisonError::into_inner).is_some();
                if !has(&shared)
                    && let Ok(spare) = shared.launcher.start(shared.launcher_config())
                {
                    shared.spare_launcher.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(spare);
                }
                Ok(())
            })
            .await;
        });
    }

    fn launcher_config(&self) -> LauncherConfig {
        LauncherConfig::new(self.ids, &self.disabled_mechanisms)
    }

    fn cgroup_parents(&self) -> &CgroupParents {
        self.cgroup_parents.get_or_init(|| if self.no_cgroups { CgroupParents::none() } else { CgroupParents::find() })
    }

    fn slot(&self, key: &str) -> CageSlot {
        self.cages.lock().unwrap_or_else(PoisonError::into_inner).entry(key.to_owned()).or_default().clone()
    }

    /// Returns the running cage of a sandbox, building it if there is none.
    pub(super) async fn cage(
        self: &Arc<Self>,
        meta: &SandboxMeta,
        folder: &Path,
        waiting: &Mutex<Option<LauncherProcess>>,
    ) -> Result<Arc<RunningCage>, Error> {
        let slot = self.slot(&meta.key);
        let mut slot = slot.lock().await;
        if let Some(live) = slot.as_ref().filter(|live| live.is_running()) {
            return Ok(live.clone());
        }
        if let Some(ended) = slot.take() {
            // A command that is still reading the last output of the old cage must not delay the next one.
            ended.end().await;
        }
        let waiting = waiting.lock().unwrap_or_else(PoisonError::into_inner).take();
        let mut waiting = waiting;
        let mut retry = TransientRetry::default();
        let live = loop {
            match self.build_cage(&meta.id, folder, waiting.take()).await {
                Err(error) if retry.wait_after(&error).await => (),
                built => break Arc::new(built?),
            }
        };
        if let Some(disk) = &live.disk {
            tokio::spawn(disk_watch::watch(Arc::downgrade(&live), disk.clone()));
        }
        *slot = Some(live.clone());
        self.start_spare_launcher();
        Ok(live)
    }

    async fn build_cage(
        self: &Arc<Self>,
        id: &str,
        folder: &Path,
        waiting: Option<LauncherProcess>,
    ) -> Result<RunningCage, Error> {
        let (shared, name, place) = (self.clone(), id.to_owned(), folder.to_owned());
        let (launched, held, disk, volumes, labels) = blocking(move || {
            let failed = |step: &'static str| {
                let id = name.clone();
                move |source| Error::Cage { id, step: step.to_owned(), source }
            };
            // First, because the launcher takes a while to start and the rest is done meanwhile. If the rest fails, the
            // launcher finds its socket closed and ends.
            let launched = match waiting {
                Some(launched) => launched,
                None => shared.take_launcher().map_err(failed("start the launcher"))?,
            };
            // Read again: a snapshot may have been taken since the handle was created.
            snapshots::recover(&shared.layers, &name, &place, &shared.ids)?;
            let meta = SandboxMeta::read(&name, &place)?;
            let lock = cage_owner_processes::lock(&name, &place, !meta.layers.is_empty())?;
            let mark = CagePidFile::write(&place, launched.child.id(), lock).map_err(host_error("write to", &place))?;
            let places = shared.cgroup_parents();
            // Once per process: dead processes leave nothing more while this one runs.
            shared
                .dead_cgroups_removed
                .get_or_init(|| cgroup::remove_dead_cgroups(places, cage_owner_processes::is_dead_cgroup));
            let held = CgroupLimits {
                memory: layout::memory_limit(&meta.resources),
                pids: layout::pids_limit(&meta.resources) + layout::RESERVED_PIDS,
                cpus: meta.resources.cpus,
            };
            let none = shared.disabled_mechanisms.contains(&IsolationMechanism::Limits);
            let groups = if none { Ok(None) } else { places.make(&cage_owner_processes::cgroup_name(), &held) };
            let groups = groups.map_err(failed("make a control group"))?;
            let system = match shared.system.get() {
                Some(system) => system,
                None => {
                    let looked = visible_host_paths::read_host_system(&shared.etc, layout::HOSTNAME, super::HOME);
                    let looked = looked.map_err(failed("read the host's system"))?;
                    shared.system.get_or_init(|| looked)
                }
            };
            let image = shared.prepared_image(&meta)?;
            let tools = shared.toolchains(&meta)?;
            let shown = tools.mounts(&place, shared.share_caches, &shared.ids);
            let mut shown = shown.map_err(failed("show the toolchains"))?;
            shown.add_binds(&shared.binds, &shared.masks).map_err(failed("find the directories to bind"))?;
            shown.add_layers(&meta.shown).map_err(failed("show a layer of the host"))?;
            let request = CageRequest {
                meta: &meta,
                folder: &place,
                layers: &shared.layers,
                system,
                image: image.map(|image| image.root),
                tools: &shown,
                cgroup_limits_memory: groups.is_some() && places.memory(),
                cgroup_limits_pids: groups.is_some() && places.pids(),
                disabled_mechanisms: &shared.disabled_mechanisms,
            };
            let plan = layout::plan(&request, shared.ids).map_err(failed("plan the cage"))?;
            let joins = groups.as_ref().map_or_else(|| Ok(Vec::new()), CageCgroups::open_join_files);
            let joins = joins.map_err(failed("open the control group"))?;
            match launched.send_plan(&plan, &joins) {
                // A launcher that has failed already has reported why, and that message is received next.
                Err(error) if matches!(error.kind(), ErrorKind::BrokenPipe | ErrorKind::ConnectionReset) => (),
                sent => sent.map_err(failed("send the plan"))?,
            }
            let most = meta.resources.disk.unwrap_or(layout::DEFAULT_DISK);
            let disk =
                if none { None } else { DiskWatch::new(&place, most, launched.child.id(), shared.launcher.clone()) };
            Ok((launched, (groups, mark), disk.map(Arc::new), plan.volumes.len(), meta.labels))
        })
        .await?;
        RunningCage::build(id, &labels, launched, volumes, held, disk, self.egress_server.as_deref()).await
    }

    /// Unpacks the image that a sandbox requested, unless that has been done.
    pub(super) fn prepared_image(&self, meta: &SandboxMeta) -> Result<Option<image::ImageRootfs>, Error> {
        let Some(text) = &meta.image else { return Ok(None) };
        let mut known = self.prepared.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(prepared) = known.get(text).filter(|prepared| prepared.root.is_dir()) {
            return Ok(Some(prepared.clone()));
        }
        let prepared = image::ImageReference::parse(text).and_then(|reference| self.images.prepare(&reference));
        let prepared = prepared.map_err(|source| Error::Image { source: Box::new(source) })?;
        known.insert(text.clone(), prepared.clone());
        Ok(Some(prepared))
    }

    /// Returns the toolchains that a sandbox requested; each selection is searched for once. An image brings its own.
    pub(super) fn toolchains(&self, meta: &SandboxMeta) -> Result<Arc<CageToolchains>, Error> {
        if let Some(image) = self.prepared_image(meta)? {
            return Ok(Arc::new(CageToolchains::from_image(&image.config)));
        }
        let mut known = self.toolchains.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(tools) = known.get(&meta.toolchains) {
            return Ok(tools.clone());
        }
        let tools = Arc::new(CageToolchains::find(&meta.toolchains, self.user.as_ref())?);
        known.insert(meta.toolchains.clone(), tools.clone());
        Ok(tools)
    }

    /// Ends the cage that this process runs for a sandbox.
    pub(super) async fn end_own_cage(&self, meta: &SandboxMeta) {
        let slot = self.cages.lock().unwrap_or_else(PoisonError::into_inner).get(&meta.key).cloned();
        if let Some(slot) = slot {
            // The lock is held until it has ended: a caller that wants a cage meanwhile gets the next one.
            let mut slot = slot.lock().await;
            if let Some(live) = slot.take() {
                live.end().await;
            }
        }
    }

    /// Ends every cage of a sandbox, those of this process and of others.
    pub(super) async fn end_cages(&self, meta: &SandboxMeta, folder: &Path) -> Result<(), Error> {
        self.end_own_cage(meta).await;
        let (id, folder) = (meta.id.clone(), folder.to_owned());
        blocking(move || cage_owner_processes::end_all_cages(&id, &folder)).await
    }

    /// Forgets a sandbox that was destroyed.
    pub(super) fn forget(&self, meta: &SandboxMeta) {
        self.cages.lock().unwrap_or_else(PoisonError::into_inner).remove(&meta.key);
    }

    pub(super) fn snapshot(&self, id: &str, folder: &Path) -> Result<String, Error> {
        snapshots::take(&self.layers, id, folder, &self.ids)
    }
}
