//! Decides which files that a run changed take part in its proofs.
//!
//! Tests and settings of the start commit are put back for a check. New files that a runner would load by itself are left
//! out of it. What the task gives to the run, what it must write itself, and files that define what is built stay as
//! they are, and are listed for the reviewer.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use super::file_role::{FileRole, TestLanguage, file_role};

/// How many paths of one kind are recorded.
const MAX_RECORDED: usize = 100;

/// The shortest name without its end by which a command can mean a test.
const MIN_STEM: usize = 4;

/// A path that differs from the start commit.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct ChangedPath {
    pub path: String,
    pub kind: PathChangeKind,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum PathChangeKind {
    Created,
    Modified,
    Removed,
}

/// What the decision depends on besides the changes.
pub struct ProofFileRules<'a> {
    /// Every file of the start commit.
    pub base: &'a BTreeSet<String>,
    /// Paths that the run may not change at all; they are put back elsewhere.
    pub is_protected: &'a dyn Fn(&str) -> bool,
    /// Paths that the task gives to the run.
    pub may_change: &'a dyn Fn(&str) -> bool,
    /// The commands of the checks.
    pub commands: &'a [&'a str],
    /// The commands of the checks, and the scripts that they run.
    pub check_texts: &'a [&'a str],
    /// The text of the task, which the run did not write.
    pub task: &'a str,
}

impl std::fmt::Debug for ProofFileRules<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ProofFileRules").field("base", &self.base.len()).finish_non_exhaustive()
    }
}

/// The files of a proof that a run changed, by what became of them.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ProofFileChanges {
    /// They existed before: the check ran with their content at the start.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub put_back: Vec<String>,
    /// They did not exist before: the check ran without them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub left_out: Vec<String>,
    /// The task's `may_change` names them: the check ran with the run's content.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub given: Vec<String>,
    /// New tests of the run that took part in the check.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub own_tests: Vec<String>,
    /// They define what is built and tested: the check ran with the run's content.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub build_files: Vec<String>,
    /// Source files in which the run removed or changed tests.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub inline_tests: Vec<String>,
    /// New lines of the product that end a process or skip tests: inside a test they would let it pass.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub early_exits: Vec<String>,
    /// All other changed files: the product, as a rule.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub product: Vec<String>,
    /// How many further paths are not listed.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub not_listed: usize,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde calls it with a reference")]
fn is_zero(number: &usize) -> bool {
    *number == 0
}

impl ProofFileChanges {
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Returns whether any entry names a path, alone or with the lines found in it.
    pub fn mentions(&self, path: &str) -> bool {
        let names =
            |entry: &String| entry.strip_prefix(path).is_some_and(|rest| rest.is_empty() || rest.starts_with(':'));
        self.lists().into_iter().any(|list| list.iter().any(names))
    }

    /// Returns whether an entry other than those of the product names a path.
    pub fn flags(&self, path: &str) -> bool {
        Self { product: Vec::new(), ..self.clone() }.mentions(path)
    }

    /// Adds what another check found.
    pub fn merge(&mut self, other: &Self) {
        for (own, more) in self.lists_mut().into_iter().zip(other.lists()) {
            let known: BTreeSet<String> = own.drain(..).chain(more.iter().cloned()).collect();
            own.extend(known);
        }
        self.not_listed = self.not_listed.max(other.not_listed);
    }

    /// Returns the form in which it is recorded: each path changed by `text`, each list bounded.
    #[must_use]
    pub fn recorded(mut self, text: impl Fn(&str) -> String) -> Self {
        let mut left = 0;
        collapse_folders(&mut self.product);
        collapse_folders(&mut self.build_files);
        for list in self.lists_mut() {
            left += list.len().saturating_sub(MAX_RECORDED);
            list.truncate(MAX_RECORDED);
            for path in list.iter_mut() {
                *path = text(path);
            }
        }
        self.not_listed += left;
        self
    }

    fn lists(&self) -> [&Vec<String>; 8] {
        let Self {
            put_back,
            left_out,
            given,
            own_tests,
            build_files,
            inline_tests,
            early_exits,
            product,
            not_listed: _,
        } = self;
        [put_back, left_out, given, own_tests, build_files, inline_tests, early_exits, product]
    }

