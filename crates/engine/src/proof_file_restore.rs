//! Holds the files that decide about the work to the bytes of the start commit while a check runs.
//!
//! A file that differs before the check is put back, and a new file that a test runner would load by itself is removed.
//! A file that anything writes to during the check makes the check fail, even if its content is put back in time: its
//! stamp shows the write. So does a folder above it that is moved, even if it is moved back. Not noticed: files beyond
//! the limits below.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use globset::GlobSet;
use ralph_core::decide_next_step;
use ralph_core::event::RunStart;
use ralph_core::hash::sha256;
use ralph_core::proof_files::{self, ChangedPath, ObservedFiles, PathChangeKind, ProofFileChanges, ProofFileRules};
use ralph_sandbox::files::{FolderChanges, FolderWatch};
use ralph_sandbox::{FileStamp, Sandbox};

use crate::error::Error;
use crate::git::{self, BareRepo, ObjectDb, PathChange, Sha, TreeEntry, in_sandbox};
use crate::store::RunFolder;

/// The largest file whose content is compared; for a larger one git's own comparison decides before a check.
const FILE_CAP: usize = 4 << 20;

/// How many files are compared by content before a check; for the others git's own comparison decides.
const MAX_COMPARED: usize = 2_000;

/// How many bytes of them are read at once; beyond, they are read one by one.
const CONTENT_CAP: usize = 64 << 20;

/// How many files are watched for writes during a check.
const MAX_WATCHED: usize = 20_000;

/// The largest script that is searched for the names of tests.
const SCRIPT_CAP: usize = 64 << 10;

/// A file that changed longer ago than this cannot change again without a new stamp.
const STAMP_AGE_S: i64 = 2;

/// The modes that git gives to plain files and links.
const PLAIN_MODE: u32 = 0o100_000;
const LINK_MODE: u32 = 0o120_000;

/// What decides which files are held, as a run or its receipt has it.
#[derive(Debug, Clone)]
pub(crate) struct HeldFileRules {
    pub(crate) start: Sha,
    pub(crate) task_path: String,
    /// Globs of what the run may not change at all.
    pub(crate) protected: Vec<String>,
    /// Globs of what the task gives to the run.
    pub(crate) may_change: Vec<String>,
    pub(crate) commands: Vec<String>,
    /// What the checks used of the start commit, if it was recorded.
    pub(crate) observed: ObservedFiles,
    /// New files that earlier checks were run without.
    pub(crate) left_out: BTreeSet<String>,
}

impl HeldFileRules {
    pub(crate) fn of_run(started: &RunStart) -> Self {
        Self {
            observed: ObservedFiles::default(),
            left_out: BTreeSet::new(),
            start: Sha::from(&started.start_commit),
            task_path: started.task_path.clone(),
            protected: started.protected_paths.iter().chain(&started.proof_files).cloned().collect(),
            may_change: started.may_change.clone(),
            commands: decide_next_step::proof_due(started).into_iter().map(|due| due.command).collect(),
        }
    }
}

impl HeldFileRules {
    /// Adds what the baseline recorded in the folder of a run. Without a record, conventions alone decide.
    pub(crate) fn with_record(mut self, folder: &RunFolder) -> Result<Self, Error> {
        let record = folder.read(&folder.observed_path())?;
        let record: BTreeMap<String, ObservedFiles> =
            record.and_then(|bytes| serde_json::from_slice(&bytes).ok()).unwrap_or_default();
        for seen in record.into_values() {
            self.observed.merge(seen);
        }
        Ok(self)
    }
}

/// Why a file is held.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum HeldReason {
    /// The run may not change it.
    Protected,
    /// It is a test or belongs to a test runner: the run may change it, and checks run without the change.
    Judge,
}

/// One file of the start commit.
#[derive(Debug)]
pub(crate) struct HeldFile {
    pub(crate) path: String,
    pub(crate) reason: HeldReason,
    /// `None` where only writes during a check are noticed.
    pub(crate) sha256: Option<String>,
    mode: u32,
}

