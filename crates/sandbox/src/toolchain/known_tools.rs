//! Describes toolchains for which it is enough to know which part of their folder is needed: one row each. A few are
//! recognised by their layout instead, wherever they are.

use std::path::{Component, Path, PathBuf};

use super::setup::MaskKind;
use super::setup_builder::{DirectoryClaim, PathEntry, ToolchainPlan};

struct KnownTool {
    name: &'static str,
    language: &'static str,
    /// Variables that name the root; then its usual folders below the home.
    variables: &'static [&'static str],
    usual: &'static [&'static str],
    /// What a directory on the `PATH` looks like relative to the root (`*` is any one name), and what is shown with
    /// it.
    parts: &'static [(&'static str, &'static [&'static str])],
}

const KNOWN_TOOLS: &[KnownTool] = &[
    KnownTool {
        name: "nvm",
        language: "node",
        variables: &["NVM_DIR"],
        usual: &[".nvm"],
        parts: &[("versions/node/*", &["versions/node/*"])],
    },
    KnownTool {
        name: "fnm",
        language: "node",
        variables: &["FNM_DIR"],
        usual: &[".local/share/fnm", ".fnm"],
        parts: &[("node-versions/*", &["node-versions/*"])],
    },
    KnownTool {
        name: "n",
        language: "node",
        variables: &["N_PREFIX"],
        usual: &["n"],
        parts: &[("bin", &["bin", "lib/node_modules", "include/node"])],
    },
    KnownTool {
        name: "pnpm",
        language: "node",
        variables: &["PNPM_HOME"],
        usual: &[".local/share/pnpm"],
        parts: &[("", &["."])],
    },
    KnownTool {
        name: "bun",
        language: "bun",
        variables: &["BUN_INSTALL"],
        usual: &[".bun"],
        parts: &[("bin", &["bin", "install/global"])],
    },
    KnownTool {
        name: "deno",
        language: "deno",
        variables: &["DENO_INSTALL_ROOT", "DENO_INSTALL"],
        usual: &[".deno"],
        parts: &[("bin", &["bin"])],
    },
    KnownTool {
        name: "uv",
        language: "python",
        variables: &["UV_PYTHON_INSTALL_DIR"],
        usual: &[".local/share/uv/python"],
        parts: &[("*", &["*"])],
    },
    KnownTool {
        name: "uv",
        language: "python",
        variables: &["UV_TOOL_DIR"],
        usual: &[".local/share/uv/tools"],
        parts: &[("*", &["*"])],
    },
    KnownTool {
        name: "pipx",
        language: "python",
        variables: &["PIPX_HOME"],
        usual: &[".local/share/pipx", ".local/pipx"],
        parts: &[("venvs/*", &["venvs/*", "shared"])],
    },
    KnownTool {
        name: "go",
        language: "go",
        variables: &["GOPATH"],
        usual: &["go"],
        // `pkg/mod` is a cache, not a part of the toolchain.
        parts: &[("bin", &["bin"])],
    },
    KnownTool {
        name: "sdkman",
        language: "java",
        variables: &["SDKMAN_DIR"],
        usual: &[".sdkman"],
        // All versions of one candidate, because `current` is a link among them.
        parts: &[("candidates/*", &["candidates/*"])],
    },
    KnownTool {
        name: "rvm",
        language: "ruby",
        variables: &["rvm_path"],
        usual: &[".rvm"],
        parts: &[("rubies/*", &["rubies/*"]), ("gems/*", &["gems/*"]), ("bin", &["bin"])],
    },
    KnownTool {
        name: "ghcup",
        language: "haskell",
        variables: &[],
        usual: &[".ghcup"],
        parts: &[("bin", &["bin", "ghc", "hls", "lib"]), ("ghc/*", &["ghc"])],
    },
    KnownTool {
        name: "cabal",
        language: "haskell",
        variables: &["CABAL_DIR"],
        usual: &[".cabal"],
        // `config` contains the password of the package server.
        parts: &[("bin", &["bin", "store"]), ("store", &["store"])],
    },
    KnownTool {
        name: "rustup",
        language: "rust",
        variables: &["RUSTUP_HOME"],
        usual: &[".rustup"],
        parts: &[("toolchains/*", &["toolchains/*"])],
    },
];

/// The parts of a Homebrew prefix that are programs, as opposed to databases (`var`) or settings (`etc`).
const HOMEBREW_PARTS: &[&str] = &[
    "bin",
    "sbin",
    "lib",
    "libexec",
    "include",
    "share",
    "opt",
    "Cellar",
    "etc/openssl@3",
    "etc/openssl@1.1",
    "etc/ca-certificates",
];