    fn lists_mut(&mut self) -> [&mut Vec<String>; 8] {
        let Self {
            put_back,
            left_out,
            given,
            own_tests,
            build_files,
            inline_tests,
            early_exits,
            product,
            not_listed: _,
        } = self;
        [put_back, left_out, given, own_tests, build_files, inline_tests, early_exits, product]
    }
}

/// Decides about every changed path.
pub fn classify_changes(changes: &[ChangedPath], rules: &ProofFileRules<'_>) -> ProofFileChanges {
    let tested: BTreeSet<TestLanguage> = rules.base.iter().filter_map(|path| test_language(path)).collect();
    let mut found = ProofFileChanges::default();
    for ChangedPath { path, kind } in changes {
        if (rules.is_protected)(path) {
            continue;
        }
        let created = *kind == PathChangeKind::Created;
        let role = file_role(path);
        let is_given = (rules.may_change)(path);
        let list = match role {
            // A file or a link in the place of a folder with tests.
            FileRole::Other | FileRole::BuildFile if created && covers_test(path, rules.base) => &mut found.left_out,
            _ if created && !is_given && replaces_python_test(path, rules.base) => &mut found.left_out,
            FileRole::Other => &mut found.product,
            _ if is_given => &mut found.given,
            FileRole::BuildFile => &mut found.build_files,
            _ if !created => &mut found.put_back,
            FileRole::StartupHook => &mut found.left_out,
            // Without a test of this kind in the start commit, the task is to write the first ones.
            // They are compiled only where another file names them, and each is a program of its own.
            FileRole::Test(TestLanguage::Rust | TestLanguage::C) => &mut found.own_tests,
            FileRole::Test(language) => {
                if is_tested(&tested, language) && !is_mentioned(path, rules) {
                    &mut found.left_out
                } else {
                    &mut found.own_tests
                }
            }
            FileRole::RunnerSettings(language) => {
                if is_tested(&tested, language) && !names_settings(path, rules) {
                    &mut found.left_out
                } else {
                    &mut found.own_tests
                }
            }
        };
        list.push(path.clone());
    }
    found
}

/// Returns whether a file of the start commit decides about the work, and is put back for a check.
pub fn is_judge(path: &str) -> bool {
    matches!(file_role(path), FileRole::Test(_) | FileRole::RunnerSettings(_) | FileRole::StartupHook)
}

fn test_language(path: &str) -> Option<TestLanguage> {
    match file_role(path) {
        FileRole::Test(language) => Some(language),
        _ => None,
    }
}

fn is_tested(tested: &BTreeSet<TestLanguage>, language: TestLanguage) -> bool {
    match language {
        TestLanguage::Unknown => !tested.is_empty(),
        known => tested.contains(&known),
    }
}

fn covers_test(path: &str, base: &BTreeSet<String>) -> bool {
    let below = format!("{path}/");
    base.range(below.clone()..).take_while(|file| file.starts_with(&below)).any(|file| is_judge(file))
}

/// Returns whether a check names a test: itself, or a folder above it that has no test yet.
fn is_mentioned(path: &str, rules: &ProofFileRules<'_>) -> bool {
    let has_test = |folder: &str| {
        let below = format!("{folder}/");
        rules.base.range(below.clone()..).take_while(|file| file.starts_with(&below)).any(|file| is_judge(file))
    };
    let folders = path.match_indices('/').filter_map(|(at, _)| path.get(..at));
    let named = |folder: &str| rules.check_texts.iter().any(|text| has_word(text, folder));
    names_file(path, rules.check_texts)
        || is_selected(path, rules.commands)
        || has_word(rules.task, path)
        || folders.into_iter().any(|folder| named(folder) && !has_test(folder))
}

/// Returns whether a check or the task asks for settings of a runner, by their whole name: the name of the runner itself
/// begins many of them.
fn names_settings(path: &str, rules: &ProofFileRules<'_>) -> bool {
    let name = path.rsplit('/').next().unwrap_or(path);
    // A name that the start commit has elsewhere means that file.
    let is_known = rules.base.iter().any(|other| other.rsplit('/').next() == Some(name));
    let named = |command: &&str| has_word(command, path) || (!is_known && has_word(command, name));
    rules.commands.iter().any(named) || has_word(rules.task, path)
}

