//! Reads the files of the project and asks every rule about each of them.

use std::fs;

use anyhow::{Context as _, bail};

use super::finding::{RuleFinding, extension};
use super::{forbidden_words, layers, text};
use crate::workspace::ProjectWorkspace;
use crate::{report, subprocess};

/// Checks all house rules and names every place that breaks one.
pub(crate) fn run(house: &ProjectWorkspace) -> anyhow::Result<()> {
    let files = house.files()?;
    let mut findings = Vec::new();
    for path in &files {
        let bytes = fs::read(house.root.join(path)).with_context(|| format!("could not read `{path}`"))?;
        findings.extend(check(path, &String::from_utf8_lossy(&bytes)));
    }
    findings.extend(second_tls(house)?);
    if !findings.is_empty() {
        for finding in &findings {
            report::print(&finding.to_string());
        }
        bail!(
            "{} broken",
            if findings.len() == 1 { "one rule is".to_owned() } else { format!("{} rules are", findings.len()) }
        );
    }
    report::print(&format!("{} files keep the house rules", files.len()));
    Ok(())
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

/// Two TLS providers in one program make rustls stop at the first handshake: aws-lc-rs is the one.
fn second_tls(house: &ProjectWorkspace) -> anyhow::Result<Option<RuleFinding>> {
    let lock = house.read("Cargo.lock")?;
    // A crate that no build can name is an error to `cargo tree`. One that is locked may still be built by nobody.
    if !lock.lines().any(|line| line == "name = \"ring\"") {
        return Ok(None);
    }
    let mut tree = subprocess::cargo(&house.root);
    tree.args(["tree", "--quiet", "--workspace", "--target", "all", "--invert", "ring", "--locked"]);
    let users = subprocess::output(&mut tree)?;
    if users.trim().is_empty() {
        return Ok(None);
    }
    Ok(Some(RuleFinding::new("Cargo.lock", 1, format!("`ring` is built beside aws-lc-rs:\n{}", users.trim_end()))))
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
            "//! A.\n\nuse std::fs;\n",
            &["crates/core/src/a.rs:3: `std::fs` in `core`, which decides and does not act"],
        );
        check_file(
            "crates/core/Cargo.toml",
            "[dependencies]\nralph-engine.workspace = true\n",
            &["crates/core/Cargo.toml:2: `core` may not use `engine`"],
        );
        check_file("docs/a.md", "use std::fs; todo!()\n", &[]);
    }
}
