//! The agents that were fetched: `<state>/agents/<name>/<version>/`, each whole and read-only, or not there.

use std::fs::{self, File, Permissions};
use std::io;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use ralph_core::agent::Agent;
use ralph_sandbox::Layer;
use serde::{Deserialize, Serialize};

use super::error::{Error, file};
use super::find::{Found, Whence};
use super::{INSIDE, package};
use crate::store::Home;

/// The description of an agent, beside its files.
const ABOUT: &str = "agent.json";
/// What is shown in sandboxes.
pub(super) const FILES: &str = "files";
const FORMAT: u64 = 1;
/// The names of what is being fetched begin with this.
const NEW: &str = ".new-";

/// What a program needs beside itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Runtime {
    None,
    Node,
    Python,
}

/// What is written beside an agent's files.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct About {
    pub(super) format: u64,
    pub(super) name: String,
    pub(super) version: String,
    pub(super) package: String,
    /// Below the files.
    pub(super) program: String,
    pub(super) runtime: Runtime,
}

impl About {
    pub(super) fn new(agent: &dyn Agent, version: String, program: String, runtime: Runtime) -> Self {
        let package = agent.package().map(|package| package.to_string()).unwrap_or_default();
        Self { format: FORMAT, name: agent.name().to_owned(), version, package, program, runtime }
    }

    /// Returns the agent as it is found in a folder.
    pub(super) fn found(&self, folder: &Path) -> Found {
        let inside = Path::new(INSIDE).join(&self.name);
        let host = folder.join(FILES);
        let env = match self.runtime {
            Runtime::Python => vec![("PYTHONPATH".to_owned(), inside.to_string_lossy().into_owned())],
            Runtime::None | Runtime::Node => Vec::new(),
        };
        Found {
            program: inside.join(&self.program),
            on_host: host.join(&self.program),
            layer: Some(Layer { host, inside }),
            env,
            version: Some(self.version.clone()),
            from: Whence::Shelf,
        }
    }
}

/// Returns what is on the shelf of an agent, the newest version first.
pub fn list(home: &Home, agent: &dyn Agent) -> Vec<Found> {
    let folder = folder(home, agent);
    let entries = fs::read_dir(&folder).into_iter().flatten().flatten();
    let names = entries.filter_map(|entry| entry.file_name().into_string().ok());
    let mut all: Vec<About> = names
        .filter(|name| package::is_version(name))
        .filter_map(|name| {
            read(&folder.join(&name)).filter(|about| about.version == name && about.name == agent.name())
        })
        .collect();
    all.sort_by_key(|about| std::cmp::Reverse(order(&about.version)));
    all.iter().map(|about| about.found(&folder.join(&about.version))).collect()
}

/// Returns the place of all versions of an agent.
pub(super) fn folder(home: &Home, agent: &dyn Agent) -> PathBuf {
    home.state_dir().join("agents").join(agent.name())
}

fn read(folder: &Path) -> Option<About> {
    let text = fs::read_to_string(folder.join(ABOUT)).ok()?;
    let about: About = serde_json::from_str(&text).ok()?;
    let plain = Path::new(&about.program).components().all(|part| matches!(part, std::path::Component::Normal(_)));
    let whole = plain && folder.join(FILES).join(&about.program).is_file();
    (about.format == FORMAT && whole).then_some(about)
}

/// Numbers are compared as numbers; a version with a word after it comes before the one without.
fn order(version: &str) -> (Vec<u64>, bool, String) {
    let (numbers, rest) = version.split_once('-').unwrap_or((version, ""));
    let numbers = numbers.split('.').map(|part| part.parse().unwrap_or(0)).collect();
    (numbers, rest.is_empty(), rest.to_owned())
}

/// A version that is being put on the shelf. It is removed when it is dropped before it was whole.
#[derive(Debug)]
pub(super) struct New {
    folder: PathBuf,
    path: PathBuf,
    /// One at a time: what others began and left can be removed meanwhile.
    _lock: File,
}

