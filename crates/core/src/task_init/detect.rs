//! Detects how a repository is tested, and records the evidence.

use std::collections::BTreeSet;

use serde::Serialize;

use super::project_files::{ProjectFiles, ProjectFolder, is_ignored_folder};
use super::{languages, make_target, node, python};
use crate::text;

/// The maximum number of subfolders whose commands are joined into one.
const MAX_FOLDERS: usize = 6;

/// The test command of one part of the repository.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct TestStack {
    pub name: &'static str,
    /// The folder it is in; empty for the root.
    pub folder: String,
    pub command: String,
    /// The files and entries that it was derived from.
    pub because: String,
}

/// What the files of a repository show about its tests.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct TestDetection {
    /// Every stack that has tests, the root first.
    pub stacks: Vec<TestStack>,
    /// The one command that runs all of them.
    pub test_command: Option<String>,
    /// Remarks for the user about the choice.
    pub remarks: Vec<String>,
    /// The folders that hold tests, each with a slash at its end.
    pub test_folders: Vec<String>,
}

/// A detected language, with or without tests.
#[derive(Debug)]
pub(super) enum LanguageTests {
    Tests {
        name: &'static str,
        command: String,
        because: String,
    },
    /// The language is present, but nothing shows how it is tested.
    Untested {
        name: &'static str,
        why: String,
    },
}

#[expect(clippy::unnecessary_wraps, reason = "matches the return type of a detector")]
pub(super) fn with_tests(
    name: &'static str,
    command: impl Into<String>,
    because: impl Into<String>,
) -> Option<LanguageTests> {
    Some(LanguageTests::Tests { name, command: command.into(), because: because.into() })
}

/// Detects one language from its files. A match at the root may cover the whole repository.
type LanguageDetector = fn(&ProjectFolder<'_>) -> Option<LanguageTests>;

const LANGUAGES: [LanguageDetector; 9] = [
    languages::rust,
    node::node,
    python::python,
    languages::go,
    languages::maven,
    languages::gradle,
    languages::dotnet,
    languages::ruby,
    languages::php,
];

/// The names of folders that hold tests, by the conventions of the known test runners.
const TEST_FOLDERS: [&str; 8] =
    ["tests", "test", "spec", "specs", "__tests__", "e2e", "integration-tests", "acceptance"];

/// The maximum number of test folders that are proposed.
const MAX_TEST_FOLDERS: usize = 8;

/// Returns the outermost folders that hold tests.
pub fn test_folders(project: &ProjectFiles) -> Vec<String> {
    let mut found = BTreeSet::new();
    for path in &project.files {
        let mut folders: Vec<&str> = path.split('/').collect();
        folders.pop();
        if folders.iter().any(|folder| is_ignored_folder(folder)) {
            continue;
        }
        if let Some(depth) = folders.iter().position(|folder| TEST_FOLDERS.contains(folder)) {
            found.insert(format!("{}/", folders.get(..=depth).unwrap_or_default().join("/")));
        }
    }
    found.into_iter().take(MAX_TEST_FOLDERS).collect()
}

/// Detects how a repository is tested.
///
/// A language found at the root covers the whole repository; one that is only found in a subfolder is tested there.
/// When there are several, the project's own `make test` or `just test` is preferred, because that is how its
/// developers combined them.
pub fn detect(project: &ProjectFiles) -> TestDetection {
    let mut found = TestDetection { test_folders: test_folders(project), ..TestDetection::default() };
    let top = project.folder_at("");
    for detector in LANGUAGES.into_iter().chain([languages::elixir as LanguageDetector]) {
        match detector(&top) {
            Some(seen @ LanguageTests::Tests { .. }) => found.add("", seen),
            seen => {
                let before = found.stacks.len();
                found.detect_in_subfolders(project, detector);
                // A root manifest that only installs tools is not worth a remark when the tests are in subfolders.
                if let Some(seen) = seen.filter(|_| found.stacks.len() == before) {
                    found.add("", seen);
                }
            }
        }
    }
    let joined: Vec<String> = found.stacks.iter().map(command_in_folder).collect();
    let own = make_target::test_target(&top);
    found.test_command = match (joined.as_slice(), own) {
        ([], None) => None,
        ([one], None) => Some(one.clone()),
        (several, None) => Some(several.join(" && ")),
        (stacks, Some(own)) => {
            let name = own.command.clone();
            let chosen = if let [one] = stacks { one.clone() } else { name.clone() };
            if stacks.len() == 1 {
                found.remarks.push(format!("use `{name}` instead if it does more than `{chosen}`"));
            } else if stacks.len() > 1 {
                found.remarks.push(format!("`{name}` is used for all of them: {}", own.because));
            }
            found.stacks.push(own);
            Some(chosen)
        }
    };
    found
}

impl TestDetection {
    fn add(&mut self, folder: &str, seen: LanguageTests) {
        match seen {
            LanguageTests::Tests { name, command, because } => {
                let because = text::strip_control(text::first_line(&because, 300));
                self.stacks.push(TestStack { name, folder: folder.to_owned(), command, because });
            }
            LanguageTests::Untested { name, why } => self.remarks.push(match folder {
                "" => format!("{name}: {why}"),
                folder => format!("{name} in {folder}: {why}"),
            }),
        }
    }

    /// Searches the folders below the root for a language, but not below a folder where it was found.
    fn detect_in_subfolders(&mut self, project: &ProjectFiles, detector: LanguageDetector) {
        let mut covered: Vec<&str> = Vec::new();
        let mut left_out: Vec<&str> = Vec::new();
        let mut name = "";
        for folder in project.folders() {
            let inside = |outer: &&str| folder.strip_prefix(*outer).is_some_and(|rest| rest.starts_with('/'));
            if covered.iter().any(inside) {
                continue;
            }
            let Some(seen) = detector(&project.folder_at(folder)) else { continue };
            covered.push(folder);
            if let LanguageTests::Tests { name: found_name, .. } = &seen {
                name = found_name;
                if !is_shell_safe(folder) || self.stacks.len() >= MAX_FOLDERS {
                    left_out.push(folder);
                    continue;
                }
            }
            self.add(folder, seen);
        }
        if !left_out.is_empty() {
            let folders: Vec<String> = left_out.iter().take(5).map(|folder| text::strip_control(folder)).collect();
            let more = if left_out.len() > 5 { " and more" } else { "" };
            self.remarks.push(format!("{name} in {}{more} is not part of the command", folders.join(", ")));
        }
    }
}

/// Returns whether a folder's name needs no quoting in a shell command or in YAML.
fn is_shell_safe(folder: &str) -> bool {
    !folder.starts_with('-')
        && folder.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'_' | b'-' | b'/'))
}

