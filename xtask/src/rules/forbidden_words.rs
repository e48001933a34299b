//! Finds words that code may not contain, some anywhere, some only in some places. Comments and strings are not
//! checked.

use super::code_scanner;
use super::finding::{RuleFinding, is_test_file, line_of};

struct WordRule {
    /// Matched as whole words: `unsafe` does not match `unsafe_code`.
    words: &'static [&'static str],
    applies: fn(&str) -> bool,
    part: CodePart,
    why: &'static str,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum CodePart {
    All,
    /// Without code that is only compiled for tests.
    Shipped,
}

const RULES: &[WordRule] = &[
    WordRule {
        words: &["async fn"],
        applies: |path| path.starts_with("crates/core/src/"),
        part: CodePart::Shipped,
        why: "in `core`, which decides and does not act",
    },
    WordRule {
        words: &["unsafe"],
        applies: |path| {
            let modules = ["crates/sandbox/src/embedded/launcher/", "crates/redteam/src/cage/probe.rs"];
            !modules.iter().any(|module| path.starts_with(module))
        },
        part: CodePart::All,
        why: "outside the launcher's modules",
    },
    // clippy only finds the attribute before an item.
    WordRule {
        words: &["#![allow("],
        applies: |_| true,
        part: CodePart::All,
        why: "hides a lint for ever: use `#![expect(…, reason = …)]`",
    },
    WordRule { words: &["#[ignore"], applies: |_| true, part: CodePart::All, why: "is a test that cannot fail" },
];

/// Checks one Rust file.
pub(super) fn check(path: &str, text: &str) -> Vec<RuleFinding> {
    let code = code_scanner::blank_non_code(text);
    let shipped = if is_test_file(path) { String::new() } else { code_scanner::without_tests(&code) };
    let mut findings: Vec<RuleFinding> = Vec::new();
    for rule in RULES.iter().filter(|rule| (rule.applies)(path)) {
        let code = if rule.part == CodePart::Shipped { &shipped } else { &code };
        for word in rule.words {
            let places = code.match_indices(word).filter(|(at, _)| is_whole(code, *at, word));
            findings.extend(
                places.map(|(at, _)| RuleFinding::new(path, line_of(code, at), format!("`{word}` {}", rule.why))),
            );
        }
    }
    findings.sort_by_key(|finding| finding.line);
    findings
}

fn is_whole(code: &str, at: usize, word: &str) -> bool {
    let is_name = |c: char| c.is_alphanumeric() || c == '_';
    let joined = |edge: Option<char>, next: Option<char>| edge.is_some_and(is_name) && next.is_some_and(is_name);
    let before = code.get(..at).and_then(|before| before.chars().next_back());
    let after = code.get(at + word.len()..).and_then(|after| after.chars().next());
    !joined(word.chars().next(), before) && !joined(word.chars().next_back(), after)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check_code(path: &str, code: &str, want: &[(usize, &str)]) {
        let findings = check(path, code);
        let found: Vec<(usize, &str)> = findings
            .iter()
            .map(|finding| (finding.line, finding.what.split('`').nth(1).expect("a finding quotes the word")))
            .collect();
        assert_eq!(found, want, "{path}: {code}");
    }

    #[test]
    fn core_never_waits() {
        let core = "crates/core/src/a.rs";
        check_code(core, "pub async fn a() {}", &[(1, "async fn")]);
        check_code("crates/engine/src/a.rs", "pub async fn a() {}", &[]);
        check_code(core, "/// Not an async fn.\nconst A: &str = \"async fn\";", &[]);
        check_code(core, "#[cfg(test)]\nmod tests { async fn a() {} }\nasync fn b() {}", &[(3, "async fn")]);
        check_code("crates/core/src/action/tests.rs", "async fn a() {}", &[]);
    }

    #[test]
    fn anywhere() {
        let code = "#![allow(dead_code)]\nfn a() {}\n#[ignore]\nfn c() {}\n#[ignore = \"slow\"]\nfn d() {}";
        let want = [(1, "#![allow("), (3, "#[ignore"), (5, "#[ignore")];
        check_code("crates/web/tests/it/main.rs", code, &want);
        check_code("a.rs", "#[expect(dead_code, reason = \"#![allow(x)]\")]\n// #[ignore]\nfn ignored() {}", &[]);
    }

    #[test]
    fn only_the_launcher_is_unsafe() {
        let code = "fn a() { unsafe { b() } }\n#![deny(unsafe_code)]\n// unsafe";
        check_code("crates/sandbox/src/local/run.rs", code, &[(1, "unsafe")]);
        check_code("crates/sandbox/src/embedded/live.rs", code, &[(1, "unsafe")]);
        check_code("crates/sandbox/src/embedded/launcher/sys.rs", code, &[]);
    }
}
