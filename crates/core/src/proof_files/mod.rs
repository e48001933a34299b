//! Finds the proof files besides the command lines: files of the start commit that a check executes or is configured
//! by. They belong to the proof, so the run may not change them.
//!
//! A gate (`test_command`, `verify_commands`) is a check by its role: the scripts it runs count whatever their names
//! are. In the proof of a box a script counts only when its name says so: in `python3 app.py` the file is the product,
//! in `sh tests/check.sh` it is the check. Not covered: the imports of a check written in a programming language, and
//! code that runs in the same process as the tests.

mod changed_files;
mod file_role;
mod inline_tests;
mod observed_files;
mod protected_sections;
mod script_paths;
mod settings_paths;
mod test_runner_config;

use std::collections::{BTreeMap, BTreeSet};

pub use changed_files::{ChangedPath, PathChangeKind, ProofFileChanges, ProofFileRules, classify_changes, is_judge};
pub use file_role::is_startup_file;
pub use inline_tests::{added_exits, weakened_tests};
pub use observed_files::ObservedFiles;
pub use protected_sections::PinnedSection;
pub use settings_paths::{files_named_by_settings, is_settings_file};

use script_paths::{ScriptArgument, SimpleCommand};
use test_runner_config::TestRunnerConfig;

use crate::event::{PinnedBox, RunStart};

/// Words in a path that mark a check.
const CHECK_WORDS: [&str; 8] = ["check", "verify", "test", "proof", "accept", "spec", "e2e", "assert"];

/// Words and folders that mark a check among the scripts of a gate.
const GATE_WORDS: [&str; 12] =
    ["ci", "qa", "lint", "gate", "validate", "validation", "smoke", "suite", "script", "scripts", "tools", "hack"];

/// What `npm init` writes where there are no tests yet.
const NO_TEST: &str = "no test specified";

/// The limit of a search: no real project nests its checks deeper.
const MAX_FILES: usize = 200;

/// The known files of the start commit.
#[derive(Debug, Default)]
pub struct StartCommitFiles {
    pub files: BTreeSet<String>,
    /// Contents read so far; `None` for a file that is not text.
    pub read: BTreeMap<String, Option<String>>,
}

/// The files that decide about the work of a task.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ProofFiles {
    /// Paths that are protected, whether they exist or not.
    pub files: Vec<String>,
    /// Files of which only a part is protected.
    pub parts: Vec<PinnedSection>,
    /// The tests and scripts that a command names and that do not exist yet, by command.
    pub to_be_written: BTreeMap<String, Vec<String>>,
    /// Files to read before the search is complete.
    pub unread: Vec<String>,
}

/// Finds the proof files, without those that the task excludes with a `!path` in `protected_paths`.
pub fn find_proof_files<'a>(
    gates: impl IntoIterator<Item = &'a String>,
    proofs: impl IntoIterator<Item = &'a String>,
    base: &StartCommitFiles,
    protected: &[String],
) -> ProofFiles {
    let mut search = ProofSearch::new(base);
    let mut to_be_written = BTreeMap::new();
    let mut add = |command: &String, role: ProofRole| {
        search.add_command(command, role);
        let files = files_to_be_written(command, base);
        if !files.is_empty() {
            to_be_written.insert(command.clone(), files);
        }
    };
    for command in gates {
        add(command, ProofRole::Gate);
    }
    for command in proofs {
        add(command, ProofRole::Proof);
    }
    let free: BTreeSet<&str> = protected.iter().filter_map(|path| path.strip_prefix('!')).collect();
    search.files.retain(|path| !free.contains(path.as_str()));
    let whole = &search.files;
    let parts = search
        .parts
        .iter()
        .filter(|(path, _)| !free.contains(path.as_str()) && !whole.contains(*path))
        .filter_map(|(path, keys)| PinnedSection::pin(path, keys, base.read.get(path).and_then(Option::as_deref)))
        .collect();
    ProofFiles {
        to_be_written,
        parts,
        files: search.files.into_iter().collect(),
        unread: search.unread.into_iter().filter(|path| !base.read.contains_key(path)).collect(),
    }
}

/// Returns whether a check reads a path that it does not execute: worth a reviewer's look when the run changed it.
pub fn command_reads(command: &str, path: &str) -> bool {
    let name = path.rsplit('/').next().unwrap_or(path);
    script_paths::split_commands(command).iter().any(|simple| {
        let named = |word: &String| simple.paths(word.split("::").next().unwrap_or(word)).any(|named| named == path);
        (name == "conftest.py" && simple.program() == Some("pytest")) || simple.words.iter().any(named)
    })
}

