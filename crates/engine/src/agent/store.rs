//! Stores fetched agents in `<state>/agents/<name>/<version>/`, each of them complete and read-only.

use std::fs::{self, File, Permissions};
use std::io;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use ralph_core::agent::Agent;
use ralph_sandbox::HostLayer;
use serde::{Deserialize, Serialize};

use super::error::{Error, file};
use super::find::{AgentOrigin, AgentProgram};
use super::{SANDBOX_AGENTS_DIR, package};
use crate::store::RalphHome;

/// The description of an agent, beside its files.
const AGENT_JSON: &str = "agent.json";
/// The folder shown in sandboxes.
pub(super) const FILES_DIR: &str = "files";
const FORMAT: u64 = 1;
/// The prefix of folders that are still being fetched.
const TEMP_PREFIX: &str = ".new-";

/// The runtime a program needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum AgentRuntime {
    None,
    Node,
    Python,
}

/// The description stored beside an agent's files.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct InstalledAgent {
    pub(super) format: u64,
    pub(super) name: String,
    pub(super) version: String,
    pub(super) package: String,
    /// Relative to the files folder.
    pub(super) program: String,
    pub(super) runtime: AgentRuntime,
}

impl InstalledAgent {
    pub(super) fn new(agent: &dyn Agent, version: String, program: String, runtime: AgentRuntime) -> Self {
        let package = agent.package().map(|package| package.to_string()).unwrap_or_default();
        Self { format: FORMAT, name: agent.name().to_owned(), version, package, program, runtime }
    }

    /// Returns the agent's program in a folder of the store.
    pub(super) fn to_program(&self, folder: &Path) -> AgentProgram {
        let inside = Path::new(SANDBOX_AGENTS_DIR).join(&self.name);
        let host = folder.join(FILES_DIR);
        let env = match self.runtime {
            AgentRuntime::Python => vec![("PYTHONPATH".to_owned(), inside.to_string_lossy().into_owned())],
            AgentRuntime::None | AgentRuntime::Node => Vec::new(),
        };
        AgentProgram {
            program: inside.join(&self.program),
            on_host: host.join(&self.program),
            layer: Some(HostLayer { host, inside }),
            env,
            version: Some(self.version.clone()),
            from: AgentOrigin::Installed,
        }
    }
}

/// Returns the stored versions of an agent, the newest first.
pub fn list(home: &RalphHome, agent: &dyn Agent) -> Vec<AgentProgram> {
    let folder = agent_dir(home, agent);
    let entries = fs::read_dir(&folder).into_iter().flatten().flatten();
    let names = entries.filter_map(|entry| entry.file_name().into_string().ok());
    let mut all: Vec<InstalledAgent> = names
        .filter(|name| package::is_version(name))
        .filter_map(|name| {
            read_installed(&folder.join(&name)).filter(|about| about.version == name && about.name == agent.name())
        })
        .collect();
    all.sort_by_key(|about| std::cmp::Reverse(version_order(&about.version)));
    all.iter().map(|about| about.to_program(&folder.join(&about.version))).collect()
}

/// Returns the folder of all versions of an agent.
pub(super) fn agent_dir(home: &RalphHome, agent: &dyn Agent) -> PathBuf {
    home.state_dir().join("agents").join(agent.name())
}

fn read_installed(folder: &Path) -> Option<InstalledAgent> {
    let text = fs::read_to_string(folder.join(AGENT_JSON)).ok()?;
    let about: InstalledAgent = serde_json::from_str(&text).ok()?;
    let plain = Path::new(&about.program).components().all(|part| matches!(part, std::path::Component::Normal(_)));
    let whole = plain && folder.join(FILES_DIR).join(&about.program).is_file();
    (about.format == FORMAT && whole).then_some(about)
}

/// Orders versions: numbers compare as numbers, and a pre-release comes before its release.
fn version_order(version: &str) -> (Vec<u64>, bool, String) {
    let (numbers, rest) = version.split_once('-').unwrap_or((version, ""));
    let numbers = numbers.split('.').map(|part| part.parse().unwrap_or(0)).collect();
    (numbers, rest.is_empty(), rest.to_owned())
}

/// A version that is being stored. Dropping it before it is complete removes it.
#[derive(Debug)]
pub(super) struct AgentInstallation {
    folder: PathBuf,
    path: PathBuf,
    /// One at a time, so that leftovers of others can be removed meanwhile.
    _lock: File,
}

