//! Takes, lists and removes snapshots: the content of a sandbox's volumes at one moment, never changed again, on which
//! other sandboxes are layered.
//!
//! Taking one moves directories and copies nothing, so it takes as long for a large repository as for a small one. It
//! is recorded in a file before it begins: if ralph dies on the way, the next one finds the file and finishes the
//! snapshot.

use std::collections::BTreeSet;
use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, PermissionsExt as _};
use std::path::Path;

use super::cage_owner_processes;
use super::layout::{self, SNAPSHOT_VOLUMES};
use super::plan::IdMapping;
use crate::files::{self, RootDir};
use crate::sandbox_dirs::{SandboxMeta, host_error};
use crate::{Error, random_name};

/// The file with the name of a snapshot that is being taken.
const PENDING_FILE: &str = "snapshot";
const CHAIN_FILE: &str = "chain.json";
/// The most layers of one sandbox; the kernel has a higher limit, but everything is slow long before it.
const MAX_LAYERS: usize = 32;

/// Moves a sandbox's volumes into a new layer; nothing may run in it.
pub(super) fn take(layers: &Path, id: &str, folder: &Path, ids: &IdMapping) -> Result<String, Error> {
    let _lock = cage_owner_processes::lock(id, folder, true)?;
    finish(layers, id, folder, ids)?;
    if SandboxMeta::read(id, folder)?.layers.len() >= MAX_LAYERS {
        return Err(Error::Refused { path: folder.to_owned(), why: "it is based on too many snapshots already" });
    }
    let name = random_name::random();
    let note = folder.join(PENDING_FILE);
    fs::write(&note, &name).map_err(host_error("write", &note))?;
    finish(layers, id, folder, ids)?;
    Ok(name)
}

/// Finishes a snapshot that a dead process has begun.
pub(super) fn recover(layers: &Path, id: &str, folder: &Path, ids: &IdMapping) -> Result<(), Error> {
    if !folder.join(PENDING_FILE).exists() {
        return Ok(());
    }
    let _lock = cage_owner_processes::lock(id, folder, true)?;
    finish(layers, id, folder, ids)
}

fn finish(layers: &Path, id: &str, folder: &Path, ids: &IdMapping) -> Result<(), Error> {
    let note = folder.join(PENDING_FILE);
    let name = match fs::read_to_string(&note) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        name => name.map_err(host_error("read", &note))?,
    };
    if !is_snapshot_name(&name) {
        // The write was interrupted, so nothing has been moved yet.
        return fs::remove_file(&note).map_err(host_error("remove", &note));
    }
    let layer = layers.join(&name);
    DirBuilder::new().recursive(true).mode(0o700).create(&layer).map_err(host_error("make", &layer))?;
    let mut meta = SandboxMeta::read(id, folder)?;
    let known = meta.layers.first() == Some(&name);
    let below = if known { meta.layers.iter().skip(1).cloned().collect() } else { meta.layers.clone() };
    let chain = serde_json::to_vec::<Vec<String>>(&below).expect("strings serialise");
    files::replace(&RootDir::open(id, &layer)?, Path::new(CHAIN_FILE), &chain, Some(0o600))?;
    for part in SNAPSHOT_VOLUMES {
        let (own, there) = (folder.join(part), layer.join(part));
        if !there.exists() {
            relocate(&own, &there).map_err(host_error("move", &own))?;
        }
        layout::create_agent_dir(&own, ids).map_err(host_error("make", &own))?;
    }
    if !known {
        meta.layers.insert(0, name);
        meta.write(&RootDir::open(id, folder)?)?;
    }
    fs::remove_file(&note).map_err(host_error("remove", &note))
}

/// Moves a directory, even one whose owner has locked it: its entry `..` changes, which requires write permission.
fn relocate(from: &Path, to: &Path) -> io::Result<()> {
    let rights = fs::symlink_metadata(from)?.permissions();
    match fs::rename(from, to) {
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => (),
        renamed => return renamed,
    }
    fs::set_permissions(from, fs::Permissions::from_mode(rights.mode() | 0o700))?;
    fs::rename(from, to)?;
    fs::set_permissions(to, rights)
}

/// Returns a snapshot and those it is based on, the nearest first.
pub(super) fn chain(layers: &Path, name: &str) -> Result<Vec<String>, Error> {
    let missing = || Error::NoSnapshot { name: name.to_owned() };
    if !is_snapshot_name(name) {
        return Err(missing());
    }
    let text = fs::read_to_string(layers.join(name).join(CHAIN_FILE)).map_err(|_| missing())?;
    let below: Vec<String> = serde_json::from_str(&text).map_err(|_| missing())?;
    if below.iter().any(|name| !is_snapshot_name(name)) {
        return Err(missing());
    }
    Ok([name.to_owned()].into_iter().chain(below).collect())
}

pub(super) fn list(layers: &Path) -> Vec<String> {
    let entries = fs::read_dir(layers).into_iter().flatten().flatten();
    let mut names: Vec<_> = entries
        .filter_map(|entry| entry.file_name().into_string().ok())
        .filter(|name| is_snapshot_name(name))
        .collect();
    names.sort();
    names
}

/// Removes the layers that no sandbox is based on.
pub(super) fn remove_unused(layers: &Path, sandboxes: &[SandboxMeta]) -> Result<(), Error> {
    let used: BTreeSet<&String> = sandboxes.iter().flat_map(|meta| &meta.layers).collect();
    list(layers).iter().filter(|name| !used.contains(name)).try_for_each(|name| files::remove_tree(&layers.join(name)))
}

/// Removes one layer, unless a sandbox is based on it.
pub(super) fn remove(layers: &Path, name: &str, sandboxes: &[SandboxMeta]) -> Result<(), Error> {
    if !is_snapshot_name(name) {
        return Err(Error::NoSnapshot { name: name.to_owned() });
    }
    match sandboxes.iter().find(|meta| meta.layers.iter().any(|layer| layer == name)) {
        Some(meta) => Err(Error::Busy { id: meta.id.clone() }),
        None => files::remove_tree(&layers.join(name)),
    }
}

/// Returns whether a name has the form of a snapshot's: letters and digits, so it cannot be a path.
fn is_snapshot_name(name: &str) -> bool {
    !name.is_empty() && name.len() <= 64 && name.chars().all(|c| c.is_ascii_alphanumeric())
}
