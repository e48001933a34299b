//! Checks the external programs that the tests need: prints their versions, or fails with how to install them.

use std::path::Path;
use std::thread::JoinHandle;

use anyhow::{Context as _, bail};

use crate::workspace::{BuildEnvironment, ProjectWorkspace};
use crate::{report, subprocess, third_party};

struct RequiredProgram {
    name: &'static str,
    /// The argument that prints the version; without one, only the program's presence is checked.
    version_flag: Option<&'static str>,
    min_version: Option<ProgramVersion>,
    why: &'static str,
    install: &'static str,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct ProgramVersion(u32, u32);

const PROGRAMS: &[RequiredProgram] = &[
    RequiredProgram {
        name: "git",
        version_flag: Some("--version"),
        min_version: Some(ProgramVersion(2, 40)),
        why: "repositories in tests are real ones",
        install: "apt-get install git",
    },
    RequiredProgram {
        name: "sh",
        version_flag: None,
        min_version: None,
        why: "commands in tasks are shell lines",
        install: "apt-get install dash",
    },
    RequiredProgram {
        name: "cc",
        version_flag: Some("--version"),
        min_version: None,
        why: "aws-lc-sys and libFuzzer are C and C++",
        install: "apt-get install build-essential",
    },
    RequiredProgram {
        name: "c++",
        version_flag: Some("--version"),
        min_version: None,
        why: "libFuzzer is C++",
        install: "apt-get install build-essential",
    },
    RequiredProgram {
        name: "cargo-fmt",
        version_flag: Some("--version"),
        min_version: None,
        why: "formatting is checked",
        install: "rustup component add rustfmt",
    },
    RequiredProgram {
        name: "cargo-clippy",
        version_flag: Some("--version"),
        min_version: None,
        why: "lints are checked",
        install: "rustup component add clippy",
    },
    RequiredProgram {
        name: "tmux",
        version_flag: Some("-V"),
        min_version: None,
        why: "`ralph watch` is tested in a real terminal",
        install: "apt-get install tmux",
    },
    RequiredProgram {
        name: "script",
        version_flag: None,
        min_version: None,
        why: "secrets are typed at a real terminal",
        install: "apt-get install bsdutils",
    },
];

/// Prints every external program, and fails at the first that is missing or too old.
pub(crate) fn run(workspace: &ProjectWorkspace) -> anyhow::Result<()> {
    for program in PROGRAMS {
        report::print(&check_program(program, &workspace.root)?);
    }
    report::print(&check_rustc(workspace)?);
    Ok(())
}

/// Test runners whose projects the tests try to cheat in: a program or a file, and the Debian package that has it.
const TEST_RUNNERS: [(&str, &str); 11] = [
    ("bash", "bash"),
    ("pytest", "python3-pytest"),
    ("go", "golang-go"),
    ("rspec", "ruby-rspec"),
    ("ctest", "cmake"),
    ("javac", "default-jdk-headless"),
    ("mvn", "maven"),
    ("/usr/share/maven-repo/org/junit/jupiter/junit-jupiter", "junit5"),
    ("/usr/share/maven-repo/org/apache/maven/plugins/maven-surefire-plugin", "libsurefire-java"),
    ("/usr/share/maven-repo/org/apache/maven/plugins/maven-compiler-plugin", "libmaven-compiler-plugin-java"),
    ("/usr/share/maven-repo/org/apache/maven/plugins/maven-resources-plugin", "libmaven-resources-plugin-java"),
];

/// Test runners that npm installs for all users.
const NPM_TEST_RUNNERS: [&str; 3] = ["jest", "mocha", "vitest"];

fn is_installed(program: &str) -> bool {
    if program.starts_with('/') { Path::new(program).exists() } else { subprocess::which(program).is_some() }
}

/// Installs missing test runners in CI. On a developer's machine the tests themselves report what they skip.
fn install_test_runners(workspace: &ProjectWorkspace) -> anyhow::Result<Vec<String>> {
    let missing_for_npm = || NPM_TEST_RUNNERS.iter().filter(|program| !is_installed(program));
    if missing_for_npm().next().is_some() && workspace.environment == BuildEnvironment::Ci {
        third_party::install_for_all_users(workspace, &missing_for_npm().copied().collect::<Vec<_>>())?;
    }
    let missing = || TEST_RUNNERS.iter().filter(|(program, _)| !is_installed(program));
    if missing().next().is_some() && workspace.environment == BuildEnvironment::Ci {
        let root = &workspace.root;
        subprocess::run(subprocess::command("apt-get", root).args(["update", "--quiet"]))?;
        let mut install = subprocess::command("apt-get", root);
        install.env("DEBIAN_FRONTEND", "noninteractive");
        install.args(["install", "--yes", "--quiet", "--no-install-recommends"]);
        subprocess::run(install.args(missing().map(|(_, package)| package)))?;
    }
    let left: Vec<&str> = missing().map(|(_, package)| *package).collect();
    if !left.is_empty() {
        bail!("not installed: {0}; try: apt-get install {0}", left.join(" "));
    }
    let left: Vec<&str> = missing_for_npm().copied().collect();
    if !left.is_empty() {
        bail!("not installed: {0}; try: npm install --global {0}", left.join(" "));
    }
    Ok(vec!["test runners of other languages are installed".to_owned()])
}

/// A background download of what the tests need from registries, while other steps use the processors.
pub(crate) struct ProgramFetch(JoinHandle<FetchedPrograms>);

type FetchedPrograms = (anyhow::Result<Vec<String>>, anyhow::Result<Vec<String>>, anyhow::Result<String>);

impl ProgramFetch {
    pub(crate) fn start(workspace: &ProjectWorkspace) -> Self {
        let workspace = workspace.clone();
        Self(std::thread::spawn(move || {
            let runners = install_test_runners(&workspace);
            let programs = (third_party::install_agents(&workspace), third_party::install_litellm(&workspace));
            (runners, programs.0, programs.1)
        }))
    }

