//! Parses the command line of `cargo xtask`.

use std::time::Duration;

pub(crate) const USAGE: &str = "\
usage: cargo xtask <command>

  test [--quick] [--seconds N] [--allow-missing]
        everything that must hold: formatting, lints, workspace rules, dependencies, tests, fuzzing, macOS
        --quick          offline and in minutes: leave out slow tests, fuzzing and the macOS check
        --seconds N      how long each fuzz target runs (5)
        --allow-missing  do not fail because a fuzzer could not be installed
  fuzz [--seconds N] [TARGET]
        fuzz one target, or all in turn (60 seconds each)
  bench loop [--json] [--strict] [--iterations N] [--quick]
        time, disk and memory of an iteration that are ours, in a `dist` build
  bench sandbox [--install] [--json] [--strict] [--rounds N] [--quick] [--program PATH] [--write DIR]
        the embedded backend beside bwrap, srt, codex and docker, in turn, in a `dist` build
        --install        get those that are missing, with apt-get and npm, into target/peers and nowhere else
  bench proxy [--install] [--json] [--strict] [--rounds N] [--seconds N] [--only TEXT | --write DIR]
        the egress proxy beside nginx, mitmproxy and LiteLLM, in turn, in a `dist` build
        --install        get those that are missing, with apt-get and pip, into target/peers and nowhere else
        --strict         a figure that could not be measured is a failure
        --only TEXT      measure only what has this in its name
  build-ahead
        build what fuzzing and the macOS check need, as `test` does in the background
  rules
        only the workspace rules
  docs
        regenerate docs/modules.md from the sources
  macos
        type-check the program for macOS, on a Debian machine
  deny
        cargo-deny with everything, advisories too; needs the network";

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum XtaskCommand {
    Test(TestOptions),
    Fuzz { seconds: Duration, target: Option<String> },
    BuildAhead,
    Bench { bench: BenchKind, arguments: Vec<String> },
    Rules,
    Docs,
    Macos,
    Deny,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum BenchKind {
    Loop,
    Sandbox(PeerInstall),
    Proxy(PeerInstall),
}

/// Whether missing programs to compare with may be installed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PeerInstall {
    AsFound,
    Install,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct TestOptions {
    pub scope: TestScope,
    pub seconds: Duration,
    pub missing: MissingTools,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TestScope {
    Quick,
    Full,
}

/// What a step that could not run means for the exit code.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum MissingTools {
    Fails,
    Allowed,
}

/// Parses the arguments, or returns what is wrong with them.
pub(crate) fn parse(arguments: &[String]) -> Result<XtaskCommand, String> {
    let mut rest = arguments.iter().map(String::as_str);
    let chore = match rest.next() {
        None => return Err("which chore?".to_owned()),
        Some("test") => test(&mut rest)?,
        Some("fuzz") => fuzz(&mut rest)?,
        Some("bench") => match rest.next() {
            Some("loop") => {
                XtaskCommand::Bench { bench: BenchKind::Loop, arguments: rest.by_ref().map(str::to_owned).collect() }
            }
            Some("sandbox") => bench_with_peers(&mut rest, BenchKind::Sandbox),
            Some("proxy") => bench_with_peers(&mut rest, BenchKind::Proxy),
            _ => return Err("which bench? there are `loop`, `sandbox` and `proxy`".to_owned()),
        },
        Some("build-ahead") => XtaskCommand::BuildAhead,
        Some("rules") => XtaskCommand::Rules,
        Some("docs") => XtaskCommand::Docs,
        Some("macos") => XtaskCommand::Macos,
        Some("deny") => XtaskCommand::Deny,
        Some(other) => return Err(format!("unknown chore `{other}`")),
    };
    match rest.next() {
        None => Ok(chore),
        Some(extra) => Err(format!("unexpected `{extra}`")),
    }
}

/// Parses a bench that compares with other programs, which may have to be installed first.
fn bench_with_peers<'a>(rest: &mut impl Iterator<Item = &'a str>, bench: fn(PeerInstall) -> BenchKind) -> XtaskCommand {
    let (install, arguments): (Vec<&str>, Vec<&str>) = rest.partition(|word| *word == "--install");
    let peers = if install.is_empty() { PeerInstall::AsFound } else { PeerInstall::Install };
    XtaskCommand::Bench { bench: bench(peers), arguments: arguments.into_iter().map(str::to_owned).collect() }
}

