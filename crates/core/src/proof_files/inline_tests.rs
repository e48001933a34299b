//! Finds tests inside source files that a change removed, skipped or weakened.

use std::collections::{BTreeMap, BTreeSet};

use crate::text::head;

/// How many lines are shown of one file.
const MAX_LINES: usize = 8;

/// How much is shown of one line.
const MAX_LINE: usize = 160;

/// Returns lines that show how a change weakened the tests in a source file: test lines that are gone, marked `-`, and new
/// lines that turn tests off, marked `+`.
pub fn weakened_tests(path: &str, old: &str, new: &str) -> Vec<String> {
    let Some(language) = SourceLanguage::of(path) else { return Vec::new() };
    let tests = language.test_lines(old);
    if tests.is_empty() {
        return Vec::new();
    }
    let mut left: BTreeMap<&str, usize> = BTreeMap::new();
    for line in language.test_lines(new) {
        *left.entry(line).or_default() += 1;
    }
    let mut shown = Vec::new();
    for line in &tests {
        match left.get_mut(line) {
            Some(count) if *count > 0 => *count -= 1,
            _ => shown.push(format!("-{}", head(line, MAX_LINE))),
        }
    }
    let count_of = |text: &str, line: &str| text.lines().filter(|other| other.trim() == line).count();
    let mut off: Vec<&str> = new.lines().map(str::trim).filter(|line| language.turns_tests_off(line)).collect();
    off.sort_unstable();
    off.dedup();
    shown.extend(
        off.iter()
            .filter(|line| count_of(new, line) > count_of(old, line))
            .map(|line| format!("+{}", head(line, MAX_LINE))),
    );
    shown.truncate(MAX_LINES);
    shown
}

/// Parts of lines that end a process with success, or tell a test runner to skip.
const EXITS: [&str; 23] = [
    "exit(0)",
    "exit 0",
    "die(",
    "os._exit(",
    "sys.exit(",
    "SystemExit",
    "SkipTest",
    "pytest.skip",
    "pytest.exit",
    "process.exit(",
    "process.reallyExit(",
    "process.exitCode",
    "os.Exit(",
    "t.Skip",
    "process::exit(",
    "System.exit(",
    "Runtime.getRuntime().halt(",
    "Kernel.exit",
    "exit!",
    "_exit(",
    "_Exit(",
    "quick_exit(",
    "Environment.Exit(",
];

/// Returns new lines of a source file that end a process or skip tests.
pub fn added_exits(path: &str, old: &str, new: &str) -> Vec<String> {
    let is_source = path.rsplit_once('.').is_some_and(|(_, end)| {
        [
            "py", "js", "mjs", "cjs", "ts", "mts", "jsx", "tsx", "go", "rs", "rb", "java", "kt", "c", "cc", "cpp", "h",
            "cs", "php",
        ]
        .contains(&end)
    });
    if !is_source {
        return Vec::new();
    }
    let known: BTreeSet<&str> = old.lines().map(str::trim).collect();
    let lines = new.lines().map(str::trim).filter(|line| !known.contains(line));
    lines
        .filter(|line| EXITS.iter().any(|exit| line.contains(exit)))
        .take(MAX_LINES)
        .map(|line| format!("+{}", head(line, MAX_LINE)))
        .collect()
}

/// A language with tests in source files.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum SourceLanguage {
    Rust,
    Python,
    JavaScript,
}

impl SourceLanguage {
    fn of(path: &str) -> Option<Self> {
        match path.rsplit_once('.')?.1 {
            "rs" => Some(Self::Rust),
            "py" => Some(Self::Python),
            "js" | "mjs" | "cjs" | "ts" | "mts" | "jsx" | "tsx" => Some(Self::JavaScript),
            _ => None,
        }
    }

    /// Returns the lines of tests, trimmed and without empty ones.
    fn test_lines(self, text: &str) -> Vec<&str> {
        match self {
            Self::Rust => [blocks(text, is_rust_test), doc_examples(text)].concat(),
            Self::Python => python_tests(text),
            Self::JavaScript => blocks(text, |line| line.contains("import.meta.vitest")),
        }
    }

    fn turns_tests_off(self, line: &str) -> bool {
        match self {
            Self::Rust => {
                line.starts_with("#[ignore")
                    || line.starts_with("#[should_panic")
                    || line.starts_with("#[cfg(any())]")
                    || line.starts_with("#![cfg(")
                    || line.starts_with("#[cfg_attr(")
            }
            Self::Python => line.contains("SKIP") || line.contains("__test__"),
            Self::JavaScript => line.contains(".skip(") || line.contains(".todo("),
        }
    }
}

fn is_rust_test(line: &str) -> bool {
    let attribute = line.strip_prefix("#[").unwrap_or_default();
    let name = attribute.split([']', '(', ' ']).next().unwrap_or_default();
    attribute.starts_with("cfg(test)") || name == "test" || name.ends_with("::test") || name == "rstest"
}

