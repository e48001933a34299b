//! Words that code may not say, some anywhere, some only in some places. Comments and strings may say anything.

use super::code_scanner;
use super::finding::{RuleFinding, line_of};

struct WordRule {
    /// Found as whole words: `unsafe` is not in `unsafe_code`.
    words: &'static [&'static str],
    applies: fn(&str) -> bool,
    part: CodePart,
    why: &'static str,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum CodePart {
    All,
    /// Without what is only compiled for tests.
    Shipped,
}

const RULES: &[WordRule] = &[
    WordRule {
        words: &[
            "tokio",
            "reqwest",
            "std::fs",
            "std::net",
            "std::env",
            "std::thread",
            "std::process",
            "SystemTime::now",
            "Instant::now",
            "Timestamp::now",
            "Zoned::now",
            "async fn",
        ],
        applies: |path| path.starts_with("crates/core/src/"),
        part: CodePart::Shipped,
        why: "in `core`, which decides and does not act",
    },
    WordRule {
        words: &["env::var", "env::var_os", "env::vars", "env::vars_os"],
        applies: |path| {
            let free =
                ["xtask/", "fuzz/", "crates/testkit/", "crates/engine/examples/", "crates/cli/src/environment.rs"];
            !free.iter().any(|place| path.starts_with(place)) && !is_test_file(path)
        },
        part: CodePart::Shipped,
        why: "outside crates/cli/src/environment.rs, which reads the environment once",
    },
    WordRule {
        words: &["unsafe"],
        applies: |path| {
            let rooms = ["crates/sandbox/src/embedded/launcher/", "crates/redteam/src/cage/probe.rs"];
            !rooms.iter().any(|room| path.starts_with(room))
        },
        part: CodePart::All,
        why: "outside the launcher's rooms",
    },
    WordRule {
        words: &["#[allow(", "#![allow("],
        applies: |_| true,
        part: CodePart::All,
        why: "hides a lint for ever: use `#[expect(…, reason = …)]`",
    },
    WordRule {
        words: &["todo!", "unimplemented!", "dbg!"],
        applies: |_| true,
        part: CodePart::All,
        why: "is for code that is not finished",
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
            let places = code.match_indices(word).filter(|(at, _)| is_whole(code, *at, word) && !is_ours(code, *at));
            findings.extend(
                places.map(|(at, _)| RuleFinding::new(path, line_of(code, at), format!("`{word}` {}", rule.why))),
            );
        }
    }
    findings.sort_by_key(|finding| finding.line);
    findings
}

/// A file that only tests use: under `tests/` or `benches/`, or the `tests.rs` beside a module.
fn is_test_file(path: &str) -> bool {
    path.split('/').any(|part| ["tests", "benches", "tests.rs"].contains(&part))
}

fn is_whole(code: &str, at: usize, word: &str) -> bool {
    let is_name = |c: char| c.is_alphanumeric() || c == '_';
    let joined = |edge: Option<char>, next: Option<char>| edge.is_some_and(is_name) && next.is_some_and(is_name);
    let before = code.get(..at).and_then(|before| before.chars().next_back());
    let after = code.get(at + word.len()..).and_then(|after| after.chars().next());
    !joined(word.chars().next(), before) && !joined(word.chars().next_back(), after)
}

/// `crate::env::var` is a name of ours.
fn is_ours(code: &str, at: usize) -> bool {
    let before = code.get(..at).unwrap_or("");
    ["crate::", "super::", "self::", "ralph_core::"].iter().any(|place| before.ends_with(place))
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
    fn core_is_pure() {
        let core = "crates/core/src/a.rs";
        for word in
            ["std::fs::read(p)", "std::net::IpAddr", "std::thread::spawn(f)", "tokio::spawn(f)", "std::process::id()"]
        {
            let want =
                word.split("::").take(if word.starts_with("std") { 2 } else { 1 }).collect::<Vec<_>>().join("::");
            check_code(core, &format!("\nfn a() {{ {word}; }}"), &[(2, &want)]);
            check_code("crates/engine/src/a.rs", &format!("\nfn a() {{ {word}; }}"), &[]);
        }
        check_code(
            core,
            "let t = Instant::now();\nlet u = jiff::Timestamp::now();",
            &[(1, "Instant::now"), (2, "Timestamp::now")],
        );
        check_code(core, "let t = std::time::SystemTime::now();", &[(1, "SystemTime::now")]);
        check_code(core, "pub async fn a() {}", &[(1, "async fn")]);
        check_code(core, "use std::fmt;\nuse std::time::Duration;\nfn tokio_like(my_std: Instant) {}", &[]);
        check_code(core, "/// Not with tokio, `std::fs` or an async fn.\nconst A: &str = \"tokio\";", &[]);
        check_code(
            core,
            "#[cfg(test)]\nmod tests { fn a() { std::fs::read(p); } }\nfn b() { std::fs::read(p) }",
            &[(3, "std::fs")],
        );
        check_code("crates/core/src/action/tests.rs", "fn a() { Instant::now(); }", &[]);
    }

    #[test]
    fn the_environment_is_read_once() {
        let code = "fn a() { std::env::var(\"A\"); }\nfn b() { env::var_os(\"A\"); env::vars(); }";
        let want = [(1, "env::var"), (2, "env::var_os"), (2, "env::vars")];
        check_code("crates/sandbox/src/local.rs", code, &want);
        check_code("crates/cli/src/main.rs", code, &want);
        for path in
            ["crates/cli/src/environment.rs", "xtask/src/a.rs", "crates/testkit/src/a.rs", "crates/cli/tests/it/a.rs"]
        {
            check_code(path, code, &[]);
        }
        check_code(
            "crates/engine/src/a.rs",
            "crate::env::var(1); ralph_core::env::vars(); env::current_dir(); env!(\"A\");",
            &[],
        );
    }

    #[test]
    fn anywhere() {
        let code = "#![allow(dead_code)]\n#[allow(unused)]\nfn a() { todo!() }\nfn b() { unimplemented!(); dbg!(1); }\n#[ignore]\nfn c() {}\n#[ignore = \"slow\"]\nfn d() {}";
        check_code(
            "crates/web/tests/it/main.rs",
            code,
            &[
                (1, "#![allow("),
                (2, "#[allow("),
                (3, "todo!"),
                (4, "unimplemented!"),
                (4, "dbg!"),
                (5, "#[ignore"),
                (7, "#[ignore"),
            ],
        );
        check_code("a.rs", "#[expect(dead_code, reason = \"#[allow(x)] todo!\")]\n// todo! dbg!\nfn my_todo() {}", &[]);
    }

    #[test]
    fn only_the_launcher_is_unsafe() {
        let code = "fn a() { unsafe { b() } }\n#![deny(unsafe_code)]\n// unsafe";
        check_code("crates/sandbox/src/local/run.rs", code, &[(1, "unsafe")]);
        check_code("crates/sandbox/src/embedded/live.rs", code, &[(1, "unsafe")]);
        check_code("crates/sandbox/src/embedded/launcher/sys.rs", code, &[]);
    }
}
