//! A host in a temporary directory: a home, `/opt`, a nix store and a system directory.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};

use ralph_core::config::ToolchainSelection;
use tempfile::TempDir;

use crate::toolchain::find::find_with_paths;
use crate::toolchain::host::HostPaths;
use crate::toolchain::{ToolchainBind, ToolchainError, ToolchainHost, ToolchainSetup};

pub(super) struct FakeToolchainHost {
    _dir: TempDir,
    base: PathBuf,
    env: BTreeMap<String, OsString>,
}

impl FakeToolchainHost {
    pub(super) fn new() -> Self {
        let dir = tempfile::tempdir().expect("a directory");
        let base = fs::canonicalize(dir.path()).expect("it exists");
        let fake = Self { _dir: dir, base, env: BTreeMap::new() };
        for name in ["~/", "/usr/bin/", "/opt/", "/nix/store/"] {
            fs::create_dir_all(fake.at(name)).expect("made");
        }
        fake.exe("/usr/bin/sh")
    }

    /// Returns the path of a name: `~/x` is in the home, `/x` on the fake host.
    pub(super) fn at(&self, name: &str) -> PathBuf {
        match name.strip_prefix('~') {
            Some(rest) => self.base.join(format!("home/u{rest}")),
            None => self.base.join(name.trim_start_matches('/')),
        }
    }

    pub(super) fn home(&self) -> PathBuf {
        self.at("~")
    }

    pub(super) fn file(self, name: &str, content: &str) -> Self {
        let path = self.at(name);
        fs::create_dir_all(path.parent().expect("it has one")).expect("made");
        fs::write(path, content).expect("written");
        self
    }

    pub(super) fn exe(self, name: &str) -> Self {
        let path = self.at(name);
        let this = self.file(name, "#!");
        fs::set_permissions(path, fs::Permissions::from_mode(0o755)).expect("set");
        this
    }

    pub(super) fn exes(self, names: &[&str]) -> Self {
        names.iter().fold(self, |fake, name| fake.exe(name))
    }

    pub(super) fn link(self, name: &str, to: &str) -> Self {
        let path = self.at(name);
        let to = if to.starts_with(['~', '/']) { self.at(to) } else { PathBuf::from(to) };
        fs::create_dir_all(path.parent().expect("it has one")).expect("made");
        symlink(to, path).expect("linked");
        self
    }

    pub(super) fn mode(self, name: &str, mode: u32) -> Self {
        fs::create_dir_all(self.at(name)).expect("made");
        fs::set_permissions(self.at(name), fs::Permissions::from_mode(mode)).expect("set");
        self
    }

    pub(super) fn env(mut self, name: &str, value: &str) -> Self {
        let value = if value.starts_with(['~', '/']) { self.at(value).into_os_string() } else { value.into() };
        self.env.insert(name.to_owned(), value);
        self
    }

    pub(super) fn places(&self) -> HostPaths {
        HostPaths {
            system: vec![self.at("/usr")],
            opt: self.at("/opt"),
            nix_store: self.at("/nix/store"),
            homes: self.at("/home"),
        }
    }

    /// Searches with a `PATH` of the fake host; names that begin with neither `~` nor `/` are used unchanged.
    pub(super) fn find(&self, asked: &ToolchainSelection, path: &[&str]) -> Result<ToolchainSetup, ToolchainError> {
        let dirs = path.iter().map(|dir| if dir.starts_with(['~', '/']) { self.at(dir) } else { PathBuf::from(dir) });
        let path = std::env::join_paths(dirs).expect("no colons");
        let env = |name: &str| self.env.get(name).cloned();
        let home = self.home();
        let asked = match asked {
            ToolchainSelection::Only(names) => {
                ToolchainSelection::Only(names.iter().map(|name| self.folder(name)).collect())
            }
            other => other.clone(),
        };
        find_with_paths(&asked, &ToolchainHost { home: &home, path: &path, env: &env }, &self.places())
    }

    fn folder(&self, name: &str) -> String {
        if name.starts_with(['~', '/']) { self.at(name).display().to_string() } else { name.to_owned() }
    }

    /// Returns a path in the short form that the tests use.
    pub(super) fn short(&self, path: &Path) -> String {
        self.shorten(&path.display().to_string())
    }

    fn shorten(&self, text: &str) -> String {
        text.replace(&self.home().display().to_string(), "~").replace(&self.base.display().to_string(), "")
    }

    fn bind(&self, bind: &ToolchainBind) -> String {
        let mut text = self.short(&bind.source);
        if bind.target != bind.source {
            text = format!("{text} => {}", self.short(&bind.target));
        }
        let masks: Vec<String> = bind.mask.iter().map(|mask| mask.below.display().to_string()).collect();
        if masks.is_empty() { text } else { format!("{text} without {}", masks.join(", ")) }
    }

    /// Returns a result without its caches, one line per element.
    pub(super) fn lines(&self, found: &ToolchainSetup) -> Vec<String> {
        let mut lines: Vec<String> = found.binds.iter().map(|bind| format!("bind {}", self.bind(bind))).collect();
        let path: Vec<String> = found.path.iter().map(|dir| self.short(dir)).collect();
        lines.push(format!("path {}", path.join(":")));
        lines.extend(found.env.iter().map(|(name, value)| format!("env {name}={}", self.shorten(value))));
        lines.extend(
            found.files.iter().map(|file| format!("file {} {:?}", file.path.display(), self.shorten(&file.content))),
        );
        lines.extend(found.notes.iter().map(|note| format!("note {}", self.shorten(note))));
        lines
    }

    /// Returns the caches, one line each.
    pub(super) fn caches(&self, found: &ToolchainSetup) -> Vec<String> {
        let line = |cache: &crate::toolchain::ToolchainCache| match &cache.lower {
            Some(lower) => format!("{} {}", cache.name, self.bind(lower)),
            None => format!("{} {}", cache.name, cache.dir.display()),
        };
        found.caches.iter().map(line).collect()
    }
}