/// The files that decide about the work.
#[derive(Debug)]
pub(crate) struct HeldFiles {
    /// What the run may not change.
    pub(crate) globs: GlobSet,
    pub(crate) files: Vec<HeldFile>,
    links: BTreeSet<String>,
    base: BTreeSet<String>,
    may_change: GlobSet,
    task_path: String,
    commands: Vec<String>,
    /// The commands, and the scripts that they run.
    check_texts: Vec<String>,
    task: String,
    /// Folders in which Python looks for modules by their own names.
    search_folders: BTreeSet<String>,
    makefiles: Vec<String>,
    observed: ObservedFiles,
    left_out: BTreeSet<String>,
    odb: ObjectDb,
    start: Sha,
    /// The stamps with which files were last seen to have the right content.
    unchanged: Mutex<HashMap<String, FileStamp>>,
}

/// What shows later whether anything changed the held files.
#[derive(Debug)]
pub(crate) struct HeldStamps {
    files: Vec<Option<FileStamp>>,
    folders: Option<FolderWatch>,
}

/// What a check did to the files that decide it.
#[derive(Debug, Default)]
pub(crate) struct HeldChanges {
    /// Files that were written to, and folders that were moved.
    pub(crate) written: Vec<String>,
    /// Files and folders that appeared, and that a test runner or an interpreter would load.
    pub(crate) created: Vec<String>,
}

impl HeldChanges {
    pub(crate) fn all(&self) -> Vec<String> {
        self.written.iter().chain(&self.created).cloned().collect()
    }
}

impl HeldFiles {
    /// Finds the files in a repository on the host.
    pub(crate) async fn load(bare: &BareRepo, rules: HeldFileRules) -> Result<Self, Error> {
        let odb = bare.odb().clone();
        let HeldFileRules { start, task_path, protected, may_change, commands, observed, left_out } = rules;
        let (globs, may_change) = (git::globs(protected.iter()), git::globs(may_change.iter()));
        let entries = odb.files_at(&start).await?;
        let base: BTreeSet<String> = entries.iter().map(|entry| entry.path.clone()).collect();
        let mut named = read_settings(&odb, &entries, &base).await?;
        // Files beside a script that decides: what it compares with, and what it calls.
        let scripts = base.iter().filter(|path| protected.contains(path));
        let folders: BTreeSet<&str> = scripts.filter_map(|path| proof_files::check_folder(path)).collect();
        named.extend(base.iter().filter(|path| folders.iter().any(|folder| is_below(path, folder))).cloned());
        let reason = |path: &str| {
            let is_judge = || proof_files::is_judge(path) || named.contains(path);
            if path == task_path {
                None
            } else if globs.is_match(path) {
                Some(HeldReason::Protected)
            } else {
                (is_judge() && !may_change.is_match(path)).then_some(HeldReason::Judge)
            }
        };
        let (held, links) = held_entries(&odb, &entries, reason).await?;
        let contents = read_contents(&odb, &held).await?;
        let mut check_texts = commands.clone();
        let mut files = Vec::new();
        for (path, (entry, reason)) in held {
            let content = contents.get(&entry.sha);
            if let (HeldReason::Protected, Some(Ok(text))) = (reason, content.map(|bytes| std::str::from_utf8(bytes)))
                && text.len() <= SCRIPT_CAP
            {
                check_texts.push(text.to_owned());
            }
            files.push(HeldFile { path, reason, sha256: content.map(|bytes| sha256(bytes)), mode: entry.mode & 0o777 });
        }
        let makefiles = read_makefiles(&odb, &entries).await?;
        let task = odb.file_at(&start, &task_path, SCRIPT_CAP).await.unwrap_or_default();
        let task = String::from_utf8_lossy(&task).into_owned();
        let search_folders = search_folders(&base, &commands);
        let unchanged = Mutex::new(HashMap::new());
        Ok(Self {
            globs,
            files,
            links,
            base,
            may_change,
            task_path,
            commands,
            check_texts,
            task,
            search_folders,
            makefiles,
            observed,
            left_out,
            odb,
            start,
            unchanged,
        })
    }

    /// Returns every file of the start commit.
    pub(crate) fn base_files(&self) -> &BTreeSet<String> {
        &self.base
    }

