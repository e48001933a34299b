//! Finds the cargo tools that the chores need: the one on `PATH`, else one under `target/tools`, which is built once.

use std::env;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

use anyhow::Context as _;

use crate::{report, subprocess};

/// A tool from the registry. The version is the one that is installed when the tool is missing.
#[derive(Debug)]
pub(crate) struct CargoTool {
    pub name: &'static str,
    pub version: &'static str,
}

/// Returns the tool if it is already installed.
pub(crate) fn find(root: &Path, tool: &CargoTool) -> Option<PathBuf> {
    let own = folder(root).join("bin").join(tool.name);
    if own.is_file() { Some(own) } else { subprocess::which(tool.name) }
}

/// Returns the tool, and installs it if it is missing.
pub(crate) fn ensure(root: &Path, tool: &CargoTool) -> anyhow::Result<PathBuf> {
    if let Some(found) = find(root, tool) {
        return Ok(found);
    }
    let CargoTool { name, version } = *tool;
    report::print(&format!("`{name}` is missing: installing version {version} into target/tools"));
    let mut install = subprocess::cargo(root);
    install.args(["install", name, "--locked", "--version", version, "--root"]).arg(folder(root));
    // Without optimization, which would cost more than it saves, and not where another cargo is building.
    install.arg("--debug").env("CARGO_PROFILE_DEV_DEBUG", "0").env_remove("CARGO_TARGET_DIR");
    subprocess::run(&mut install).with_context(|| format!("install it by hand: cargo install {name} --locked"))?;
    find(root, tool).with_context(|| format!("`cargo install {name}` left no program `{name}`"))
}

/// Returns a `PATH` on which cargo finds the tools under `target/tools`.
pub(crate) fn path(root: &Path) -> anyhow::Result<OsString> {
    let rest = env::var_os("PATH").unwrap_or_default();
    env::join_paths(std::iter::once(folder(root).join("bin")).chain(env::split_paths(&rest)))
        .context("the project is in a folder that cannot be on PATH")
}

fn folder(root: &Path) -> PathBuf {
    root.join("target").join("tools")
}
