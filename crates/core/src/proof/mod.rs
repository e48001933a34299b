//! What judges the work besides the command lines themselves: files of the start commit that a check executes or is
//! configured by. They belong to the proof, so the run may not change them.
//!
//! A gate (`test_command`, `verify_commands`) is a judge by its role: the scripts it runs count whatever they are called.
//! In the proof of a box a script counts only when its name says so: in `python3 app.py` the file is the product, in
//! `sh tests/check.sh` it is the judge. Not here: what a judge written in a programming language imports, and code that
//! runs in the same process as the tests.

mod line;
mod part;
mod runner;

use std::collections::{BTreeMap, BTreeSet};

pub use part::PinnedPart;

use line::Simple;
use runner::Runner;

use crate::event::{PinnedBox, Started};

/// Words in a path that say "this judges".
const JUDGES: [&str; 8] = ["check", "verify", "test", "proof", "accept", "spec", "e2e", "assert"];

/// Words and folders that say so of a script which a gate runs.
const GATES: [&str; 12] =
    ["ci", "qa", "lint", "gate", "validate", "validation", "smoke", "suite", "script", "scripts", "tools", "hack"];

/// What `npm init` writes where there are no tests yet.
const NO_TEST: &str = "no test specified";

/// Where a search stops: no honest project nests its checks deeper.
const MOST_FILES: usize = 200;

/// The start commit as far as it is known.
#[derive(Debug, Default)]
pub struct Base {
    pub files: BTreeSet<String>,
    /// Contents that were read so far; `None` for one that is no text.
    pub read: BTreeMap<String, Option<String>>,
}

/// What judges the work of a task.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Judges {
    /// Paths that are protected, whether they are there or not.
    pub files: Vec<String>,
    /// Files of which a part is protected.
    pub parts: Vec<PinnedPart>,
    /// Files to read before the search is complete.
    pub unread: Vec<String>,
}

/// Finds what judges the work, less what the task takes out with a `!path` in `protected_paths`.
pub fn judges<'a>(
    gates: impl IntoIterator<Item = &'a String>,
    proofs: impl IntoIterator<Item = &'a String>,
    base: &Base,
    protected: &[String],
) -> Judges {
    let mut search = Search::new(base);
    for command in gates {
        search.command(command, Role::Gate);
    }
    for command in proofs {
        search.command(command, Role::Proof);
    }
    let free: BTreeSet<&str> = protected.iter().filter_map(|path| path.strip_prefix('!')).collect();
    search.files.retain(|path| !free.contains(path.as_str()));
    let whole = &search.files;
    let parts = search
        .parts
        .iter()
        .filter(|(path, _)| !free.contains(path.as_str()) && !whole.contains(*path))
        .filter_map(|(path, keys)| PinnedPart::of(path, keys, base.read.get(path).and_then(Option::as_deref)))
        .collect();
    Judges {
        parts,
        files: search.files.into_iter().collect(),
        unread: search.unread.into_iter().filter(|path| !base.read.contains_key(path)).collect(),
    }
}

/// Tells whether a check reads a path that it does not execute: worth a reviewer's look when the run changed it.
pub fn reads(command: &str, path: &str) -> bool {
    let name = path.rsplit('/').next().unwrap_or(path);
    line::simple(command).iter().any(|simple| {
        let named = |word: &String| simple.paths(word.split("::").next().unwrap_or(word)).any(|named| named == path);
        (name == "conftest.py" && simple.program() == Some("pytest")) || simple.words.iter().any(named)
    })
}

/// Tells whether some command proves this box and no other.
pub fn has_own(started: &Started, pinned: &PinnedBox) -> bool {
    let others =
        |command: &String| started.boxes.iter().any(|other| other.id != pinned.id && other.proofs.contains(command));
    pinned.proofs.iter().any(|command| !others(command))
}

/// Who runs a script.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Role {
    /// A command that judges whatever it says.
    Gate,
    /// The proof of one box, or a script that a judge calls.
    Proof,
}

struct Search<'a> {
    base: &'a Base,
    files: BTreeSet<String>,
    parts: BTreeMap<String, BTreeSet<String>>,
    unread: BTreeSet<String>,
    seen: BTreeSet<(String, Role)>,
}

impl<'a> Search<'a> {
    fn new(base: &'a Base) -> Self {
        let (files, parts, unread, seen) = (BTreeSet::new(), BTreeMap::new(), BTreeSet::new(), BTreeSet::new());
        Self { base, files, parts, unread, seen }
    }

    fn command(&mut self, command: &str, role: Role) {
        for simple in line::simple(command) {
            for script in simple.scripts() {
                for path in simple.paths(&script.word) {
                    let judges = match (role, script.is_shell) {
                        (Role::Gate, true) => true,
                        (Role::Gate, false) => is_judge(&path) || is_gate(&path),
                        (Role::Proof, _) => is_judge(&path),
                    };
                    if judges && self.has(&path) {
                        self.script(path);
                    }
                }
            }
            for runner in Runner::of(&simple) {
                self.runner(&simple, &runner, role);
            }
        }
    }

