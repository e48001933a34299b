//! Parses the command line of a bench by the list of its options.

use std::path::PathBuf;

use super::option_list::{BenchOption, OptionValue};

/// The standard directories of programs.
const STANDARD_PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// What a command line asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum BenchCommand {
    Measure(BenchArguments),
    Help,
}

/// The options that were given, with their values.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct BenchArguments {
    given: Vec<(&'static str, String)>,
}

/// Parses the arguments, or returns what is wrong with them.
pub(super) fn parse(options: &[BenchOption], mut words: impl Iterator<Item = String>) -> Result<BenchCommand, String> {
    let mut arguments = BenchArguments::default();
    while let Some(word) = words.next() {
        if ["--help", "-h"].contains(&word.as_str()) {
            return Ok(BenchCommand::Help);
        }
        let known = options.iter().find(|option| option.name == word);
        let option = known.ok_or_else(|| format!("unknown option `{word}`"))?;
        let mut next = || words.next().ok_or_else(|| format!("`{word}` needs a value"));
        let value = match &option.value {
            OptionValue::Flag => String::new(),
            OptionValue::Text(_) => next()?,
            OptionValue::Number { allowed, .. } => {
                let value = next()?;
                if !value.parse().is_ok_and(|number| allowed.contains(&number)) {
                    let (least, most) = (allowed.start(), allowed.end());
                    return Err(format!("`{word}` needs a number from {least} to {most}, not `{value}`"));
                }
                value
            }
        };
        arguments.given.push((option.name, value));
    }
    Ok(BenchCommand::Measure(arguments))
}

impl BenchArguments {
    pub fn has(&self, option: &BenchOption) -> bool {
        self.text(option).is_some()
    }

    /// Returns the value of an option; of several, the last, so that a user can replace what `cargo xtask` passes.
    pub fn text(&self, option: &BenchOption) -> Option<&str> {
        let given = self.given.iter().rev().find(|(name, _)| *name == option.name);
        given.map(|(_, value)| value.as_str())
    }

    pub fn path(&self, option: &BenchOption) -> Option<PathBuf> {
        self.text(option).map(PathBuf::from)
    }

    /// Returns the value of an option with a number, or its default.
    pub fn number(&self, option: &BenchOption) -> u32 {
        let OptionValue::Number { default, .. } = option.value else {
            unreachable!("`{}` has no number", option.name);
        };
        self.text(option).and_then(|value| value.parse().ok()).unwrap_or(default)
    }

    /// Returns where programs are searched.
    pub fn search_path(&self) -> &str {
        self.text(&BenchOption::PATH).unwrap_or(STANDARD_PATH)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROUNDS: BenchOption = BenchOption::rounds(100, "samples");
    const SECONDS: BenchOption = BenchOption::number("--seconds", 2, 1..=60, "seconds");
    const OPTIONS: &[BenchOption] = &[BenchOption::JSON, ROUNDS, SECONDS, BenchOption::PEERS, BenchOption::PATH];

    fn parse_line(line: &str) -> Result<BenchCommand, String> {
        parse(OPTIONS, line.split_whitespace().map(str::to_owned))
    }

    #[test]
    fn command_lines() {
        #[track_caller]
        fn check(line: &str, want: Result<&[(&'static str, &str)], &str>) {
            let want = want.map_err(str::to_owned).map(|given| {
                let given = given.iter().map(|(name, value)| (*name, (*value).to_owned())).collect();
                BenchCommand::Measure(BenchArguments { given })
            });
            assert_eq!(parse_line(line), want, "{line}");
        }
        check("", Ok(&[]));
        check("--json", Ok(&[("--json", "")]));
        check("--rounds 3 --json", Ok(&[("--rounds", "3"), ("--json", "")]));
        check("--peers a --peers --json", Ok(&[("--peers", "a"), ("--peers", "--json")]));
        check("--seconds 60", Ok(&[("--seconds", "60")]));
        check("--seconds 61", Err("`--seconds` needs a number from 1 to 60, not `61`"));
        check("--rounds 0", Err("`--rounds` needs a number from 1 to 1000000, not `0`"));
        check("--rounds few", Err("`--rounds` needs a number from 1 to 1000000, not `few`"));
        check("--rounds", Err("`--rounds` needs a value"));
        check("--peers", Err("`--peers` needs a value"));
        check("--strict", Err("unknown option `--strict`"));
        check("json", Err("unknown option `json`"));
    }

    #[test]
    fn help() {
        for line in ["--help", "-h", "--json --help --unknown"] {
            assert_eq!(parse_line(line), Ok(BenchCommand::Help), "{line}");
        }
    }

    #[test]
    fn values() {
        #[track_caller]
        fn check(line: &str, want: (bool, u32, Option<&str>, &str)) {
            let Ok(BenchCommand::Measure(arguments)) = parse_line(line) else { panic!("`{line}` is a command line") };
            let (json, rounds) = (arguments.has(&BenchOption::JSON), arguments.number(&ROUNDS));
            let peers = arguments.path(&BenchOption::PEERS);
            let found = (json, rounds, peers.as_ref().and_then(|path| path.to_str()), arguments.search_path());
            assert_eq!(found, want, "{line}");
        }
        check("", (false, 100, None, STANDARD_PATH));
        check("--json --rounds 9", (true, 9, None, STANDARD_PATH));
        check("--rounds 9 --rounds 8 --peers a --peers b --path /bin", (false, 8, Some("b"), "/bin"));
    }
}
