//! Names the mechanisms that isolate a cage, for the attack suite that disables them one by one.

use serde::{Deserialize, Serialize};

/// The isolation mechanisms of a cage, each of which can be disabled to see what it prevents.
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
    /// Covering what `/proc` reveals about the host.
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
