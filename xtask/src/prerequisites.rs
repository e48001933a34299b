//! The outside programs that the tests need: named with their versions, or the step fails and says how to get them.

use std::path::Path;
use std::thread::JoinHandle;

use anyhow::{Context as _, bail};

use crate::tools::{self, CargoTool};
use crate::workspace::{BuildEnvironment, ProjectWorkspace};
use crate::{deny, fuzz, report, subprocess, third_party, unused_dependencies};

struct RequiredProgram {
    name: &'static str,
    /// Asks for the version; a program without one is only looked for.
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
        why: "`ralph watch` is looked at and typed at in a real terminal",
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

/// Names every outside program, and fails at the first that is missing or too old.
pub(crate) fn run(house: &ProjectWorkspace) -> anyhow::Result<()> {
    for program in PROGRAMS {
        report::print(&check_program(program, &house.root)?);
    }
    report::print(&check_rustc(house)?);
    Ok(())
}

/// What the tests and later steps need and registries have, on its way while other steps have the processors.
pub(crate) struct ProgramFetch(JoinHandle<(anyhow::Result<Vec<String>>, anyhow::Result<String>)>);

/// Tools of later steps. A step that still misses its own says why.
const FETCHED_TOOLS: [&CargoTool; 3] = [&unused_dependencies::MACHETE, &deny::DENY, &fuzz::FUZZ];

impl ProgramFetch {
    pub(crate) fn start(house: &ProjectWorkspace) -> Self {
        let house = house.clone();
        Self(std::thread::spawn(move || {
            let programs = (third_party::install_agents(&house), third_party::install_litellm(&house));
            for tool in FETCHED_TOOLS {
                if let Err(error) = tools::ensure(&house.root, tool) {
                    report::print_error(&format!("{error:#}"));
                }
            }
            programs
        }))
    }

    /// Waits for it, and tells what there is now.
    pub(crate) fn finish(self, house: &ProjectWorkspace) -> anyhow::Result<()> {
        let Ok((agents, proxy)) = self.0.join() else { bail!("whoever fetched programs for the tests died") };
        report_fetched(house, "agents", agents)?;
        report_fetched(house, "a LiteLLM proxy", proxy.map(|line| vec![line]))
    }
}

/// Tells what was fetched for the tests. At a desk without a registry the tests say themselves what they did not try.
fn report_fetched(house: &ProjectWorkspace, what: &str, lines: anyhow::Result<Vec<String>>) -> anyhow::Result<()> {
    match lines {
        Ok(lines) => lines.iter().for_each(|line| report::print(line)),
        Err(error) if house.environment == BuildEnvironment::Local => {
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
    let said =
        subprocess::output(subprocess::command(&place, folder).arg(ask)).with_context(|| format!("try: {install}"))?;
    let said = said.lines().next().unwrap_or("").trim();
    if let Some(least) = least {
        check_version(name, said, *least, install)?;
    }
    Ok(format!("{name:<12} {said}"))
}

/// The compiler must be as new as the workspace says it is.
fn check_rustc(house: &ProjectWorkspace) -> anyhow::Result<String> {
    let manifest = house.read("Cargo.toml")?;
    let wanted = manifest.lines().find_map(|line| line.strip_prefix("rust-version = ")).and_then(parse_version);
    let least = wanted.context("`Cargo.toml` has no `rust-version`")?;
    let said = subprocess::output(subprocess::command("rustc", &house.root).arg("--version"))?;
    check_version("rustc", said.trim(), least, "rustup update stable")?;
    Ok(format!("{:<12} {}", "rustc", said.trim()))
}

fn check_version(name: &str, said: &str, least: ProgramVersion, install: &str) -> anyhow::Result<()> {
    let found = parse_version(said).with_context(|| format!("`{name}` does not tell its version: `{said}`"))?;
    if found < least {
        bail!("`{name}` is `{said}`, and {}.{} or newer is needed: {install}", least.0, least.1);
    }
    Ok(())
}

/// Returns the first thing that looks like `1.95`.
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
