//! Finds public types that share a name: a name in a diff must identify one type of the workspace.

use std::collections::BTreeMap;

use super::code_scanner;
use super::finding::{RuleFinding, extension, is_test_file};

/// Names that every module may have, because they are used with the module as a prefix.
const PER_MODULE: [&str; 2] = ["Error", "Result"];
const KEYWORDS: [&str; 5] = ["struct", "enum", "trait", "union", "type"];

/// The places of each public type of the shipped code.
#[derive(Debug, Default)]
pub(super) struct TypeNames(BTreeMap<String, Vec<(String, usize)>>);

impl TypeNames {
    /// Collects the public types of one file.
    pub(super) fn collect(&mut self, path: &str, text: &str) {
        let shipped = extension(path) == "rs" && path.contains("/src/") && !is_test_file(path);
        if !shipped {
            return;
        }
        let code = code_scanner::without_tests(&code_scanner::blank_non_code(text));
        for (n, line) in code.lines().enumerate() {
            let Some(name) = public_type(line).filter(|name| !PER_MODULE.contains(name)) else { continue };
            let places = self.0.entry(name.to_owned()).or_default();
            // Twice in one file is one type in two versions for different platforms.
            if places.iter().all(|(known, _)| known != path) {
                places.push((path.to_owned(), n + 1));
            }
        }
    }

    /// Returns every place of every name that several types share.
    pub(super) fn duplicates(&self) -> Vec<RuleFinding> {
        let shared = self.0.iter().filter(|(_, places)| places.len() > 1);
        let findings = shared.flat_map(|(name, places)| {
            places.iter().map(move |(path, line)| {
                let others = places.iter().filter(|(other, _)| other != path);
                let others: Vec<String> = others.map(|(path, line)| format!("{path}:{line}")).collect();
                RuleFinding::new(path, *line, format!("`{name}` is also the name of {}", others.join(", ")))
            })
        });
        findings.collect()
    }
}

/// Returns the name of the type that a line of code makes public, in the crate or outside.
fn public_type(line: &str) -> Option<&str> {
    let rest = line.trim_start().strip_prefix("pub")?;
    let rest = match rest.strip_prefix('(') {
        Some(scope) => scope.split_once(')')?.1,
        None => rest,
    };
    let mut words = rest.strip_prefix(' ')?.split_whitespace().skip_while(|word| ["unsafe", "auto"].contains(word));
    words.next().filter(|keyword| KEYWORDS.contains(keyword))?;
    let end = |c: char| !c.is_alphanumeric() && c != '_';
    words.next()?.split(end).next().filter(|name| !name.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines() {
        #[track_caller]
        fn check(line: &str, want: Option<&str>) {
            assert_eq!(public_type(line), want, "{line}");
        }
        check("pub struct RunSpec {", Some("RunSpec"));
        check("    pub(crate) enum Kind<T> {", Some("Kind"));
        check("pub(in crate::a) struct Unit;", Some("Unit"));
        check("pub unsafe trait Raw: Send {", Some("Raw"));
        check("pub(super) type Answer<'a> = &'a str;", Some("Answer"));
        check("pub union Bits{", Some("Bits"));
        check("pub struct Wrapped(u8);", Some("Wrapped"));
        check("struct Hidden;", None);
        check("type Output = u8;", None);
        check("pub fn structure() {}", None);
        check("pub use a::struct_of;", None);
        check("pub mod type_names;", None);
        check("published struct A;", None);
        check("pub(crate", None);
    }

    #[track_caller]
    fn check(files: &[(&str, &str)], want: &[(&str, usize, &str)]) {
        let mut names = TypeNames::default();
        for (path, text) in files {
            names.collect(path, text);
        }
        let want: Vec<_> = want.iter().map(|(path, line, what)| RuleFinding::new(path, *line, *what)).collect();
        assert_eq!(names.duplicates(), want, "{files:?}");
    }

    #[test]
    fn names_shared_by_several_types() {
        let (a, b, c) = ("crates/a/src/x.rs", "crates/b/src/y.rs", "xtask/src/z.rs");
        let kind = "pub enum Kind {}\n";
        check(&[(a, kind), (b, "pub struct Other;\n")], &[]);
        check(
            &[(a, kind), (b, "\npub(crate) struct Kind;\n")],
            &[
                (a, 1, "`Kind` is also the name of crates/b/src/y.rs:2"),
                (b, 2, "`Kind` is also the name of crates/a/src/x.rs:1"),
            ],
        );
        check(
            &[(a, kind), (b, kind), (c, kind)],
            &[
                (a, 1, "`Kind` is also the name of crates/b/src/y.rs:1, xtask/src/z.rs:1"),
                (b, 1, "`Kind` is also the name of crates/a/src/x.rs:1, xtask/src/z.rs:1"),
                (c, 1, "`Kind` is also the name of crates/a/src/x.rs:1, crates/b/src/y.rs:1"),
            ],
        );
        check(&[(a, "pub enum Error {}\npub type Result = ();"), (b, "pub struct Error;\npub type Result = ();")], &[]);
        check(&[(a, "#[cfg(unix)]\npub struct Kind;\n#[cfg(windows)]\npub struct Kind;\n")], &[]);
    }

    #[test]
    fn only_shipped_code_counts() {
        let (a, kind) = ("crates/a/src/x.rs", "pub enum Kind {}\n");
        check(&[(a, kind), ("crates/a/tests/it/y.rs", kind)], &[]);
        check(&[(a, kind), ("crates/a/src/x/tests.rs", kind)], &[]);
        check(&[(a, kind), ("crates/b/src/y.rs", "#[cfg(test)]\nmod tests {\n    pub enum Kind {}\n}\n")], &[]);
        check(&[(a, kind), ("crates/b/src/y.rs", "/// ```\n/// pub enum Kind {}\n/* pub enum Kind {} */\n")], &[]);
        check(&[(a, kind), ("docs/src/y.md", kind)], &[]);
    }
}