    /// Decides what becomes of changed files in a check.
    pub(crate) fn classify(&self, changes: &[ChangedPath]) -> ProofFileChanges {
        let texts: Vec<&str> = self.check_texts.iter().map(String::as_str).collect();
        let commands: Vec<&str> = self.commands.iter().map(String::as_str).collect();
        let rules = ProofFileRules {
            base: &self.base,
            is_protected: &|path| path == self.task_path || self.globs.is_match(path),
            may_change: &|path| self.may_change.is_match(path),
            commands: &commands,
            check_texts: &texts,
            task: &self.task,
        };
        let mut found = proof_files::classify_changes(changes, &rules);
        let makefiles: Vec<&str> = self.makefiles.iter().map(String::as_str).collect();
        let created = changes.iter().filter(|change| change.kind == PathChangeKind::Created);
        for path in created.map(|change| &change.path) {
            let takes_place = || self.files.iter().any(|file| proof_files::takes_place_of(path, &file.path));
            let replaces = self.left_out.contains(path) || self.is_replaced_by(path, &makefiles) || takes_place();
            let is_free = self.globs.is_match(path) || self.may_change.is_match(path);
            if replaces && !is_free && !found.left_out.contains(path) {
                found.left_out.push(path.clone());
                for list in [&mut found.own_tests, &mut found.build_files, &mut found.product] {
                    list.retain(|other| other != path);
                }
            }
        }
        // A link leads to files that no convention knows.
        let own: BTreeSet<&str> = self.files.iter().map(|file| file.path.as_str()).collect();
        let changed = changes.iter().filter(|change| change.kind != PathChangeKind::Created);
        for path in changed.map(|change| &change.path) {
            let held = own.contains(path.as_str()) || self.links.contains(path);
            if held && !self.globs.is_match(path) && !found.put_back.contains(path) {
                found.put_back.push(path.clone());
                for list in [&mut found.build_files, &mut found.product] {
                    list.retain(|other| other != path);
                }
            }
        }
        found
    }

    fn is_replaced_by(&self, path: &str, makefiles: &[&str]) -> bool {
        self.observed.is_replaced_by(path, makefiles, &|folder| self.search_folders.contains(folder))
    }

    /// Puts back what differs from the start commit, removes what is left out of checks, and returns the stamps by which
    /// later writes are noticed. No process of the sandbox may run meanwhile.
    pub(crate) async fn restore(&self, sandbox: &dyn Sandbox, changes: &ProofFileChanges) -> Result<HeldStamps, Error> {
        let left_out: Vec<&str> = changes.left_out.iter().map(String::as_str).collect();
        in_sandbox::remove_paths(sandbox, &left_out).await?;
        // Links, and files whose content was not read, are put back by git.
        let known: BTreeSet<&str> =
            self.files.iter().filter(|file| file.sha256.is_some()).map(|file| file.path.as_str()).collect();
        let others: Vec<&str> =
            changes.put_back.iter().map(String::as_str).filter(|path| !known.contains(path)).collect();
        in_sandbox::revert_paths(sandbox, &self.start, &others).await?;
        let mut stamps = self.stamps(sandbox).await?;
        let mut written = false;
        for (file, stamp) in self.files.iter().zip(&stamps) {
            let Some(want) = &file.sha256 else { continue };
            if self.is_known(file, stamp.as_ref()) {
                continue;
            }
            let path = PathBuf::from(&file.path);
            let found = sandbox.read(&path, FILE_CAP as u64).await.ok();
            let same_mode = stamp.is_some_and(|stamp| stamp.mode & 0o111 == file.mode & 0o111);
            if same_mode && found.as_deref().map(sha256).as_ref() == Some(want) {
                self.remember(file, stamp.as_ref());
            } else {
                let bytes = self.odb.file_at(&self.start, &file.path, FILE_CAP).await?;
                in_sandbox::remove_non_file(sandbox, &file.path).await?;
                sandbox.write(&path, &bytes, Some(file.mode)).await?;
                written = true;
            }
        }
        if written {
            stamps = self.stamps(sandbox).await?;
        }
        // The workspace itself cannot be moved, but a file that decides can be made in it.
        let folders = self.files.iter().flat_map(|file| Path::new(&file.path).ancestors().skip(1));
        let folders = folders.map(Path::to_owned).chain([PathBuf::new()]).collect();
        Ok(HeldStamps { files: stamps, folders: sandbox.watch_folders(folders).await? })
    }

