//! What a check used of the files around it, as seen while it ran on the start commit.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

/// The files that a command opened, listed, or looked for without finding them. Paths of the workspace are relative to it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ObservedFiles {
    /// Files that were read or executed.
    pub read: BTreeSet<String>,
    /// Folders that were listed; the workspace itself is empty.
    pub listed: BTreeSet<String>,
    /// Paths that do not exist, with the names of the programs that looked for them.
    pub missing: BTreeMap<String, BTreeSet<String>>,
    /// Programs and modules outside the workspace that were executed or loaded, as absolute paths.
    pub outside: BTreeSet<String>,
    /// How many paths are not listed because there were too many, or because they are no text.
    pub not_listed: u64,
}

impl ObservedFiles {
    /// Adds what another run of the check used.
    pub fn merge(&mut self, other: Self) {
        self.read.extend(other.read);
        self.listed.extend(other.listed);
        for (path, programs) in other.missing {
            self.missing.entry(path).or_default().extend(programs);
        }
        self.outside.extend(other.outside);
        self.not_listed = self.not_listed.max(other.not_listed);
    }

    /// Returns whether a new file takes the place of something that the check found elsewhere, or that it did without.
    ///
    /// `makefiles` are the texts of the makefiles of the start commit, and `is_search_folder` tells in which folders Python
    /// looks for modules by their own names.
    pub fn is_replaced_by(&self, path: &str, makefiles: &[&str], is_search_folder: &dyn Fn(&str) -> bool) -> bool {
        let (folder, name) = path.rsplit_once('/').unwrap_or(("", path));
        self.shadows_python_module(folder, name, is_search_folder)
            || self.shadows_outside_file(path, name)
            || self.changes_make(path, makefiles)
    }

    /// As [`Self::is_replaced_by`], for a path that appears while a check runs: a rule of a makefile makes its own target, and
    /// a package appears as a folder.
    pub fn is_replaced_meanwhile(
        &self,
        path: &str,
        makefiles: &[&str],
        is_search_folder: &dyn Fn(&str) -> bool,
    ) -> bool {
        let (folder, name) = path.rsplit_once('/').unwrap_or(("", path));
        let is_included = || {
            let mut included = makefiles.iter().flat_map(|text| super::script_paths::included_files(text));
            included.any(|file| file == path)
        };
        let is_phony = || makefiles.iter().any(|text| super::script_paths::is_phony(text, path));
        self.shadows_python_module(folder, name, is_search_folder)
            || self.shadows_python_module(path, "__init__.py", is_search_folder)
            || self.shadows_outside_file(path, name)
            || (self.changes_make(path, makefiles) && (is_included() || is_phony()))
    }

    /// A module beside the tests is found before an installed one of its name. Modules of a package do not count: they
    /// are imported by the name of the package.
    fn shadows_python_module(&self, folder: &str, name: &str, is_search_folder: &dyn Fn(&str) -> bool) -> bool {
        let (folder, module) = match name {
            "__init__.py" => folder.rsplit_once('/').unwrap_or(("", folder)),
            _ => match name.rsplit_once('.') {
                Some((_, "py" | "pyc" | "so")) => (folder, name.split('.').next().unwrap_or(name)),
                _ => return false,
            },
        };
        self.listed.contains(folder)
            && is_search_folder(folder)
            && self.outside.iter().any(|loaded| python_module(loaded) == Some(module))
    }

    /// A program or a module that was looked for here first and then found outside.
    fn shadows_outside_file(&self, path: &str, name: &str) -> bool {
        self.missing.contains_key(path)
            && self.outside.iter().any(|outside| {
                let ends = ["rb", "pm", "pl", "lua", "h", "hh", "hpp"];
                let is_module = name.rsplit_once('.').is_some_and(|(_, end)| ends.contains(&end));
                (is_module || !name.contains('.')) && has_same_name(path, outside)
            })
    }

    /// A target that exists as a file is not made, and an optional include is read once it exists.
    fn changes_make(&self, path: &str, makefiles: &[&str]) -> bool {
        let by_make = |programs: &BTreeSet<String>| programs.iter().any(|name| name.ends_with("make"));
        // A folder of the target's name is a target that exists, too.
        ancestors(path).filter(|target| self.missing.get(*target).is_some_and(by_make)).any(|target| {
            makefiles.iter().any(|text| {
                super::script_paths::is_target(text, target)
                    || super::script_paths::included_files(text).iter().any(|file| file == target)
            })
        })
    }
}

/// Returns whether a path and a file outside have the same name below folders that are searched: `lib/set.rb` and
/// `/usr/lib/ruby/3.3.0/set.rb`, but not `lib/app/version.rb` and `/usr/lib/ruby/3.3.0/json/version.rb`.
fn has_same_name(path: &str, outside: &str) -> bool {
    let starts = std::iter::once(0).chain(path.match_indices('/').map(|(at, _)| at + 1));
    starts.filter_map(|at| path.get(at..)).any(|name| {
        let folder = outside.strip_suffix(name).and_then(|folder| folder.strip_suffix('/'));
        folder.is_some_and(|folder| is_search_root(folder.rsplit('/').next().unwrap_or(folder)))
    })
}

