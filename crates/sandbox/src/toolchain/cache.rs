//! Lists the download caches of toolchains. Each sandbox has its own caches; the host's can be mounted under one
//! read-only, if the user asks for that, so a poisoned cache affects one sandbox only.

use std::path::Path;

use super::fs_probe;
use super::host::SANDBOX_HOME;
use super::path_policy;
use super::setup::{BindMask, MaskKind, ToolchainBind, ToolchainCache};
use super::setup_builder::ToolchainPlan;

struct CacheLocation {
    name: &'static str,
    language: &'static str,
    /// Below the sandbox's home: the tool's default folder.
    inside: &'static str,
    /// A variable of the host that names a folder, and the path below that folder.
    host_variable: Option<(&'static str, &'static str)>,
    /// Below the host's home, if the variable is not set.
    usual: &'static str,
    /// Parts that may contain URLs with tokens.
    mask: &'static [&'static str],
}

const CACHES: &[CacheLocation] = &[
    cache_location(
        "cargo-registry",
        "rust",
        ".cargo/registry",
        Some(("CARGO_HOME", "registry")),
        ".cargo/registry",
        &[],
    ),
    cache_location("cargo-git", "rust", ".cargo/git", Some(("CARGO_HOME", "git")), ".cargo/git", &[]),
    cache_location("npm", "node", ".npm/_cacache", Some(("npm_config_cache", "_cacache")), ".npm/_cacache", &[]),
    cache_location("yarn", "node", ".cache/yarn", Some(("YARN_CACHE_FOLDER", "")), ".cache/yarn", &[]),
    cache_location("pip", "python", ".cache/pip", Some(("PIP_CACHE_DIR", "")), ".cache/pip", &[]),
    cache_location("uv", "python", ".cache/uv", Some(("UV_CACHE_DIR", "")), ".cache/uv", &["git-v0"]),
    cache_location("go", "go", "go/pkg/mod", Some(("GOMODCACHE", "")), "go/pkg/mod", &["cache/vcs"]),
    cache_location("bun", "bun", ".bun/install/cache", Some(("BUN_INSTALL_CACHE_DIR", "")), ".bun/install/cache", &[]),
    cache_location("deno", "deno", ".cache/deno", Some(("DENO_DIR", "")), ".cache/deno", &[]),
    cache_location("maven", "java", ".m2/repository", None, ".m2/repository", &[]),
    cache_location("gradle", "java", ".gradle/caches", Some(("GRADLE_USER_HOME", "caches")), ".gradle/caches", &[]),
];

const fn cache_location(
    name: &'static str,
    language: &'static str,
    inside: &'static str,
    configured: Option<(&'static str, &'static str)>,
    usual: &'static str,
    mask: &'static [&'static str],
) -> CacheLocation {
    CacheLocation { name, language, inside, host_variable: configured, usual, mask }
}

/// Lists the caches of the languages that were found or for which the host has a cache.
pub(super) fn list(plan: &mut ToolchainPlan<'_>) {
    for row in CACHES {
        if !plan.wants(&[row.language]) && !plan.has_found(row.language) {
            continue;
        }
        let dir = Path::new(SANDBOX_HOME).join(row.inside);
        let lower = host_cache(plan, row, &dir);
        if lower.is_some() || plan.has_found(row.language) {
            plan.caches.push(ToolchainCache { name: row.name, dir, lower });
        }
    }
}

fn host_cache(plan: &mut ToolchainPlan<'_>, row: &CacheLocation, target: &Path) -> Option<ToolchainBind> {
    let configured = row.host_variable.and_then(|(variable, below)| Some(plan.host.dir_var(variable)?.join(below)));
    let source = fs_probe::real_dir(&configured.unwrap_or_else(|| plan.home.named.join(row.usual)))?;
    path_policy::check_dir(&plan.home, plan.places, &source).ok()?;
    let mut mask = plan.masks(&source).ok()?;
    let more = row.mask.iter().filter(|below| source.join(below).is_dir());
    mask.extend(more.map(|below| BindMask { below: below.into(), kind: MaskKind::Directory }));
    mask.sort();
    Some(ToolchainBind { source, target: target.to_owned(), mask })
}
