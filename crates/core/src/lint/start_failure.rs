//! Tells a check that fails from one that could not start: its output names a module, a service or a download that is
//! missing and that no work on the task would add.

use std::collections::BTreeSet;

use crate::text::{first_line, strip_control};

/// The names that belong to the project: something with such a name may be the work itself.
#[derive(Debug, Clone, Default)]
pub struct ProjectNames {
    /// Every file of the start commit.
    pub files: BTreeSet<String>,
    /// The text of the task.
    pub task: String,
    /// The folders of submodules, which are empty in a sandbox.
    pub submodules: Vec<String>,
    /// The texts of the files that declare dependencies.
    pub manifests: String,
}

/// What a check could not start without, and what to do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct StartFailure {
    pub(super) missing: String,
    pub(super) fix: String,
    /// Nothing of the project could have that name: it stands in the command or among the declared dependencies.
    pub(super) is_certain: bool,
}

/// Folders that a set-up step makes and that are not in a commit.
const SETUP_FOLDERS: [&str; 6] = [".venv/", "venv/", "node_modules/", "vendor/", ".bundle/", ".tox/"];

const INSTALL_FIRST: &str = "commit what it needs, let the check install it first, or name an image that has it: \
                             `sandbox_image: oci:DIR`";

/// Finds the reason in the output of a failed check, from its end.
pub(super) fn find_start_failure(command: &str, output: &str, project: &ProjectNames) -> Option<StartFailure> {
    let lines: Vec<&str> = output.lines().map(str::trim).collect();
    lines.iter().rev().find_map(|line| {
        missing_module(line, command, project)
            .or_else(|| missing_service(line))
            .or_else(|| missing_download(line))
            .or_else(|| missing_setup(line, project))
            .or_else(|| empty_submodule(line, project))
    })
}

/// Returns the line of an output that says most about why a check failed.
pub fn telling_line(output: &str) -> String {
    let lines = || output.lines().map(str::trim).filter(|line| !line.is_empty());
    let says_why = |line: &&str| {
        let lower = line.to_ascii_lowercase();
        ["error", "assert", "fail", "not found", "cannot", "no such", "expected", "panicked", "refused"]
            .iter()
            .any(|word| lower.contains(word))
    };
    // A summary (`1 failed in 0.1s`) comes last and says less than the reason before it.
    let is_summary = |line: &&str| line.starts_with(['=', '-', '#']) || line.starts_with("FAILED");
    let found = lines().rfind(|line| says_why(line) && !is_summary(line)).or_else(|| lines().next_back());
    strip_control(first_line(found.unwrap_or_default(), 160))
}

/// Returns the text between two markers.
fn between<'a>(line: &'a str, start: &str, ends: &[char]) -> Option<&'a str> {
    let rest = line.split_once(start)?.1;
    let rest = rest.trim_start_matches(['\'', '"', '`', ' ']);
    let name = rest.split(|c: char| ends.contains(&c) || c.is_whitespace()).next()?;
    (!name.is_empty() && name.len() <= 100).then_some(name)
}

fn missing_module(line: &str, command: &str, project: &ProjectNames) -> Option<StartFailure> {
    let quotes = ['\'', '"', '`', ',', ';', ')'];
    let (name, kind, fix) = if let Some(name) = between(line, "No module named ", &quotes) {
        (name.split('.').next()?, "the Python module", "pip install")
    } else if let Some(name) = between(line, "Cannot find module ", &quotes)
        .or_else(|| between(line, "Cannot find package ", &quotes))
        .or_else(|| between(line, "Failed to resolve import ", &quotes))
    {
        (package_name(name)?, "the npm package", "npm install")
    } else if let Some(name) = between(line, "no required module provides package ", &[':', ';']) {
        (name, "the Go module", "go mod vendor")
    } else if let Some(name) = between(line, "cannot load such file -- ", &quotes) {
        (name.split('/').next()?, "the Ruby library", "bundle install")
    } else if let Some(name) = between(line, "Could not find gem ", &quotes) {
        (name, "the gem", "bundle install")
    } else if let Some(name) = between(line, "no matching package named ", &quotes)
        .or_else(|| between(line, "failed to get ", &quotes).filter(|_| line.contains("as a dependency")))
    {
        (name, "the crate", "cargo vendor")
    } else if let Some(name) = between(line, "Class \"PHPUnit", &quotes) {
        (name, "PHPUnit", "composer install")
    } else if line.contains("fatal error:") && line.contains(".h: No such file or directory") {
        (between(line, "fatal error: ", &[':'])?, "the header", "apt-get install")
    } else {
        return None;
    };
    if belongs_to_project(name, project) {
        return None;
    }
    let is_certain = has_word(command, name) || has_word(&project.manifests, name);
    Some(StartFailure {
        is_certain,
        missing: format!("{kind} `{}`", strip_control(name)),
        fix: format!(
            "make it part of the environment (`{fix}` in the project, committed or in an image); {INSTALL_FIRST}"
        ),
    })
}

