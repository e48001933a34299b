//! Makes rustup and cargo visible in a cage.
//!
//! `~/.cargo/bin` is shown at its own path. The toolchains are shown one by one in the sandbox's own `~/.rustup`:
//! they can be moved, rustup needs to write next to them, and a toolchain that the workspace requires can be
//! installed there. `settings.toml` is rewritten, because the host's lists the user's projects. `CARGO_HOME` inside
//! is the sandbox's own; the host's `config.toml` and `credentials.toml` stay outside (see [`super::registries`]).

use std::path::Path;

use super::fs_probe;
use super::host::SANDBOX_HOME;
use super::registries::toml_settings;
use super::setup_builder::{DirectoryClaim, PathEntry, ToolchainPlan};

const NAMES: &[&str] = &["rustup", "rust"];

pub(super) fn claim(plan: &mut ToolchainPlan<'_>, entry: &PathEntry) -> DirectoryClaim {
    for root in plan.roots(&["CARGO_HOME"], &[".cargo"]) {
        if entry.relative_to(&root).is_none_or(|rest| rest != Path::new("bin")) {
            continue;
        }
        let bin = root.join("bin");
        if plan.wants(NAMES) && plan.bind(&bin) && plan.add_to_path(&bin) {
            plan.mark_found(if bin.join("rustup").exists() { NAMES } else { &["rust"] });
            plan.programs.push(bin);
        }
        return DirectoryClaim::Mine;
    }
    DirectoryClaim::NotMine
}

/// Shows the toolchains if a directory on the `PATH` contains rustup, the system's or the user's.
pub(super) fn bind_toolchains(plan: &mut ToolchainPlan<'_>) {
    if !plan.wants(NAMES) || !plan.paths().iter().any(|dir| dir.join("rustup").exists()) {
        return;
    }
    let Some(root) = plan.roots(&["RUSTUP_HOME"], &[".rustup"]).into_iter().find(|root| root.is_dir()) else { return };
    let inside = Path::new(SANDBOX_HOME).join(".rustup");
    let mut shown = Vec::new();
    for name in fs_probe::dirs(&root.join("toolchains")) {
        let dir = root.join("toolchains").join(&name);
        let bound = if dir.join("bin/rustc").exists() {
            plan.bind_at(&dir, &inside.join("toolchains").join(&name))
        } else {
            Err("it has no `bin/rustc`")
        };
        match bound {
            Ok(()) => shown.push(name),
            Err(why) => plan.note(&format!("the Rust toolchain `{name}` is not shown: {why}")),
        }
    }
    if shown.is_empty() {
        return plan.note("rustup has no toolchain to show");
    }
    let settings = toml_settings(&fs_probe::text(&root.join("settings.toml")).unwrap_or_default());
    let default = settings.into_iter().find(|pair| pair.table.is_empty() && pair.key == "default_toolchain");
    // `stable` means `stable` for the host's target triple.
    let default = default.and_then(|pair| {
        let full = |name: &&String| **name == pair.value || name.starts_with(&format!("{}-", pair.value));
        shown.iter().find(full).cloned()
    });
    let mut text = "version = \"12\"\nprofile = \"minimal\"\n".to_owned();
    match default {
        Some(name) if name.chars().all(|c| c.is_ascii_alphanumeric() || "._-".contains(c)) => {
            text = format!("{text}default_toolchain = \"{name}\"\n");
        }
        _ => plan.note("rustup has no default toolchain; `rustup default stable` sets one"),
    }
    plan.add_file(".rustup/settings.toml", text);
    plan.set_env_path("RUSTUP_HOME", &inside);
    plan.mark_found(NAMES);
}
