//! Making, finding and removing sandboxes, and the one cage that stands over each.

use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use async_trait::async_trait;

use super::cgroup::{self, Groups, Held, Places};
use super::disk::{self, Disk};
use super::door::Door;
use super::layers;
use super::layout::{self, Wish};
use super::live::Live;
use super::owners::{self, Mark};
use super::plan::{Bind, Ids, Wall};
use super::sandbox::EmbeddedSandbox;
use super::spawn::Launcher;
use super::system::{self, System};
use crate::shelf::{self, Meta, Shelf, blocking, host};
use crate::{Backend, Capabilities, Error, Isolation, Listed, Prune, Pruned, Sandbox, Spec};

/// How the backend is set up.
#[derive(Debug, Clone, Default)]
pub struct Options {
    /// Where sandboxes, snapshots and images lie.
    pub dir: PathBuf,
    /// The program that becomes the launcher; without one, the program that is running.
    pub program: Option<PathBuf>,
    /// Where commands find programs.
    pub path: Option<String>,
    /// What every command's environment holds beside the usual.
    pub env: BTreeMap<String, String>,
    /// Host directories to show read-only at the place they have on the host, and what to cover in them.
    pub binds: Vec<PathBuf>,
    pub masks: Vec<PathBuf>,
    /// Who stands at the doors of sandboxes that have any.
    pub door: Option<Arc<dyn Door>>,
    /// Makes no control groups, even where this user may.
    pub no_groups: bool,
    /// Walls to leave out: how an attack is shown to work where nothing stands against it. No setting leads here.
    pub without: Vec<Wall>,
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
    launcher: Launcher,
    system: OnceLock<System>,
    pub(super) path: String,
    pub(super) env: BTreeMap<String, String>,
    binds: Vec<PathBuf>,
    masks: Vec<String>,
    door: Option<Arc<dyn Door>>,
    no_groups: bool,
    without: Vec<Wall>,
    ids: Ids,
    places: OnceLock<Places>,
    /// The cages by the sandboxes' keys. Each has a lock of its own: building one keeps nobody else waiting.
    lives: Mutex<HashMap<String, Slot>>,
}

type Slot = Arc<tokio::sync::Mutex<Option<Arc<Live>>>>;

/// Where programs are in every base.
const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

impl Embedded {
    pub fn new(options: Options) -> Self {
        let dir = options.dir;
        let program = options.program.unwrap_or_else(|| PathBuf::from("/proc/self/exe"));
        let masks = options.masks.iter().map(|path| path.to_string_lossy().into_owned()).collect();
        Self {
            shared: Arc::new(Shared {
                shelf: Shelf::new(dir.join("boxes")),
                layers: dir.join("layers"),
                launcher: Launcher::new(program),
                system: OnceLock::new(),
                path: options.path.unwrap_or_else(|| PATH.to_owned()),
                env: options.env,
                binds: options.binds,
                masks,
                door: options.door,
                no_groups: options.no_groups,
                without: options.without,
                ids: layout::ids(),
                places: OnceLock::new(),
                lives: Mutex::default(),
            }),
        }
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
        Ok(self.shared.live(&meta, &folder).await?.landlock)
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
        Ok(blocking(move || shared.create(meta)).await?)
    }

    async fn open(&self, id: &str) -> Result<Arc<dyn Sandbox>, Error> {
        let (shared, id) = (self.shared.clone(), id.to_owned());
        // What a dead owner left running has died with it.
        let opened = blocking(move || {
            let (meta, folder) = shared.shelf.find(&id)?;
            Ok(Arc::new(EmbeddedSandbox::new(shared, meta, folder)?))
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
            shared.create(meta)
        });
        Ok(forked.await?)
    }
}

impl Shared {
    fn create(self: Arc<Self>, meta: Meta) -> Result<Arc<EmbeddedSandbox>, Error> {
        let ids = self.ids;
        let furnish = |folder: &Path| layout::furnish(folder, &ids).map_err(host("furnish", folder));
        let folder = self.shelf.create(&meta, furnish)?;
        Ok(Arc::new(EmbeddedSandbox::new(self, meta, folder)?))
    }

    fn places(&self) -> &Places {
        self.places.get_or_init(|| if self.no_groups { Places::none() } else { Places::find() })
    }

    fn slot(&self, key: &str) -> Slot {
        self.lives.lock().unwrap_or_else(PoisonError::into_inner).entry(key.to_owned()).or_default().clone()
    }

    /// Returns the cage over a sandbox, building it when none stands.
    pub(super) async fn live(self: &Arc<Self>, meta: &Meta, folder: &Path) -> Result<Arc<Live>, Error> {
        let slot = self.slot(&meta.key);
        let mut slot = slot.lock().await;
        if let Some(live) = slot.as_ref().filter(|live| live.stands()) {
            return Ok(live.clone());
        }
        if let Some(fallen) = slot.take() {
            // A command of it that is still looking at its last words must not keep the next cage from its place.
            fallen.end().await;
        }
        let live = Arc::new(self.build(&meta.id, folder).await?);
        if let Some(disk) = &live.disk {
            tokio::spawn(disk::watch(Arc::downgrade(&live), disk.clone()));
        }
        *slot = Some(live.clone());
        Ok(live)
    }

    async fn build(self: &Arc<Self>, id: &str, folder: &Path) -> Result<Live, Error> {
        let (shared, name, place) = (self.clone(), id.to_owned(), folder.to_owned());
        let (launched, held, disk, volumes) = blocking(move || {
            // What the folder says now: a snapshot may have been taken since the handle was made.
            layers::recover(&shared.layers, &name, &place, &shared.ids)?;
            let meta = Meta::read(&name, &place)?;
            let lock = owners::lock(&name, &place, !meta.layers.is_empty())?;
            let failed = |step: &'static str| {
                let id = name.clone();
                move |source| Error::Cage { id, step: step.to_owned(), source }
            };
            let places = shared.places();
            cgroup::sweep(places, owners::is_dead_group);
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
                    let looked = system::look().map_err(failed("look at the host's system"))?;
                    shared.system.get_or_init(|| looked)
                }
            };
            let binds = shared.binds().map_err(failed("find the toolchains"))?;
            let wish = Wish {
                meta: &meta,
                folder: &place,
                layers: &shared.layers,
                system,
                image: None,
                binds: &binds,
                masks: &shared.masks,
                cgroups: groups.as_ref().map(Groups::directories).unwrap_or_default(),
                holds_memory: groups.is_some() && places.memory(),
                holds_pids: groups.is_some() && places.pids(),
                without: &shared.without,
            };
            let plan = layout::plan(&wish, shared.ids).map_err(failed("plan the cage"))?;
            let launched = shared.launcher.start(&plan).map_err(failed("start the launcher"))?;
            let mark = Mark::write(&place, launched.child.id(), lock).map_err(host("mark", &place))?;
            let most = meta.resources.disk.unwrap_or(layout::DISK);
            let disk = if none { None } else { Disk::new(&place, most, launched.child.id()) };
            Ok((launched, (groups, mark), disk.map(Arc::new), plan.volumes.len()))
        })
        .await?;
        Live::build(id, launched, volumes, held, disk, self.door.as_deref()).await
    }

    fn binds(&self) -> std::io::Result<Vec<Bind>> {
        let bind = |path: &PathBuf| system::bind(&system::plain(path)?, &path.to_string_lossy());
        // One that has gone since it was found is missing inside, as it is outside.
        self.binds.iter().filter(|path| path.exists()).map(bind).collect()
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
