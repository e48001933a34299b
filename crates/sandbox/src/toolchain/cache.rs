//! Where toolchains keep what they downloaded. Inside, each cache is the sandbox's own; the host's may lie under it,
//! read-only, if the user wants that: a poisoned cache is then poisoned for one sandbox only.

use std::path::Path;

use super::found::{Bind, Cache, Mask, Masked};
use super::host::INSIDE;
use super::look;
use super::place;
use super::plan::Plan;

struct Row {
    name: &'static str,
    language: &'static str,
    /// Below the sandbox's home: where the tool looks by itself.
    inside: &'static str,
    /// A variable of the host that names a folder, and the way from there.
    said: Option<(&'static str, &'static str)>,
    /// Below the host's home otherwise.
    usual: &'static str,
    /// What may hold addresses with tokens.
    mask: &'static [&'static str],
}

const ROWS: &[Row] = &[
    row("cargo-registry", "rust", ".cargo/registry", Some(("CARGO_HOME", "registry")), ".cargo/registry", &[]),
    row("cargo-git", "rust", ".cargo/git", Some(("CARGO_HOME", "git")), ".cargo/git", &[]),
    row("npm", "node", ".npm/_cacache", Some(("npm_config_cache", "_cacache")), ".npm/_cacache", &[]),
    row("yarn", "node", ".cache/yarn", Some(("YARN_CACHE_FOLDER", "")), ".cache/yarn", &[]),
    row("pip", "python", ".cache/pip", Some(("PIP_CACHE_DIR", "")), ".cache/pip", &[]),
    row("uv", "python", ".cache/uv", Some(("UV_CACHE_DIR", "")), ".cache/uv", &["git-v0"]),
    row("go", "go", "go/pkg/mod", Some(("GOMODCACHE", "")), "go/pkg/mod", &["cache/vcs"]),
    row("bun", "bun", ".bun/install/cache", Some(("BUN_INSTALL_CACHE_DIR", "")), ".bun/install/cache", &[]),
    row("deno", "deno", ".cache/deno", Some(("DENO_DIR", "")), ".cache/deno", &[]),
    row("maven", "java", ".m2/repository", None, ".m2/repository", &[]),
    row("gradle", "java", ".gradle/caches", Some(("GRADLE_USER_HOME", "caches")), ".gradle/caches", &[]),
];

const fn row(
    name: &'static str,
    language: &'static str,
    inside: &'static str,
    said: Option<(&'static str, &'static str)>,
    usual: &'static str,
    mask: &'static [&'static str],
) -> Row {
    Row { name, language, inside, said, usual, mask }
}

/// Lists the caches of the languages that were found or that the host has a cache for.
pub(super) fn list(plan: &mut Plan<'_>) {
    for row in ROWS {
        if !plan.wants(&[row.language]) && !plan.has_met(row.language) {
            continue;
        }
        let dir = Path::new(INSIDE).join(row.inside);
        let lower = lower(plan, row, &dir);
        if lower.is_some() || plan.has_met(row.language) {
            plan.caches.push(Cache { name: row.name, dir, lower });
        }
    }
}

fn lower(plan: &mut Plan<'_>, row: &Row, target: &Path) -> Option<Bind> {
    let said = row.said.and_then(|(variable, below)| Some(plan.host.dir(variable)?.join(below)));
    let source = look::real_dir(&said.unwrap_or_else(|| plan.home.named.join(row.usual)))?;
    place::judge(&plan.home, plan.places, &source).ok()?;
    let mut mask = plan.masks(&source).ok()?;
    let more = row.mask.iter().filter(|below| source.join(below).is_dir());
    mask.extend(more.map(|below| Mask { below: below.into(), kind: Masked::Directory }));
    mask.sort();
    Some(Bind { source, target: target.to_owned(), mask })
}
