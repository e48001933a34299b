//! Checks files as text: how long they are, how they begin, and what must never be committed.

use super::finding::{RuleFinding, extension, line_of};

const MAX_LINES: usize = 800;
/// Folders of the developers' machines. Written in two parts, because this file is checked too.
const MACHINE_PATHS: &[&str] = &[concat!("/wo", "rk/"), concat!("/tmp", "/wt")];

/// Checks one file of any kind.
pub(super) fn check(path: &str, content: &str) -> Vec<RuleFinding> {
    let mut findings = Vec::new();
    let ours = !path.contains("/vendor/");
    if ours && (extension(path) == "rs" || extension(path) == "js") {
        let lines = content.lines().count();
        if lines > MAX_LINES {
            findings.push(RuleFinding::new(path, MAX_LINES, format!("{lines} lines, more than {MAX_LINES}: split it")));
        }
    }
    if extension(path) == "rs" && !content.starts_with("//!") {
        findings.push(RuleFinding::new(path, 1, "does not begin with `//!` and what it is for"));
    }
    findings.extend(machine_paths(path, content));
    findings
}

fn machine_paths(path: &str, content: &str) -> Vec<RuleFinding> {
    // `~/work/` and `example.org/work/` are not paths from the root of a disk.
    let begins = |at: usize| {
        let before = content.get(..at).and_then(|before| before.chars().next_back());
        before.is_none_or(|c| !(c.is_alphanumeric() || "_.~-$})>".contains(c)))
    };
    MACHINE_PATHS
        .iter()
        .flat_map(|place| content.match_indices(place))
        .filter(|(at, _)| begins(*at))
        .map(|(at, place)| {
            RuleFinding::new(path, line_of(content, at), format!("`{place}` is a folder of one machine"))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check_file(path: &str, content: &str, want: &[(usize, &str)]) {
        let want: Vec<RuleFinding> = want.iter().map(|(line, what)| RuleFinding::new(path, *line, *what)).collect();
        assert_eq!(check(path, content), want, "{path}");
    }

    #[test]
    fn length() {
        let lines = |n: usize| format!("//! Long.\n{}", "\n".repeat(n - 1));
        check_file("a.rs", &lines(800), &[]);
        check_file("a.rs", &lines(801), &[(800, "801 lines, more than 800: split it")]);
        check_file("crates/web/assets/app.js", &lines(801), &[(800, "801 lines, more than 800: split it")]);
        check_file("crates/web/assets/vendor/preact.js", &lines(900), &[]);
        check_file("a.md", &lines(900), &[]);
    }

    #[test]
    fn opening() {
        let missing = "does not begin with `//!` and what it is for";
        check_file("a.rs", "//! A.\n", &[]);
        check_file("a.rs", "", &[(1, missing)]);
        check_file("a.rs", "use a;\n//! A.\n", &[(1, missing)]);
        check_file("a.rs", "// A.\n", &[(1, missing)]);
        check_file("a.js", "let a;\n", &[]);
    }

    #[test]
    fn machines() {
        let [work, worktree] = [MACHINE_PATHS[0], MACHINE_PATHS[1]];
        let found = format!("`{work}` is a folder of one machine");
        check_file("a.md", &format!("see\n`{work}main`\n"), &[(2, &found)]);
        check_file("a.md", &format!("{work}main\n"), &[(1, &found)]);
        check_file("a.md", &format!("file://{work}main\n"), &[(1, &found)]);
        check_file("a.md", &format!("~{work}main example.org{work}main $HOME{work}main\n"), &[]);
        check_file("a.md", &format!("cd {worktree}/h\n"), &[(1, &format!("`{worktree}` is a folder of one machine"))]);
    }
}
