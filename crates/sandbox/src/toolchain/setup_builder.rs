//! Builds the toolchain setup while the `PATH` is searched, and merges overlapping mounts at the end.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use ralph_core::config::ToolchainSelection;
use ralph_core::text::strip_control;

use super::fs_probe;
use super::host::{HostPaths, SANDBOX_HOME, ToolchainHost};
use super::path_policy::{self, UserHome};
use super::secret_files;
use super::setup::{BindMask, MaskKind, ToolchainBind, ToolchainCache, ToolchainFile, ToolchainSetup};

/// A directory of the host, as named and as resolved.
#[derive(Debug, Clone)]
pub(super) struct PathEntry {
    pub(super) named: PathBuf,
    pub(super) real: PathBuf,
}

impl PathEntry {
    pub(super) fn of(named: PathBuf) -> Option<Self> {
        let real = fs_probe::real(&named)?;
        Some(Self { named, real })
    }

    /// Returns the path of this directory below another: by its name if possible, else by its real path.
    pub(super) fn relative_to(&self, root: &Path) -> Option<PathBuf> {
        if let Ok(rest) = self.named.strip_prefix(root) {
            return Some(rest.to_owned());
        }
        let rest = self.real.strip_prefix(fs_probe::real_dir(root)?).ok()?;
        Some(rest.to_owned())
    }
}

/// Whether a toolchain recognised a directory as its own. A toolchain that was not asked for claims its directory,
/// but does not show it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum DirectoryClaim {
    Mine,
    NotMine,
}

#[derive(Debug)]
pub(super) struct ToolchainPlan<'a> {
    pub(super) host: ToolchainHost<'a>,
    pub(super) places: &'a HostPaths,
    pub(super) home: UserHome,
    pub(super) asked: &'a ToolchainSelection,
    binds: Vec<ToolchainBind>,
    path: Vec<PathBuf>,
    env: BTreeMap<String, String>,
    files: Vec<ToolchainFile>,
    pub(super) caches: Vec<ToolchainCache>,
    notes: Vec<String>,
    /// The names (of tools and languages) for which something was found.
    found: BTreeSet<String>,
    /// Directories of programs whose links still have to be followed.
    pub(super) programs: Vec<PathBuf>,
}

impl<'a> ToolchainPlan<'a> {
    pub(super) fn new(
        host: ToolchainHost<'a>,
        places: &'a HostPaths,
        home: UserHome,
        asked: &'a ToolchainSelection,
    ) -> Self {
        Self {
            host,
            places,
            home,
            asked,
            binds: Vec::new(),
            path: Vec::new(),
            env: BTreeMap::new(),
            files: Vec::new(),
            caches: Vec::new(),
            notes: Vec::new(),
            found: BTreeSet::new(),
            programs: Vec::new(),
        }
    }

    /// Returns whether one of these names was asked for.
    pub(super) fn wants(&self, words: &[&str]) -> bool {
        match self.asked {
            ToolchainSelection::Auto => true,
            ToolchainSelection::None => false,
            ToolchainSelection::Only(names) => names.iter().any(|name| words.contains(&name.as_str())),
        }
    }

    pub(super) fn mark_found(&mut self, words: &[&str]) {
        self.found.extend(words.iter().map(|word| (*word).to_owned()));
    }

    pub(super) fn has_found(&self, word: &str) -> bool {
        self.found.contains(word)
    }

    pub(super) fn note(&mut self, note: &str) {
        let note = strip_control(note);
        if !self.notes.contains(&note) {
            self.notes.push(note);
        }
    }

    /// Returns the root of a toolchain: the value of its variable, else its usual folder.
    pub(super) fn roots(&self, variables: &[&str], usual: &[&str]) -> Vec<PathBuf> {
        let configured = variables.iter().filter_map(|variable| self.host.dir_var(variable));
        let mut roots: Vec<PathBuf> = configured.filter_map(|dir| fs_probe::clean(&dir)).collect();
        roots.extend(usual.iter().map(|usual| self.home.named.join(usual)));
        roots
    }

    /// Shows a directory under its name, and also under its real path if that differs. A directory that does not
    /// exist is left out; one that may not be shown is left out with a note.
    pub(super) fn bind(&mut self, dir: &Path) -> bool {
        let Some(real) = fs_probe::real_dir(dir) else { return false };
        if self.places.is_system(&real) {
            return true;
        }
        if let Err(why) = self.try_bind(dir, &real) {
            self.note(&format!("`{}` is not shown: {why}", dir.display()));
            return false;
        }
        true
    }

