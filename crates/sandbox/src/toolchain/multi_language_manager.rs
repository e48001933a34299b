//! Handles version managers of many languages: asdf, mise and volta. As in [`super::version_manager`], their shims
//! are replaced by the versions that apply outside any project.

use std::path::{Path, PathBuf};

use super::fs_probe;
use super::registries::toml_settings;
use super::setup_builder::{DirectoryClaim, PathEntry, ToolchainPlan};
use super::tool_names::language;

/// Returns tools with their versions, as in the manager's settings.
type VersionReader = fn(&ToolchainPlan<'_>) -> Vec<(String, String)>;

pub(super) fn claim(plan: &mut ToolchainPlan<'_>, entry: &PathEntry) -> DirectoryClaim {
    let managers: [(&str, &str, &str, VersionReader); 2] = [
        ("mise", "MISE_DATA_DIR", ".local/share/mise", mise_versions),
        ("asdf", "ASDF_DATA_DIR", ".asdf", asdf_versions),
    ];
    for (name, variable, usual, chosen) in managers {
        for root in plan.roots(&[variable], &[usual]) {
            let Some(rest) = entry.relative_to(&root) else { continue };
            let installs = root.join("installs");
            let mut parts = rest.components().map(|part| part.as_os_str().to_string_lossy().into_owned());
            if parts.next().as_deref() == Some("installs") {
                if let (Some(tool), Some(version)) = (parts.next(), parts.next())
                    && show(plan, name, &installs, &tool, &version).is_some()
                {
                    plan.add_to_path(&root.join(&rest));
                }
                return DirectoryClaim::Mine;
            }
            let chosen = chosen(plan);
            replace_shims(plan, name, &installs, &chosen);
            return DirectoryClaim::Mine;
        }
    }
    claim_volta(plan, entry)
}

fn replace_shims(plan: &mut ToolchainPlan<'_>, name: &str, installs: &Path, chosen: &[(String, String)]) {
    let mut shown = Vec::new();
    for tool in fs_probe::dirs(installs) {
        let versions: Vec<&String> = chosen.iter().filter(|(of, _)| *of == tool).map(|(_, version)| version).collect();
        let dir = installs.join(&tool);
        let picked: Vec<String> = if versions.is_empty() {
            fs_probe::matching_version(&dir, "latest").or_else(|| fs_probe::newest_version(&dir)).into_iter().collect()
        } else {
            versions.iter().filter_map(|meant| fs_probe::matching_version(&dir, meant)).collect()
        };
        for version in picked {
            if let Some(bin) = show(plan, name, installs, &tool, &version) {
                plan.add_to_path(&bin);
                shown.push(format!("{tool} {version}"));
            }
        }
    }
    if !shown.is_empty() {
        plan.note(&format!("the shims of {name} are replaced by {}", shown.join(", ")));
    }
}

/// Shows one version of one tool and returns the directory of its programs.
fn show(plan: &mut ToolchainPlan<'_>, name: &str, installs: &Path, tool: &str, version: &str) -> Option<PathBuf> {
    if !plan.wants(&[name, tool, language(tool)]) {
        return None;
    }
    let dir = installs.join(tool).join(version);
    if !plan.bind(&dir) {
        return None;
    }
    plan.mark_found(&[name, tool, language(tool)]);
    let bin = dir.join("bin");
    Some(if bin.is_dir() { bin } else { dir })
}

/// Reads `~/.tool-versions`: a tool and its versions on each line.
fn asdf_versions(plan: &ToolchainPlan<'_>) -> Vec<(String, String)> {
    let text = fs_probe::text(&plan.home.named.join(".tool-versions")).unwrap_or_default();
    let lines = text.lines().map(|line| line.split('#').next().unwrap_or_default());
    let mut chosen = Vec::new();
    for line in lines {
        let mut words = line.split_whitespace();
        let Some(tool) = words.next() else { continue };
        chosen.extend(words.map(|version| (tool.to_owned(), version.to_owned())));
    }
    chosen
}

/// Reads `[tools]` of mise's global settings; for a tool with anything but a plain version, the newest one is used.
fn mise_versions(plan: &ToolchainPlan<'_>) -> Vec<(String, String)> {
    let dir = plan.host.dir_var("MISE_CONFIG_DIR").unwrap_or_else(|| plan.home.named.join(".config/mise"));
    let text = fs_probe::text(&dir.join("config.toml")).unwrap_or_default();
    let mut chosen: Vec<(String, String)> = toml_settings(&text)
        .into_iter()
        .filter(|pair| pair.table == ["tools"])
        .map(|pair| (pair.key.replace([':', '/'], "-"), pair.value))
        .collect();
    chosen.extend(asdf_versions(plan));
    chosen
}

/// Claims volta's directories. Volta stores its choice in a JSON file and its tools in images.
fn claim_volta(plan: &mut ToolchainPlan<'_>, entry: &PathEntry) -> DirectoryClaim {
    let Some(root) =
        plan.roots(&["VOLTA_HOME"], &[".volta"]).into_iter().find(|root| entry.relative_to(root).is_some())
    else {
        return DirectoryClaim::NotMine;
    };
    if !plan.wants(&["volta", "node"]) {
        return DirectoryClaim::Mine;
    }
    let image = root.join("tools/image");
    let platform = fs_probe::text(&root.join("tools/user/platform.json")).unwrap_or_default();
    let platform: serde_json::Value = serde_json::from_str(&platform).unwrap_or_default();
    let mut shown = Vec::new();
    for (tool, version) in [
        ("npm", platform.pointer("/node/npm")),
        ("pnpm", platform.pointer("/pnpm")),
        ("yarn", platform.pointer("/yarn")),
        ("node", platform.pointer("/node/runtime")),
    ] {
        let Some(version) = version.and_then(serde_json::Value::as_str).filter(|version| fs_probe::is_name(version))
        else {
            continue;
        };
        let dir = image.join(tool).join(version);
        if plan.bind(&dir) && plan.add_to_path(&dir.join("bin")) {
            plan.mark_found(&["volta", "node"]);
            shown.push(format!("{tool} {version}"));
        }
    }
    if shown.is_empty() {
        plan.note("volta has no default version of node; `volta install node` sets one");
    } else {
        plan.note(&format!("the shims of volta are replaced by {}", shown.join(", ")));
    }
    DirectoryClaim::Mine
}
