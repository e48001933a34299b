//! The known files of a repository: their names, and the text of a few.

use std::collections::{BTreeMap, BTreeSet};

/// The maximum number of files examined; test configuration is near the root of a repository.
pub const MAX_FILES: usize = 20_000;

/// The files whose text is relevant to tests.
const RELEVANT_FILES: [&str; 22] = [
    "Cargo.toml",
    "GNUmakefile",
    "Gemfile",
    "Justfile",
    "Makefile",
    "Pipfile",
    "Rakefile",
    ".justfile",
    "composer.json",
    "go.work",
    "justfile",
    "makefile",
    "mix.exs",
    "package.json",
    "pnpm-workspace.yaml",
    "pyproject.toml",
    "pytest.ini",
    "requirements-dev.txt",
    "requirements.txt",
    "setup.cfg",
    "setup.py",
    "tox.ini",
];

/// Folders that hold third-party code, build output or test fixtures.
const IGNORED_FOLDERS: [&str; 24] = [
    "__pycache__",
    "benches",
    "bin",
    "build",
    "deps",
    "dist",
    "doc",
    "docs",
    "example",
    "examples",
    "fixtures",
    "node_modules",
    "obj",
    "out",
    "samples",
    "site-packages",
    "target",
    "templates",
    "testdata",
    "third-party",
    "third_party",
    "vendor",
    "venv",
    "virtualenv",
];

/// Returns whether the caller should load the text of a file of this name.
pub fn is_relevant_file(name: &str) -> bool {
    RELEVANT_FILES.contains(&name)
}

/// Returns whether projects in a folder of this name are not the repository's own.
pub fn is_ignored_folder(folder: &str) -> bool {
    folder.starts_with('.') || IGNORED_FOLDERS.contains(&folder)
}

/// The files of a repository by path from its root, folders joined with `/`; three levels are enough.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ProjectFiles {
    pub files: BTreeSet<String>,
    /// The texts of those for which [`is_relevant_file`] returns true.
    pub texts: BTreeMap<String, String>,
}

impl ProjectFiles {
    /// Returns a view of one folder; the empty path is the root.
    pub(super) fn folder_at<'a>(&'a self, folder: &'a str) -> ProjectFolder<'a> {
        ProjectFolder { project: self, folder }
    }

    /// Returns the folders that may hold a project of their own, nearest first, then by name, without the root.
    pub(super) fn folders(&self) -> Vec<&str> {
        let mut folders = BTreeSet::new();
        for path in &self.files {
            let mut at = 0;
            while let Some(slash) = path.get(at..).and_then(|rest| rest.find('/')) {
                let end = at + slash;
                if path.get(at..end).is_none_or(is_ignored_folder) {
                    break;
                }
                let depth = path.get(..end).unwrap_or_default().matches('/').count();
                if depth >= 2 {
                    break;
                }
                folders.insert((depth, path.get(..end).unwrap_or_default()));
                at = end + 1;
            }
        }
        folders.into_iter().map(|(_, folder)| folder).collect()
    }
}

/// One folder of a project.
#[derive(Debug, Clone, Copy)]
pub(super) struct ProjectFolder<'a> {
    project: &'a ProjectFiles,
    pub(super) folder: &'a str,
}

impl<'a> ProjectFolder<'a> {
    fn path(&self, name: &str) -> String {
        if self.folder.is_empty() { name.to_owned() } else { format!("{}/{name}", self.folder) }
    }

    pub(super) fn has(&self, name: &str) -> bool {
        self.project.files.contains(&self.path(name))
    }

    /// Returns the first of these that exists.
    pub(super) fn first_present(&self, names: &[&'static str]) -> Option<&'static str> {
        names.iter().copied().find(|name| self.has(name))
    }

    pub(super) fn text(&self, name: &str) -> Option<&'a str> {
        self.project.texts.get(&self.path(name)).map(String::as_str)
    }

    /// Returns the files directly in this folder whose names end with `end`, sorted.
    pub(super) fn files_ending(&self, end: &str) -> Vec<&'a str> {
        self.paths_below("").filter(|name| !name.contains('/') && name.ends_with(end)).collect()
    }

    /// Returns the paths below a subfolder (`tests/`, or nothing for all), relative to this folder.
    pub(super) fn paths_below(&self, within: &str) -> impl Iterator<Item = &'a str> + use<'a> {
        let start = self.path("");
        let prefix = format!("{start}{within}");
        let cut = start.len();
        self.project
            .files
            .range(prefix.clone()..)
            .take_while(move |path| path.starts_with(&prefix))
            .filter_map(move |path| path.get(cut..))
    }
}

#[cfg(test)]
pub(super) fn project(files: &[(&str, &str)]) -> ProjectFiles {
    ProjectFiles {
        files: files.iter().map(|(path, _)| (*path).to_owned()).collect(),
        texts: files.iter().map(|(path, text)| ((*path).to_owned(), (*text).to_owned())).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folders() {
        let project = project(&[
            ("a/b/c/d.txt", ""),
            ("README.md", ""),
            ("node_modules/x/package.json", ""),
            ("web/node_modules/y/z.js", ""),
            (".github/workflows/ci.yml", ""),
            ("b/x", ""),
        ]);
        assert_eq!(project.folders(), ["a", "b", "web", "a/b"]);
        assert_eq!(project.folder_at("a").paths_below("b/").collect::<Vec<_>>(), ["b/c/d.txt"]);
        assert_eq!(project.folder_at("").files_ending(".md"), ["README.md"]);
    }
}
