//! Making, finding and removing sandboxes, and the one cage that stands over each.

use std::collections::{BTreeMap, HashMap};
use std::ffi::OsString;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use ralph_core::config::Toolchains;

use super::cgroup::{self, Groups, Held, Places};
use super::disk::{self, Disk};
use super::door::Door;
use super::layers;
use super::layout::{self, Wish};
use super::live::Live;
use super::owners::{self, Mark};
use super::plan::{Birth, Ids, Wall};
use super::sandbox::EmbeddedSandbox;
use super::spawn::{Launched, Launcher};
use super::system::{self, System};
use super::tools::Tools;
use crate::image;
use crate::shelf::{self, Meta, Shelf, blocking, host};
use crate::{Backend, Capabilities, Error, Isolation, Listed, Prune, Pruned, Sandbox, Spec};

/// How the backend is set up.
#[derive(Debug, Clone, Default)]
pub struct Options {
    /// Where sandboxes, snapshots and images lie.
    pub dir: PathBuf,
    /// The program that becomes the launcher; without one, the program that is running.
    pub program: Option<PathBuf>,
    /// Where the user's toolchains are looked for; without it none are shown.
    pub user: Option<User>,
    /// Lets sandboxes read what the user's toolchains have downloaded, below a layer of their own.
    pub share_caches: bool,
    /// Further host directories to show read-only at the place they have on the host, and what to cover in them.
    pub binds: Vec<PathBuf>,
    pub masks: Vec<PathBuf>,
    /// Who stands at the doors of sandboxes that have any.
    pub door: Option<Arc<dyn Door>>,
    /// Makes no control groups, even where this user may.
    pub no_groups: bool,
    /// Walls to leave out: how an attack is shown to work where nothing stands against it. No setting leads here.
    pub without: Vec<Wall>,
}

/// The user as far as toolchains are concerned.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct User {
    pub home: PathBuf,
    pub path: OsString,
    pub env: BTreeMap<String, String>,
}

/// Sandboxes that are cages of this kernel's namespaces.
#[derive(Debug)]
pub struct Embedded {
    pub(super) shared: Arc<Shared>,
}

/// What the backend and its sandboxes have in common.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) shelf: Shelf,
    layers: PathBuf,
    /// Where the copy of the host's settings lies.
    etc: PathBuf,
    images: image::Store,
    prepared: Mutex<BTreeMap<String, image::Prepared>>,
    launcher: Arc<Launcher>,
    spare: Mutex<Option<Launched>>,
    system: OnceLock<System>,
    user: Option<User>,
    share_caches: bool,
    tools: Mutex<BTreeMap<Toolchains, Arc<Tools>>>,
    binds: Vec<PathBuf>,
    masks: Vec<PathBuf>,
    door: Option<Arc<dyn Door>>,
    no_groups: bool,
    pub(super) without: Vec<Wall>,
    ids: Ids,
    places: OnceLock<Places>,
    swept: OnceLock<()>,
    /// The cages by the sandboxes' keys. Each has a lock of its own: building one keeps nobody else waiting.
    lives: Mutex<HashMap<String, Slot>>,
}

/// When a launcher is put in reserve: not while the cage that took the last one has its first moments.
const SPARE_AFTER: Duration = Duration::from_millis(20);

type Slot = Arc<tokio::sync::Mutex<Option<Arc<Live>>>>;

impl Embedded {
    pub fn new(options: Options) -> Self {
        let dir = options.dir;
        let program = options.program.unwrap_or_else(|| PathBuf::from("/proc/self/exe"));
        Self {
            shared: Arc::new(Shared {
                shelf: Shelf::new(dir.join("boxes")),
                layers: dir.join("layers"),
                etc: dir.join("etc"),
                images: image::Store::new(dir.join("images")),
                prepared: Mutex::default(),
                launcher: Arc::new(Launcher::new(program)),
                spare: Mutex::default(),
                system: OnceLock::new(),
                user: options.user,
                share_caches: options.share_caches,
                tools: Mutex::default(),
                binds: options.binds,
                masks: options.masks,
                door: options.door,
                no_groups: options.no_groups,
                without: options.without,
                ids: layout::ids(),
                places: OnceLock::new(),
                swept: OnceLock::new(),
                lives: Mutex::default(),
            }),
        }
    }

