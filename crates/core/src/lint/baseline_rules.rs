//! Checks the results of the proofs on the base commit (red-first), before anything is spent.
//!
//! A gate (`test_command`, `verify_commands`) that passes on the base is the normal state of a healthy project, so it
//! is not a finding as long as something else is red. A box whose own proof already passes is `vacuous`: doing nothing
//! would satisfy it. When nothing at all is red, a run could prove nothing, and that is an error.
//!
//! A proof that can never pass inside the run (its program or its host is missing) is an error too; an unsteady or
//! slow one is only a warning, because the author may have reasons.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use super::finding::{LintFinding, LintRule, Severity};
use super::shell_command;
use super::start_failure::{self, ProjectNames, StartFailure};
use crate::gate_or_checkbox::CheckTarget;
use crate::text;

/// The alternative way to give a sandbox a program.
const IMAGE: &str = "or name an image that has it: `sandbox_image: oci:DIR`";

/// One proof and its results on the base commit.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BaselineCheck {
    /// What it proves first.
    #[serde(rename = "id")]
    pub target: CheckTarget,
    pub command: String,
    pub runs: Vec<BaselineRun>,
    /// The hosts that the policy refused while it ran.
    #[serde(default)]
    pub denied_hosts: Vec<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BaselineRun {
    pub code: i32,
    pub timed_out: bool,
    pub stderr_tail: String,
    /// The end of both streams; missing in older records.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub output_tail: String,
    #[serde(default)]
    pub duration_ms: u64,
    /// The protected files that it wrote to.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub written: Vec<String>,
}

