//! The two traits every backend implements, and the plain data they speak.

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use async_trait::async_trait;
use serde::{Deserialize, Serialize};

use crate::{EgressSupport, Error, ExecExit, ExecRequest, OutputSink};
use ralph_core::config::{IsolationLevel, ToolchainSelection};

/// What a backend can do; callers ask here before they ask for more than the contract.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BackendCapabilities {
    pub name: &'static str,
    pub isolation: IsolationLevel,
    /// Largest resources one sandbox may ask for; `None` where the backend has no limit of its own.
    pub max_vcpu: Option<u32>,
    pub max_memory_gib: Option<u32>,
    pub max_disk_gib: Option<u32>,
    /// How commands inside reach the egress proxy.
    pub egress: EgressSupport,
    /// Whether [`SandboxSpec::layers`] are seen inside; otherwise commands find those files where the host has them.
    pub host_layers: bool,
    pub snapshot: bool,
    pub preview: bool,
}

/// How far the host has what a backend needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum BackendCheckStatus {
    Good,
    /// It works, with less protection or fewer features.
    Weak,
    /// The backend cannot be used, or not as what it is for.
    Missing,
}

/// One thing that a backend needs of the host, as it was found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BackendCheck {
    pub name: &'static str,
    pub status: BackendCheckStatus,
    pub found: String,
    /// What to do about it.
    pub next: Option<String>,
}

/// What one sandbox may use at most; `None` leaves it to the backend.
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

/// How a sandbox reaches the network. What may pass is decided by whoever serves its egress.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SandboxNetwork {
    /// None: there is nothing to connect to.
    #[default]
    None,
    /// A proxy that programs must be told of.
    Proxy,
    /// The same, and every address and name of the world leads to it.
    Transparent,
}

/// What a sandbox is made from. Its fingerprint decides between reuse and recreation.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SandboxSpec {
    pub name: String,
    pub labels: BTreeMap<String, String>,
    pub env: BTreeMap<String, String>,
    pub image: Option<String>,
    pub resources: SandboxLimits,
    pub network: SandboxNetwork,
    /// Which of the host's toolchains can be seen, read-only.
    pub toolchains: ToolchainSelection,
    /// Further files of the host that can be seen, read-only: the programs of agents.
    pub layers: Vec<HostLayer>,
}

/// A file or directory of the host that is seen inside, read-only and with nothing beside it. Where a backend runs its
/// commands on the host itself, it is where it is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HostLayer {
    pub host: PathBuf,
    /// An absolute path of at least two parts that nothing else of the sandbox has.
    pub inside: PathBuf,
}

impl SandboxSpec {
    /// Returns a hash of everything that, when different, means another sandbox.
    pub fn fingerprint(&self) -> String {
        let parts = (&self.env, &self.image, &self.resources, &self.network, &self.toolchains);
        let mut parts = serde_json::to_vec(&parts).expect("strings serialise");
        // One without layers is what it was before there were any.
        if !self.layers.is_empty() {
            parts.extend(serde_json::to_vec(&self.layers).expect("paths that can be written down"));
        }
        ralph_core::hash::sha256(&parts)
    }
}

/// The labels ralph puts on everything it makes.
#[derive(Debug)]
pub struct SandboxLabel;

impl SandboxLabel {
    /// The run a sandbox belongs to.
    pub const RUN: &'static str = "ralph.run";
    /// What the sandbox is for: `work` or `proof`.
    pub const ROLE: &'static str = "ralph.role";
    /// The repository a throw-away sandbox was made for.
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
    /// Everything ralph labelled.
    All,
    /// Those whose run is not among these; one that belongs to no run stays.
    NotOfRuns(Vec<String>),
}

/// What `prune` removed, or would have.
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

