//! Checks the layers of the workspace: which crate may use which, read from the manifests.

use super::finding::RuleFinding;

/// Each crate and what it may use. All crates are listed: a crate that is not here has no layer yet.
const LAYERS: &[(&str, &[&str])] = &[
    ("core", &[]),
    ("sandbox", &["core"]),
    ("proxy", &["core"]),
    ("engine", &["core", "sandbox", "proxy"]),
    ("web", &["core", "sandbox", "proxy", "engine"]),
    ("redteam", &["core", "sandbox", "proxy", "engine"]),
    ("cli", &["core", "sandbox", "proxy", "engine", "web", "redteam"]),
    ("testkit", &["core"]),
];
/// Crates for asynchronous I/O, which `core` never uses.
const ASYNC_CRATES: &[&str] = &["tokio", "tokio-util", "reqwest", "hyper", "axum", "async-trait"];

/// Checks one manifest; only those under `crates/` have a layer.
pub(super) fn check(path: &str, manifest: &str) -> Vec<RuleFinding> {
    let Some(name) = path.strip_prefix("crates/").and_then(|rest| rest.strip_suffix("/Cargo.toml")) else {
        return Vec::new();
    };
    let Some((_, below)) = LAYERS.iter().find(|(layer, _)| *layer == name) else {
        return vec![RuleFinding::new(
            path,
            1,
            format!("crate `{name}` has no layer: give it one in xtask/src/rules/layers.rs"),
        )];
    };
    let mut findings = Vec::new();
    let mut kind = None;
    for (n, line) in manifest.lines().enumerate() {
        let line = line.split('#').next().unwrap_or("");
        if line.trim_start().starts_with('[') {
            kind = DependencyTable::parse(line);
        }
        let Some(kind) = kind else { continue };
        for used in workspace_crates(line) {
            let allowed =
                below.contains(&used) || (used == "testkit" && kind == DependencyTable::Dev && name != "testkit");
            if !allowed {
                let what = match used {
                    "testkit" => "`testkit` is for tests: use it under [dev-dependencies]".to_owned(),
                    _ => format!("`{name}` may not use `{used}`"),
                };
                findings.push(RuleFinding::new(path, n + 1, what));
            }
        }
        let key = line.split(['.', '=', ' ']).next().unwrap_or("");
        if name == "core" && kind == DependencyTable::Normal && ASYNC_CRATES.contains(&key) {
            findings.push(RuleFinding::new(path, n + 1, format!("`core` may not use `{key}`: it never waits")));
        }
    }
    findings
}

/// A table of dependencies.
#[derive(Clone, Copy, PartialEq, Eq)]
enum DependencyTable {
    Normal,
    Dev,
}

impl DependencyTable {
    /// Reads `[dependencies]`, `[target.'cfg(unix)'.dev-dependencies]`, `[dependencies.tokio]` and the like.
    fn parse(header: &str) -> Option<Self> {
        if header.contains("dev-dependencies") {
            Some(Self::Dev)
        } else {
            header.contains("dependencies").then_some(Self::Normal)
        }
    }
}

/// Returns the workspace crates that a line names, anywhere in it: a renamed dependency names its crate in a value.
fn workspace_crates(line: &str) -> impl Iterator<Item = &str> {
    line.split(|c: char| !c.is_alphanumeric() && c != '-' && c != '_').filter_map(|word| word.strip_prefix("ralph-"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check_manifest(name: &str, manifest: &str, want: &[(usize, &str)]) {
        let path = format!("crates/{name}/Cargo.toml");
        let want: Vec<RuleFinding> = want.iter().map(|(line, what)| RuleFinding::new(&path, *line, *what)).collect();
        assert_eq!(check(&path, manifest), want, "{name}: {manifest}");
    }

    #[test]
    fn layers_use_only_lower_ones() {
        let uses =
            |name: &str| format!("[package]\nname = \"ralph-x\"\n[dependencies]\nralph-{name}.workspace = true\n");
        check_manifest("sandbox", &uses("core"), &[]);
        check_manifest("sandbox", &uses("proxy"), &[(4, "`sandbox` may not use `proxy`")]);
        check_manifest("proxy", &uses("engine"), &[(4, "`proxy` may not use `engine`")]);
        check_manifest("core", &uses("core"), &[(4, "`core` may not use `core`")]);
        check_manifest("engine", &uses("proxy"), &[]);
        check_manifest("engine", &uses("web"), &[(4, "`engine` may not use `web`")]);
        check_manifest("cli", &uses("web"), &[]);
        check_manifest("cli", &uses("redteam"), &[]);
        check_manifest("engine", &uses("redteam"), &[(4, "`engine` may not use `redteam`")]);
        check_manifest("web", &uses("cli"), &[(4, "`web` may not use `cli`")]);
    }

    #[test]
    fn testkit_is_for_tests() {
        let only = "`testkit` is for tests: use it under [dev-dependencies]";
        check_manifest("engine", "[dev-dependencies]\nralph-testkit.workspace = true\n", &[]);
        check_manifest("engine", "[dependencies]\nralph-testkit.workspace = true\n", &[(2, only)]);
        check_manifest("cli", "[build-dependencies]\nralph-testkit = { path = \"../testkit\" }\n", &[(2, only)]);
        check_manifest(
            "testkit",
            "[dependencies]\nralph-engine.workspace = true\n",
            &[(2, "`testkit` may not use `engine`")],
        );
    }

    #[test]
    fn other_ways_to_write_it() {
        let may_not = "`proxy` may not use `sandbox`";
        check_manifest("proxy", "[dependencies.ralph-sandbox]\npath = \"../sandbox\"\n", &[(1, may_not)]);
        check_manifest(
            "proxy",
            "[target.'cfg(unix)'.dependencies]\nx = { package = \"ralph-sandbox\" }\n",
            &[(2, may_not)],
        );
        check_manifest("proxy", "[dependencies]\n# ralph-sandbox\n[package]\nname = \"ralph-sandbox\"\n", &[]);
    }

    #[test]
    fn core_never_waits() {
        let waits = |name: &str| format!("`core` may not use `{name}`: it never waits");
        check_manifest(
            "core",
            "[dependencies]\ntokio = \"1\"\nreqwest.workspace = true\n",
            &[(2, &waits("tokio")), (3, &waits("reqwest"))],
        );
        check_manifest("core", "[dev-dependencies]\ntokio = \"1\"\n", &[]);
        check_manifest("proxy", "[dependencies]\ntokio = \"1\"\n", &[]);
    }

    #[test]
    fn every_crate_has_a_layer() {
        check_manifest(
            "utils",
            "[dependencies]\n",
            &[(1, "crate `utils` has no layer: give it one in xtask/src/rules/layers.rs")],
        );
        assert_eq!(check("Cargo.toml", "[workspace.dependencies]\nralph-cli = { path = \"crates/cli\" }\n"), []);
    }
}