/// Returns the lines from each one that begins a test to the brace that ends it.
fn blocks(text: &str, begins: impl Fn(&str) -> bool) -> Vec<&str> {
    let mut found = Vec::new();
    let (mut inside, mut opened, mut depth) = (false, false, 0_i64);
    for line in text.lines().map(str::trim) {
        if !inside && begins(line) {
            (inside, opened, depth) = (true, false, 0);
        }
        if !inside {
            continue;
        }
        if !line.is_empty() {
            found.push(line);
        }
        for c in line.chars() {
            match c {
                '{' => (opened, depth) = (true, depth + 1),
                '}' => depth -= 1,
                _ => (),
            }
        }
        // An item without a body ends at its semicolon.
        inside = if opened { depth > 0 } else { !line.ends_with(';') };
    }
    found
}

/// Returns the code lines of examples in documentation.
fn doc_examples(text: &str) -> Vec<&str> {
    let (mut found, mut inside) = (Vec::new(), false);
    for line in text.lines().map(str::trim) {
        let Some(doc) = line.strip_prefix("///").or_else(|| line.strip_prefix("//!")) else {
            inside = false;
            continue;
        };
        if doc.trim_start().starts_with("```") {
            inside = !inside;
            found.push(line);
        } else if inside && !doc.trim().is_empty() {
            found.push(line);
        }
    }
    found
}

/// Returns doctest lines with their expected output, and functions that are tests by their name.
fn python_tests(text: &str) -> Vec<&str> {
    let mut found = Vec::new();
    let (mut example, mut function) = (false, None);
    for raw in text.lines() {
        let line = raw.trim();
        let indent = raw.len() - raw.trim_start().len();
        if line.is_empty() {
            example = false;
            continue;
        }
        if function.is_some_and(|start| indent <= start) {
            function = None;
        }
        if line.starts_with("def test_") || line.starts_with("async def test_") {
            function = Some(indent);
        }
        example |= line.starts_with(">>>");
        example &= !line.starts_with("\"\"\"") && !line.starts_with("'''");
        if example || function.is_some() {
            found.push(line);
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(path: &str, old: &str, new: &str, want: &[&str]) {
        assert_eq!(weakened_tests(path, old, new), want, "{path}: {old} -> {new}");
    }

    const RUST: &str = "pub fn f() -> u8 { 1 }\n#[cfg(test)]\nmod tests {\n    #[test]\n    fn f_is_two() {\n        assert_eq!(super::f(), 2);\n    }\n}\n";

    #[test]
    fn rust() {
        check("src/lib.rs", RUST, &RUST.replace("{ 1 }", "{ 2 }"), &[]);
        let more =
            RUST.replace("    #[test]", "    #[test]\n    fn more() {\n        assert!(true);\n    }\n    #[test]");
        check("src/lib.rs", RUST, &more, &[]);
        check("src/lib.rs", RUST, &RUST.replace(", 2)", ", 1)"), &["-assert_eq!(super::f(), 2);"]);
        check("src/lib.rs", RUST, &RUST.replace("    #[test]\n", "    #[test]\n    #[ignore]\n"), &["+#[ignore]"]);
        check(
            "src/lib.rs",
            RUST,
            "pub fn f() -> u8 { 2 }\n",
            &[
                "-#[cfg(test)]",
                "-mod tests {",
                "-#[test]",
                "-fn f_is_two() {",
                "-assert_eq!(super::f(), 2);",
                "-}",
                "-}",
            ],
        );
        let doc = "/// ```\n/// assert_eq!(a::f(), 2);\n/// ```\npub fn f() {}\n";
        check("src/lib.rs", doc, &doc.replace(", 2)", ", 1)"), &["-/// assert_eq!(a::f(), 2);"]);
        check("src/lib.rs", doc, &doc.replace("```\n/// assert", "```ignore\n/// assert"), &["-/// ```"]);
        check("src/lib.rs", "#[cfg(test)]\nmod tests;\nfn f() {}\n", "#[cfg(test)]\nmod tests;\n", &[]);
    }

    #[test]
    fn exits() {
        for (path, old, new, want) in [
            ("a.py", "", "import os\nos._exit(0)\n", vec!["+os._exit(0)"]),
            ("a.py", "os._exit(0)\n", "x = 1\nos._exit(0)\n", vec![]),
            ("a.js", "", "process.exit(0)\n", vec!["+process.exit(0)"]),
            ("a.md", "", "process.exit(0)\n", vec![]),
            ("a.go", "", "func init() { os.Exit(0) }\n", vec!["+func init() { os.Exit(0) }"]),
        ] {
            assert_eq!(added_exits(path, old, new), want, "{path}");
        }
    }

    #[test]
    fn other_languages() {
        let python = "def f():\n    \"\"\"\n    >>> f()\n    2\n    \"\"\"\n    return 1\n";
        check("a.py", python, &python.replace("return 1", "return 2"), &[]);
        check("a.py", python, &python.replace("    2\n", "    1\n"), &["-2"]);
        check(
            "a.py",
            "def test_f():\n    assert f() == 2\n\nx = 1\n",
            "x = 2\n",
            &["-def test_f():", "-assert f() == 2"],
        );
        let script =
            "export const f = () => 1\nif (import.meta.vitest) {\n  it('f', () => { expect(f()).toBe(2) })\n}\n";
        check("a.ts", script, &script.replace("toBe(2)", "toBe(1)"), &["-it('f', () => { expect(f()).toBe(2) })"]);
        check("a.txt", "#[test]\nfn f() {}\n", "", &[]);
    }
}
