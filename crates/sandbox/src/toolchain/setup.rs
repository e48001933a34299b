//! The result of the search, as plain data for the launcher.

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde::Serialize;

/// Everything a sandbox needs to use the host's toolchains.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct ToolchainSetup {
    /// To be mounted read-only in this order, each with its masks before the next: a bind comes after the one that
    /// contains it.
    pub binds: Vec<ToolchainBind>,
    /// The `PATH` inside, in the host's order.
    pub path: Vec<PathBuf>,
    pub env: BTreeMap<String, String>,
    /// Small files to be written into the sandbox's home before its first command.
    pub files: Vec<ToolchainFile>,
    pub caches: Vec<ToolchainCache>,
    /// Messages for the user about what was left out or changed.
    pub notes: Vec<String>,
}

/// A host directory to be shown read-only.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct ToolchainBind {
    /// A real path: no part of it is a link.
    pub source: PathBuf,
    pub target: PathBuf,
    /// What must be masked before anything runs.
    pub mask: Vec<BindMask>,
}

/// A file or directory below a bind that must not be visible.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct BindMask {
    /// Relative to the bind.
    pub below: PathBuf,
    pub kind: MaskKind,
}

/// What a mask covers, and therefore what covers it: an empty file or an empty directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum MaskKind {
    File,
    Directory,
}

/// A file that ralph writes into the sandbox's home.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct ToolchainFile {
    pub path: PathBuf,
    pub content: String,
}

/// A download cache of a toolchain: writable, and used by this sandbox alone.
///
/// The host's own cache can be a read-only layer under it, if the user asks for that: what the sandbox writes never
/// reaches the host.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ToolchainCache {
    pub name: &'static str,
    /// Its path inside.
    pub dir: PathBuf,
    /// The host's cache, if it has one; its target is `dir`.
    pub lower: Option<ToolchainBind>,
}