/// Makes, finds and removes sandboxes of one kind.
#[async_trait]
pub trait Backend: fmt::Debug + Send + Sync {
    fn capabilities(&self) -> BackendCapabilities;
    /// Looks whether the host has what the backend needs. It reads and changes nothing.
    async fn checks(&self) -> Vec<BackendCheck>;
    /// Says why an error of this backend happened on this host and what to do, where the host's settings tell.
    fn explain(&self, error: &Error) -> Option<String> {
        let _ = error;
        None
    }
    /// Makes the sandbox; one of the same name that still exists is an error, never silently reused.
    async fn create(&self, spec: &SandboxSpec) -> Result<Arc<dyn Sandbox>, Error>;
    /// Opens an existing sandbox and ends whatever a dead owner left running in it; a living owner's commands go on.
    async fn open(&self, id: &str) -> Result<Arc<dyn Sandbox>, Error>;
    /// Lists only what ralph labelled.
    async fn list(&self) -> Result<Vec<SandboxSummary>, Error>;
    /// Removes what the rule names; a dry run only says what it would remove. One that cannot be removed is told in
    /// `why` and does not keep the others.
    async fn prune(&self, rule: &PruneRule, dry_run: bool) -> Result<Vec<PruneResult>, Error>;
    /// Makes a sandbox that begins as a snapshot was taken. Only where [`BackendCapabilities::snapshot`] says so.
    async fn fork(&self, snapshot: &str, spec: &SandboxSpec) -> Result<Arc<dyn Sandbox>, Error> {
        let _ = (snapshot, spec);
        Err(Error::Unsupported { backend: self.capabilities().name, what: "fork a snapshot" })
    }
    /// Removes a snapshot that no sandbox stands on; one that is gone already is fine.
    async fn remove_snapshot(&self, snapshot: &str) -> Result<(), Error> {
        let _ = snapshot;
        Err(Error::Unsupported { backend: self.capabilities().name, what: "remove a snapshot" })
    }
}

/// One place to run commands in. Paths are relative to its workspace; the only absolute ones taken are those inside
/// [`Sandbox::exchange`].
#[async_trait]
pub trait Sandbox: fmt::Debug + Send + Sync {
    fn id(&self) -> &str;
    /// The workspace as commands inside see it.
    fn workspace(&self) -> &Path;
    /// Runs a command to its end, streaming its output into the sink; a timeout ends the whole process tree, and so
    /// does dropping the future.
    ///
    /// What the command leaves running in the background goes on until `stop` or `destroy`, unheard. A program that
    /// is missing or cannot be run is [`Error::Spawn`], never an exit code.
    async fn exec(&self, exec: &ExecRequest, sink: &mut dyn OutputSink) -> Result<ExecExit, Error>;
    /// Reads a regular file of at most `cap` bytes, following no link.
    async fn read(&self, path: &Path, cap: u64) -> Result<Vec<u8>, Error>;
    /// Replaces a file as a whole (never half), following no link; `mode` keeps the old one when `None`.
    async fn write(&self, path: &Path, bytes: &[u8], mode: Option<u32>) -> Result<(), Error>;
    /// Appends to a file, making it when missing, following no link.
    async fn append(&self, path: &Path, bytes: &[u8]) -> Result<(), Error>;
    /// Lists a directory, sorted by name.
    async fn list(&self, path: &Path) -> Result<Vec<DirectoryEntry>, Error>;
    /// Makes a directory and those on the way; ones that exist are fine.
    async fn mkdirs(&self, path: &Path) -> Result<(), Error>;
    async fn start(&self) -> Result<(), Error>;
    /// Ends every process of the sandbox and keeps its files.
    async fn stop(&self) -> Result<(), Error>;
    /// Ends what this process keeps running for the sandbox, as its death would, and keeps the files; what other
    /// processes run in it goes on. Where nothing dies with this process there is nothing to do.
    async fn release(&self) -> Result<(), Error> {
        Ok(())
    }
    /// Ends every process of the sandbox and removes all of it; one that is gone already is fine.
    async fn destroy(&self) -> Result<(), Error>;
    /// Copies a host file in with its permission bits, without reading it into memory.
    async fn copy_in(&self, host: &Path, path: &Path) -> Result<(), Error>;
    /// Copies a regular file of at most `cap` bytes out to a host path that must not exist yet, following no link.
    async fn copy_out(&self, path: &Path, host: &Path, cap: u64) -> Result<u64, Error>;
    /// The directory for files that pass in and out and are not part of the workspace, as commands inside see it.
    fn exchange(&self) -> PathBuf;
    /// Returns where commands inside find the egress proxy, if they were given a network; `None` where
    /// [`BackendCapabilities::egress`] says that there is none.
    fn egress_url(&self) -> Option<String> {
        None
    }
    /// Keeps the files as they are now under a name that `fork` takes; ends every process first. Only where
    /// [`BackendCapabilities::snapshot`] says so.
    async fn snapshot(&self) -> Result<String, Error> {
        Err(Error::Unsupported { backend: "this", what: "take a snapshot" })
    }
}