fn command_in_folder(stack: &TestStack) -> String {
    match stack.folder.as_str() {
        "" => stack.command.clone(),
        folder => format!("(cd {folder} && {})", stack.command),
    }
}

#[cfg(test)]
mod tests {
    use super::super::project_files::project;
    use super::*;

    #[track_caller]
    fn check(files: &[(&str, &str)], want: Option<&str>) {
        let found = detect(&project(files));
        assert_eq!(found.test_command.as_deref(), want, "{found:#?}");
    }

    const TESTED: &str = r#"{"scripts": {"test": "vitest run"}}"#;

    #[test]
    fn single_languages() {
        check(&[("README.md", "")], None);
        check(&[("Cargo.toml", "[package]\n"), ("tests/fixtures/package.json", TESTED)], Some("cargo test"));
        check(&[("Makefile", "all:\n\ncheck: all\n")], Some("make check"));
        check(&[("justfile", "test *args:\n    cargo test\n")], Some("just test"));
    }

    #[test]
    fn several_languages() {
        let both = [("Cargo.toml", ""), ("package.json", TESTED)];
        check(&both, Some("cargo test && npm test"));
        check(&[both[0], both[1], ("Makefile", "test:\n")], Some("make test"));
        // One language and a Makefile: the language's command is more specific.
        check(&[both[0], ("Makefile", "test:\n")], Some("cargo test"));
        check(&[("Cargo.toml", ""), ("web/package.json", TESTED)], Some("cargo test && (cd web && npm test)"));
        check(
            &[("services/api/go.mod", ""), ("services/web/package.json", TESTED)],
            Some("(cd services/web && npm test) && (cd services/api && go test ./...)"),
        );
        // Folders below a project of the same language belong to that project.
        check(&[("a/package.json", TESTED), ("a/b/package.json", TESTED)], Some("(cd a && npm test)"));
        check(&[("package.json", TESTED), ("client/package.json", TESTED)], Some("npm test"));
        check(&[("package.json", "{}"), ("client/package.json", TESTED)], Some("(cd client && npm test)"));
    }

    #[test]
    fn folders_that_need_quoting_are_left_out() {
        let found = detect(&project(&[("it's mine/go.mod", ""), ("ok/go.mod", "")]));
        assert_eq!(found.test_command.as_deref(), Some("(cd ok && go test ./...)"));
        assert_eq!(found.remarks, ["Go in it's mine is not part of the command"]);
        let many: Vec<String> = (0..9).map(|n| format!("m{n}/go.mod")).collect();
        let many: Vec<(&str, &str)> = many.iter().map(|path| (path.as_str(), "")).collect();
        let found = detect(&project(&many));
        assert_eq!((found.stacks.len(), found.remarks.len()), (MAX_FOLDERS, 1), "{found:#?}");
    }

    #[test]
    fn untested_languages_are_reported() {
        let found = detect(&project(&[("package.json", "{\"name\": \"x\"}")]));
        assert_eq!(found.test_command, None);
        assert_eq!(found.remarks, ["Node: package.json has no script `test`"]);
    }
}
