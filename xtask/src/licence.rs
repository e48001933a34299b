//! Checks that every crate we build with has a licence on the list in `deny.toml`, for every platform.
//!
//! cargo-deny does this too, but is rarely installed; the list is read from its file so that there is only one.

use std::collections::BTreeSet;

use anyhow::{Context as _, bail};

use crate::workspace::ProjectWorkspace;
use crate::{report, subprocess};

/// Fails if a crate has a licence that is not allowed, or none.
pub(crate) fn run(house: &ProjectWorkspace) -> anyhow::Result<()> {
    let allowed = allowed(&house.read("deny.toml")?).context("`deny.toml` has no `allow` list under `[licenses]`")?;
    let mut tree = subprocess::cargo(&house.root);
    tree.args(["tree", "--workspace", "--target", "all", "--prefix", "none", "--format", "{p}\t{l}", "--locked"]);
    let packages = packages(&subprocess::output(&mut tree)?);
    let refused: Vec<String> = packages
        .iter()
        .filter(|(_, licence)| !permits(licence, &allowed))
        .map(|(name, licence)| format!("  {name}: {}", if licence.is_empty() { "no licence" } else { licence }))
        .collect();
    if !refused.is_empty() {
        bail!("licences that are not in deny.toml:\n{}", refused.join("\n"));
    }
    report::print(&format!("licences of {} crates are allowed", packages.len()));
    Ok(())
}

/// Returns the strings of `allow = [ … ]` under `[licenses]`.
fn allowed(deny: &str) -> Option<BTreeSet<String>> {
    let section = deny.split_once("\n[licenses]\n")?.1;
    let section = section.split("\n[").next()?;
    let list = section.split_once("\nallow = [").map(|(_, rest)| rest).or_else(|| section.strip_prefix("allow = ["))?;
    let lines = list.split(']').next()?.lines().filter_map(|line| line.split('#').next());
    Some(lines.flat_map(|line| line.split('"').skip(1).step_by(2)).map(str::to_owned).collect())
}

/// Returns each package once, with its licence.
fn packages(tree: &str) -> BTreeSet<(String, String)> {
    tree.lines()
        .filter_map(|line| line.split_once('\t'))
        .map(|(name, licence)| {
            // cargo marks what it printed before.
            let licence = licence.trim().trim_end_matches("(*)").trim_end();
            (name.to_owned(), licence.to_owned())
        })
        .collect()
}

/// Says whether an expression such as `(MIT OR GPL-3.0) AND ISC` can be met with allowed licences alone.
fn permits(expression: &str, allowed: &BTreeSet<String>) -> bool {
    // Before SPDX, a slash meant OR.
    let spaced = expression.replace('/', " OR ").replace('(', " ( ").replace(')', " ) ");
    let words: Vec<&str> = spaced.split_whitespace().collect();
    let mut at = LicenceParser { words: &words, allowed };
    let met = at.parse_or();
    at.words.is_empty() && met == Some(true)
}

struct LicenceParser<'a> {
    words: &'a [&'a str],
    allowed: &'a BTreeSet<String>,
}

impl<'a> LicenceParser<'a> {
    fn take(&mut self) -> Option<&'a str> {
        let (first, rest) = self.words.split_first()?;
        self.words = rest;
        Some(first)
    }

    fn take_if(&mut self, word: &str) -> bool {
        let there = self.words.first() == Some(&word);
        if there {
            self.take();
        }
        there
    }

    fn parse_or(&mut self) -> Option<bool> {
        let mut met = self.parse_and()?;
        while self.take_if("OR") {
            met |= self.parse_and()?;
        }
        Some(met)
    }

    fn parse_and(&mut self) -> Option<bool> {
        let mut met = self.parse_term()?;
        while self.take_if("AND") {
            met &= self.parse_term()?;
        }
        Some(met)
    }

    fn parse_term(&mut self) -> Option<bool> {
        let name = self.take()?;
        if name == "(" {
            let met = self.parse_or()?;
            return self.take_if(")").then_some(met);
        }
        if self.take_if("WITH") {
            let exception = self.take()?;
            return Some(self.allowed.contains(&format!("{name} WITH {exception}")));
        }
        Some(self.allowed.contains(name))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(expression: &str, want: bool) {
        let allowed = ["MIT", "ISC", "Apache-2.0 WITH LLVM-exception"].map(str::to_owned).into();
        assert_eq!(permits(expression, &allowed), want, "{expression}");
    }

    #[test]
    fn expressions() {
        check("MIT", true);
        check("GPL-3.0", false);
        check("GPL-3.0 OR MIT", true);
        check("GPL-3.0/MIT", true);
        check("GPL-3.0 AND MIT", false);
        check("ISC AND (GPL-3.0 OR MIT)", true);
        check("MIT OR GPL-3.0 AND BSD-3-Clause", true);
        check("(MIT OR GPL-3.0) AND BSD-3-Clause", false);
        check("Apache-2.0 WITH LLVM-exception", true);
        check("Apache-2.0", false);
    }

    #[test]
    fn nonsense_is_refused() {
        for expression in ["", "MIT MIT", "MIT OR", "AND MIT", "(MIT", "MIT)", "()", "MIT WITH", "mit"] {
            check(expression, false);
        }
    }

    #[test]
    fn the_list_in_deny_toml() {
        let deny = "[bans]\nallow = [\"no\"]\n\n[licenses]\nconfidence = 1\nallow = [\n  \"MIT\", # \"no\"\n  \"ISC\",\n]\n[x]\n";
        assert_eq!(allowed(deny), Some(["MIT".to_owned(), "ISC".to_owned()].into()));
        assert_eq!(allowed("[bans]\nallow = []\n"), None);
    }

    #[test]
    fn the_tree_of_cargo() {
        let tree = "a v1.0.0\tMIT\nb v2.0.0\tMIT OR ISC (*)\n\na v1.0.0\tMIT (*)\nc v3.0.0\t\n";
        let want = [("a v1.0.0", "MIT"), ("b v2.0.0", "MIT OR ISC"), ("c v3.0.0", "")];
        assert_eq!(packages(tree), want.map(|(name, licence)| (name.to_owned(), licence.to_owned())).into());
    }
}