/// Returns the tests and scripts that a check names and that do not exist in the start commit: what they say is the word
/// of the run, which writes them itself.
fn files_to_be_written(command: &str, base: &StartCommitFiles) -> Vec<String> {
    let exists = |path: &str| {
        let below = format!("{path}/");
        base.files.contains(path)
            || base.files.range(below.clone()..).next().is_some_and(|next| next.starts_with(&below))
    };
    let mut found = BTreeSet::new();
    for simple in script_paths::split_commands(command) {
        let is_test = |script: &ScriptArgument| script.is_shell || is_check_path(&script.word);
        // The files of a module that is run by its name may be anywhere.
        let scripts =
            simple.scripts().into_iter().filter(|script| simple.words.contains(&script.word) && is_test(script));
        // A path is a test if a test runner gets it; other programs read or write it.
        let is_runner = TestRunnerConfig::of_command(&simple).into_iter().next().is_some();
        let named =
            simple.words.iter().skip(1).filter(|word| is_runner && !word.starts_with('-') && is_check_path(word));
        let words = scripts.map(|script| script.word).chain(named.cloned());
        for word in words.filter(|word| word.contains(['/', '.'])) {
            let word = word.split("::").next().unwrap_or(&word);
            let paths: Vec<String> = simple.paths(word).collect();
            if !paths.iter().any(|path| exists(path)) {
                // After a `cd` there are two candidates; the longer one is in the folder.
                found.extend(paths.into_iter().max_by_key(String::len));
            }
        }
    }
    found.into_iter().collect()
}

/// Returns whether some command proves this box and no other.
pub fn has_own_proof(started: &RunStart, pinned: &PinnedBox) -> bool {
    let others =
        |command: &String| started.boxes.iter().any(|other| other.id != pinned.id && other.proofs.contains(command));
    pinned.proofs.iter().any(|command| !others(command))
}

/// The role of the command that runs a script.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum ProofRole {
    /// A command whose scripts count whatever their names are.
    Gate,
    /// The proof of one box, or a script that another check calls.
    Proof,
}

struct ProofSearch<'a> {
    base: &'a StartCommitFiles,
    files: BTreeSet<String>,
    parts: BTreeMap<String, BTreeSet<String>>,
    unread: BTreeSet<String>,
    seen: BTreeSet<(String, ProofRole)>,
}

impl<'a> ProofSearch<'a> {
    fn new(base: &'a StartCommitFiles) -> Self {
        let (files, parts, unread, seen) = (BTreeSet::new(), BTreeMap::new(), BTreeSet::new(), BTreeSet::new());
        Self { base, files, parts, unread, seen }
    }

    fn add_command(&mut self, command: &str, role: ProofRole) {
        for simple in script_paths::split_commands(command) {
            for script in simple.scripts() {
                for path in simple.paths(&script.word) {
                    let is_check = match (role, script.is_shell) {
                        (ProofRole::Gate, true) => true,
                        (ProofRole::Gate, false) => is_check_path(&path) || is_gate_path(&path),
                        (ProofRole::Proof, _) => is_check_path(&path),
                    };
                    if is_check && self.has(&path) {
                        self.add_script(path);
                    }
                }
            }
            for runner in TestRunnerConfig::of_command(&simple) {
                self.add_runner(&simple, &runner, role);
            }
        }
    }

    fn has(&self, path: &str) -> bool {
        self.base.files.contains(path)
    }

    /// Protects a script, and the scripts it calls in turn.
    fn add_script(&mut self, path: String) {
        if let Some(text) = self.read_text(&path, ProofRole::Proof) {
            // Only shell scripts can be read as command lines.
            let other = text.lines().next().is_some_and(|first| first.starts_with("#!") && !first.contains("sh"));
            if !other && !is_program(&path) {
                self.add_command(&text, ProofRole::Proof);
            }
        }
        self.files.insert(path);
    }

    /// Returns the content of a file the first time it is requested.
    fn read_text(&mut self, path: &str, role: ProofRole) -> Option<String> {
        if self.seen.len() >= MAX_FILES {
            return None;
        }
        if !self.base.read.contains_key(path) {
            self.unread.insert(path.to_owned());
            return None;
        }
        let first = self.seen.insert((path.to_owned(), role));
        self.base.read.get(path).cloned().flatten().filter(|_| first)
    }

    fn add_runner(&mut self, simple: &SimpleCommand, runner: &TestRunnerConfig, role: ProofRole) {
        let settings: Vec<String> = simple.config_paths().iter().flat_map(|word| simple.paths(word)).collect();
        self.files.extend(settings.into_iter().filter(|path| self.base.files.contains(path)));
        for folder in simple.folders() {
            let at = |name: &str| if folder.is_empty() { name.to_owned() } else { format!("{folder}/{name}") };
            // If it does not exist yet, the run creates it, and red-first has shown that the check fails without it.
            let present = runner.markers.iter().any(|mark| self.has_marker(&folder, mark));
            if !present {
                continue;
            }
            let read_on: Vec<String> = runner.script_files.iter().map(|name| at(name)).collect();
            if !self.defines_targets(runner, &read_on) {
                continue;
            }
            self.files.extend(runner.files.iter().map(|name| at(name)));
            if let Some(name) = runner.nested_file_name {
                let end = format!("/{name}");
                let own = self.base.files.iter().filter(|path| *path == name || path.ends_with(&end));
                self.files.extend(own.cloned().collect::<Vec<_>>());
            }
            for (name, keys) in &runner.parts {
                let path = at(name);
                if self.has(&path) {
                    self.unread.insert(path.clone());
                }
                self.parts.entry(path).or_default().extend(keys.iter().map(|key| (*key).to_owned()));
            }
            for path in read_on {
                if self.has(&path)
                    && let Some(text) = self.read_text(&path, ProofRole::Proof)
                {
                    self.add_command(&text, ProofRole::Proof);
                    for included in script_paths::included_files(&text) {
                        if self.has(&included) {
                            self.files.insert(included);
                        }
                    }
                }
            }
            for script in &runner.scripts {
                self.add_npm_script(&at("package.json"), script, role);
            }
        }
    }