    /// Returns what a person should know about the toolchains that a wish shows, and those it does not.
    pub fn toolchain_notes(&self, asked: &Toolchains) -> Result<Vec<String>, Error> {
        Ok(Tools::find(asked, self.shared.user.as_ref())?.notes().to_vec())
    }

    /// Returns whether the kernel holds memory and processes of a cage here.
    pub fn held_by_kernel(&self) -> (bool, bool) {
        let places = self.shared.places();
        (places.memory(), places.pids())
    }

    /// Returns the version of Landlock that stands around a sandbox's commands, 0 for none.
    pub async fn landlock(&self, id: &str) -> Result<u8, Error> {
        let (shared, id) = (self.shared.clone(), id.to_owned());
        let (meta, folder) = blocking(move || shared.shelf.find(&id)).await?;
        Ok(self.shared.live(&meta, &folder, &Mutex::default()).await?.landlock)
    }

    /// Lists the snapshots by name.
    pub async fn snapshots(&self) -> Result<Vec<String>, Error> {
        let layers = self.shared.layers.clone();
        blocking(move || Ok(layers::list(&layers))).await
    }
}

#[async_trait]
impl Backend for Embedded {
    fn capabilities(&self) -> Capabilities {
        Capabilities {
            name: "embedded",
            isolation: Isolation::Namespaces,
            max_vcpu: None,
            max_memory_gib: None,
            max_disk_gib: None,
            network_policy: true,
            snapshot: true,
            preview: false,
        }
    }

    async fn create(&self, spec: &Spec) -> Result<Arc<dyn Sandbox>, Error> {
        let (shared, meta) = (self.shared.clone(), Meta::new(spec));
        let (early, launching) = (self.shared.clone(), self.shared.clone());
        // It takes its time to come to life, which is as long as the folder takes. A failure is told when it is needed.
        let (made, launched) =
            tokio::join!(blocking(move || shared.create(meta)), blocking(move || Ok(launching.launch().ok())),);
        let (meta, folder) = made?;
        Ok(Arc::new(EmbeddedSandbox::new(early, meta, folder, launched?)?))
    }

    async fn open(&self, id: &str) -> Result<Arc<dyn Sandbox>, Error> {
        let (shared, id) = (self.shared.clone(), id.to_owned());
        // What a dead owner left running has died with it.
        let opened = blocking(move || {
            let (meta, folder) = shared.shelf.find(&id)?;
            Ok(Arc::new(EmbeddedSandbox::new(shared, meta, folder, None)?))
        });
        Ok(opened.await?)
    }

    async fn list(&self) -> Result<Vec<Listed>, Error> {
        let shared = self.shared.clone();
        blocking(move || shared.shelf.list()).await
    }

    async fn prune(&self, rule: &Prune, dry_run: bool) -> Result<Vec<Pruned>, Error> {
        let pruned = shelf::prune(self, rule, dry_run).await?;
        if !dry_run {
            let (shared, all) = (self.shared.clone(), *rule == Prune::All);
            blocking(move || {
                shared.shelf.sweep()?;
                cgroup::sweep(shared.places(), owners::is_dead_group);
                if all { layers::sweep(&shared.layers, &shared.shelf.metas()?) } else { Ok(()) }
            })
            .await?;
        }
        Ok(pruned)
    }

    async fn fork(&self, snapshot: &str, spec: &Spec) -> Result<Arc<dyn Sandbox>, Error> {
        let (shared, snapshot, mut meta) = (self.shared.clone(), snapshot.to_owned(), Meta::new(spec));
        let forked = blocking(move || {
            meta.layers = layers::chain(&shared.layers, &snapshot)?;
            let (meta, folder) = shared.create(meta)?;
            Ok(Arc::new(EmbeddedSandbox::new(shared, meta, folder, None)?))
        });
        Ok(forked.await?)
    }

    async fn remove_snapshot(&self, snapshot: &str) -> Result<(), Error> {
        let (shared, snapshot) = (self.shared.clone(), snapshot.to_owned());
        blocking(move || layers::remove(&shared.layers, &snapshot, &shared.shelf.metas()?)).await
    }
}

impl Shared {
    fn create(&self, meta: Meta) -> Result<(Meta, PathBuf), Error> {
        let ids = self.ids;
        let tools = self.tools(&meta)?;
        let fresh = meta.layers.is_empty();
        let furnish = |folder: &Path| {
            layout::furnish(folder, &ids).map_err(host("furnish", folder))?;
            if fresh { tools.furnish(&meta.id, &folder.join("home")) } else { Ok(()) }
        };
        let folder = self.shelf.create(&meta, furnish)?;
        Ok((meta, folder))
    }

