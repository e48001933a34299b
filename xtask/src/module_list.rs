//! `cargo xtask docs`: writes `docs/modules.md`, one line for each module, from the first sentence of its own `//!`.

use std::fmt::Write as _;
use std::fs;

use anyhow::{Context as _, bail};

use crate::report;
use crate::workspace::ProjectWorkspace;

/// Where the list is kept.
const MODULE_LIST: &str = "docs/modules.md";

/// Regenerates the list.
pub(crate) fn write(workspace: &ProjectWorkspace) -> anyhow::Result<()> {
    let path = workspace.root.join(MODULE_LIST);
    fs::write(&path, generate(workspace)?).with_context(|| format!("could not write `{MODULE_LIST}`"))?;
    report::print(&format!("wrote {MODULE_LIST}"));
    Ok(())
}

/// Fails when the committed list is not the one that the sources give.
pub(crate) fn check(workspace: &ProjectWorkspace) -> anyhow::Result<()> {
    if workspace.read(MODULE_LIST).unwrap_or_default() != generate(workspace)? {
        bail!("`{MODULE_LIST}` is out of date; next: cargo xtask docs");
    }
    Ok(())
}

fn generate(workspace: &ProjectWorkspace) -> anyhow::Result<String> {
    let mut modules = Vec::new();
    for path in workspace.files()? {
        if let Some((package, module)) = module_of(&path) {
            modules.push((package, module, summary(&workspace.read(&path)?)));
        }
    }
    modules.sort();
    Ok(page(&modules))
}

/// Returns the package and the module that a source file holds; `None` for tests, examples and crate roots.
fn module_of(path: &str) -> Option<(String, String)> {
    let (package, inside) = path.strip_prefix("crates/")?.split_once("/src/")?;
    let inside = inside.strip_suffix(".rs")?;
    let module = inside.strip_suffix("/mod").unwrap_or(inside);
    let is_test = module.split('/').any(|part| part == "tests");
    let is_root = matches!(module, "lib" | "main") || module.starts_with("bin/");
    (!is_test && !is_root).then(|| (package.to_owned(), module.replace('/', "::")))
}

/// Returns the first sentence of a module's documentation.
fn summary(source: &str) -> String {
    let lines = source.lines().map_while(|line| line.strip_prefix("//!")).map(str::trim);
    let paragraph: Vec<&str> = lines.take_while(|line| !line.is_empty()).collect();
    let paragraph = paragraph.join(" ");
    match paragraph.find(". ") {
        Some(end) => paragraph[..=end].to_owned(),
        None => paragraph,
    }
}

fn page(modules: &[(String, String, String)]) -> String {
    let mut page = String::from("# Modules\n\nWritten by `cargo xtask docs` from the first sentence of each module.\n");
    let mut last = "";
    for (package, module, summary) in modules {
        if package != last {
            let _ = write!(page, "\n## {package}\n\n| module | what it does |\n|---|---|\n");
            last = package;
        }
        let _ = writeln!(page, "| `{module}` | {} |", summary.replace('|', "\\|"));
    }
    page
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modules_of_paths() {
        for (path, want) in [
            ("crates/core/src/task/parse.rs", Some(("core", "task::parse"))),
            ("crates/core/src/task/mod.rs", Some(("core", "task"))),
            ("crates/core/src/budget.rs", Some(("core", "budget"))),
            ("crates/core/src/lib.rs", None),
            ("crates/cli/src/main.rs", None),
            ("crates/sandbox/src/bin/ralph-cage.rs", None),
            ("crates/core/src/agent/tests.rs", None),
            ("crates/proxy/src/tests/fixture.rs", None),
            ("crates/core/tests/it/main.rs", None),
            ("xtask/src/main.rs", None),
        ] {
            let want = want.map(|(package, module)| (package.to_owned(), module.to_owned()));
            assert_eq!(module_of(path), want, "{path}");
        }
    }

    #[test]
    fn summaries() {
        for (source, want) in [
            ("//! Parses tasks. Nothing else.\n", "Parses tasks."),
            ("//! Parses\n//! tasks.\n//!\n//! More.\nuse a;\n", "Parses tasks."),
            ("use a;\n", ""),
        ] {
            assert_eq!(summary(source), want);
        }
    }

    #[test]
    fn a_page_has_one_table_for_each_package() {
        let row = |package: &str, module: &str| (package.to_owned(), module.to_owned(), "Does a|b.".to_owned());
        let page = page(&[row("cli", "ui"), row("core", "task"), row("core", "text")]);
        assert_eq!((page.matches("## ").count(), page.matches("Does a\\|b.").count()), (2, 3));
    }
}