    /// Waits for the download and reports what is available now.
    pub(crate) fn finish(self, workspace: &ProjectWorkspace) -> anyhow::Result<()> {
        let Ok((runners, agents, proxy)) = self.0.join() else { bail!("the thread that fetches programs panicked") };
        report_fetched(workspace, "proofs in other languages", runners)?;
        report_fetched(workspace, "agents", agents)?;
        report_fetched(workspace, "a LiteLLM proxy", proxy.map(|line| vec![line]))
    }
}

/// Reports what was fetched for the tests. On a developer's machine without a registry, the tests themselves report
/// what they skip.
fn report_fetched(workspace: &ProjectWorkspace, what: &str, lines: anyhow::Result<Vec<String>>) -> anyhow::Result<()> {
    match lines {
        Ok(lines) => lines.iter().for_each(|line| report::print(line)),
        Err(error) if workspace.environment == BuildEnvironment::Local => {
            report::print_error(&format!("{what} cannot be tried: {error:#}"));
        }
        Err(error) => return Err(error),
    }
    Ok(())
}

fn check_program(program: &RequiredProgram, folder: &Path) -> anyhow::Result<String> {
    let RequiredProgram { name, version_flag: ask, min_version: least, why, install } = program;
    let Some(place) = subprocess::which(name) else { bail!("`{name}` is missing ({why}): {install}") };
    let Some(ask) = ask else { return Ok(format!("{name:<12} {}", place.display())) };
    let output =
        subprocess::output(subprocess::command(&place, folder).arg(ask)).with_context(|| format!("try: {install}"))?;
    let output = output.lines().next().unwrap_or("").trim();
    if let Some(least) = least {
        check_version(name, output, *least, install)?;
    }
    Ok(format!("{name:<12} {output}"))
}

/// Checks that the compiler is at least as new as the workspace's `rust-version`.
fn check_rustc(workspace: &ProjectWorkspace) -> anyhow::Result<String> {
    let manifest = workspace.read("Cargo.toml")?;
    let wanted = manifest.lines().find_map(|line| line.strip_prefix("rust-version = ")).and_then(parse_version);
    let least = wanted.context("`Cargo.toml` has no `rust-version`")?;
    let output = subprocess::output(subprocess::command("rustc", &workspace.root).arg("--version"))?;
    check_version("rustc", output.trim(), least, "rustup update stable")?;
    Ok(format!("{:<12} {}", "rustc", output.trim()))
}

fn check_version(name: &str, output: &str, least: ProgramVersion, install: &str) -> anyhow::Result<()> {
    let found = parse_version(output).with_context(|| format!("`{name}` does not report its version: `{output}`"))?;
    if found < least {
        bail!("`{name}` is `{output}`, and {}.{} or newer is needed: {install}", least.0, least.1);
    }
    Ok(())
}

/// Returns the first version number in a text, such as `1.95`.
fn parse_version(text: &str) -> Option<ProgramVersion> {
    text.split(|c: char| !c.is_ascii_digit() && c != '.').find_map(|word| {
        let mut parts = word.split('.');
        Some(ProgramVersion(parts.next()?.parse().ok()?, parts.next()?.parse().ok()?))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, want: Option<(u32, u32)>) {
        assert_eq!(parse_version(text), want.map(|(major, minor)| ProgramVersion(major, minor)), "{text}");
    }

    #[test]
    fn versions() {
        check("git version 2.47.3", Some((2, 47)));
        check("rustc 1.95.0 (abc 2026-01-01)", Some((1, 95)));
        check("\"1.91\"", Some((1, 91)));
        check("git version 2.40.windows.1", Some((2, 40)));
        check("cc (Debian 12) 14", None);
        check("", None);
    }

    #[test]
    fn too_old_says_what_to_do() {
        let error = check_version("git", "git version 2.39.5", ProgramVersion(2, 40), "apt-get install git")
            .expect_err("too old");
        let want = "`git` is `git version 2.39.5`, and 2.40 or newer is needed: apt-get install git";
        assert_eq!(error.to_string(), want);
        check_version("git", "git version 10.1", ProgramVersion(2, 40), "").expect("numbers are compared, not texts");
    }

    #[test]
    fn missing_says_what_to_do() {
        let program = RequiredProgram {
            name: "no-program-of-this-name",
            version_flag: None,
            min_version: None,
            why: "for this test",
            install: "apt-get install it",
        };
        let error = check_program(&program, Path::new(".")).expect_err("missing");
        assert_eq!(error.to_string(), "`no-program-of-this-name` is missing (for this test): apt-get install it");
    }
}
