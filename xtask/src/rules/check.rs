//! Reads the files of the project and checks each of them against every rule.

use std::fs;

use anyhow::{Context as _, bail};

use super::finding::{RuleFinding, extension};
use super::type_names::TypeNames;
use super::{forbidden_words, layers, text};
use crate::workspace::ProjectWorkspace;
use crate::{module_list, report};

/// Checks all workspace rules and lists every place that breaks one.
pub(crate) fn run(workspace: &ProjectWorkspace) -> anyhow::Result<()> {
    let files = workspace.files()?;
    let (mut findings, mut names) = (Vec::new(), TypeNames::default());
    for path in &files {
        let bytes = fs::read(workspace.root.join(path)).with_context(|| format!("could not read `{path}`"))?;
        let text = String::from_utf8_lossy(&bytes);
        findings.extend(check(path, &text));
        names.collect(path, &text);
    }
    findings.extend(names.duplicates());
    if !findings.is_empty() {
        for finding in &findings {
            report::print(&finding.to_string());
        }
        bail!(
            "{} broken",
            if findings.len() == 1 { "one rule is".to_owned() } else { format!("{} rules are", findings.len()) }
        );
    }
    report::print(&format!("{} files keep the workspace rules", files.len()));
    module_list::check(workspace)
}

fn check(path: &str, content: &str) -> Vec<RuleFinding> {
    let mut findings = text::check(path, content);
    if extension(path) == "rs" {
        findings.extend(forbidden_words::check(path, content));
    }
    if path.ends_with("Cargo.toml") {
        findings.extend(layers::check(path, content));
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check_file(path: &str, content: &str, want: &[&str]) {
        let findings: Vec<String> = check(path, content).iter().map(RuleFinding::to_string).collect();
        assert_eq!(findings, want, "{path}");
    }

    #[test]
    fn each_file_meets_its_rules() {
        check_file(
            "crates/core/src/a.rs",
            "//! A.\n\nasync fn a() {}\n",
            &["crates/core/src/a.rs:3: `async fn` in `core`, which decides and does not act"],
        );
        check_file(
            "crates/core/Cargo.toml",
            "[dependencies]\nralph-engine.workspace = true\n",
            &["crates/core/Cargo.toml:2: `core` may not use `engine`"],
        );
        check_file("docs/a.md", "async fn a() {}\n", &[]);
    }
}
