//! What a cage is to be, as plain data: written by the supervisor, sealed, and followed to the letter by the launcher.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::isolation_mechanism::IsolationMechanism;

/// What a launcher is told when it starts, before anything is known of the sandbox: enough to make the namespaces.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct LauncherConfig {
    pub(super) ids: IdMapping,
    /// Whether the network is a new one, and whether inherited descriptors are closed: walls like others.
    pub(super) network: bool,
    pub(super) descriptors: bool,
}

impl LauncherConfig {
    pub(super) fn new(ids: IdMapping, without: &[IsolationMechanism]) -> Self {
        let has = |wall: IsolationMechanism| !without.contains(&wall);
        Self { ids, network: has(IsolationMechanism::Network), descriptors: has(IsolationMechanism::Descriptors) }
    }
}

/// Who the agent is inside.
pub(super) const AGENT_ID: u32 = 1000;

/// A whole cage.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct CagePlan {
    pub(super) hostname: String,
    pub(super) ids: IdMapping,
    pub(super) base: RootBase,
    /// Links in the root, `bin` → `usr/bin`.
    pub(super) links: Vec<(String, String)>,
    /// Host directories and files that are seen inside, in this order.
    pub(super) binds: Vec<CageBind>,
    /// What is written by us, mostly below `/etc`.
    pub(super) files: Vec<TextFile>,
    /// What must not be seen of the binds: covered with nothing.
    pub(super) masks: Vec<String>,
    pub(super) volumes: Vec<CageVolume>,
    pub(super) scratch: Vec<ScratchMount>,
    pub(super) network: CageNetwork,
    pub(super) limits: CageLimits,
    /// Walls left out on purpose, to see that their absence is noticed.
    pub(super) without: Vec<IsolationMechanism>,
}

/// How numbers of users inside and outside belong together.
///
/// Two namespaces lie in one another. The outer one belongs to whoever sets the cage up; the inner one, in which
/// everything else runs, owns no mount and so can change none.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct IdMapping {
    /// The host's user and group that ralph runs as.
    pub(super) uid: u32,
    pub(super) gid: u32,
    /// The host's user and group that the agent is. Other than the above only when ralph runs as root: the agent is
    /// not root, even if it should get out.
    pub(super) agent_uid: u32,
    pub(super) agent_gid: u32,
}

impl IdMapping {
    /// Returns whether the agent is another user than ralph.
    pub(super) fn agent_differs(&self) -> bool {
        self.uid != self.agent_uid || self.gid != self.agent_gid
    }

    /// Returns the agent's number in the outer namespace.
    pub(super) fn agent_outer_id(&self) -> u32 {
        if self.agent_differs() { AGENT_ID } else { 0 }
    }
}

/// A host path and the very file it must lead to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct MountSource {
    pub(super) path: PathBuf,
    pub(super) device: u64,
    pub(super) inode: u64,
    pub(super) directory: bool,
}

/// What lies at the bottom of the root.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum RootBase {
    /// Nothing: the system directories of the host are bound into it.
    Empty,
    /// An unpacked image, with what is written to it kept beside it.
    Image { lower: MountSource, upper: MountSource, work: MountSource },
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct CageBind {
    pub(super) source: MountSource,
    pub(super) target: String,
    /// A device that everybody may use, `/dev/null`.
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
    /// Where what is written goes.
    pub(super) upper: MountSource,
    /// What lies below it, the nearest first, with the place the kernel needs to mix them; nothing means that `upper`
    /// is the directory itself.
    pub(super) lower: Vec<MountSource>,
    pub(super) work: Option<MountSource>,
}

/// A directory in memory that is gone with the cage.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct ScratchMount {
    pub(super) target: String,
    pub(super) bytes: u64,
    pub(super) files: u64,
    pub(super) mode: u32,
}

/// The listening sockets to make inside and hand out.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct CageNetwork {
    /// The port of the proxy on the cage's own loopback.
    pub(super) explicit: Option<u16>,
    /// Ports on which every address of the world is answered by us.
    pub(super) transparent: Vec<u16>,
    pub(super) dns: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct CageLimits {
    pub(super) processes: u64,
    pub(super) open_files: u64,
    pub(super) file_bytes: u64,
    /// What process 1 itself watches, where no cgroup does.
    pub(super) watched_memory: Option<u64>,
    /// How many processors, when fewer than there are.
    pub(super) processors: Option<u32>,
    /// Whether a program gets three descriptors and no more.
    pub(super) three_descriptors: bool,
}