/// Returns the package of an import; `None` for a path.
fn package_name(name: &str) -> Option<&str> {
    // A path, or a name that the project's own settings lead elsewhere.
    if name.starts_with(['.', '/', '~', '#', '$']) || name.starts_with("@/") {
        return None;
    }
    match name.strip_prefix('@') {
        Some(scoped) => {
            let end = scoped.match_indices('/').nth(1).map_or(name.len(), |(at, _)| at + 1);
            name.get(..end)
        }
        None => name.split('/').next(),
    }
}

/// Returns whether a name is one of the project's files or folders, or stands in the task.
fn belongs_to_project(name: &str, project: &ProjectNames) -> bool {
    // The packages of a Go module begin with its own name.
    let own_module = |line: &str| line.strip_prefix("module ").is_some_and(|module| name.starts_with(module.trim()));
    let is_part = |path: &String| {
        path.split('/').any(|part| part == name || part.rsplit_once('.').is_some_and(|(stem, _)| stem == name))
    };
    project.files.iter().any(is_part)
        || has_word(&body_of(&project.task), name)
        || project.manifests.lines().any(own_module)
}

/// Returns whether a text has a name that is not a part of a longer one.
fn has_word(text: &str, name: &str) -> bool {
    text.match_indices(name).any(|(at, _)| {
        let part = |c: char| c.is_ascii_alphanumeric() || c == '_';
        let before = text.get(..at).and_then(|text| text.chars().next_back());
        let after = text.get(at + name.len()..).and_then(|text| text.chars().next());
        !before.is_some_and(part) && !after.is_some_and(part)
    })
}

/// Returns a task without its front matter and the proofs of its boxes: a command names its runner.
fn body_of(task: &str) -> String {
    let body = task.strip_prefix("---").and_then(|rest| rest.split_once("\n---")).map_or(task, |(_, body)| body);
    body.lines().filter(|line| !line.trim_start().starts_with("- verify:")).collect::<Vec<_>>().join("\n")
}

fn missing_service(line: &str) -> Option<StartFailure> {
    const SERVICES: [(&str, &str); 9] = [
        ("Cannot connect to the Docker daemon", "the Docker daemon"),
        ("docker daemon running", "the Docker daemon"),
        (":5432", "a PostgreSQL server"),
        ("psycopg2.OperationalError", "a PostgreSQL server"),
        (":3306", "a MySQL server"),
        ("Can't connect to MySQL server", "a MySQL server"),
        (":6379", "a Redis server"),
        (":27017", "a MongoDB server"),
        (":9200", "an Elasticsearch server"),
    ];
    let refused = ["refused", "could not connect", "can't connect", "cannot connect", "daemon running"];
    let lower = line.to_ascii_lowercase();
    // Another port may begin with the same digits.
    let has_sign = |sign: &str| {
        let mut after = line.match_indices(sign).filter_map(|(at, _)| line.get(at + sign.len()..));
        after.any(|rest| !rest.starts_with(|c: char| c.is_ascii_digit()))
    };
    let (_, name) = SERVICES.iter().find(|(sign, _)| has_sign(sign))?;
    refused.iter().any(|word| lower.contains(word)).then(|| StartFailure {
        is_certain: true,
        missing: (*name).to_owned(),
        fix: "use a proof that starts it by itself or does without it: nothing of this machine is reachable from a sandbox"
            .to_owned(),
    })
}

