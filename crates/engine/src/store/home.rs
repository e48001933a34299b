//! The state and configuration folders of the user, and finding runs in them.

use std::fs;
use std::path::{Path, PathBuf};

use ralph_core::identifiers::RunId;
use ralph_core::run::{RunListing, RunState};

use super::RunFolder;
use super::summary_file;
use crate::error::{Error, file_error};

/// The folders of ralph's own files.
#[derive(Debug, Clone)]
pub struct RalphHome {
    state: PathBuf,
    config: PathBuf,
}

/// A run with its state; `Err` if its history cannot be read.
#[derive(Debug)]
pub struct StoredRun {
    pub folder: RunFolder,
    pub state: Result<RunState, Error>,
}

/// A run in a list; `Err` if its history cannot be read.
#[derive(Debug)]
pub struct ListedRun {
    pub folder: RunFolder,
    pub listing: Result<RunListing, Error>,
}

/// All runs, oldest first.
#[derive(Debug)]
pub struct RunList {
    pub runs: Vec<ListedRun>,
    /// How many histories were folded because their summary was not current.
    pub folded: usize,
}

impl RalphHome {
    pub fn new(state: impl Into<PathBuf>, config: impl Into<PathBuf>) -> Self {
        Self { state: state.into(), config: config.into() }
    }

    pub fn state_dir(&self) -> &Path {
        &self.state
    }

    pub fn config_dir(&self) -> &Path {
        &self.config
    }

    pub fn runs_dir(&self) -> PathBuf {
        self.state.join("runs")
    }

    pub fn sandboxes_dir(&self) -> PathBuf {
        self.state.join("sandboxes")
    }

    pub fn key_path(&self) -> PathBuf {
        self.state.join("receipt-key")
    }

    pub fn run_folder(&self, run: &str) -> RunFolder {
        RunFolder::at(self.runs_dir().join(run))
    }

    /// Returns the folder that records the traffic of a sandbox without a run.
    pub fn exec_audit_folder(&self, sandbox: &str) -> RunFolder {
        RunFolder::at(self.state.join("exec").join(sandbox))
    }

    /// Returns the ids of all runs, oldest first.
    pub fn run_ids(&self) -> Result<Vec<String>, Error> {
        let mut names = self.folder_names()?;
        names.retain(|name| self.run_folder(name).begun());
        Ok(names)
    }

    /// Returns the names of folders that may hold a run, oldest first.
    fn folder_names(&self) -> Result<Vec<String>, Error> {
        let dir = self.runs_dir();
        let entries = match fs::read_dir(&dir) {
            Ok(entries) => entries,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(file_error("read", &dir)(error)),
        };
        let mut names = Vec::new();
        for entry in entries {
            let entry = entry.map_err(file_error("read", &dir))?;
            let name = entry.file_name().to_string_lossy().into_owned();
            if RunId::parse(&name).is_ok() {
                names.push(name);
            }
        }
        names.sort();
        Ok(names)
    }

    /// Lists all runs. A history is folded only where the summary is not current.
    pub fn list_runs(&self) -> Result<RunList, Error> {
        let (mut runs, mut folded) = (Vec::new(), 0);
        for name in self.folder_names()? {
            let folder = self.run_folder(&name);
            let listing = match summary_file::read_current(&folder) {
                Some(listing) => Ok(listing),
                None if !folder.begun() => continue,
                None => {
                    folded += 1;
                    summary_file::refresh(&folder)
                }
            };
            runs.push(ListedRun { folder, listing });
        }
        tracing::debug!(runs = runs.len(), folded, "runs listed");
        Ok(RunList { runs, folded })
    }

    /// Returns all runs with their states, oldest first.
    pub fn runs(&self) -> Result<Vec<StoredRun>, Error> {
        let ids = self.run_ids()?;
        Ok(ids
            .iter()
            .map(|id| {
                let folder = self.run_folder(id);
                let state = folder.state();
                StoredRun { folder, state }
            })
            .collect())
    }

    /// Finds the run the user means: `@` for the latest, a unique id prefix, or a branch.
    pub fn find(&self, wanted: &str) -> Result<RunFolder, Error> {
        let ids = self.run_ids()?;
        let none = || Error::NoRun { wanted: wanted.to_owned() };
        if wanted == "@" {
            return ids.last().map(|id| self.run_folder(id)).ok_or_else(none);
        }
        if wanted.is_empty() {
            return Err(none());
        }
        let matching: Vec<&String> = ids.iter().filter(|id| id.starts_with(wanted)).collect();
        match matching.as_slice() {
            [one] => return Ok(self.run_folder(one)),
            [] => (),
            several => {
                if let Some(exact) = several.iter().find(|id| id.as_str() == wanted) {
                    return Ok(self.run_folder(exact));
                }
                let candidates = several.iter().map(|id| (*id).clone()).collect();
                return Err(Error::Ambiguous { wanted: wanted.to_owned(), candidates });
            }
        }
        // The user means the newest run of a branch.
        for id in ids.iter().rev() {
            let folder = self.run_folder(id);
            if folder.listing().is_ok_and(|listing| *listing.branch == *wanted) {
                return Ok(folder);
            }
        }
        Err(none())
    }
}