    fn is_known(&self, file: &HeldFile, stamp: Option<&FileStamp>) -> bool {
        let known = self.unchanged.lock().unwrap_or_else(PoisonError::into_inner);
        stamp.is_some() && known.get(&file.path) == stamp
    }

    fn remember(&self, file: &HeldFile, stamp: Option<&FileStamp>) {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
        let now = i64::try_from(now).unwrap_or(i64::MAX);
        if let Some(stamp) = stamp.filter(|stamp| stamp.changed.0.saturating_add(STAMP_AGE_S) < now) {
            let mut known = self.unchanged.lock().unwrap_or_else(PoisonError::into_inner);
            known.insert(file.path.clone(), *stamp);
        }
    }

    /// Returns what happened to the held files since the stamps were taken.
    pub(crate) async fn changed_since(&self, sandbox: &dyn Sandbox, before: HeldStamps) -> Result<HeldChanges, Error> {
        let now = self.stamps(sandbox).await?;
        let FolderChanges { moved, created } = before.folders.map(FolderWatch::changes).unwrap_or_default();
        let makefiles: Vec<&str> = self.makefiles.iter().map(String::as_str).collect();
        let is_search_folder = |folder: &str| self.search_folders.contains(folder);
        let is_hook = |path: &&str| {
            proof_files::is_startup_file(path)
                || self.observed.is_replaced_meanwhile(path, &makefiles, &is_search_folder)
        };
        let created = created.iter().filter_map(|path| path.to_str()).filter(is_hook).map(str::to_owned).collect();
        let differs = |(file, (then, now)): (&HeldFile, (&Option<FileStamp>, &Option<FileStamp>))| {
            (then.is_none() || then != now).then(|| file.path.clone())
        };
        let written = self.files.iter().zip(before.files.iter().zip(&now)).filter_map(differs);
        let moved = moved.iter().map(|folder| format!("{}/", folder.display()));
        Ok(HeldChanges { written: written.chain(moved).collect(), created })
    }

    async fn stamps(&self, sandbox: &dyn Sandbox) -> Result<Vec<Option<FileStamp>>, Error> {
        let paths: Vec<PathBuf> = self.files.iter().map(|file| PathBuf::from(&file.path)).collect();
        Ok(sandbox.stamps(&paths).await?)
    }

    /// Returns the changes between the start commit and another one.
    pub(crate) async fn changes_until(&self, sha: &Sha) -> Result<Vec<ChangedPath>, Error> {
        Ok(changed_paths(&self.odb.changed_paths(&self.start, sha).await?))
    }

    /// Finds what a commit did to tests inside source files: lines that weaken them, and lines that end them early.
    pub(crate) async fn find_in_sources(&self, sha: &Sha, found: &mut ProofFileChanges) -> Result<(), Error> {
        let text =
            |lines: Vec<String>, path: &str| (!lines.is_empty()).then(|| format!("{path}: {}", lines.join(" ⏎ ")));
        for PathChange { old, new, path } in
            self.odb.changed_paths(&self.start, sha).await?.into_iter().take(MAX_SOURCES)
        {
            let is_own = self.globs.is_match(&path) || proof_files::is_judge(&path);
            if is_own {
                continue;
            }
            let new = match new {
                Some((_, new)) => self.odb.file_at_blob(&new, SOURCE_CAP).await.unwrap_or_default(),
                None => Vec::new(),
            };
            let before = match old {
                Some((_, old)) => self.odb.file_at_blob(&old, SOURCE_CAP).await.unwrap_or_default(),
                None => Vec::new(),
            };
            let (before, new) = (String::from_utf8_lossy(&before), String::from_utf8_lossy(&new));
            found.inline_tests.extend(text(proof_files::weakened_tests(&path, &before, &new), &path));
            found.early_exits.extend(text(proof_files::added_exits(&path, &before, &new), &path));
        }
        Ok(())
    }
}