/// Shows the part of a known toolchain that contains a directory (or a program).
pub(super) fn claim(plan: &mut ToolchainPlan<'_>, entry: &PathEntry) -> DirectoryClaim {
    for row in KNOWN_TOOLS {
        for root in plan.roots(row.variables, row.usual) {
            let Some(rest) = entry.relative_to(&root) else { continue };
            let part = row.parts.iter().find_map(|(shape, bring)| Some((match_pattern(shape, &rest)?, *bring)));
            let Some((stars, bring)) = part else { continue };
            if plan.wants(&[row.name, row.language]) {
                for part in bring {
                    plan.bind(&expand_pattern(&root, part, &stars));
                }
                let dir = root.join(&rest);
                if plan.add_to_path(&dir) {
                    plan.mark_found(&[row.name, row.language]);
                    plan.programs.push(dir);
                }
            }
            return DirectoryClaim::Mine;
        }
    }
    claim_by_layout(plan, entry)
}

fn claim_by_layout(plan: &mut ToolchainPlan<'_>, entry: &PathEntry) -> DirectoryClaim {
    if entry.real.starts_with(&plan.places.nix_store) {
        // Only the store: the daemon's socket is next to it.
        let store = plan.places.nix_store.clone();
        return bind_and_claim(plan, entry, &["nix"], &[store]);
    }
    if let Some(root) = find_root(plan, entry, &["DOTNET_ROOT"], &[".dotnet"]) {
        let claim = bind_and_claim(plan, entry, &["dotnet"], std::slice::from_ref(&root));
        // Private keys of development certificates.
        plan.add_mask(&root, "corefx", MaskKind::Directory);
        if plan.is_visible(&root) {
            plan.set_env_path("DOTNET_ROOT", &root);
        }
        return claim;
    }
    let Some(prefix) = prefix(&entry.named) else { return DirectoryClaim::NotMine };
    if prefix.file_name().is_some_and(|name| name == ".linuxbrew") {
        let parts: Vec<PathBuf> = HOMEBREW_PARTS.iter().map(|part| prefix.join(part)).collect();
        return bind_and_claim(plan, entry, &["homebrew"], &parts);
    }
    if prefix.join("conda-meta").is_dir() {
        return bind_and_claim(plan, entry, &["conda", "python"], &[prefix]);
    }
    if prefix.join("bin/go").is_file() && (prefix.join("pkg/tool").is_dir() || prefix.join("VERSION").is_file()) {
        return bind_and_claim(plan, entry, &["go"], &[prefix]);
    }
    DirectoryClaim::NotMine
}

fn bind_and_claim(plan: &mut ToolchainPlan<'_>, entry: &PathEntry, words: &[&str], dirs: &[PathBuf]) -> DirectoryClaim {
    if plan.wants(words) {
        for dir in dirs {
            plan.bind(dir);
        }
        if plan.add_to_path(&entry.named) {
            plan.mark_found(words);
        }
    }
    DirectoryClaim::Mine
}

fn find_root(plan: &ToolchainPlan<'_>, entry: &PathEntry, variables: &[&str], usual: &[&str]) -> Option<PathBuf> {
    plan.roots(variables, usual).into_iter().find(|root| entry.relative_to(root).is_some())
}

/// Returns the folder that a directory of programs belongs to.
fn prefix(dir: &Path) -> Option<PathBuf> {
    let name = dir.file_name()?;
    (name == "bin" || name == "sbin" || name == "condabin").then(|| dir.parent().map(Path::to_owned)).flatten()
}

/// Returns the names that match the stars, if the path begins with the pattern.
fn match_pattern(shape: &str, path: &Path) -> Option<Vec<String>> {
    let mut parts = path.components();
    let mut stars = Vec::new();
    for word in shape.split('/').filter(|word| !word.is_empty()) {
        let Some(Component::Normal(name)) = parts.next() else { return None };
        let name = name.to_str()?;
        match word {
            "*" => stars.push(name.to_owned()),
            word if word == name => (),
            _ => return None,
        }
    }
    Some(stars)
}

fn expand_pattern(root: &Path, part: &str, stars: &[String]) -> PathBuf {
    let mut stars = stars.iter();
    let mut path = root.to_owned();
    for word in part.split('/').filter(|word| *word != ".") {
        let name = if word == "*" { stars.next().map(String::as_str) } else { None };
        path.push(name.unwrap_or(word));
    }
    path
}
