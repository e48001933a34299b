//! Handles version managers of one language that put shims on the `PATH`: pyenv, rbenv, nodenv, goenv.
//!
//! A shim is a script that runs the manager, which needs to write to its own folder. So the shims are replaced by the
//! versions that apply outside any project; a `.python-version` in the workspace is ignored.

use std::path::{Path, PathBuf};

use super::fs_probe;
use super::setup_builder::{DirectoryClaim, PathEntry, ToolchainPlan};

struct VersionManager {
    name: &'static str,
    language: &'static str,
    root: &'static str,
    usual: &'static str,
    version: &'static str,
}

const MANAGERS: &[VersionManager] = &[
    VersionManager { name: "pyenv", language: "python", root: "PYENV_ROOT", usual: ".pyenv", version: "PYENV_VERSION" },
    VersionManager { name: "rbenv", language: "ruby", root: "RBENV_ROOT", usual: ".rbenv", version: "RBENV_VERSION" },
    VersionManager {
        name: "nodenv",
        language: "node",
        root: "NODENV_ROOT",
        usual: ".nodenv",
        version: "NODENV_VERSION",
    },
    VersionManager { name: "goenv", language: "go", root: "GOENV_ROOT", usual: ".goenv", version: "GOENV_VERSION" },
];

pub(super) fn claim(plan: &mut ToolchainPlan<'_>, entry: &PathEntry) -> DirectoryClaim {
    for manager in MANAGERS {
        for root in plan.roots(&[manager.root], &[manager.usual]) {
            let Some(rest) = entry.relative_to(&root) else { continue };
            if plan.wants(&[manager.name, manager.language]) {
                match version_in_path(&rest) {
                    Some(version) => {
                        show(plan, manager, &root, &version);
                        plan.add_to_path(&root.join(&rest));
                    }
                    None => replace_shims(plan, manager, &root),
                }
            }
            return DirectoryClaim::Mine;
        }
    }
    DirectoryClaim::NotMine
}

/// Returns the version in `versions/3.11.7/bin`.
fn version_in_path(rest: &Path) -> Option<String> {
    let mut parts = rest.strip_prefix("versions").ok()?.components();
    Some(parts.next()?.as_os_str().to_str()?.to_owned())
}

fn show(plan: &mut ToolchainPlan<'_>, manager: &VersionManager, root: &Path, version: &str) -> Option<PathBuf> {
    let dir = root.join("versions").join(version);
    if !plan.bind(&dir) {
        return None;
    }
    plan.mark_found(&[manager.name, manager.language]);
    Some(dir.join("bin"))
}

fn replace_shims(plan: &mut ToolchainPlan<'_>, manager: &VersionManager, root: &Path) {
    let versions = root.join("versions");
    let configured = plan.host.text_var(manager.version).or_else(|| fs_probe::text(&root.join("version")));
    let configured = configured.unwrap_or_else(|| "system".to_owned());
    let mut shown = Vec::new();
    for meant in configured.split([':', ' ', '\n', '\t', '\r']).filter(|word| !word.is_empty() && *word != "system") {
        let Some(version) = fs_probe::matching_version(&versions, meant) else {
            plan.note(&format!("{} names version `{meant}`, which is not installed", manager.name));
            continue;
        };
        if let Some(bin) = show(plan, manager, root, &version) {
            plan.add_to_path(&bin);
            shown.push(version);
        }
    }
    if !shown.is_empty() {
        plan.note(&format!("the shims of {} are replaced by version {}", manager.name, shown.join(", ")));
    }
}
