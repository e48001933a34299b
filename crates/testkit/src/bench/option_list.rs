//! Defines the options of a bench: those that benches share, and how a bench adds its own.

use std::ops::RangeInclusive;

/// An option of a bench. A bench refuses the options that are not in its list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BenchOption {
    pub name: &'static str,
    pub value: OptionValue,
    pub help: &'static str,
}

/// The value that follows an option.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum OptionValue {
    /// None: the option is given or not.
    Flag,
    /// Any text; the usage shows it under this name.
    Text(&'static str),
    Number {
        default: u32,
        allowed: RangeInclusive<u32>,
    },
}

impl BenchOption {
    pub const JSON: Self = Self::flag("--json", "print one JSON object");
    pub const STRICT: Self = Self::flag("--strict", "a figure that could not be measured is a failure");
    pub const PEERS: Self = Self::text("--peers", "DIR", "where `--install` of `cargo xtask bench` has put the peers");
    pub const PATH: Self =
        Self::text("--path", "PATH", "where to look for the peers after that (the standard directories)");
    pub const WRITE: Self = Self::text("--write", "DIR", "write the result there as a page with a chart");

    pub const fn flag(name: &'static str, help: &'static str) -> Self {
        Self { name, value: OptionValue::Flag, help }
    }

    pub const fn text(name: &'static str, value: &'static str, help: &'static str) -> Self {
        Self { name, value: OptionValue::Text(value), help }
    }

    pub const fn number(name: &'static str, default: u32, allowed: RangeInclusive<u32>, help: &'static str) -> Self {
        Self { name, value: OptionValue::Number { default, allowed }, help }
    }

    /// Returns `--quick`; each bench leaves out something else.
    pub const fn quick(help: &'static str) -> Self {
        Self::flag("--quick", help)
    }

    /// Returns `--rounds N`; each bench has a default of its own.
    pub const fn rounds(default: u32, help: &'static str) -> Self {
        Self::number("--rounds", default, 1..=1_000_000, help)
    }

    /// Returns the option with the name of its value.
    fn synopsis(&self) -> String {
        match self.value {
            OptionValue::Flag => self.name.to_owned(),
            OptionValue::Text(value) => format!("{} {value}", self.name),
            OptionValue::Number { .. } => format!("{} N", self.name),
        }
    }

    fn help_line(&self) -> String {
        let default = match self.value {
            OptionValue::Number { default, .. } => format!(" ({default})"),
            OptionValue::Flag | OptionValue::Text(_) => String::new(),
        };
        format!("  {:<15} {}{default}\n", self.synopsis(), self.help)
    }
}

/// Returns the usage of a program with these options.
pub(super) fn usage(program: &str, options: &[BenchOption]) -> String {
    let synopsis: Vec<String> = options.iter().map(|option| format!("[{}]", option.synopsis())).collect();
    let help: Vec<String> = options.iter().map(BenchOption::help_line).collect();
    format!("usage: {program} {}\n\n{}", synopsis.join(" "), help.concat())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn usage_shows_every_option_with_its_default() {
        let options = [BenchOption::JSON, BenchOption::rounds(100, "samples"), BenchOption::WRITE];
        let want = "usage: bench_x [--json] [--rounds N] [--write DIR]\n\n  \
            --json          print one JSON object\n  \
            --rounds N      samples (100)\n  \
            --write DIR     write the result there as a page with a chart\n";
        assert_eq!(usage("bench_x", &options), want);
    }
}