/// Returns whether a command selects tests by a word that the name of a test has, as in `pytest -k login`.
fn is_selected(path: &str, commands: &[&str]) -> bool {
    const FLAGS: [&str; 7] = ["-k", "-t", "-run", "--run", "-g", "--grep", "--testNamePattern"];
    let name = path.rsplit('/').next().unwrap_or(path).to_ascii_lowercase();
    commands.iter().any(|command| {
        let words: Vec<&str> = command.split([' ', '=']).map(|word| word.trim_matches(['"', '\''])).collect();
        // `make -k test` selects nothing.
        let selects = |word: &str| {
            let is_general = ["test", "tests", "spec", "specs", "check"].contains(&word);
            !is_general && word.len() >= MIN_STEM && name.contains(&word.to_ascii_lowercase())
        };
        words.windows(2).any(|pair| matches!(pair, [flag, word] if FLAGS.contains(flag) && selects(word)))
    })
}

/// Returns whether a new file is imported in the place of a test: a package or a compiled module of its name.
fn replaces_python_test(path: &str, base: &BTreeSet<String>) -> bool {
    let (folder, name) = path.rsplit_once('/').unwrap_or(("", path));
    let module = match name {
        "__init__.py" => folder.to_owned(),
        _ if matches!(name.rsplit_once('.'), Some((_, "so" | "pyc"))) => {
            let stem = name.split('.').next().unwrap_or(name);
            if folder.is_empty() { stem.to_owned() } else { format!("{folder}/{stem}") }
        }
        _ => return false,
    };
    let module = format!("{module}.py");
    base.contains(&module) && is_judge(&module)
}

/// Replaces the files of folders that have many of them by the folders, so that they do not hide the others.
fn collapse_folders(list: &mut Vec<String>) {
    const MANY_FILES: usize = 40;
    const MANY_IN_FOLDER: usize = 20;
    if list.len() <= MANY_FILES {
        return;
    }
    let mut folders: std::collections::BTreeMap<String, usize> = std::collections::BTreeMap::new();
    let top = |path: &str| path.split_once('/').map(|(top, _)| top.to_owned());
    for folder in list.iter().filter_map(|path| top(path)) {
        *folders.entry(folder).or_default() += 1;
    }
    folders.retain(|_, count| *count > MANY_IN_FOLDER);
    list.retain(|path| top(path).is_none_or(|folder| !folders.contains_key(&folder)));
    list.sort_by_key(|path| path.contains('/'));
    let folders = folders.into_iter().map(|(folder, count)| format!("{folder}/ ({count} files)"));
    list.splice(0..0, folders);
}

/// Returns whether a check names a file: by its path, its name, or its name without its end.
fn names_file(path: &str, texts: &[&str]) -> bool {
    let name = path.rsplit('/').next().unwrap_or(path);
    let stem = name.split('.').next().unwrap_or(name);
    let by_stem = stem.len() >= MIN_STEM && texts.iter().any(|text| has_word(text, stem));
    by_stem || texts.iter().any(|text| has_word(text, name))
}

