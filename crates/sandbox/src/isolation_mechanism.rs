//! Names the mechanisms a cage is isolated by, for the attack suite that leaves them out one by one.

use serde::{Deserialize, Serialize};

/// The parts of the cage that can be left out one by one, to see what each is good for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum IsolationMechanism {
    /// The filter on system calls.
    Seccomp,
    /// Landlock's rules on files.
    Landlock,
    /// Dropping capabilities and the bits that would bring them back.
    Capabilities,
    /// The inner user namespace that locks the mounts.
    InnerUser,
    /// The limit on further namespaces.
    NamespaceLimit,
    /// The empty network.
    Network,
    /// Covering what `/proc` tells about the host.
    ProcMasks,
    /// Read-only system directories.
    ReadOnly,
    /// The hidden memory of process 1.
    Dumpable,
    /// Closing descriptors before a program starts.
    Descriptors,
    /// Limits on processes, memory and files.
    Limits,
    /// The clean environment.
    Environment,
    /// Covering credential files in toolchains.
    Masks,
    /// A root built from nothing: without it, the host's settings are bound as well.
    Root,
}

impl IsolationMechanism {
    pub const ALL: [Self; 14] = [
        Self::Seccomp,
        Self::Landlock,
        Self::Capabilities,
        Self::InnerUser,
        Self::NamespaceLimit,
        Self::Network,
        Self::ProcMasks,
        Self::ReadOnly,
        Self::Dumpable,
        Self::Descriptors,
        Self::Limits,
        Self::Environment,
        Self::Masks,
        Self::Root,
    ];
}