fn missing_download(line: &str) -> Option<StartFailure> {
    const SIGNS: [&str; 14] = [
        "Could not find a version that satisfies the requirement",
        "Temporary failure in name resolution",
        "Could not resolve host",
        "getaddrinfo ENOTFOUND",
        "getaddrinfo EAI_AGAIN",
        "Could not transfer artifact",
        "could not be resolved: ",
        "Could not resolve all files",
        "Failed to download",
        "failed to download",
        "Network is unreachable",
        "dial tcp: lookup",
        "Bundler::HTTPError",
        "NU1301",
    ];
    SIGNS.iter().any(|sign| line.contains(sign)).then(|| StartFailure {
        is_certain: true,
        missing: format!("a download: `{}`", strip_control(first_line(line, 120))),
        fix: format!("allow its host with `--allow-host`, or {INSTALL_FIRST}"),
    })
}

fn missing_setup(line: &str, project: &ProjectNames) -> Option<StartFailure> {
    let lower = line.to_ascii_lowercase();
    let gone = ["no such file", "not found", "enoent", "failed opening required", "cannot find"];
    let folder = SETUP_FOLDERS.iter().find(|folder| {
        line.match_indices(*folder).any(|(at, _)| {
            let before = line.get(..at).and_then(|text| text.chars().next_back());
            !before.is_some_and(|c| c.is_ascii_alphanumeric() || c == '_' || c == '-')
        })
    })?;
    let is_committed =
        project.files.iter().any(|path| path.starts_with(folder) || path.contains(&format!("/{folder}")));
    (!is_committed && gone.iter().any(|word| lower.contains(word))).then(|| StartFailure {
        is_certain: true,
        missing: format!("the folder `{}`, which is not in the repository", folder.trim_end_matches('/')),
        fix: format!("let the check make it first; {INSTALL_FIRST}"),
    })
}

fn empty_submodule(line: &str, project: &ProjectNames) -> Option<StartFailure> {
    let lower = line.to_ascii_lowercase();
    let gone = ["no such file", "not found", "does not", "cannot find", "missing", "doesn't"];
    // Relative to the project: a system folder may have the same name.
    let names = |path: &String| {
        line.match_indices(path.as_str()).any(|(at, _)| {
            let before = line.get(..at).and_then(|text| text.chars().next_back());
            !before.is_some_and(|c| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '/'))
        }) || line.contains(&format!("/workspace/{path}"))
    };
    let says_gone = gone.iter().any(|word| lower.contains(word));
    let found = project.submodules.iter().find(|path| says_gone && names(path))?;
    Some(StartFailure {
        is_certain: true,
        missing: format!("the submodule `{}`, which is empty in a sandbox", strip_control(found)),
        fix: "commit its files, or use a proof that does without them".to_owned(),
    })
}