/// The largest source file that is searched, and how many are.
const SOURCE_CAP: usize = 1 << 20;
const MAX_SOURCES: usize = 2_000;

/// Converts git's changes.
pub(crate) fn changed_paths(changes: &[PathChange]) -> Vec<ChangedPath> {
    let kind = |change: &PathChange| match (&change.old, &change.new) {
        (None, _) => PathChangeKind::Created,
        (_, None) => PathChangeKind::Removed,
        _ => PathChangeKind::Modified,
    };
    let files = changes.iter().filter(|change| !change.is_gitlink());
    files.map(|change| ChangedPath { path: change.path.clone(), kind: kind(change) }).collect()
}

/// Reads the makefiles of a commit.
async fn read_makefiles(odb: &ObjectDb, entries: &[TreeEntry]) -> Result<Vec<String>, Error> {
    const MAX_MAKEFILES: usize = 50;
    let is_makefile = |path: &str| {
        let name = path.rsplit('/').next().unwrap_or(path);
        ["GNUmakefile", "makefile", "Makefile"].contains(&name)
            || Path::new(name).extension().is_some_and(|end| end == "mk")
    };
    let wanted: Vec<&Sha> =
        entries.iter().filter(|entry| is_makefile(&entry.path)).take(MAX_MAKEFILES).map(|entry| &entry.sha).collect();
    let contents = odb.read_blobs(&wanted, FILE_CAP).await?.unwrap_or_default();
    Ok(contents.into_values().map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).collect())
}

fn is_below(path: &str, folder: &str) -> bool {
    path.strip_prefix(folder).is_some_and(|rest| rest.starts_with('/'))
}

/// Returns the folders in which Python looks for modules by their own names: those of tests and of scripts that a
/// command runs, and the usual roots.
fn search_folders(base: &BTreeSet<String>, commands: &[String]) -> BTreeSet<String> {
    let parent = |path: &str| path.rsplit_once('/').map_or(String::new(), |(folder, _)| folder.to_owned());
    let tests = base.iter().filter(|path| proof_files::is_judge(path)).map(|path| parent(path));
    let words = commands.iter().flat_map(|command| command.split_whitespace());
    let scripts = words.map(|word| word.trim_matches(['"', '\''])).filter(|word| base.contains(*word)).map(parent);
    tests.chain(scripts).chain(["", "src", "lib"].map(str::to_owned)).collect()
}

/// Returns the files of a commit that the settings of its test runners name.
async fn read_settings(
    odb: &ObjectDb,
    entries: &[TreeEntry],
    base: &BTreeSet<String>,
) -> Result<BTreeSet<String>, Error> {
    const MAX_SETTINGS: usize = 200;
    let is_wanted = |entry: &&TreeEntry| proof_files::is_settings_file(&entry.path);
    let wanted: Vec<&TreeEntry> = entries.iter().filter(is_wanted).take(MAX_SETTINGS).collect();
    let shas: Vec<&Sha> = wanted.iter().map(|entry| &entry.sha).collect();
    let contents = odb.read_blobs(&shas, CONTENT_CAP).await?.unwrap_or_default();
    let texts = wanted.iter().filter_map(|entry| Some((&entry.path, contents.get(&entry.sha)?)));
    Ok(texts
        .flat_map(|(path, bytes)| proof_files::files_named_by_settings(path, &String::from_utf8_lossy(bytes), base))
        .collect())
}

type HeldEntries<'a> = BTreeMap<String, (&'a TreeEntry, HeldReason)>;