    /// Returns a launcher: the one that waits in reserve, or a new one.
    fn launch(&self) -> std::io::Result<Launched> {
        let spare = self.spare.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(mut spare) = spare
            && matches!(spare.child.try_wait(), Ok(None))
        {
            return Ok(spare);
        }
        self.launcher.start(self.birth())
    }

    /// Puts a launcher in reserve, a moment after a cage was built: the next one will not wait for its namespaces. It
    /// knows nothing of any sandbox, and ends with this process.
    fn keep_spare(self: &Arc<Self>) {
        let shared = Arc::downgrade(self);
        tokio::spawn(async move {
            tokio::time::sleep(SPARE_AFTER).await;
            let Some(shared) = shared.upgrade() else { return };
            // One that cannot be had now is started when it is needed, and then its failure is told.
            let _ = blocking(move || {
                let has = |shared: &Self| shared.spare.lock().unwrap_or_else(PoisonError::into_inner).is_some();
                if !has(&shared)
                    && let Ok(spare) = shared.launcher.start(shared.birth())
                {
                    shared.spare.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(spare);
                }
                Ok(())
            })
            .await;
        });
    }

    fn birth(&self) -> Birth {
        Birth::new(self.ids, &self.without)
    }

    fn places(&self) -> &Places {
        self.places.get_or_init(|| if self.no_groups { Places::none() } else { Places::find() })
    }

    fn slot(&self, key: &str) -> Slot {
        self.lives.lock().unwrap_or_else(PoisonError::into_inner).entry(key.to_owned()).or_default().clone()
    }

    /// Returns the cage over a sandbox, building it when none stands.
    pub(super) async fn live(
        self: &Arc<Self>,
        meta: &Meta,
        folder: &Path,
        waiting: &Mutex<Option<Launched>>,
    ) -> Result<Arc<Live>, Error> {
        let slot = self.slot(&meta.key);
        let mut slot = slot.lock().await;
        if let Some(live) = slot.as_ref().filter(|live| live.stands()) {
            return Ok(live.clone());
        }
        if let Some(fallen) = slot.take() {
            // A command of it that is still looking at its last words must not keep the next cage from its place.
            fallen.end().await;
        }
        let waiting = waiting.lock().unwrap_or_else(PoisonError::into_inner).take();
        let live = Arc::new(self.build(&meta.id, folder, waiting).await?);
        if let Some(disk) = &live.disk {
            tokio::spawn(disk::watch(Arc::downgrade(&live), disk.clone()));
        }
        *slot = Some(live.clone());
        self.keep_spare();
        Ok(live)
    }

