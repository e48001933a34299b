//! Finds the run the user means: by id, by branch, or as the latest of the repository around a directory.

use std::path::Path;

use super::SetupError;
use crate::store::{RalphHome, RunFolder};

/// The name of the latest run.
const LATEST: &str = "@";

/// Finds a run to look at. `@` is the latest of the surrounding repository, or of all if that has none.
pub fn find_run(home: &RalphHome, dir: &Path, wanted: &str) -> Result<RunFolder, SetupError> {
    match latest_run_here(home, dir, wanted)? {
        Some(folder) => Ok(folder),
        None => Ok(home.find(wanted)?),
    }
}

/// Finds the audit log the user means: of a run, or of a `ralph sandbox exec` under its sandbox's name.
pub fn find_audit_folder(home: &RalphHome, dir: &Path, wanted: &str) -> Result<RunFolder, SetupError> {
    let folder = home.exec_audit_folder(wanted);
    let is_name = wanted.starts_with("exec-") && !wanted.contains('/');
    if is_name && folder.path().is_dir() { Ok(folder) } else { find_run(home, dir, wanted) }
}

/// Finds a run to change. In a repository without runs `@` matches none: the user does not mean another repository's.
pub fn find_run_to_change(home: &RalphHome, dir: &Path, wanted: &str) -> Result<RunFolder, SetupError> {
    match latest_run_here(home, dir, wanted)? {
        Some(folder) => Ok(folder),
        None if wanted == LATEST && is_in_repository(dir) && !home.run_ids()?.is_empty() => Err(SetupError::NoRunHere),
        None => Ok(home.find(wanted)?),
    }
}

/// Returns the latest run of the repository this directory is in, if that is wanted.
fn latest_run_here(home: &RalphHome, dir: &Path, wanted: &str) -> Result<Option<RunFolder>, SetupError> {
    let Some(here) = dir.canonicalize().ok().filter(|_| wanted == LATEST) else { return Ok(None) };
    let ids = home.run_ids()?;
    let folders = ids.iter().rev().map(|id| home.run_folder(id));
    let mut own = folders.filter(|folder| {
        folder.listing().is_ok_and(|listing| here.ancestors().any(|above| above.as_os_str() == listing.repo.as_str()))
    });
    Ok(own.next())
}

/// Reports whether a directory is in a git repository, judging by its folders.
fn is_in_repository(dir: &Path) -> bool {
    dir.canonicalize().is_ok_and(|here| here.ancestors().any(|above| above.join(".git").exists()))
}