/// Returns the folders that a `.gitmodules` file names.
pub fn submodule_paths(text: &str) -> Vec<String> {
    let value = |line: &str| {
        line.trim().strip_prefix("path").map(|rest| rest.trim_start().trim_start_matches('=').trim().to_owned())
    };
    text.lines().filter_map(value).filter(|path| !path.is_empty()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn project() -> ProjectNames {
        ProjectNames {
            files: ["app/core.py", "src/index.js", "tests/test_app.py"].map(str::to_owned).into(),
            task: "---\ntest_command: pytest\n---\n# Add a parser\n\nWrite the module newmod.\n- [ ] a\n  - verify: `python -m pytest`\n"
                .to_owned(),
            submodules: submodule_paths("[submodule \"x\"]\n\tpath = third_party/x\n\turl = u\n"),
            manifests: "module github.com/me/proj\n\"lodash\": \"4\"\n".to_owned(),
        }
    }

    #[test]
    fn checks_that_could_not_start() {
        for (output, want) in [
            ("/usr/bin/python3: No module named pytest", "the Python module `pytest`"),
            ("E   ModuleNotFoundError: No module named 'requests.adapters'", "the Python module `requests`"),
            ("Error: Cannot find module 'lodash/fp'\nRequire stack:", "the npm package `lodash`"),
            ("Error: Cannot find module '@scope/pkg/sub'", "the npm package `@scope/pkg`"),
            (
                "a.go:3:8: no required module provides package github.com/x/y; to add it:",
                "the Go module `github.com/x/y`",
            ),
            ("cannot load such file -- rspec/core (LoadError)", "the Ruby library `rspec`"),
            ("error: no matching package named `serde` found", "the crate `serde`"),
            ("a.c:1:10: fatal error: openssl/ssl.h: No such file or directory", "the header `openssl/ssl.h`"),
            ("sh: 1: .venv/bin/pytest: not found", "the folder `.venv`, which is not in the repository"),
            ("sh: 1: node_modules/.bin/jest: not found", "the folder `node_modules`, which is not in the repository"),
            (
                "PHP Fatal error:  Failed opening required 'vendor/autoload.php'",
                "the folder `vendor`, which is not in the repository",
            ),
            ("Cannot connect to the Docker daemon at unix:///var/run/docker.sock.", "the Docker daemon"),
            (
                "connection to server at \"localhost\", port 5432 failed: Connection refused\npsycopg2.OperationalError: connection refused",
                "a PostgreSQL server",
            ),
            ("Error: connect ECONNREFUSED 127.0.0.1:6379", "a Redis server"),
            (
                "CMake Error: The source directory third_party/x does not contain a CMakeLists.txt",
                "the submodule `third_party/x`, which is empty in a sandbox",
            ),
        ] {
            let found = find_start_failure("python3 -m pytest", output, &project()).map(|failure| failure.missing);
            assert_eq!(found.as_deref(), Some(want), "{output}");
        }
        let download = "ERROR: Could not find a version that satisfies the requirement flask (from versions: none)";
        assert!(
            find_start_failure("make", download, &project())
                .is_some_and(|found| found.missing.starts_with("a download: "))
        );
    }

    #[test]
    fn checks_that_fail() {
        for output in [
            "E   ModuleNotFoundError: No module named 'app.parser'",
            "E   ModuleNotFoundError: No module named 'newmod'",
            "Error: Cannot find module './src/new'",
            "Error: Cannot find module '/workspace/src/new.js'",
            "AssertionError: 41 != 42",
            "expected connection to be refused",
            "AssertionError: server did not connect to :6379",
            "Error: connect ECONNREFUSED 127.0.0.1:54321",
            "no required module provides package github.com/me/proj/newpkg; to add it:",
            "Error: Cannot find module '@/components/X'",
            "  File \"/usr/lib/python3/third_party/x.py\", line 3, in f",
            "tests/test_app.py::test_x FAILED",
            "make: *** No rule to make target 'hello.txt', needed by 'test'.  Stop.",
            "",
        ] {
            assert_eq!(find_start_failure("python3 -m pytest", output, &project()), None, "{output}");
        }
    }

    #[test]
    fn a_name_that_nothing_declares_may_be_the_work() {
        for (output, want) in [
            ("/usr/bin/python3: No module named pytest", true),
            ("Error: Cannot find module 'lodash'", true),
            ("ModuleNotFoundError: No module named 'calc'", false),
        ] {
            let found = find_start_failure("python3 -m pytest", output, &project()).map(|failure| failure.is_certain);
            assert_eq!(found, Some(want), "{output}");
        }
    }

    #[test]
    fn telling_lines() {
        for (output, want) in [
            ("a\nAssertionError: 41 != 42\n\n=== 1 failed in 0.01s ===\n", "AssertionError: 41 != 42"),
            ("one\ntwo\n", "two"),
            ("", ""),
            ("x\nexpected 42\nmore\nFAILED tests/a.py - x\n", "expected 42"),
        ] {
            assert_eq!(telling_line(output), want, "{output}");
        }
    }
}
