//! Which files of the base commit a proof executes: they belong to the proof and may not be changed by the run.
//!
//! Only what is run as a script counts, and only when its name says that it checks something: in `python3 app.py` the
//! file is the product, in `sh tests/check.sh` it is the judge.

use std::collections::BTreeSet;

/// Programs whose first plain argument is a script.
const INTERPRETERS: [&str; 13] =
    ["sh", "bash", "dash", "zsh", "python", "python3", "node", "ruby", "perl", "php", "bun", "deno", "lua"];

/// Words in a path that say "this judges".
const JUDGES: [&str; 8] = ["check", "verify", "test", "proof", "accept", "spec", "e2e", "assert"];

/// Returns the proof files among `files`, less those the task takes out with a `!path` in `protected_paths`.
pub fn executed_files<'a>(
    proofs: impl IntoIterator<Item = &'a String>,
    files: &BTreeSet<String>,
    protected: &[String],
) -> Vec<String> {
    let free: BTreeSet<&str> = protected.iter().filter_map(|path| path.strip_prefix('!')).collect();
    let mut found = BTreeSet::new();
    for command in proofs {
        for script in scripts(command) {
            let path = script.trim_start_matches("./");
            let judges = JUDGES.iter().any(|word| path.to_ascii_lowercase().contains(word));
            if judges && files.contains(path) && !free.contains(path) {
                found.insert(path.to_owned());
            }
        }
    }
    found.into_iter().collect()
}

/// Returns the words of a shell line that are run as scripts.
fn scripts(command: &str) -> Vec<String> {
    let mut found = Vec::new();
    for part in command.split(['\n', ';', '|', '&', '(', ')']) {
        let words: Vec<String> = part
            .split_whitespace()
            .map(|word| word.trim_matches(['"', '\'']).to_owned())
            .skip_while(|word| {
                word.contains('=') || matches!(word.as_str(), "env" | "exec" | "time" | "!" | "then" | "do")
            })
            .collect();
        let Some((program, arguments)) = words.split_first() else { continue };
        let base = program.rsplit('/').next().unwrap_or(program);
        if INTERPRETERS.contains(&base) {
            found.extend(arguments.iter().find(|word| !word.starts_with('-') && *word != "run").cloned());
        } else if program.contains('/') {
            found.push(program.clone());
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(command: &str, want: &[&str]) {
        let files: BTreeSet<String> =
            ["tests/check.sh", "scripts/verify-foo.js", "app.py", "README.md", "test_app.py"].map(str::to_owned).into();
        assert_eq!(executed_files([&command.to_owned()], &files, &["!test_app.py".to_owned()]), want, "{command}");
    }

    #[test]
    fn judges() {
        check("sh tests/check.sh", &["tests/check.sh"]);
        check("sh -eu tests/check.sh --fast && echo ok", &["tests/check.sh"]);
        check("./tests/check.sh", &["tests/check.sh"]);
        check("X=1 node 'scripts/verify-foo.js' | cat", &["scripts/verify-foo.js"]);
        check("python3 app.py", &[]);
        check("grep -q foo README.md", &[]);
        check("python3 test_app.py", &[]);
        check("python3 tests/absent_test.py", &[]);
        check("", &[]);
        check("sh", &[]);
    }
}
