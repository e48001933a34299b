//! Recognises commands in a plan that check something, as far as their text shows it.
//!
//! A wrong guess would become a proof, so only well-known programs count, and only when they are asked to check.

/// Programs that only ever check.
const CHECK_PROGRAMS: &[&str] = &[
    "ctest",
    "diff",
    "eslint",
    "flake8",
    "golangci-lint",
    "grep",
    "jest",
    "mocha",
    "mypy",
    "nox",
    "phpstan",
    "phpunit",
    "playwright",
    "pyright",
    "pytest",
    "rspec",
    "rubocop",
    "shellcheck",
    "test",
    "tox",
    "tsc",
    "vitest",
];

/// Programs that check when called with certain arguments.
const RUNNERS: &[&str] = &[
    "bash", "bun", "bundle", "bunx", "cargo", "composer", "deno", "dotnet", "go", "gradle", "gradlew", "just", "make",
    "mix", "mvn", "mvnw", "node", "npm", "npx", "pdm", "php", "pipenv", "pnpm", "poetry", "python", "python3", "rails",
    "rake", "ruff", "sh", "swift", "task", "uv", "yarn", "zig",
];

/// Arguments that turn such a program into a check.
const CHECK_ARGUMENTS: &[&str] = &[
    "accept",
    "build",
    "check",
    "checks",
    "ci",
    "clippy",
    "e2e",
    "eslint",
    "integration",
    "jest",
    "lint",
    "mypy",
    "playwright",
    "pytest",
    "rspec",
    "ruff",
    "spec",
    "test",
    "tests",
    "tsc",
    "typecheck",
    "unit",
    "unittest",
    "validate",
    "verify",
    "vet",
    "vitest",
];

/// Endings of a sentence which say that a command must succeed.
const SUCCESS_ENDINGS: &[&str] =
    &[" passes", " pass", " succeeds", " succeed", " exits 0", " exits with 0", " is green", " is clean"];

/// Returns whether a text is a command that checks something.
pub(super) fn is_check_command(command: &str) -> bool {
    const LONGEST: usize = 300;
    if command.len() > LONGEST
        || command.contains(|c: char| c.is_control() || matches!(c, '<' | '>' | '…' | '|' | ';' | '`' | '$'))
        || command.split_whitespace().any(|word| matches!(word, "-c" | "-e" | "-lc" | "--command" | "--eval"))
        || command.contains("...") && !command.contains("/...")
    {
        return false;
    }
    let mut found = false;
    for part in command.split("&&") {
        match simple_command_checks(part) {
            Some(true) => found = true,
            Some(false) => (),
            None => return false,
        }
    }
    found
}

/// Returns whether one simple command checks; `None` for an unknown program.
fn simple_command_checks(part: &str) -> Option<bool> {
    let assigns = |word: &&str| {
        word.split_once('=').is_some_and(|(name, _)| name.bytes().all(|b| b.is_ascii_uppercase() || b == b'_'))
    };
    let mut words = part.split_whitespace().skip_while(assigns);
    let first = words.next()?;
    let name = first.rsplit('/').next().unwrap_or(first);
    if first == "cd" {
        return Some(false);
    }
    if CHECK_PROGRAMS.contains(&name) {
        return Some(words.next().is_some() || !matches!(name, "test" | "grep" | "diff"));
    }
    let script = first.contains('/') && name.rsplit_once('.').is_some_and(|(_, end)| end == "sh");
    if !script && !RUNNERS.contains(&name) {
        return None;
    }
    let telling =
        |word: &str| word.split(|c: char| !c.is_ascii_alphanumeric()).any(|piece| CHECK_ARGUMENTS.contains(&piece));
    Some(words.any(telling) || (script && telling(first)))
}

/// Returns the command in a sentence like `npm run lint passes`.
pub(super) fn command_in_sentence(sentence: &str) -> Option<&str> {
    let sentence = sentence.trim().trim_end_matches('.');
    let command = SUCCESS_ENDINGS.iter().find_map(|end| sentence.strip_suffix(end))?.trim();
    (!command.contains(['`', ',', ';', '(']) && is_check_command(command)).then_some(command)
}

/// Returns the commands between backticks in a sentence.
pub(super) fn commands_in_backticks(sentence: &str) -> impl Iterator<Item = &str> {
    sentence.split('`').skip(1).step_by(2).map(str::trim).filter(|command| is_check_command(command))
}

/// Returns whether a sentence says that its command is expected to fail, as the first half of "red, then green".
pub(super) fn meant_to_fail(sentence: &str) -> bool {
    let lower = sentence.to_lowercase();
    let fails = ["fail", "red first", "expect an error", "expected: error"].iter().any(|word| lower.contains(word));
    let denied = ["no fail", "not fail", "without fail", "0 fail", "zero fail", "never fail"]
        .iter()
        .any(|word| lower.contains(word));
    fails && !denied
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn check_commands_are_recognised() {
        for (command, want) in [
            ("npm test", true),
            ("npm run typecheck", true),
            ("npm install", false),
            ("npx tsc --noEmit", true),
            ("pytest tests/a.py::test_x -v", true),
            ("uv run pytest", true),
            ("cargo clippy -- -D warnings", true),
            ("cargo add serde", false),
            ("go test ./...", true),
            ("cd web && npm test", true),
            ("cd web && rm -rf x", false),
            ("CI=true npm test", true),
            ("./gradlew check", true),
            ("./scripts/verify.sh --fast", true),
            ("./scripts/deploy.sh", false),
            ("sh tests/all.sh", true),
            ("grep -q two a.txt", true),
            ("grep", false),
            ("test", false),
            ("git commit -m 'test'", false),
            ("src/test.rs", false),
            ("make ...", false),
            ("pytest <file>", false),
            ("npm test\nrm x", false),
            ("", false),
        ] {
            assert_eq!(is_check_command(command), want, "{command:?}");
        }
    }

    #[test]
    fn commands_are_found_in_sentences() {
        assert_eq!(command_in_sentence("npm run lint passes."), Some("npm run lint"));
        assert_eq!(command_in_sentence("Typecheck passes"), None);
        assert_eq!(command_in_sentence("npm run lint, and so on, passes"), None);
        assert_eq!(
            commands_in_backticks("Run `npm test`, then `ls` and `cargo test`").collect::<Vec<_>>(),
            ["npm test", "cargo test"]
        );
        assert_eq!(commands_in_backticks("one ` alone").count(), 0);
        assert!(meant_to_fail("Run: `x` Expected: FAIL with y"));
        assert!(!meant_to_fail("Expected: PASS, no failures"));
    }
}