impl New {
    /// Makes room, and removes what others began and did not end.
    pub(super) fn begin(home: &Home, agent: &dyn Agent) -> Result<Self, Error> {
        let folder = folder(home, agent);
        fs::create_dir_all(&folder).map_err(file("make", &folder))?;
        let path = folder.join(".lock");
        let lock = File::create(&path).map_err(file("make", &path))?;
        match lock.try_lock() {
            Ok(()) => (),
            Err(fs::TryLockError::WouldBlock) => return Err(Error::Busy { agent: agent.name().to_owned() }),
            Err(fs::TryLockError::Error(error)) => return Err(file("lock", &path)(error)),
        }
        for entry in fs::read_dir(&folder).map_err(file("read", &folder))?.flatten() {
            if entry.file_name().to_string_lossy().starts_with(NEW) {
                remove(&entry.path()).map_err(file("remove", &entry.path()))?;
            }
        }
        let path = folder.join(format!("{NEW}{}", std::process::id()));
        fs::create_dir(&path).map_err(file("make", &path))?;
        Ok(Self { folder, path, _lock: lock })
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Makes everything read-only and puts it in its place at once. The same version, whole, stays where it is: cages may
    /// be showing it.
    pub(super) fn keep(self, about: &About) -> Result<Found, Error> {
        let description = self.path.join(ABOUT);
        let text = serde_json::to_vec_pretty(about).expect("strings serialise");
        fs::write(&description, text).map_err(file("write", &description))?;
        seal(&self.path.join(FILES)).map_err(file("seal", &self.path))?;
        let place = self.folder.join(&about.version);
        if let Some(there) = read(&place).filter(|there| there == about) {
            return Ok(there.found(&place));
        }
        if place.exists() {
            let old = self.folder.join(format!("{NEW}old-{}", std::process::id()));
            fs::rename(&place, &old).map_err(file("move", &place))?;
            fs::rename(&self.path, &place).map_err(file("move", &self.path))?;
            remove(&old).map_err(file("remove", &old))?;
        } else {
            fs::rename(&self.path, &place).map_err(file("move", &self.path))?;
        }
        Ok(about.found(&place))
    }
}

impl Drop for New {
    fn drop(&mut self) {
        if self.path.exists()
            && let Err(error) = remove(&self.path)
        {
            // It is never found, and the next one to fetch removes it.
            tracing::warn!(%error, path = %self.path.display(), "a half-fetched agent could not be removed");
        }
    }
}

/// Lets everybody read and run, and nobody write.
fn seal(path: &Path) -> io::Result<()> {
    let kind = fs::symlink_metadata(path)?;
    if kind.is_dir() {
        for entry in fs::read_dir(path)? {
            seal(&entry?.path())?;
        }
    }
    if kind.is_symlink() { Ok(()) } else { fs::set_permissions(path, Permissions::from_mode(0o555)) }
}

/// Removes a folder whose parts may be read-only.
fn remove(path: &Path) -> io::Result<()> {
    let mut open = vec![path.to_owned()];
    while let Some(dir) = open.pop() {
        fs::set_permissions(&dir, Permissions::from_mode(0o755))?;
        for entry in fs::read_dir(&dir)? {
            let entry = entry?;
            if entry.file_type()?.is_dir() {
                open.push(entry.path());
            }
        }
    }
    fs::remove_dir_all(path)
}

#[cfg(test)]
mod tests {
    use ralph_core::agent::named;

    use super::*;

    fn about(version: &str) -> About {
        About::new(named("codex").unwrap(), version.to_owned(), "bin/codex".to_owned(), Runtime::None)
    }

    fn put(home: &Home, version: &str) -> Found {
        let new = New::begin(home, named("codex").unwrap()).unwrap();
        fs::create_dir_all(new.path().join("files/bin")).unwrap();
        fs::write(new.path().join("files/bin/codex"), version).unwrap();
        new.keep(&about(version)).unwrap()
    }

    #[test]
    fn the_newest_whole_one_is_found() {
        let dir = tempfile::tempdir().unwrap();
        let home = Home::new(dir.path(), dir.path());
        let codex = named("codex").unwrap();
        assert_eq!(list(&home, codex), []);
        for version in ["0.9.0", "0.10.0", "0.10.0-alpha.1"] {
            put(&home, version);
        }
        // Half of one, one that lost its program, one of a later format, and a stranger.
        let shelf = dir.path().join("agents/codex");
        fs::create_dir_all(shelf.join(".new-1/files/bin")).unwrap();
        fs::create_dir_all(shelf.join("9.0.0/files")).unwrap();
        fs::write(shelf.join("9.0.0/agent.json"), serde_json::to_vec(&about("9.0.0")).unwrap()).unwrap();
        fs::create_dir_all(shelf.join("8.0.0/files/bin")).unwrap();
        fs::write(shelf.join("8.0.0/files/bin/codex"), "").unwrap();
        let later = About { format: 2, ..about("8.0.0") };
        fs::write(shelf.join("8.0.0/agent.json"), serde_json::to_vec(&later).unwrap()).unwrap();
        fs::create_dir_all(shelf.join("notes")).unwrap();
        let found: Vec<_> = list(&home, codex).into_iter().map(|found| found.version.unwrap()).collect();
        assert_eq!(found, ["0.10.0", "0.10.0-alpha.1", "0.9.0"]);
        let first = list(&home, codex).remove(0);
        assert_eq!(first.program, Path::new("/opt/ralph/agents/codex/bin/codex"));
        assert_eq!(first.layer.unwrap().host, shelf.join("0.10.0/files"));
    }

    #[test]
    fn it_is_sealed_replaced_and_never_half() {
        let dir = tempfile::tempdir().unwrap();
        let home = Home::new(dir.path(), dir.path());
        let codex = named("codex").unwrap();
        // One that lost its program is replaced, a whole one is not.
        fs::create_dir_all(dir.path().join("agents/codex/1.0.0/files")).unwrap();
        put(&home, "1.0.0");
        let whole = fs::metadata(dir.path().join("agents/codex/1.0.0")).unwrap();
        let found = put(&home, "1.0.0");
        let now = fs::metadata(dir.path().join("agents/codex/1.0.0")).unwrap();
        assert_eq!(std::os::unix::fs::MetadataExt::ino(&whole), std::os::unix::fs::MetadataExt::ino(&now));
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!((mode(&found.on_host), mode(found.on_host.parent().unwrap())), (0o555, 0o555));
        let shelf = dir.path().join("agents/codex");
        let names = || {
            let mut all: Vec<_> =
                fs::read_dir(&shelf).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
            all.sort();
            all
        };
        assert_eq!(names(), [".lock", "1.0.0"]);
        // Given up: gone. Killed: removed by the next one. Two at once: one waits its turn.
        drop(New::begin(&home, codex).unwrap());
        assert_eq!(names(), [".lock", "1.0.0"]);
        fs::create_dir_all(shelf.join(".new-77/files")).unwrap();
        fs::set_permissions(shelf.join(".new-77/files"), Permissions::from_mode(0o555)).unwrap();
        let new = New::begin(&home, codex).unwrap();
        assert!(matches!(New::begin(&home, codex), Err(Error::Busy { .. })));
        drop(new);
        assert_eq!(names(), [".lock", "1.0.0"]);
    }
}
