//! The outside programs that the tests need: named with their versions, or the step fails and says how to get them.

use std::path::Path;
use std::thread::JoinHandle;

use anyhow::{Context as _, bail};

use crate::house::{House, Place};
use crate::{peers, program, report};

struct Program {
    name: &'static str,
    /// Asks for the version; a program without one is only looked for.
    ask: Option<&'static str>,
    least: Option<Version>,
    why: &'static str,
    install: &'static str,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Version(u32, u32);

const PROGRAMS: &[Program] = &[
    Program {
        name: "git",
        ask: Some("--version"),
        least: Some(Version(2, 40)),
        why: "repositories in tests are real ones",
        install: "apt-get install git",
    },
    Program {
        name: "sh",
        ask: None,
        least: None,
        why: "commands in tasks are shell lines",
        install: "apt-get install dash",
    },
    Program {
        name: "cc",
        ask: Some("--version"),
        least: None,
        why: "aws-lc-sys and libFuzzer are C and C++",
        install: "apt-get install build-essential",
    },
    Program {
        name: "c++",
        ask: Some("--version"),
        least: None,
        why: "libFuzzer is C++",
        install: "apt-get install build-essential",
    },
    Program {
        name: "cargo-fmt",
        ask: Some("--version"),
        least: None,
        why: "formatting is checked",
        install: "rustup component add rustfmt",
    },
    Program {
        name: "cargo-clippy",
        ask: Some("--version"),
        least: None,
        why: "lints are checked",
        install: "rustup component add clippy",
    },
    Program {
        name: "tmux",
        ask: Some("-V"),
        least: None,
        why: "`ralph watch` is looked at and typed at in a real terminal",
        install: "apt-get install tmux",
    },
    Program {
        name: "script",
        ask: None,
        least: None,
        why: "secrets are typed at a real terminal",
        install: "apt-get install bsdutils",
    },
];

/// Names every outside program, and fails at the first that is missing or too old.
pub(crate) fn run(house: &House) -> anyhow::Result<()> {
    for program in PROGRAMS {
        report::say(&look(program, &house.root)?);
    }
    report::say(&rustc(house)?);
    Ok(())
}

/// What the tests need and registries have, on its way while other steps have the processors.
pub(crate) struct Fetching(JoinHandle<(anyhow::Result<Vec<String>>, anyhow::Result<String>)>);

impl Fetching {
    pub(crate) fn begin(house: &House) -> Self {
        let house = house.clone();
        Self(std::thread::spawn(move || (peers::install_agents(&house), peers::install_litellm(&house))))
    }

    /// Waits for it, and tells what there is now.
    pub(crate) fn end(self, house: &House) -> anyhow::Result<()> {
        let Ok((agents, proxy)) = self.0.join() else { bail!("whoever fetched programs for the tests died") };
        fetched(house, "agents", agents)?;
        fetched(house, "a LiteLLM proxy", proxy.map(|line| vec![line]))
    }
}

/// Tells what was fetched for the tests. At a desk without a registry the tests say themselves what they did not try.
fn fetched(house: &House, what: &str, lines: anyhow::Result<Vec<String>>) -> anyhow::Result<()> {
    match lines {
        Ok(lines) => lines.iter().for_each(|line| report::say(line)),
        Err(error) if house.place == Place::Desk => report::complain(&format!("{what} cannot be tried: {error:#}")),
        Err(error) => return Err(error),
    }
    Ok(())
}

fn look(program: &Program, folder: &Path) -> anyhow::Result<String> {
    let Program { name, ask, least, why, install } = program;
    let Some(place) = program::which(name) else { bail!("`{name}` is missing ({why}): {install}") };
    let Some(ask) = ask else { return Ok(format!("{name:<12} {}", place.display())) };
    let said = program::output(program::quiet(&place, folder).arg(ask)).with_context(|| format!("try: {install}"))?;
    let said = said.lines().next().unwrap_or("").trim();
    if let Some(least) = least {
        enough(name, said, *least, install)?;
    }
    Ok(format!("{name:<12} {said}"))
}

/// The compiler must be as new as the workspace says it is.
fn rustc(house: &House) -> anyhow::Result<String> {
    let manifest = house.read("Cargo.toml")?;
    let wanted = manifest.lines().find_map(|line| line.strip_prefix("rust-version = ")).and_then(version);
    let least = wanted.context("`Cargo.toml` has no `rust-version`")?;
    let said = program::output(program::quiet("rustc", &house.root).arg("--version"))?;
    enough("rustc", said.trim(), least, "rustup update stable")?;
    Ok(format!("{:<12} {}", "rustc", said.trim()))
}

fn enough(name: &str, said: &str, least: Version, install: &str) -> anyhow::Result<()> {
    let found = version(said).with_context(|| format!("`{name}` does not tell its version: `{said}`"))?;
    if found < least {
        bail!("`{name}` is `{said}`, and {}.{} or newer is needed: {install}", least.0, least.1);
    }
    Ok(())
}

/// Returns the first thing that looks like `1.95`.
fn version(text: &str) -> Option<Version> {
    text.split(|c: char| !c.is_ascii_digit() && c != '.').find_map(|word| {
        let mut parts = word.split('.');
        Some(Version(parts.next()?.parse().ok()?, parts.next()?.parse().ok()?))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, want: Option<(u32, u32)>) {
        assert_eq!(version(text), want.map(|(major, minor)| Version(major, minor)), "{text}");
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
        let error = enough("git", "git version 2.39.5", Version(2, 40), "apt-get install git").expect_err("too old");
        let want = "`git` is `git version 2.39.5`, and 2.40 or newer is needed: apt-get install git";
        assert_eq!(error.to_string(), want);
        enough("git", "git version 10.1", Version(2, 40), "").expect("numbers are compared, not texts");
    }

    #[test]
    fn missing_says_what_to_do() {
        let program = Program {
            name: "no-program-of-this-name",
            ask: None,
            least: None,
            why: "for this test",
            install: "apt-get install it",
        };
        let error = look(&program, Path::new(".")).expect_err("missing");
        assert_eq!(error.to_string(), "`no-program-of-this-name` is missing (for this test): apt-get install it");
    }
}
