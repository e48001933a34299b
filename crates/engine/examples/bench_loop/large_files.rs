//! Installs a log and a test output of 200 MB each while a prompt is built and removes them again: at the end of an
//! iteration ralph would restore such a log, which is not what is measured.

use std::fs;
use std::path::{Path, PathBuf};

use crate::BenchResult;

/// Two large files and their target paths.
#[derive(Debug)]
pub(crate) struct LargeFiles {
    runs: PathBuf,
    sandboxes: PathBuf,
    large: [PathBuf; 2],
    /// The large file, its current path, and where the previous file is kept.
    planted: Vec<(PathBuf, PathBuf, Option<PathBuf>)>,
}

impl LargeFiles {
    /// Writes both files beside the run, on the same disk.
    pub(crate) fn new(runs: PathBuf, sandboxes: PathBuf, folder: &Path, bytes: usize) -> BenchResult<Self> {
        let line = "error: something long and tedious went wrong in module 17, as it did before\n";
        let large = [folder.join("large.log"), folder.join("large.txt")];
        for path in &large {
            fs::write(path, line.repeat(bytes / line.len()))?;
        }
        Ok(Self { runs, sandboxes, large, planted: Vec::new() })
    }

    /// Moves them to where iteration `n` reads them.
    pub(crate) fn install(&mut self, n: u32) {
        let log = only_subdirectory(&self.sandboxes).map(|sandbox| sandbox.join("workspace/.ralph/errors.log"));
        let before = n.saturating_sub(1).to_string();
        let output =
            only_subdirectory(&self.runs).map(|run| run.join("iterations").join(before).join("test_output.txt"));
        for (large, place) in self.large.clone().into_iter().zip([log, output]) {
            let Some(place) = place else { continue };
            let kept = large.with_extension("kept");
            let kept = fs::rename(&place, &kept).is_ok().then_some(kept);
            let folder = place.parent().map(fs::create_dir_all);
            if folder.is_some_and(|made| made.is_ok()) && fs::rename(&large, &place).is_ok() {
                self.planted.push((large, place, kept));
            }
        }
    }

    /// Removes them again; returns how many there were.
    pub(crate) fn remove(&mut self) -> usize {
        let planted = std::mem::take(&mut self.planted);
        for (large, place, kept) in &planted {
            // A file that cannot be restored shows as a run that ends early.
            let _ = fs::rename(place, large);
            if let Some(kept) = kept {
                let _ = fs::rename(kept, place);
            }
        }
        planted.len()
    }
}

/// Returns the only subfolder of a folder.
fn only_subdirectory(folder: &Path) -> Option<PathBuf> {
    let mut folders = fs::read_dir(folder).ok()?.flatten().map(|entry| entry.path()).filter(|path| path.is_dir());
    folders.next().filter(|_| folders.next().is_none())
}