impl AgentInstallation {
    /// Creates the folder, and removes unfinished leftovers of others.
    pub(super) fn begin(home: &RalphHome, agent: &dyn Agent) -> Result<Self, Error> {
        let folder = agent_dir(home, agent);
        fs::create_dir_all(&folder).map_err(file("make", &folder))?;
        let path = folder.join(".lock");
        let lock = File::create(&path).map_err(file("make", &path))?;
        match lock.try_lock() {
            Ok(()) => (),
            Err(fs::TryLockError::WouldBlock) => return Err(Error::Busy { agent: agent.name().to_owned() }),
            Err(fs::TryLockError::Error(error)) => return Err(file("lock", &path)(error)),
        }
        for entry in fs::read_dir(&folder).map_err(file("read", &folder))?.flatten() {
            if entry.file_name().to_string_lossy().starts_with(TEMP_PREFIX) {
                remove(&entry.path()).map_err(file("remove", &entry.path()))?;
            }
        }
        let path = folder.join(format!("{TEMP_PREFIX}{}", std::process::id()));
        fs::create_dir(&path).map_err(file("make", &path))?;
        Ok(Self { folder, path, _lock: lock })
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Makes everything read-only and moves it into place atomically. The same complete version stays where it is:
    /// cages may be using it.
    pub(super) fn finish(self, about: &InstalledAgent) -> Result<AgentProgram, Error> {
        let description = self.path.join(AGENT_JSON);
        let text = serde_json::to_vec_pretty(about).expect("strings serialise");
        fs::write(&description, text).map_err(file("write", &description))?;
        make_read_only(&self.path.join(FILES_DIR)).map_err(file("seal", &self.path))?;
        let place = self.folder.join(&about.version);
        if let Some(there) = read_installed(&place).filter(|there| there == about) {
            return Ok(there.to_program(&place));
        }
        if place.exists() {
            let old = self.folder.join(format!("{TEMP_PREFIX}old-{}", std::process::id()));
            fs::rename(&place, &old).map_err(file("move", &place))?;
            fs::rename(&self.path, &place).map_err(file("move", &self.path))?;
            remove(&old).map_err(file("remove", &old))?;
        } else {
            fs::rename(&self.path, &place).map_err(file("move", &self.path))?;
        }
        Ok(about.to_program(&place))
    }
}

impl Drop for AgentInstallation {
    fn drop(&mut self) {
        if self.path.exists()
            && let Err(error) = remove(&self.path)
        {
            // It is never found, and the next fetch removes it.
            tracing::warn!(%error, path = %self.path.display(), "a half-fetched agent could not be removed");
        }
    }
}

/// Makes everything readable and executable for all, writable for none.
fn make_read_only(path: &Path) -> io::Result<()> {
    let kind = fs::symlink_metadata(path)?;
    if kind.is_dir() {
        for entry in fs::read_dir(path)? {
            make_read_only(&entry?.path())?;
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
    use ralph_core::agent::by_name;

    use super::*;

    fn about(version: &str) -> InstalledAgent {
        InstalledAgent::new(by_name("codex").unwrap(), version.to_owned(), "bin/codex".to_owned(), AgentRuntime::None)
    }

    fn put(home: &RalphHome, version: &str) -> AgentProgram {
        let new = AgentInstallation::begin(home, by_name("codex").unwrap()).unwrap();
        fs::create_dir_all(new.path().join("files/bin")).unwrap();
        fs::write(new.path().join("files/bin/codex"), version).unwrap();
        new.finish(&about(version)).unwrap()
    }

    #[test]
    fn the_newest_complete_version_is_found() {
        let dir = tempfile::tempdir().unwrap();
        let home = RalphHome::new(dir.path(), dir.path());
        let codex = by_name("codex").unwrap();
        assert_eq!(list(&home, codex), []);
        for version in ["0.9.0", "0.10.0", "0.10.0-alpha.1"] {
            put(&home, version);
        }
        // An incomplete one, one that lost its program, one of a later format, and an unrelated folder.
        let store = dir.path().join("agents/codex");
        fs::create_dir_all(store.join(".new-1/files/bin")).unwrap();
        fs::create_dir_all(store.join("9.0.0/files")).unwrap();
        fs::write(store.join("9.0.0/agent.json"), serde_json::to_vec(&about("9.0.0")).unwrap()).unwrap();
        fs::create_dir_all(store.join("8.0.0/files/bin")).unwrap();
        fs::write(store.join("8.0.0/files/bin/codex"), "").unwrap();
        let later = InstalledAgent { format: 2, ..about("8.0.0") };
        fs::write(store.join("8.0.0/agent.json"), serde_json::to_vec(&later).unwrap()).unwrap();
        fs::create_dir_all(store.join("notes")).unwrap();
        let found: Vec<_> = list(&home, codex).into_iter().map(|found| found.version.unwrap()).collect();
        assert_eq!(found, ["0.10.0", "0.10.0-alpha.1", "0.9.0"]);
        let first = list(&home, codex).remove(0);
        assert_eq!(first.program, Path::new("/opt/ralph/agents/codex/bin/codex"));
        assert_eq!(first.layer.unwrap().host, store.join("0.10.0/files"));
    }

    #[test]
    fn versions_are_read_only_replaced_and_never_partial() {
        let dir = tempfile::tempdir().unwrap();
        let home = RalphHome::new(dir.path(), dir.path());
        let codex = by_name("codex").unwrap();
        // A version that lost its program is replaced; a complete one is not.
        fs::create_dir_all(dir.path().join("agents/codex/1.0.0/files")).unwrap();
        put(&home, "1.0.0");
        let whole = fs::metadata(dir.path().join("agents/codex/1.0.0")).unwrap();
        let found = put(&home, "1.0.0");
        let now = fs::metadata(dir.path().join("agents/codex/1.0.0")).unwrap();
        assert_eq!(std::os::unix::fs::MetadataExt::ino(&whole), std::os::unix::fs::MetadataExt::ino(&now));
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!((mode(&found.on_host), mode(found.on_host.parent().unwrap())), (0o555, 0o555));
        let store = dir.path().join("agents/codex");
        let names = || {
            let mut all: Vec<_> =
                fs::read_dir(&store).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
            all.sort();
            all
        };
        assert_eq!(names(), [".lock", "1.0.0"]);
        // Dropped: gone. Killed: removed by the next one. Two at once: the second is refused.
        drop(AgentInstallation::begin(&home, codex).unwrap());
        assert_eq!(names(), [".lock", "1.0.0"]);
        fs::create_dir_all(store.join(".new-77/files")).unwrap();
        fs::set_permissions(store.join(".new-77/files"), Permissions::from_mode(0o555)).unwrap();
        let new = AgentInstallation::begin(&home, codex).unwrap();
        assert!(matches!(AgentInstallation::begin(&home, codex), Err(Error::Busy { .. })));
        drop(new);
        assert_eq!(names(), [".lock", "1.0.0"]);
    }
}