/// Returns the plain files to hold, those behind links too, and the links.
async fn held_entries<'a>(
    odb: &ObjectDb,
    entries: &'a [TreeEntry],
    reason: impl Fn(&str) -> Option<HeldReason>,
) -> Result<(HeldEntries<'a>, BTreeSet<String>), Error> {
    let (mut held, mut links) = (BTreeMap::new(), BTreeSet::new());
    let by_path: BTreeMap<&str, &TreeEntry> = entries.iter().map(|entry| (entry.path.as_str(), entry)).collect();
    let is_plain = |entry: &TreeEntry| entry.mode & 0o170_000 == PLAIN_MODE;
    let mut targets = Vec::new();
    for entry in entries {
        // A name that is no text cannot be named to a sandbox.
        let Some(reason) = reason(&entry.path).filter(|_| !entry.path.contains(char::REPLACEMENT_CHARACTER)) else {
            continue;
        };
        if is_plain(entry) && held.len() < MAX_WATCHED {
            held.insert(entry.path.clone(), (entry, reason));
        } else if entry.mode == LINK_MODE && links.len() < MAX_LINKS {
            links.insert(entry.path.clone());
            targets.push((entry.path.clone(), reason));
        }
    }
    // A link may lead to another one; each is followed once.
    while let Some((link, reason)) = targets.pop() {
        let Some(entry) = by_path.get(link.as_str()) else { continue };
        let Ok(target) = odb.file_at_blob(&entry.sha, LINK_CAP).await else { continue };
        let Some(target) = resolve_link(&link, &String::from_utf8_lossy(&target)) else { continue };
        // A test that reaches the product through a link does not make the product a test.
        if PRODUCT_FOLDERS.contains(&target.as_str()) {
            continue;
        }
        let below = format!("{target}/");
        let inside = by_path.range(below.as_str()..).take_while(|(path, _)| path.starts_with(&below));
        let direct = by_path.get_key_value(target.as_str());
        for (path, entry) in inside.chain(direct) {
            if is_plain(entry) && held.len() < MAX_WATCHED {
                held.entry((*path).to_owned()).or_insert((*entry, reason));
            } else if entry.mode == LINK_MODE && links.len() < MAX_LINKS && links.insert((*path).to_owned()) {
                targets.push(((*path).to_owned(), reason));
            }
        }
    }
    Ok((held, links))
}

/// Usual folders of a product.
const PRODUCT_FOLDERS: [&str; 9] = ["src", "lib", "app", "pkg", "internal", "cmd", "include", "crates", "packages"];
const MAX_LINKS: usize = 500;
const LINK_CAP: usize = 4096;

/// Returns the path that a link means; `None` where it leaves the repository.
fn resolve_link(link: &str, target: &str) -> Option<String> {
    if target.starts_with('/') {
        return None;
    }
    let mut parts: Vec<&str> = link.split('/').collect();
    parts.pop();
    for part in target.split('/') {
        match part {
            "" | "." => (),
            ".." => drop(parts.pop()?),
            name => parts.push(name),
        }
    }
    (!parts.is_empty()).then(|| parts.join("/"))
}

/// Reads the content of the held files that are compared.
async fn read_contents(odb: &ObjectDb, held: &HeldEntries<'_>) -> Result<HashMap<Sha, Vec<u8>>, Error> {
    let wanted: Vec<&Sha> = held.values().take(MAX_COMPARED).map(|(entry, _)| &entry.sha).collect();
    if let Some(mut contents) = odb.read_blobs(&wanted, CONTENT_CAP).await? {
        contents.retain(|_, bytes| bytes.len() <= FILE_CAP);
        return Ok(contents);
    }
    let mut contents = HashMap::new();
    for sha in wanted {
        match odb.file_at_blob(sha, FILE_CAP).await {
            Ok(bytes) => drop(contents.insert(sha.clone(), bytes)),
            Err(git::Error::TooMuchOutput { .. }) => (),
            Err(error) => return Err(error.into()),
        }
    }
    Ok(contents)
}

#[cfg(test)]
mod random_changes;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_are_resolved_by_their_text() {
        for (link, target, want) in [
            ("check.sh", "scripts/real.sh", Some("scripts/real.sh")),
            ("a/b/check.sh", "../../real.sh", Some("real.sh")),
            ("a/tests", "./../suite/", Some("suite")),
            ("check.sh", "../outside.sh", None),
            ("check.sh", "/etc/passwd", None),
            ("check.sh", ".", None),
        ] {
            assert_eq!(resolve_link(link, target).as_deref(), want, "{link} -> {target}");
        }
    }
}