/// Returns whether a text has a word that is not a part of a longer one.
fn has_word(text: &str, word: &str) -> bool {
    let is_part = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.');
    text.match_indices(word).any(|(at, _)| {
        let before = text.get(..at).and_then(|text| text.chars().next_back());
        let after = text.get(at + word.len()..).and_then(|text| text.chars().next());
        !before.is_some_and(is_part) && !after.is_some_and(is_part)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn change(line: &str) -> ChangedPath {
        let (kind, path) = line.split_once(' ').expect("a kind and a path");
        let kind = match kind {
            "A" => PathChangeKind::Created,
            "D" => PathChangeKind::Removed,
            _ => PathChangeKind::Modified,
        };
        ChangedPath { path: path.to_owned(), kind }
    }

    /// Classifies one change in a project with these files and this check.
    #[track_caller]
    fn check(base: &str, command: &str, line: &str, want: &str) {
        let base: BTreeSet<String> = base.split_whitespace().map(str::to_owned).collect();
        let rules = ProofFileRules {
            base: &base,
            is_protected: &|path| path.starts_with("locked/"),
            may_change: &|path| path.starts_with("tests/free"),
            commands: &[command],
            check_texts: &[command],
            task: "Write tests/asked/conftest.py, please.",
        };
        let found = classify_changes(&[change(line)], &rules);
        let names = ["put back", "left out", "given", "own", "build file", "inline", "exits", "product"];
        let got: Vec<&str> =
            names.into_iter().zip(found.lists()).filter(|(_, list)| !list.is_empty()).map(|(name, _)| name).collect();
        assert_eq!(got.join(" "), want, "{line} in {base:?} with {command}");
    }

    #[test]
    fn every_change_has_one_place() {
        let base = "app.py tests/test_a.py tests/free.py Makefile pytest.ini";
        for (line, want) in [
            ("M app.py", "product"),
            ("A new.py", "product"),
            ("A tests/test_a/__init__.py", "left out"),
            ("A tests/test_a.cpython-313-x86_64-linux-gnu.so", "left out"),
            ("A tests/pytest.ini", "left out"),
            ("A tests/asked/conftest.py", "own"),
            ("M tests/test_a.py", "put back"),
            ("D tests/test_a.py", "put back"),
            ("M pytest.ini", "put back"),
            ("A tests/test_b.py", "left out"),
            ("A tests/conftest.py", "left out"),
            ("A tests/data.json", "left out"),
            ("A tests/__init__.py", "left out"),
            ("A tests", "left out"),
            ("A sitecustomize.py", "left out"),
            ("A node_modules/.bin/node", "left out"),
            ("M tests/free.py", "given"),
            ("A tests/free_too.py", "given"),
            ("M Makefile", "build file"),
            ("A rules.mk", "build file"),
            ("M locked/test_a.py", ""),
            // No test of this language exists, so these are the first ones.
            ("A web/a.test.js", "own"),
            ("A web/jest.config.js", "own"),
        ] {
            check(base, "pytest", line, want);
        }
    }

    #[test]
    fn tests_that_a_check_names_are_for_the_run_to_write() {
        let base = "tests/old.rs tests/test_a.py web/old.test.js";
        for (command, line, want) in [
            ("cargo test --test new_feature", "A tests/new_feature.rs", "own"),
            ("npx jest new_feature", "A web/new_feature.test.js", "own"),
            ("npx jest new_feature_2", "A web/new_feature.test.js", "left out"),
            ("pytest tests/test_b.py::test_x", "A tests/test_b.py", "own"),
            ("pytest tests/unit", "A tests/unit/test_c.py", "own"),
            ("pytest tests", "A tests/test_c.py", "left out"),
            ("pytest -k new_feature", "A tests/test_new_feature.py", "own"),
            ("go test -run=Login ./...", "A tests/test_login.py", "own"),
            ("pytest -q conftest", "A tests/conftest.py", "left out"),
            ("make -k test", "A tests/test_c.py", "left out"),
            ("pytest -c tests/pytest.ini", "A tests/pytest.ini", "own"),
            ("cargo test it", "A tests/it.rs", "own"),
            ("pytest tests/unit", "A tests/unit/conftest.py", "left out"),
            ("npx jest web", "A web/more.test.js", "left out"),
            ("pytest tests/test_b.py", "M tests/test_a.py", "put back"),
        ] {
            check(base, command, line, want);
        }
    }

    #[test]
    fn records_are_bounded() {
        let many = ProofFileChanges {
            put_back: (0..150).map(|n| format!("tests/{n}")).collect(),
            ..ProofFileChanges::default()
        };
        let recorded = many.recorded(|path| path.replace("tests", "t"));
        assert_eq!((recorded.put_back.len(), recorded.not_listed), (100, 50));
        assert_eq!(recorded.put_back.first().map(String::as_str), Some("t/0"));
        let vendored = (0..130).map(|n| format!("vendor/{n}.js")).chain(["vite.config.js".to_owned()]).collect();
        let recorded_files =
            ProofFileChanges { build_files: vendored, ..ProofFileChanges::default() }.recorded(str::to_owned);
        assert_eq!(recorded_files.build_files, ["vendor/ (130 files)", "vite.config.js"]);
        let mut merged = ProofFileChanges::default();
        merged.merge(&recorded);
        merged.merge(&recorded);
        assert_eq!((merged.put_back.len(), merged.not_listed), (100, 50));
        assert!(!merged.is_empty() && ProofFileChanges::default().is_empty());
    }
}