    /// Does what `bind` does, but returns the reason for a refusal.
    pub(super) fn try_bind(&mut self, dir: &Path, real: &Path) -> Result<(), &'static str> {
        path_policy::check_dir(&self.home, self.places, real)?;
        let mut targets: Vec<&Path> = [dir, real].into_iter().filter(|target| path_policy::is_free(target)).collect();
        targets.dedup();
        if targets.is_empty() {
            return Err("the sandbox has something else there");
        }
        let masks = self.masks(real)?;
        for target in targets {
            self.add(ToolchainBind { source: real.to_owned(), target: target.to_owned(), mask: masks.clone() });
        }
        Ok(())
    }

    /// Shows a directory at another path.
    pub(super) fn bind_at(&mut self, dir: &Path, target: &Path) -> Result<(), &'static str> {
        let real = fs_probe::real_dir(dir).ok_or("it is not a directory")?;
        path_policy::check_dir(&self.home, self.places, &real)?;
        let mask = self.masks(&real)?;
        self.add(ToolchainBind { source: real, target: target.to_owned(), mask });
        Ok(())
    }

    /// Returns what must be masked in a directory; one that cannot be searched completely is refused.
    pub(super) fn masks(&mut self, real: &Path) -> Result<Vec<BindMask>, &'static str> {
        // The store is world-readable by design, and has too many names to scan.
        if real.starts_with(&self.places.nix_store) {
            return Ok(Vec::new());
        }
        if let Some(bind) = self.binds.iter().find(|bind| bind.source == real) {
            return Ok(bind.mask.clone());
        }
        let (masks, complete) = secret_files::masks(real);
        if complete { Ok(masks) } else { Err("it has too many files to be searched for secrets") }
    }

    fn add(&mut self, bind: ToolchainBind) {
        if !self.binds.iter().any(|other| other.target == bind.target) {
            self.binds.push(bind);
        }
    }

    /// Masks something that its name does not reveal as a secret.
    pub(super) fn add_mask(&mut self, dir: &Path, below: &str, kind: MaskKind) {
        let Some(real) = fs_probe::real_dir(dir).filter(|real| real.join(below).symlink_metadata().is_ok()) else {
            return;
        };
        for bind in self.binds.iter_mut().filter(|bind| bind.source == real) {
            bind.mask.push(BindMask { below: PathBuf::from(below), kind });
        }
    }

    /// Returns whether a host path is visible inside under the same name.
    pub(super) fn is_visible(&self, path: &Path) -> bool {
        self.places.is_system(path) || self.binds.iter().any(|bind| path.starts_with(&bind.target))
    }

    /// Adds a directory to the `PATH` inside if it is visible there: by its name if possible, else by its real path.
    pub(super) fn add_to_path(&mut self, dir: &Path) -> bool {
        let Some(real) = fs_probe::real_dir(dir) else { return false };
        let seen = [dir.to_owned(), real].into_iter().find(|path| self.is_visible(path));
        if let Some(seen) = &seen
            && !self.path.contains(seen)
        {
            self.path.push(seen.clone());
        }
        seen.is_some()
    }

    /// Runs `act` and then restores the `PATH`.
    pub(super) fn keeping_path<T>(&mut self, act: impl FnOnce(&mut Self) -> T) -> T {
        let length = self.path.len();
        let done = act(self);
        self.path.truncate(length);
        done
    }

    pub(super) fn paths(&self) -> &[PathBuf] {
        &self.path
    }

    pub(super) fn set_env_path(&mut self, variable: &str, value: &Path) {
        match value.to_str() {
            Some(value) => self.set_env(variable, value),
            None => self.note(&format!("`{variable}` is not set: `{}` is not plain text", value.display())),
        }
    }

    pub(super) fn set_env(&mut self, variable: &str, value: &str) {
        self.env.insert(variable.to_owned(), value.to_owned());
    }

    pub(super) fn add_file(&mut self, below: &str, content: String) {
        self.files.push(ToolchainFile { path: Path::new(SANDBOX_HOME).join(below), content });
    }

    pub(super) fn binds(&self) -> &[ToolchainBind] {
        &self.binds
    }

    /// Returns the result, without binds that are contained in another one and show the same.
    pub(super) fn finish(self) -> ToolchainSetup {
        let mut binds = self.binds;
        // A path sorts before the paths below it.
        binds.sort_by(|a, b| a.target.cmp(&b.target));
        let mut kept: Vec<ToolchainBind> = Vec::new();
        for bind in binds {
            let inside = kept.iter_mut().find_map(|outer| {
                let below = bind.target.strip_prefix(&outer.target).ok()?.to_owned();
                (outer.source.join(&below) == bind.source).then_some((outer, below))
            });
            match inside {
                // The scan of the inner bind went deeper than that of the outer one.
                Some((outer, below)) => outer.mask.extend(
                    bind.mask.into_iter().map(|mask| BindMask { below: below.join(mask.below), kind: mask.kind }),
                ),
                None => kept.push(bind),
            }
        }
        for bind in &mut kept {
            bind.mask.sort();
            bind.mask.dedup();
            // The contents of a masked directory are masked already.
            let dirs: Vec<PathBuf> = bind.mask.iter().map(|mask| mask.below.clone()).collect();
            bind.mask.retain(|mask| !mask.below.ancestors().skip(1).any(|above| dirs.iter().any(|dir| dir == above)));
        }
        ToolchainSetup {
            binds: kept,
            path: self.path,
            env: self.env,
            files: self.files,
            caches: self.caches,
            notes: self.notes,
        }
    }
}