    fn has(&self, path: &str) -> bool {
        self.base.files.contains(path)
    }

    /// Protects a script, and what it calls in turn.
    fn script(&mut self, path: String) {
        if let Some(text) = self.text(&path, Role::Proof) {
            // Only a shell's text can be read as command lines.
            let other = text.lines().next().is_some_and(|first| first.starts_with("#!") && !first.contains("sh"));
            if !other && !is_program(&path) {
                self.command(&text, Role::Proof);
            }
        }
        self.files.insert(path);
    }

    /// Returns the content of a file the first time it is asked for.
    fn text(&mut self, path: &str, role: Role) -> Option<String> {
        if self.seen.len() >= MOST_FILES {
            return None;
        }
        if !self.base.read.contains_key(path) {
            self.unread.insert(path.to_owned());
            return None;
        }
        let first = self.seen.insert((path.to_owned(), role));
        self.base.read.get(path).cloned().flatten().filter(|_| first)
    }

    fn runner(&mut self, simple: &Simple, runner: &Runner, role: Role) {
        let settings: Vec<String> = simple.settings().iter().flat_map(|word| simple.paths(word)).collect();
        self.files.extend(settings.into_iter().filter(|path| self.base.files.contains(path)));
        for folder in simple.folders() {
            let at = |name: &str| if folder.is_empty() { name.to_owned() } else { format!("{folder}/{name}") };
            // Where there is nothing yet the run makes it, and red first has shown that it fails without.
            let present = runner.marks.iter().any(|mark| self.marked(&folder, mark));
            if !present {
                continue;
            }
            let read_on: Vec<String> = runner.read_on.iter().map(|name| at(name)).collect();
            if !self.defines(runner, &read_on) {
                continue;
            }
            self.files.extend(runner.files.iter().map(|name| at(name)));
            if let Some(name) = runner.everywhere {
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
                    && let Some(text) = self.text(&path, Role::Proof)
                {
                    self.command(&text, Role::Proof);
                    for included in line::included(&text) {
                        if self.has(&included) {
                            self.files.insert(included);
                        }
                    }
                }
            }
            for script in &runner.scripts {
                self.npm_script(&at("package.json"), script, role);
            }
        }
    }

    fn marked(&self, folder: &str, mark: &str) -> bool {
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

    /// Follows a script of a `package.json`: what it says is the check.
    fn npm_script(&mut self, path: &str, script: &str, role: Role) {
        let Some(content) = self.base.read.get(path) else {
            self.unread.insert(path.to_owned());
            return;
        };
        let package = content.as_deref().and_then(|text| serde_json::from_str::<serde_json::Value>(text).ok());
        let said = |key: &str| {
            let value = package.as_ref()?.pointer(&format!("/{key}"))?;
            value.as_str().filter(|command| !command.contains(NO_TEST)).map(str::to_owned)
        };
        let keys = ["", "pre", "post"].map(|when| format!("scripts/{when}{script}"));
        let [own, ..] = &keys;
        // A script that is not there yet is the run's to write.
        if said(own).is_none() {
            return;
        }
        let known = self.parts.entry(path.to_owned()).or_default();
        if !known.contains(own) {
            known.extend(keys.iter().cloned());
            for command in keys.iter().filter_map(|key| said(key)) {
                self.command(&command, role);
            }
        }
    }

    /// Tells whether what a runner is asked for stands in its files; unknown as long as they were not read.
    fn defines(&mut self, runner: &Runner, paths: &[String]) -> bool {
        if runner.goals.is_empty() {
            return true;
        }
        let there: Vec<&String> = paths.iter().filter(|path| self.base.files.contains(*path)).collect();
        let mut found = false;
        for path in there {
            match self.base.read.get(path) {
                Some(text) => found |= text.as_deref().is_none_or(|text| line::defines(text, &runner.goals)),
                None => drop(self.unread.insert(path.clone())),
            }
        }
        found
    }
}

fn is_judge(path: &str) -> bool {
    let path = path.to_ascii_lowercase();
    JUDGES.iter().any(|word| path.contains(word))
}

fn is_gate(path: &str) -> bool {
    let path = path.to_ascii_lowercase();
    path.split(|c: char| !c.is_ascii_alphanumeric()).any(|word| GATES.contains(&word))
}

/// Tells whether a file is written in a programming language rather than for a shell.
fn is_program(path: &str) -> bool {
    const ENDS: [&str; 14] =
        ["py", "js", "mjs", "cjs", "ts", "mts", "cts", "tsx", "jsx", "rb", "pl", "php", "lua", "go"];
    path.rsplit_once('.').is_some_and(|(_, end)| ENDS.contains(&end))
}

#[cfg(test)]
mod tests;