/// Returns whether programs, modules or headers are looked for in a folder of this name.
fn is_search_root(name: &str) -> bool {
    const ROOTS: [&str; 12] = [
        "bin",
        "sbin",
        "lib",
        "include",
        "ruby",
        "vendor_ruby",
        "site_ruby",
        "perl",
        "perl5",
        "perl-base",
        "lua",
        "libexec",
    ];
    let is_version =
        name.starts_with(|c: char| c.is_ascii_digit()) && name.chars().all(|c| c.is_ascii_digit() || c == '.');
    ROOTS.contains(&name) || is_version || name.contains("-linux")
}

/// Returns a path and every folder above it.
fn ancestors(path: &str) -> impl Iterator<Item = &str> {
    path.match_indices('/').filter_map(|(at, _)| path.get(..at)).chain([path])
}

/// Returns the module that a file of a Python installation is, if it is imported by its own name.
fn python_module(path: &str) -> Option<&str> {
    let mut parts: Vec<&str> = path.split('/').collect();
    let file = parts.pop()?;
    if parts.last() == Some(&"__pycache__") {
        parts.pop();
    }
    let stem = file.split('.').next()?;
    let module = if stem == "__init__" { parts.pop()? } else { stem };
    let folder = parts.last()?;
    let is_library =
        folder.starts_with("python3") || ["site-packages", "dist-packages", "lib-dynload"].contains(folder);
    is_library.then_some(module)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(text: &str) -> impl Iterator<Item = String> {
        text.split_whitespace().map(|word| word.trim_matches('"').to_owned())
    }

    fn observed(listed: &str, missing: &str, outside: &str) -> ObservedFiles {
        ObservedFiles {
            listed: words(listed).collect(),
            missing: words(missing)
                .map(|entry| {
                    let (program, path) = entry.split_once(':').expect("program:path");
                    (path.to_owned(), BTreeSet::from([program.to_owned()]))
                })
                .collect(),
            outside: words(outside).collect(),
            ..ObservedFiles::default()
        }
    }

    #[track_caller]
    fn check(seen: &ObservedFiles, makefile: &str, path: &str, want: bool) {
        let is_search_folder = |folder: &str| ["", "tests"].contains(&folder);
        assert_eq!(seen.is_replaced_by(path, &[makefile], &is_search_folder), want, "{path}");
    }

    #[test]
    fn python_modules() {
        let seen = observed(
            "\"\" tests pkg",
            "",
            "/usr/lib/python3.13/unittest/__init__.py /usr/lib/python3.13/__pycache__/json.cpython-313.pyc \
             /usr/lib/python3/dist-packages/pytest/__init__.py /usr/lib/python3.13/email/mime/text.py",
        );
        for (path, want) in [
            ("tests/unittest.py", true),
            ("unittest/__init__.py", true),
            ("tests/json.cpython-313-x86_64-linux-gnu.so", true),
            ("pytest.py", true),
            ("app.py", false),
            ("other/unittest.py", false),
            ("pkg/json.py", false),
            ("tests/text.py", false),
            ("tests/unittest.txt", false),
        ] {
            check(&seen, "", path, want);
        }
    }

    #[test]
    fn programs_and_modules_found_elsewhere() {
        let seen = observed(
            "",
            "ruby:lib/set.rb ruby:lib/app/version.rb sh:bin/python3 sh:done.txt cc1:include/assert.h \
             cc1:include/app.h cc1:include/types.h cc1plus:include/cassert",
            "/usr/lib/ruby/3.3.0/set.rb /usr/lib/ruby/3.3.0/json/version.rb /usr/bin/python3 /usr/include/assert.h \
             /usr/include/x86_64-linux-gnu/bits/types.h /usr/include/c++/12/cassert",
        );
        for (path, want) in [
            ("lib/set.rb", true),
            ("include/assert.h", true),
            ("include/app.h", false),
            ("include/types.h", false),
            ("include/cassert", true),
            ("lib/app/version.rb", false),
            ("bin/python3", true),
            ("done.txt", false),
            ("src/set.rb", false),
            ("python3", false),
        ] {
            check(&seen, "", path, want);
        }
    }

    #[test]
    fn files_that_change_what_make_does() {
        let seen = observed("", "make:test make:local.mk make:hello.txt sh:check", "");
        let makefile = "-include local.mk\ntest: hello.txt\n\tsh run.sh\ncheck:\n\ttrue\n";
        for (path, want) in
            [("test", true), ("test/readme.txt", true), ("local.mk", true), ("hello.txt", false), ("check", false)]
        {
            check(&seen, makefile, path, want);
        }
    }

    #[test]
    fn what_appears_during_a_check() {
        let seen = observed("\"\" tests", "make:app make:test make:local.mk", "/usr/lib/python3.13/json/__init__.py");
        let makefile = "-include local.mk\n.PHONY: test clean\ntest: app\n\t./app\napp: app.c\n\tcc -o app app.c\n";
        for (path, want) in [
            ("app", false),
            ("test", true),
            ("local.mk", true),
            ("tests/json", true),
            ("json.py", true),
            ("build", false),
            ("other/json", false),
        ] {
            let is_search_folder = |folder: &str| ["", "tests"].contains(&folder);
            assert_eq!(seen.is_replaced_meanwhile(path, &[makefile], &is_search_folder), want, "{path}");
        }
    }

    #[test]
    fn observations_add_up() {
        let mut all = observed("a", "sh:x", "/bin/sh");
        all.merge(observed("b", "make:x", "/bin/sh"));
        assert_eq!(all.listed.len(), 2);
        assert_eq!(all.missing.get("x").map(BTreeSet::len), Some(2));
    }
}
