//! Defines the two traits that every backend implements, and the plain data they exchange.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use async_trait::async_trait;
use serde::{Deserialize, Serialize};

use crate::files::FolderWatch;
use crate::{EgressSupport, Error, ExecExit, ExecRequest, OutputSink};
use ralph_core::config::{IsolationLevel, ToolchainSelection};

/// What a backend can do; callers check this before they use anything optional in the contract.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BackendCapabilities {
    pub name: &'static str,
    pub isolation: IsolationLevel,
    /// Largest resources that one sandbox may request; `None` where the backend has no limit of its own.
    pub max_vcpu: Option<u32>,
    pub max_memory_gib: Option<u32>,
    pub max_disk_gib: Option<u32>,
    /// How commands inside reach the egress proxy.
    pub egress: EgressSupport,
    /// Whether [`SandboxSpec::layers`] are mounted inside; otherwise commands find those files at their host paths.
    pub host_layers: bool,
    /// Whether [`ExecRequest::separated`] has an effect.
    pub separation: bool,
    pub snapshot: bool,
    pub preview: bool,
}

/// What shows whether a file was written to: it changes with every write, whatever is put back afterwards.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileStamp {
    pub inode: u64,
    pub mode: u32,
    pub size: u64,
    /// Seconds and nanoseconds.
    pub modified: (i64, i64),
    /// The last change of content, name or permissions.
    pub changed: (i64, i64),
}

/// How well the host meets one requirement of a backend.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum BackendCheckStatus {
    Good,
    /// It works, with less protection or fewer features.
    Weak,
    /// The backend cannot be used, or not for its purpose.
    Missing,
}

/// One requirement of a backend and what was found on the host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BackendCheck {
    pub name: &'static str,
    pub status: BackendCheckStatus,
    pub found: String,
    /// What to do about it.
    pub next: Option<String>,
}

/// The most that one sandbox may use; with `None` the backend decides.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SandboxLimits {
    /// Bytes of memory.
    pub memory: Option<u64>,
    /// Processors, in thousandths.
    pub cpus: Option<u32>,
    /// Bytes on disk.
    pub disk: Option<u64>,
    pub pids: Option<u64>,
}

/// How a sandbox reaches the network. The server of its egress decides what may pass.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SandboxNetwork {
    /// None: there is nothing to connect to.
    #[default]
    None,
    /// A proxy that programs must be configured to use.
    Proxy,
    /// The same, and every other address and host name leads to the proxy as well.
    Transparent,
}

/// The description from which a sandbox is created. Its fingerprint decides between reuse and recreation.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SandboxSpec {
    pub name: String,
    pub labels: BTreeMap<String, String>,
    pub env: BTreeMap<String, String>,
    pub image: Option<String>,
    pub resources: SandboxLimits,
    pub network: SandboxNetwork,
    /// Which of the host's toolchains are visible inside, read-only.
    pub toolchains: ToolchainSelection,
    /// Further files of the host that are visible inside, read-only: the programs of agents.
    pub layers: Vec<HostLayer>,
}

/// A file or directory of the host that is visible inside, read-only and without its neighbours. A backend that runs
/// its commands on the host itself leaves it at its host path.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HostLayer {
    pub host: PathBuf,
    /// An absolute path of at least two components that nothing else in the sandbox uses.
    pub inside: PathBuf,
}

impl SandboxSpec {
    /// Returns a hash of everything that, when it differs, requires another sandbox.
    pub fn fingerprint(&self) -> String {
        let parts = (&self.env, &self.image, &self.resources, &self.network, &self.toolchains);
        let mut parts = serde_json::to_vec(&parts).expect("strings serialise");
        // Without layers the hash is the same as in versions that had no layers.
        if !self.layers.is_empty() {
            parts.extend(serde_json::to_vec(&self.layers).expect("paths that can be written down"));
        }
        ralph_core::hash::sha256(&parts)
    }
}

/// The labels that ralph puts on every sandbox it creates.
#[derive(Debug)]
pub struct SandboxLabel;

impl SandboxLabel {
    /// The run a sandbox belongs to.
    pub const RUN: &'static str = "ralph.run";
    /// What the sandbox is for: `work` or `proof`.
    pub const ROLE: &'static str = "ralph.role";
    /// The repository that a throw-away sandbox was created for.
    pub const REPO: &'static str = "ralph.repo";
}

/// A sandbox as a backend lists it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SandboxSummary {
    pub id: String,
    pub labels: BTreeMap<String, String>,
    pub fingerprint: String,
    pub bytes: Option<u64>,
}

/// Which sandboxes `prune` removes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PruneRule {
    /// Every sandbox with a label of ralph's.
    All,
    /// Those whose run is not in this list; a sandbox that belongs to no run stays.
    NotOfRuns(Vec<String>),
}

/// One sandbox that `prune` removed, or would remove.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PruneResult {
    pub id: String,
    pub removed: bool,
    pub why: String,
}

/// A directory entry inside a sandbox.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct DirectoryEntry {
    pub name: String,
    pub kind: DirectoryEntryKind,
    pub size: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum DirectoryEntryKind {
    File,
    Directory,
    Link,
    Other,
}