fn test<'a>(rest: &mut impl Iterator<Item = &'a str>) -> Result<XtaskCommand, String> {
    let mut options =
        TestOptions { scope: TestScope::Full, seconds: Duration::from_secs(5), missing: MissingTools::Fails };
    while let Some(argument) = rest.next() {
        match argument {
            "--quick" => options.scope = TestScope::Quick,
            "--allow-missing" => options.missing = MissingTools::Allowed,
            "--seconds" => options.seconds = seconds(rest.next())?,
            other => return Err(format!("unexpected `{other}`")),
        }
    }
    Ok(XtaskCommand::Test(options))
}

fn fuzz<'a>(rest: &mut impl Iterator<Item = &'a str>) -> Result<XtaskCommand, String> {
    let (mut length, mut target) = (Duration::from_mins(1), None);
    while let Some(argument) = rest.next() {
        match argument {
            "--seconds" => length = seconds(rest.next())?,
            name if !name.starts_with('-') && target.is_none() => target = Some(name.to_owned()),
            other => return Err(format!("unexpected `{other}`")),
        }
    }
    Ok(XtaskCommand::Fuzz { seconds: length, target })
}

/// Parses a number of seconds. Zero is refused: to libFuzzer it means no limit.
fn seconds(value: Option<&str>) -> Result<Duration, String> {
    let value = value.ok_or("`--seconds` needs a number")?;
    match value.parse::<u32>() {
        Ok(0) | Err(_) => Err(format!("`--seconds {value}` is not a number of seconds above zero")),
        Ok(seconds) => Ok(Duration::from_secs(seconds.into())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(line: &str, want: Result<XtaskCommand, &str>) {
        let arguments: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
        assert_eq!(parse(&arguments), want.map_err(str::to_owned), "{line}");
    }

    fn seconds(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn lines() {
        let full = TestOptions { scope: TestScope::Full, seconds: seconds(5), missing: MissingTools::Fails };
        check("test", Ok(XtaskCommand::Test(full)));
        check("test --quick", Ok(XtaskCommand::Test(TestOptions { scope: TestScope::Quick, ..full })));
        check(
            "test --seconds 9 --allow-missing",
            Ok(XtaskCommand::Test(TestOptions { seconds: seconds(9), missing: MissingTools::Allowed, ..full })),
        );
        check("fuzz", Ok(XtaskCommand::Fuzz { seconds: seconds(60), target: None }));
        check(
            "fuzz --seconds 3 patch",
            Ok(XtaskCommand::Fuzz { seconds: seconds(3), target: Some("patch".to_owned()) }),
        );
        check("build-ahead", Ok(XtaskCommand::BuildAhead));
        let bench = |bench, words: &[&str]| {
            Ok(XtaskCommand::Bench { bench, arguments: words.iter().map(ToString::to_string).collect() })
        };
        check("bench loop --json", bench(BenchKind::Loop, &["--json"]));
        check("bench sandbox --quick", bench(BenchKind::Sandbox(PeerInstall::AsFound), &["--quick"]));
        check(
            "bench sandbox --rounds 9 --install",
            bench(BenchKind::Sandbox(PeerInstall::Install), &["--rounds", "9"]),
        );
        check("bench proxy --strict", bench(BenchKind::Proxy(PeerInstall::AsFound), &["--strict"]));
        check("bench proxy --install --rounds 9", bench(BenchKind::Proxy(PeerInstall::Install), &["--rounds", "9"]));
        check("rules", Ok(XtaskCommand::Rules));
        check("docs", Ok(XtaskCommand::Docs));
        check("macos", Ok(XtaskCommand::Macos));
        check("deny", Ok(XtaskCommand::Deny));
    }

    #[test]
    fn wrong_lines() {
        check("", Err("which chore?"));
        check("tset", Err("unknown chore `tset`"));
        check("test --fast", Err("unexpected `--fast`"));
        check("bench", Err("which bench? there are `loop`, `sandbox` and `proxy`"));
        check("fuzz a b", Err("unexpected `b`"));
        check("fuzz --seconds", Err("`--seconds` needs a number"));
        check("fuzz --seconds 0", Err("`--seconds 0` is not a number of seconds above zero"));
        check("deny now", Err("unexpected `now`"));
    }
}