    fn has_marker(&self, folder: &str, mark: &str) -> bool {
        let inside = |path: &str| folder.is_empty() || path.starts_with(&format!("{folder}/"));
        match mark.strip_prefix('*') {
            Some(end) => self.base.files.iter().any(|path| path.ends_with(end) && inside(path)),
            None if mark.ends_with('*') => {
                let start = mark.trim_end_matches('*');
                let name = |path: &str| path.rsplit('/').next().is_some_and(|name| name.starts_with(start));
                self.base.files.iter().any(|path| name(path) && inside(path))
            }
            None if folder.is_empty() => self.has(mark),
            None => self.has(&format!("{folder}/{mark}")),
        }
    }

    /// Follows a script of a `package.json`: its text is the check.
    fn add_npm_script(&mut self, path: &str, script: &str, role: ProofRole) {
        let Some(content) = self.base.read.get(path) else {
            self.unread.insert(path.to_owned());
            return;
        };
        let package = content.as_deref().and_then(|text| serde_json::from_str::<serde_json::Value>(text).ok());
        let script_command = |key: &str| {
            let value = package.as_ref()?.pointer(&format!("/{key}"))?;
            value.as_str().filter(|command| !command.contains(NO_TEST)).map(str::to_owned)
        };
        let keys = ["", "pre", "post"].map(|when| format!("scripts/{when}{script}"));
        let [own, ..] = &keys;
        // A script that does not exist yet is for the run to write.
        if script_command(own).is_none() {
            return;
        }
        let known = self.parts.entry(path.to_owned()).or_default();
        if !known.contains(own) {
            known.extend(keys.iter().cloned());
            for command in keys.iter().filter_map(|key| script_command(key)) {
                self.add_command(&command, role);
            }
        }
    }

    /// Returns whether the requested targets are defined in a runner's files; unknown as long as they were not read.
    fn defines_targets(&mut self, runner: &TestRunnerConfig, paths: &[String]) -> bool {
        if runner.targets.is_empty() {
            return true;
        }
        let there: Vec<&String> = paths.iter().filter(|path| self.base.files.contains(*path)).collect();
        let mut found = false;
        for path in there {
            match self.base.read.get(path) {
                Some(text) => {
                    found |= text.as_deref().is_none_or(|text| script_paths::defines_target(text, &runner.targets));
                }
                None => drop(self.unread.insert(path.clone())),
            }
        }
        found
    }
}

/// Returns whether a new file would be loaded in the place of another one.
pub fn takes_place_of(new: &str, held: &str) -> bool {
    const SCRIPT_ENDS: [&str; 8] = ["js", "mjs", "cjs", "jsx", "ts", "mts", "cts", "tsx"];
    let Some((stem, end)) = held.rsplit_once('.') else { return false };
    let Some(rest) = new.strip_prefix(stem).filter(|_| new != held) else { return false };
    let new_end = rest.rsplit_once('.').map(|(_, end)| end);
    match end {
        "py" => rest == "/__init__.py" || (rest.starts_with('.') && matches!(new_end, Some("so" | "pyc"))),
        end if SCRIPT_ENDS.contains(&end) => {
            rest.strip_prefix('.').is_some_and(|end| SCRIPT_ENDS.contains(&end) || end == "json")
        }
        _ => false,
    }
}

/// Returns the folder of a script if its name says that checks are in it.
pub fn check_folder(path: &str) -> Option<&str> {
    let (folder, _) = path.rsplit_once('/')?;
    let name = folder.rsplit('/').next().unwrap_or(folder).to_ascii_lowercase();
    let is_check = |word: &str| CHECK_WORDS.iter().any(|check| word.trim_end_matches('s') == *check);
    name.split(|c: char| !c.is_ascii_alphanumeric()).any(is_check).then_some(folder)
}

fn is_check_path(path: &str) -> bool {
    let path = path.to_ascii_lowercase();
    CHECK_WORDS.iter().any(|word| path.contains(word))
}

fn is_gate_path(path: &str) -> bool {
    let path = path.to_ascii_lowercase();
    path.split(|c: char| !c.is_ascii_alphanumeric()).any(|word| GATE_WORDS.contains(&word))
}

/// Returns whether a file is written in a programming language rather than for a shell.
fn is_program(path: &str) -> bool {
    const ENDS: [&str; 14] =
        ["py", "js", "mjs", "cjs", "ts", "mts", "cts", "tsx", "jsx", "rb", "pl", "php", "lua", "go"];
    path.rsplit_once('.').is_some_and(|(_, end)| ENDS.contains(&end))
}

#[cfg(test)]
mod tests;
