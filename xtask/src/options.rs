//! The command line of `cargo xtask`.

use std::time::Duration;

pub(crate) const USAGE: &str = "\
usage: cargo xtask <chore>

  test [--quick] [--seconds N] [--allow-missing]
        everything that must hold: formatting, lints, house rules, tests, fuzzing, licences
        --quick          leave fuzzing out
        --seconds N      how long each fuzz target runs (10)
        --allow-missing  do not fail because a fuzzer could not be had
  fuzz [--seconds N] [TARGET]
        fuzz one target, or all in turn (60 seconds each)
  bench loop [--json] [--iterations N] [--quick]
        time, disk and memory of an iteration that are ours, in a release build
  bench sandbox [--install] [--json] [--rounds N] [--quick] [--program PATH] [--write DIR]
        the embedded backend beside bwrap, srt, codex and docker, in turn, in a release build
        --install        get those that are missing, with apt-get and npm, into target/peers and nowhere else
  bench proxy [--install] [--json] [--strict] [--rounds N] [--seconds N] [--only TEXT | --write DIR]
        the way out beside nginx, mitmproxy and LiteLLM, in turn, in a release build
        --install        get those that are missing, with apt-get and pip, into target/peers and nowhere else
        --strict         a figure that could not be measured is a failure
        --only TEXT      measure only what has this in its name
  rules
        only the house rules
  deny
        cargo-deny with everything, advisories too; needs the network";

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Chore {
    Test(TestOptions),
    Fuzz { seconds: Duration, target: Option<String> },
    Bench { bench: Bench, arguments: Vec<String> },
    Rules,
    Deny,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Bench {
    Loop,
    Sandbox(Peers),
    Proxy(Peers),
}

/// Whether other programs may be fetched to be measured against.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Peers {
    AsFound,
    Install,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct TestOptions {
    pub pace: Pace,
    pub seconds: Duration,
    pub missing: Missing,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Pace {
    Quick,
    Full,
}

/// What a step that could not run means for the exit code.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Missing {
    Fails,
    Allowed,
}

/// Reads the arguments, or says what is wrong with them.
pub(crate) fn parse(arguments: &[String]) -> Result<Chore, String> {
    let mut rest = arguments.iter().map(String::as_str);
    let chore = match rest.next() {
        None => return Err("which chore?".to_owned()),
        Some("test") => test(&mut rest)?,
        Some("fuzz") => fuzz(&mut rest)?,
        Some("bench") => match rest.next() {
            Some("loop") => Chore::Bench { bench: Bench::Loop, arguments: rest.by_ref().map(str::to_owned).collect() },
            Some("sandbox") => beside(&mut rest, Bench::Sandbox),
            Some("proxy") => beside(&mut rest, Bench::Proxy),
            _ => return Err("which bench? there are `loop`, `sandbox` and `proxy`".to_owned()),
        },
        Some("rules") => Chore::Rules,
        Some("deny") => Chore::Deny,
        Some(other) => return Err(format!("unknown chore `{other}`")),
    };
    match rest.next() {
        None => Ok(chore),
        Some(extra) => Err(format!("unexpected `{extra}`")),
    }
}

/// A bench beside other programs, which may have to be fetched first.
fn beside<'a>(rest: &mut impl Iterator<Item = &'a str>, bench: fn(Peers) -> Bench) -> Chore {
    let (install, arguments): (Vec<&str>, Vec<&str>) = rest.partition(|word| *word == "--install");
    let peers = if install.is_empty() { Peers::AsFound } else { Peers::Install };
    Chore::Bench { bench: bench(peers), arguments: arguments.into_iter().map(str::to_owned).collect() }
}

fn test<'a>(rest: &mut impl Iterator<Item = &'a str>) -> Result<Chore, String> {
    let mut options = TestOptions { pace: Pace::Full, seconds: Duration::from_secs(10), missing: Missing::Fails };
    while let Some(argument) = rest.next() {
        match argument {
            "--quick" => options.pace = Pace::Quick,
            "--allow-missing" => options.missing = Missing::Allowed,
            "--seconds" => options.seconds = seconds(rest.next())?,
            other => return Err(format!("unexpected `{other}`")),
        }
    }
    Ok(Chore::Test(options))
}

fn fuzz<'a>(rest: &mut impl Iterator<Item = &'a str>) -> Result<Chore, String> {
    let (mut length, mut target) = (Duration::from_mins(1), None);
    while let Some(argument) = rest.next() {
        match argument {
            "--seconds" => length = seconds(rest.next())?,
            name if !name.starts_with('-') && target.is_none() => target = Some(name.to_owned()),
            other => return Err(format!("unexpected `{other}`")),
        }
    }
    Ok(Chore::Fuzz { seconds: length, target })
}

/// Zero is refused: to libFuzzer it means for ever.
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
    fn check(line: &str, want: Result<Chore, &str>) {
        let arguments: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
        assert_eq!(parse(&arguments), want.map_err(str::to_owned), "{line}");
    }

    fn seconds(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn lines() {
        let full = TestOptions { pace: Pace::Full, seconds: seconds(10), missing: Missing::Fails };
        check("test", Ok(Chore::Test(full)));
        check("test --quick", Ok(Chore::Test(TestOptions { pace: Pace::Quick, ..full })));
        check(
            "test --seconds 9 --allow-missing",
            Ok(Chore::Test(TestOptions { seconds: seconds(9), missing: Missing::Allowed, ..full })),
        );
        check("fuzz", Ok(Chore::Fuzz { seconds: seconds(60), target: None }));
        check("fuzz --seconds 3 patch", Ok(Chore::Fuzz { seconds: seconds(3), target: Some("patch".to_owned()) }));
        let bench = |bench, words: &[&str]| {
            Ok(Chore::Bench { bench, arguments: words.iter().map(ToString::to_string).collect() })
        };
        check("bench loop --json", bench(Bench::Loop, &["--json"]));
        check("bench sandbox --quick", bench(Bench::Sandbox(Peers::AsFound), &["--quick"]));
        check("bench sandbox --rounds 9 --install", bench(Bench::Sandbox(Peers::Install), &["--rounds", "9"]));
        check("bench proxy --strict", bench(Bench::Proxy(Peers::AsFound), &["--strict"]));
        check("bench proxy --install --rounds 9", bench(Bench::Proxy(Peers::Install), &["--rounds", "9"]));
        check("rules", Ok(Chore::Rules));
        check("deny", Ok(Chore::Deny));
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