    async fn build(self: &Arc<Self>, id: &str, folder: &Path, waiting: Option<Launched>) -> Result<Live, Error> {
        let (shared, name, place) = (self.clone(), id.to_owned(), folder.to_owned());
        let (launched, held, disk, volumes, labels) = blocking(move || {
            let failed = |step: &'static str| {
                let id = name.clone();
                move |source| Error::Cage { id, step: step.to_owned(), source }
            };
            // First of all: it takes its time to come to life, and everything else is done meanwhile. Should that fail,
            // it finds nobody to talk to and ends.
            let launched = match waiting {
                Some(launched) => launched,
                None => shared.launch().map_err(failed("start the launcher"))?,
            };
            // What the folder says now: a snapshot may have been taken since the handle was made.
            layers::recover(&shared.layers, &name, &place, &shared.ids)?;
            let meta = Meta::read(&name, &place)?;
            let lock = owners::lock(&name, &place, !meta.layers.is_empty())?;
            let mark = Mark::write(&place, launched.child.id(), lock).map_err(host("mark", &place))?;
            let places = shared.places();
            // Once: what the dead left does not become more while this one lives.
            shared.swept.get_or_init(|| cgroup::sweep(places, owners::is_dead_group));
            let held = Held {
                memory: layout::memory(&meta.resources),
                pids: layout::pids(&meta.resources) + layout::OWN_PIDS,
                cpus: meta.resources.cpus,
            };
            let none = shared.without.contains(&Wall::Limits);
            let groups = if none { Ok(None) } else { places.make(&owners::group_name(), &held) };
            let groups = groups.map_err(failed("make a control group"))?;
            let system = match shared.system.get() {
                Some(system) => system,
                None => {
                    let looked = system::look(&shared.etc, layout::HOSTNAME, super::HOME);
                    let looked = looked.map_err(failed("look at the host's system"))?;
                    shared.system.get_or_init(|| looked)
                }
            };
            let image = shared.image(&meta)?;
            let tools = shared.tools(&meta)?;
            let shown = tools.shown(&place, shared.share_caches, &shared.ids);
            let mut shown = shown.map_err(failed("show the toolchains"))?;
            shown.add(&shared.binds, &shared.masks).map_err(failed("find what is to be shown"))?;
            shown.layers(&meta.shown).map_err(failed("show a layer of the host"))?;
            let wish = Wish {
                meta: &meta,
                folder: &place,
                layers: &shared.layers,
                system,
                image: image.map(|image| image.root),
                tools: &shown,
                holds_memory: groups.is_some() && places.memory(),
                holds_pids: groups.is_some() && places.pids(),
                without: &shared.without,
            };
            let plan = layout::plan(&wish, shared.ids).map_err(failed("plan the cage"))?;
            let joins = groups.as_ref().map_or_else(|| Ok(Vec::new()), Groups::joins);
            let joins = joins.map_err(failed("open the control group"))?;
            match launched.tell(&plan, &joins) {
                // A launcher that has given up already has said why, and that is heard next.
                Err(error) if matches!(error.kind(), ErrorKind::BrokenPipe | ErrorKind::ConnectionReset) => (),
                told => told.map_err(failed("hand the plan over"))?,
            }
            let most = meta.resources.disk.unwrap_or(layout::DISK);
            let disk = if none { None } else { Disk::new(&place, most, launched.child.id(), shared.launcher.clone()) };
            Ok((launched, (groups, mark), disk.map(Arc::new), plan.volumes.len(), meta.labels))
        })
        .await?;
        Live::build(id, &labels, launched, volumes, held, disk, self.door.as_deref()).await
    }

    /// Unpacks the image a sandbox asked for, unless that has been done.
    pub(super) fn image(&self, meta: &Meta) -> Result<Option<image::Prepared>, Error> {
        let Some(text) = &meta.image else { return Ok(None) };
        let mut known = self.prepared.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(prepared) = known.get(text).filter(|prepared| prepared.root.is_dir()) {
            return Ok(Some(prepared.clone()));
        }
        let prepared = image::Reference::parse(text).and_then(|reference| self.images.prepare(&reference));
        let prepared = prepared.map_err(|source| Error::Image { source: Box::new(source) })?;
        known.insert(text.clone(), prepared.clone());
        Ok(Some(prepared))
    }

    /// Returns the toolchains a sandbox asked for, looked for once. An image brings its own.
    pub(super) fn tools(&self, meta: &Meta) -> Result<Arc<Tools>, Error> {
        if let Some(image) = self.image(meta)? {
            return Ok(Arc::new(Tools::of_image(&image.config)));
        }
        let mut known = self.tools.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(tools) = known.get(&meta.toolchains) {
            return Ok(tools.clone());
        }
        let tools = Arc::new(Tools::find(&meta.toolchains, self.user.as_ref())?);
        known.insert(meta.toolchains.clone(), tools.clone());
        Ok(tools)
    }

    /// Ends every cage over a sandbox, this process's and others'.
    pub(super) async fn end(&self, meta: &Meta, folder: &Path) -> Result<(), Error> {
        let slot = self.lives.lock().unwrap_or_else(PoisonError::into_inner).get(&meta.key).cloned();
        if let Some(slot) = slot {
            // Held while it ends: whoever wants a cage meanwhile gets the next one.
            let mut slot = slot.lock().await;
            if let Some(live) = slot.take() {
                live.end().await;
            }
        }
        let (id, folder) = (meta.id.clone(), folder.to_owned());
        blocking(move || owners::end_all(&id, &folder)).await
    }

    /// Forgets a sandbox that is no more.
    pub(super) fn forget(&self, meta: &Meta) {
        self.lives.lock().unwrap_or_else(PoisonError::into_inner).remove(&meta.key);
    }

    pub(super) fn snapshot(&self, id: &str, folder: &Path) -> Result<String, Error> {
        layers::take(&self.layers, id, folder, &self.ids)
    }
}