/// Creates, finds and removes sandboxes of one kind.
#[async_trait]
pub trait Backend: fmt::Debug + Send + Sync {
    fn capabilities(&self) -> BackendCapabilities;
    /// Checks whether the host has what the backend needs. Only reads; changes nothing.
    async fn checks(&self) -> Vec<BackendCheck>;
    /// Explains why an error of this backend happened on this host and what to do, if the host's settings show it.
    fn explain(&self, error: &Error) -> Option<String> {
        let _ = error;
        None
    }
    /// Creates the sandbox; an existing one of the same name is an error and is never silently reused.
    async fn create(&self, spec: &SandboxSpec) -> Result<Arc<dyn Sandbox>, Error>;
    /// Opens an existing sandbox and ends the processes that a dead owner left running in it; the commands of a live
    /// owner continue.
    async fn open(&self, id: &str) -> Result<Arc<dyn Sandbox>, Error>;
    /// Lists only sandboxes with ralph's labels.
    async fn list(&self) -> Result<Vec<SandboxSummary>, Error>;
    /// Removes the sandboxes that the rule selects; a dry run only reports what it would remove. If one cannot be
    /// removed, `why` says so and the others are still removed.
    async fn prune(&self, rule: &PruneRule, dry_run: bool) -> Result<Vec<PruneResult>, Error>;
    /// Creates a sandbox that starts with the files of a snapshot. Requires [`BackendCapabilities::snapshot`].
    async fn fork(&self, snapshot: &str, spec: &SandboxSpec) -> Result<Arc<dyn Sandbox>, Error> {
        let _ = (snapshot, spec);
        Err(Error::Unsupported { backend: self.capabilities().name, what: "fork a snapshot" })
    }
    /// Removes a snapshot that no sandbox is based on; one that does not exist is not an error.
    async fn remove_snapshot(&self, snapshot: &str) -> Result<(), Error> {
        let _ = snapshot;
        Err(Error::Unsupported { backend: self.capabilities().name, what: "remove a snapshot" })
    }
}

/// One place to run commands in. Paths are relative to its workspace; the only absolute paths accepted are those inside
/// [`Sandbox::exchange`].
#[async_trait]
pub trait Sandbox: fmt::Debug + Send + Sync {
    fn id(&self) -> &str;
    /// The workspace as commands inside see it.
    fn workspace(&self) -> &Path;
    /// Runs a command to its end, streaming its output into the sink; a timeout ends the whole process tree, and so
    /// does dropping the future.
    ///
    /// Processes that the command leaves in the background run until `stop` or `destroy`, and their output is
    /// discarded. A program that is missing or cannot be run is [`Error::Spawn`], never an exit code.
    async fn exec(&self, exec: &ExecRequest, sink: &mut dyn OutputSink) -> Result<ExecExit, Error>;
    /// Reads a regular file of at most `cap` bytes, following no link.
    async fn read(&self, path: &Path, cap: u64) -> Result<Vec<u8>, Error>;
    /// Replaces a whole file atomically, following no link; with `None` as `mode` the old permissions stay.
    async fn write(&self, path: &Path, bytes: &[u8], mode: Option<u32>) -> Result<(), Error>;
    /// Appends to a file, creating it if missing, following no link.
    async fn append(&self, path: &Path, bytes: &[u8]) -> Result<(), Error>;
    /// Returns the stamp of each file; `None` where there is no regular file. Equal stamps mean that nothing wrote to the
    /// file in between.
    async fn stamps(&self, paths: &[PathBuf]) -> Result<Vec<Option<FileStamp>>, Error>;
    /// Watches folders from now on: moving one away and back changes no stamp. `None` where the backend cannot.
    async fn watch_folders(&self, folders: BTreeSet<PathBuf>) -> Result<Option<FolderWatch>, Error>;
    /// Lists a directory, sorted by name.
    async fn list(&self, path: &Path) -> Result<Vec<DirectoryEntry>, Error>;
    /// Creates a directory and its missing parents; existing ones are not an error.
    async fn mkdirs(&self, path: &Path) -> Result<(), Error>;
    async fn start(&self) -> Result<(), Error>;
    /// Ends every process of the sandbox and keeps its files.
    async fn stop(&self) -> Result<(), Error>;
    /// Ends everything that would end with this process, and keeps the files; whatever other processes run in the
    /// sandbox continues. Does nothing in a backend where nothing depends on this process.
    async fn release(&self) -> Result<(), Error> {
        Ok(())
    }
    /// Ends every process of the sandbox and removes all its files; one that does not exist any more is not an error.
    async fn destroy(&self) -> Result<(), Error>;
    /// Copies a host file in with its permission bits, without reading it into memory.
    async fn copy_in(&self, host: &Path, path: &Path) -> Result<(), Error>;
    /// Copies a regular file of at most `cap` bytes out to a host path that must not exist yet, following no link.
    async fn copy_out(&self, path: &Path, host: &Path, cap: u64) -> Result<u64, Error>;
    /// The directory for files that are copied in and out and are not part of the workspace, as commands inside see it.
    fn exchange(&self) -> PathBuf;
    /// Returns the address at which commands inside reach the egress proxy, if the sandbox has a network; `None` where
    /// [`BackendCapabilities::egress`] says that there is no egress.
    fn egress_url(&self) -> Option<String> {
        None
    }
    /// Saves the current files under a name that `fork` accepts; ends every process first. Requires
    /// [`BackendCapabilities::snapshot`].
    async fn snapshot(&self) -> Result<String, Error> {
        Err(Error::Unsupported { backend: "this", what: "take a snapshot" })
    }
}
