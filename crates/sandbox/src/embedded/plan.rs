//! Describes a cage as plain data: written by the supervisor, sealed, and followed exactly by the launcher.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::isolation_mechanism::IsolationMechanism;

/// What a launcher receives when it starts, before the sandbox is known: enough to create the namespaces.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct LauncherConfig {
    pub(super) ids: IdMapping,
    /// Whether the network is a new one, and whether inherited descriptors are closed: mechanisms that can be disabled
    /// like the others.
    pub(super) network: bool,
    pub(super) descriptors: bool,
}

impl LauncherConfig {
    pub(super) fn new(ids: IdMapping, without: &[IsolationMechanism]) -> Self {
        let has = |mechanism: IsolationMechanism| !without.contains(&mechanism);
        Self { ids, network: has(IsolationMechanism::Network), descriptors: has(IsolationMechanism::Descriptors) }
    }
}

/// The agent's user and group id inside.
pub(super) const AGENT_ID: u32 = 1000;

/// The complete plan of a cage.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct CagePlan {
    pub(super) hostname: String,
    pub(super) ids: IdMapping,
    pub(super) base: RootBase,
    /// Links in the root, `bin` → `usr/bin`.
    pub(super) links: Vec<(String, String)>,
    /// Host directories and files that are visible inside, mounted in this order.
    pub(super) binds: Vec<CageBind>,
    /// Files that ralph writes, mostly below `/etc`.
    pub(super) files: Vec<TextFile>,
    /// Paths in the binds that must not be visible: covered with an empty file or directory.
    pub(super) masks: Vec<String>,
    pub(super) volumes: Vec<CageVolume>,
    pub(super) scratch: Vec<ScratchMount>,
    pub(super) network: CageNetwork,
    pub(super) limits: CageLimits,
    /// Mechanisms left out on purpose, to check that their absence is noticed.
    pub(super) without: Vec<IsolationMechanism>,
}

/// The mapping between user ids inside and outside.
///
/// There are two nested user namespaces. The outer one belongs to the process that sets up the cage; the inner one, in
/// which everything else runs, owns no mount and so can change none.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct IdMapping {
    /// The host's user and group that ralph runs as.
    pub(super) uid: u32,
    pub(super) gid: u32,
    /// The host's user and group that the agent runs as. They differ from the above only when ralph runs as root: the
    /// agent is not root, even if it escapes.
    pub(super) agent_uid: u32,
    pub(super) agent_gid: u32,
}

impl IdMapping {
    /// Returns whether the agent runs as another user than ralph.
    pub(super) fn agent_differs(&self) -> bool {
        self.uid != self.agent_uid || self.gid != self.agent_gid
    }

    /// Returns the agent's id in the outer namespace.
    pub(super) fn agent_outer_id(&self) -> u32 {
        if self.agent_differs() { AGENT_ID } else { 0 }
    }
}

/// A host path and the identity of the file it must lead to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct MountSource {
    pub(super) path: PathBuf,
    pub(super) device: u64,
    pub(super) inode: u64,
    pub(super) directory: bool,
}

/// The base of the root directory.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum RootBase {
    /// Nothing: the system directories of the host are bound into it.
    Empty,
    /// An unpacked image, with changes stored in a separate directory.
    Image { lower: MountSource, upper: MountSource, work: MountSource },
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct CageBind {
    pub(super) source: MountSource,
    pub(super) target: String,
    /// A device that every process may use, such as `/dev/null`.
    pub(super) device: bool,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct TextFile {
    pub(super) target: String,
    pub(super) text: String,
}

/// A directory of the sandbox itself, writable inside.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct CageVolume {
    pub(super) target: String,
    /// The directory that receives writes.
    pub(super) upper: MountSource,
    /// The layers below it, the nearest first, with the work directory that the kernel needs to combine them; without
    /// layers, `upper` is the directory itself.
    pub(super) lower: Vec<MountSource>,
    pub(super) work: Option<MountSource>,
}

/// A directory in memory that disappears with the cage.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct ScratchMount {
    pub(super) target: String,
    pub(super) bytes: u64,
    pub(super) files: u64,
    pub(super) mode: u32,
}

/// The listening sockets to open inside and pass to the supervisor.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct CageNetwork {
    /// The port of the proxy on the cage's own loopback.
    pub(super) explicit: Option<u16>,
    /// Ports on which ralph accepts connections to any address.
    pub(super) transparent: Vec<u16>,
    pub(super) dns: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct CageLimits {
    pub(super) processes: u64,
    pub(super) open_files: u64,
    pub(super) file_bytes: u64,
    /// The memory limit that process 1 enforces, where no cgroup does.
    pub(super) watched_memory: Option<u64>,
    /// How many processors may be used, if fewer than the host has.
    pub(super) processors: Option<u32>,
    /// Whether a program gets only three descriptors.
    pub(super) three_descriptors: bool,
}