impl BaselineRun {
    fn outcome(&self) -> BaselineOutcome {
        match (self.timed_out, self.code) {
            (true, _) => BaselineOutcome::Slow,
            (false, 0) => BaselineOutcome::Green,
            (false, _) => BaselineOutcome::Red,
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum BaselineOutcome {
    Green,
    Red,
    Slow,
}

impl BaselineCheck {
    fn is_green(&self) -> bool {
        !self.runs.is_empty() && self.runs.iter().all(|run| run.outcome() == BaselineOutcome::Green)
    }
}

/// Checks the results of the proofs on the base commit.
pub fn lint_baseline(checks: &[BaselineCheck], project: &ProjectNames) -> Vec<LintFinding> {
    let mut found = Vec::new();
    for check in checks {
        found.extend(blocker_finding(check, project));
        found.extend(unstable_finding(check));
    }
    let all_green = !checks.is_empty() && checks.iter().all(BaselineCheck::is_green);
    if all_green {
        let names = checks
            .iter()
            .take(8)
            .map(|check| format!("`{}`", excerpt(&check.target.to_string())))
            .collect::<Vec<_>>()
            .join(", ");
        let more = if checks.len() > 8 { ", …" } else { "" };
        found.push(LintFinding::error(
            LintRule::Vacuous,
            None,
            format!("every proof already passes before any work: {names}{more}"),
            "give at least one checkbox a proof that fails until it is done",
        ));
        return found;
    }
    for check in checks.iter().filter(|check| check.is_green() && !check.target.is_gate()) {
        found.push(LintFinding::warning(
            LintRule::Vacuous,
            None,
            format!(
                "the proof of `{}` already passes: `{}`",
                excerpt(&check.target.to_string()),
                excerpt(&check.command)
            ),
            "use a command that fails until the box is done, or drop the box",
        ));
    }
    found
}

fn excerpt(text: &str) -> String {
    text::strip_control(text::first_line(text, 60))
}

/// Returns the finding for a red check that can never turn green.
fn blocker_finding(check: &BaselineCheck, project: &ProjectNames) -> Option<LintFinding> {
    if check.is_green() {
        return None;
    }
    if let Some(path) = check.runs.iter().flat_map(|run| &run.written).next() {
        let message = format!(
            "`{}` writes to the file `{}`, which decides about the work",
            excerpt(&check.command),
            excerpt(path)
        );
        let fix = format!(
            "let the check write to a copy, or give the file to the run: `may_change: [\"{}\"]`",
            excerpt(path)
        );
        return Some(LintFinding::error(LintRule::WritesProtected, None, message, fix));
    }
    let lacking = missing_tool_finding(check).or_else(|| start_failure_finding(check, project));
    match denied_host_finding(check) {
        // A program that only checks for its own updates fails for other reasons.
        Some(host) if host.severity == Severity::Warning => lacking.or(Some(host)),
        Some(host) => Some(host),
        None => lacking,
    }
}

/// Reports a refused host. A host named in the command or in its error output is needed; any other host was merely
/// contacted, so it is only a warning.
fn denied_host_finding(check: &BaselineCheck) -> Option<LintFinding> {
    let is_mentioned = |host: &String| {
        check.command.contains(host.as_str()) || check.runs.iter().any(|run| run.stderr_tail.contains(host.as_str()))
    };
    let named = check.denied_hosts.iter().find(|host| is_mentioned(host));
    let (host, severity) = match named {
        Some(host) => (host, Severity::Error),
        None => (check.denied_hosts.first()?, Severity::Warning),
    };
    let (id, host) = (excerpt(&check.target.to_string()), excerpt(host));
    let word = if severity == Severity::Error { "needs" } else { "tried to reach" };
    let message = format!("the proof of `{id}` {word} the host `{host}`, which the policy denies");
    let fix = format!("allow it with `--allow-host {host}`, or use a proof that needs no network");
    Some(LintFinding { severity, ..LintFinding::error(LintRule::DeniedHost, None, message, fix) })
}

fn missing_tool_finding(check: &BaselineCheck) -> Option<LintFinding> {
    let id = excerpt(&check.target.to_string());
    let tool = check.runs.iter().find_map(|run| missing_tool(&check.command, run))?;
    // A path that does not exist yet is work to be done, not a program to install.
    if tool.contains('/') {
        return None;
    }
    let own = shell_command::programs(&check.command).contains(&tool);
    let fix = match debian_package(&tool) {
        Some(package) => format!("install it on this machine (package `{package}`), {IMAGE}"),
        None => format!("install it on this machine, {IMAGE}"),
    };
    let message = format!("the proof of `{id}` needs `{}`, which the sandbox does not have", excerpt(&tool));
    // A program started by another one (a linter by `npm run lint`) may come with the project's own install step.
    let severity = if own { Severity::Error } else { Severity::Warning };
    Some(LintFinding { severity, ..LintFinding::error(LintRule::MissingTool, None, message, fix) })
}

/// Reports a check that fails because it cannot start: no work on the task would let it pass.
fn start_failure_finding(check: &BaselineCheck, project: &ProjectNames) -> Option<LintFinding> {
    let run = check.runs.first()?;
    let output = if run.output_tail.is_empty() { &run.stderr_tail } else { &run.output_tail };
    let StartFailure { missing, fix, is_certain } = start_failure::find_start_failure(&check.command, output, project)?;
    let id = excerpt(&check.target.to_string());
    let message = format!("the proof of `{id}` cannot start, it lacks {missing}: `{}`", excerpt(&check.command));
    // A module that nothing declares may be the one that the task is to write.
    let severity = if is_certain { Severity::Error } else { Severity::Warning };
    Some(LintFinding { severity, ..LintFinding::error(LintRule::CannotStart, None, message, fix) })
}

fn unstable_finding(check: &BaselineCheck) -> Option<LintFinding> {
    let outcomes: BTreeSet<BaselineOutcome> = check.runs.iter().map(BaselineRun::outcome).collect();
    let (id, command) = (excerpt(&check.target.to_string()), excerpt(&check.command));
    if outcomes.len() > 1 {
        return Some(LintFinding::warning(
            LintRule::Flaky,
            None,
            format!("the proof of `{id}` gave different results in {} runs: `{command}`", check.runs.len()),
            "make it depend on the code alone: no clock, no order, no network",
        ));
    }
    outcomes.contains(&BaselineOutcome::Slow).then(|| {
        LintFinding::warning(
            LintRule::Slow,
            None,
            format!("the proof of `{id}` timed out: `{command}`"),
            "make it shorter, or raise `proof_timeout_s`",
        )
    })
}

/// Returns the program a shell could not find, from its exit code and its output.
fn missing_tool(command: &str, run: &BaselineRun) -> Option<String> {
    if run.code == 0 || run.timed_out {
        return None;
    }
    let reported = run.stderr_tail.lines().rev().take(50).find_map(missing_tool_in_line);
    let first = || shell_command::programs(command).into_iter().next();
    reported.or_else(|| (run.code == 127).then(first).flatten()).filter(|tool| !tool.is_empty() && tool.len() <= 100)
}

/// Parses the line that a shell (`sh`, `bash`, `zsh`, `fish`), `env` or `exec` writes about a program it did not find.
fn missing_tool_in_line(line: &str) -> Option<String> {
    let line = line.trim().trim_end_matches('.');
    let name = if let Some((_, name)) = line.split_once("command not found: ") {
        name
    } else if let Some(before) = line.strip_suffix(": command not found") {
        before.rsplit(": ").next()?
    } else if let Some(before) = line.strip_suffix(": not found") {
        // Only `sh: 1: tool: not found`: other programs write "not found" about everything.
        let (shell, name) = before.rsplit_once(": ")?;
        shell.starts_with(|c: char| c.is_ascii_alphabetic() || c == '/').then_some(())?;
        shell.rsplit(": ").next().filter(|n| n.trim_start_matches("line ").bytes().all(|b| b.is_ascii_digit()))?;
        name
    } else if let Some(rest) = line.strip_prefix("env: ") {
        rest.strip_suffix(": No such file or directory")?
    } else if line.contains("executable file not found in $PATH") {
        line.split('"').nth(1)?
    } else {
        return None;
    };
    let name = name.trim_matches(|c: char| c.is_whitespace() || matches!(c, '\'' | '"' | '‘' | '’' | '`'));
    (!name.is_empty() && !name.contains(char::is_whitespace)).then(|| name.to_owned())
}

/// Returns the Debian package that provides a program, if its name could be a package name.
fn debian_package(tool: &str) -> Option<&str> {
    let package = match tool {
        "rg" => "ripgrep",
        "fd" | "fdfind" => "fd-find",
        "node" | "nodejs" => "nodejs",
        "python" => "python-is-python3",
        "pip" | "pip3" => "python3-pip",
        "pytest" | "py.test" => "python3-pytest",
        "cc" | "gcc" | "g++" | "c++" => "build-essential",
        "go" => "golang-go",
        "java" | "javac" => "default-jdk",
        "mvn" => "maven",
        "psql" => "postgresql-client",
        "mysql" => "default-mysql-client",
        "redis-cli" => "redis-tools",
        "convert" => "imagemagick",
        "ssh" => "openssh-client",
        "xxd" => "xxd",
        other => other,
    };
    let legal = package.len() >= 2
        && package.starts_with(|c: char| c.is_ascii_lowercase() || c.is_ascii_digit())
        && package.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || matches!(b, b'+' | b'-' | b'.'));
    legal.then_some(package)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(code: i32, stderr: &str) -> BaselineRun {
        BaselineRun {
            code,
            timed_out: false,
            stderr_tail: stderr.to_owned(),
            output_tail: String::new(),
            duration_ms: 1,
            written: Vec::new(),
        }
    }

    fn check_of(id: &str, command: &str, runs: Vec<BaselineRun>) -> BaselineCheck {
        BaselineCheck { target: id.into(), command: command.to_owned(), runs, denied_hosts: Vec::new() }
    }

    fn green(id: &str) -> BaselineCheck {
        check_of(id, "npm test", vec![run(0, ""); 3])
    }

    fn red(id: &str) -> BaselineCheck {
        check_of(id, "npm test", vec![run(1, "x"); 3])
    }

    #[track_caller]
    fn check(checks: &[BaselineCheck], want: &[(LintRule, Severity, &str)]) {
        let found = lint_baseline(checks, &ProjectNames::default());
        let got: Vec<_> = found.iter().map(|f| (f.rule, f.severity, f.message.as_str())).collect();
        assert_eq!(got, want);
    }

    #[test]
    fn proofs_that_pass_before_any_work() {
        use Severity::{Error, Warning};
        check(&[], &[]);
        check(&[red("test"), red("M1.1")], &[]);
        check(&[green("test"), green("verify-1"), red("M1.1")], &[]);
        check(
            &[green("test"), green("M1.1"), red("M1.2")],
            &[(LintRule::Vacuous, Warning, "the proof of `M1.1` already passes: `npm test`")],
        );
        check(
            &[green("test"), green("M1.1")],
            &[(LintRule::Vacuous, Error, "every proof already passes before any work: `test`, `M1.1`")],
        );
        check(&[green("test")], &[(LintRule::Vacuous, Error, "every proof already passes before any work: `test`")]);
    }

    #[test]
    fn a_check_that_writes_to_protected_files() {
        let writes = BaselineRun { written: vec!["tests/db.sqlite".to_owned()], ..run(1, "") };
        check(
            &[check_of("test", "sh tests/all.sh", vec![writes]), red("M1.1")],
            &[(
                LintRule::WritesProtected,
                Severity::Error,
                "`sh tests/all.sh` writes to the file `tests/db.sqlite`, which decides about the work",
            )],
        );
    }

    #[test]
    fn unsteady_and_slow_proofs_are_warnings() {
        let flaky = check_of("M1.1", "npm test", vec![run(0, ""), run(1, ""), run(0, "")]);
        check(
            &[flaky],
            &[(LintRule::Flaky, Severity::Warning, "the proof of `M1.1` gave different results in 3 runs: `npm test`")],
        );
        let both_red = check_of("M1.1", "npm test", vec![run(1, ""), run(2, "")]);
        check(&[both_red], &[]);
        let slow = BaselineRun { code: -1, timed_out: true, stderr_tail: String::new(), ..run(0, "") };
        check(
            &[check_of("M1.1", "npm test", vec![slow])],
            &[(LintRule::Slow, Severity::Warning, "the proof of `M1.1` timed out: `npm test`")],
        );
    }

    #[test]
    fn denied_hosts() {
        let host = || vec!["registry.npmjs.org".to_owned()];
        let run = run(1, "npm error 403 Forbidden - GET https://registry.npmjs.org/left-pad");
        let denied = BaselineCheck { denied_hosts: host(), ..check_of("test", "npm view left-pad", vec![run]) };
        let found = lint_baseline(&[denied], &ProjectNames::default());
        assert_eq!((found[0].rule, found[0].severity), (LintRule::DeniedHost, Severity::Error));
        assert_eq!(
            found[0].fix,
            "allow it with `--allow-host registry.npmjs.org`, or use a proof that needs no network"
        );
        let named = BaselineCheck {
            denied_hosts: vec!["x.io".to_owned()],
            ..check_of("test", "curl -sf https://x.io", vec![])
        };
        assert_eq!(lint_baseline(&[named], &ProjectNames::default())[0].severity, Severity::Error);
        let passed_anyway = BaselineCheck { denied_hosts: host(), ..green("test") };
        check(&[passed_anyway, red("M1.1")], &[]);
        // The proof may have checked for an update of its own program.
        let asked = BaselineCheck { denied_hosts: host(), ..red("test") };
        let message = "the proof of `test` tried to reach the host `registry.npmjs.org`, which the policy denies";
        check(&[asked], &[(LintRule::DeniedHost, Severity::Warning, message)]);
    }

    #[track_caller]
    fn tool(command: &str, code: i32, stderr: &str, want: Option<(Severity, &str)>) {
        let found = lint_baseline(&[check_of("M1.1", command, vec![run(code, stderr)])], &ProjectNames::default());
        let got = found.first().map(|f| (f.severity, f.fix.as_str()));
        assert_eq!(got, want, "{command:?} {stderr:?}");
    }

    #[test]
    fn missing_tools() {
        use Severity::{Error, Warning};
        let install = |package: &str| format!("install it on this machine (package `{package}`), {IMAGE}");
        let (jq, ripgrep, eslint) = (install("jq"), install("ripgrep"), install("eslint"));
        let add_jq = Some((Error, jq.as_str()));
        tool("jq . a", 127, "sh: 1: jq: not found\n", add_jq);
        tool("jq . a", 127, "bash: line 1: jq: command not found", add_jq);
        tool("jq . a", 127, "/bin/sh: jq: not found", add_jq);
        tool("jq . a", 1, "zsh: command not found: jq", add_jq);
        tool("jq . a", 127, "env: ‘jq’: No such file or directory", add_jq);
        tool("jq . a", 127, "exec: \"jq\": executable file not found in $PATH", add_jq);
        tool("A=1 jq . a", 127, "", add_jq);
        tool("rg x", 127, "sh: 1: rg: not found", Some((Error, ripgrep.as_str())));
        tool("npm run lint", 127, "sh: 1: eslint: not found", Some((Warning, eslint.as_str())));
        let plain = format!("install it on this machine, {IMAGE}");
        tool("My_Tool", 127, "", Some((Error, plain.as_str())));
        tool("./scripts/check.sh", 127, "sh: 1: ./scripts/check.sh: not found", None);
        tool("npm test", 1, "Error: module foo: not found", None);
        tool("npm test", 1, "404: page: not found", None);
    }
}
