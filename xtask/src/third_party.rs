//! Fetches other programs that benches measure and tests start into `target/peers`, so that the system is unchanged
//! and `cargo clean` removes them again.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, bail};

use crate::workspace::ProjectWorkspace;
use crate::{report, subprocess};

/// System packages that are unpacked: the programs, what they start, and the libraries they lack.
const SANDBOX_PACKAGES: &[&str] = &[
    "bubblewrap",
    "busybox-static",
    "containerd",
    "docker.io",
    "libnsl2",
    "libtirpc3",
    "libwrap0",
    "ripgrep",
    "runc",
    "socat",
    "tini",
];

const NPM_MODULES: &[&str] = &["@anthropic-ai/sandbox-runtime", "@openai/codex"];

/// Agents that tests start: the program, its module, and its path in the module of this platform.
const AGENTS: &[NpmAgent] = &[
    NpmAgent { name: "claude", module: "@anthropic-ai/claude-code", folders: &[] },
    NpmAgent { name: "codex", module: "@openai/codex", folders: &["vendor", "*", "bin"] },
];

struct NpmAgent {
    name: &'static str,
    module: &'static str,
    /// Folders below the native module; `*` is the only one there.
    folders: &'static [&'static str],
}

const PROXY_PACKAGES: &[&str] = &["nginx", "nginx-common"];

/// Python programs, each installed into a folder of its own.
const PYTHON_PACKAGES: &[(&str, &str)] = &[("mitmproxy", "mitmproxy"), ("litellm", "litellm[proxy]")];

const NODE_CA_VARIABLE: &str = "NODE_EXTRA_CA_CERTS";
/// Where systems store the certificates they trust.
const SYSTEM_CA_BUNDLES: [&str; 2] = ["/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt"];

/// Returns the folder into which they are installed.
pub(crate) fn folder(workspace: &ProjectWorkspace) -> PathBuf {
    workspace.root.join("target").join("peers")
}

/// Installs the other sandbox programs. One that cannot be installed is reported here and again by the bench: the
/// others are still worth measuring.
pub(crate) fn install_cages(workspace: &ProjectWorkspace) -> anyhow::Result<()> {
    unpack(workspace, SANDBOX_PACKAGES)?;
    report::print("installing modules with npm into target/peers/npm");
    for module in NPM_MODULES {
        report_failure(module, install_module(workspace, module));
    }
    Ok(())
}

/// Installs the missing agents and returns a line about each. One that cannot be installed is an error.
pub(crate) fn install_agents(workspace: &ProjectWorkspace) -> anyhow::Result<Vec<String>> {
    let modules = folder(workspace).join("npm").join("node_modules");
    AGENTS.iter().map(|agent| ensure_agent(workspace, &modules, agent)).collect()
}

fn ensure_agent(workspace: &ProjectWorkspace, modules: &Path, agent: &NpmAgent) -> anyhow::Result<String> {
    let NpmAgent { name, module, .. } = agent;
    let found = || native_program(modules, agent);
    let program = match found() {
        Some(program) => program,
        None => {
            install_module(workspace, module)?;
            found().with_context(|| format!("`{module}` has no program `{name}` for this platform"))?
        }
    };
    // An agent writes to its home folder when it starts, and must not write to the user's.
    let home = create_folder(workspace, "home")?;
    let output = subprocess::output(subprocess::command(&program, &home).arg("--version").env("HOME", &home))?;
    Ok(format!("{name:<12} {}", output.lines().next().unwrap_or("").trim()))
}

/// Returns the path of an agent's native program: in a module of its own beside the requested one.
fn native_program(modules: &Path, agent: &NpmAgent) -> Option<PathBuf> {
    let mut folder = modules.join(native_module(agent.module, std::env::consts::OS, std::env::consts::ARCH));
    for part in agent.folders {
        folder = match *part {
            "*" => fs::read_dir(&folder).ok()?.find_map(Result::ok)?.path(),
            name => folder.join(name),
        };
    }
    Some(folder.join(agent.name)).filter(|program| program.is_file())
}

/// Returns the name of the module for a platform, given Rust's names of the platform.
fn native_module(module: &str, system: &str, machine: &str) -> String {
    let system = if system == "macos" { "darwin" } else { system };
    let machine = match machine {
        "x86_64" => "x64",
        "aarch64" => "arm64",
        other => other,
    };
    format!("{module}-{system}-{machine}")
}

fn install_module(workspace: &ProjectWorkspace, module: &str) -> anyhow::Result<()> {
    if subprocess::which("npm").is_none() {
        bail!("`npm` is missing, which fetches `{module}`: apt-get install npm");
    }
    let modules = create_folder(workspace, "npm")?;
    let install = || subprocess::run(npm_install(&modules).arg("--prefix").arg(&modules).arg(module));
    // Registries fail now and then.
    install().or_else(|_| install())
}

/// Installs modules where every user and every cage finds their programs. Only for machines that exist for CI.
pub(crate) fn install_for_all_users(workspace: &ProjectWorkspace, modules: &[&str]) -> anyhow::Result<()> {
    if subprocess::which("npm").is_none() {
        bail!("`npm` is missing, which fetches {modules:?}: apt-get install npm");
    }
    let folder = create_folder(workspace, "npm")?;
    let install = || subprocess::run(npm_install(&folder).arg("--global").args(modules));
    install().or_else(|_| install())
}

fn npm_install(folder: &Path) -> Command {
    let mut npm = subprocess::command("npm", folder);
    // Node trusts its own list of certificates and not the system's, which may include that of a proxy in front of
    // the registry.
    if std::env::var_os(NODE_CA_VARIABLE).is_none()
        && let Some(bundle) = SYSTEM_CA_BUNDLES.iter().find(|bundle| Path::new(bundle).exists())
    {
        npm.env(NODE_CA_VARIABLE, bundle);
    }
    npm.args(["install", "--no-audit", "--no-fund"]);
    npm
}

/// Installs the other proxies. One that cannot be installed is only reported, as in [`install_cages`].
pub(crate) fn install_proxies(workspace: &ProjectWorkspace) -> anyhow::Result<()> {
    unpack(workspace, PROXY_PACKAGES)?;
    report::print("installing Python programs with pip, each into a folder of its own below target/peers");
    for (name, package) in PYTHON_PACKAGES {
        report_failure(package, install_python(workspace, name, package));
    }
    Ok(())
}

/// Installs the LiteLLM proxy that tests use, once, and returns a line about it. A failure is an error.
pub(crate) fn install_litellm(workspace: &ProjectWorkspace) -> anyhow::Result<String> {
    let (name, package) = PYTHON_PACKAGES.iter().find(|(name, _)| *name == "litellm").context("it is in the list")?;
    let folder = folder(workspace).join(name);
    let program = folder.join("bin").join(name);
    if !program.is_file() {
        install_python(workspace, name, package)?;
    }
    if !program.is_file() {
        bail!("`{package}` has no program `{name}`");
    }
    Ok(format!("{name:<12} {}", version_of(&folder, name).unwrap_or_default()))
}

/// Returns the version of an installed Python package from its metadata: running the program takes longer than most
/// tests.
fn version_of(folder: &Path, name: &str) -> Option<String> {
    let inside = |folder: &Path| fs::read_dir(folder).ok().into_iter().flatten().flatten().map(|entry| entry.path());
    let sites = inside(&folder.join("lib")).map(|python| python.join("site-packages"));
    sites.flat_map(|site| inside(&site).collect::<Vec<_>>()).find_map(|path| {
        let word = path.file_name()?.to_str()?.strip_suffix(".dist-info")?;
        word.strip_prefix(name)?.strip_prefix('-').map(str::to_owned)
    })
}

fn install_python(workspace: &ProjectWorkspace, name: &str, package: &str) -> anyhow::Result<()> {
    let folder = create_folder(workspace, name)?;
    subprocess::run(subprocess::command("python3", &folder).args(["-m", "venv", "."]))
        .with_context(|| format!("`{package}` needs Python with venv: apt-get install python3-venv"))?;
    let install = || {
        let mut pip = subprocess::command(folder.join("bin").join("pip"), &folder);
        subprocess::run(pip.args(["install", "--quiet", "--disable-pip-version-check", package]))
    };
    // Package indexes fail now and then.
    install().or_else(|_| install())
}

/// Downloads system packages and unpacks them, without installing anything.
fn unpack(workspace: &ProjectWorkspace, packages: &[&str]) -> anyhow::Result<()> {
    let (cache, root) = (create_folder(workspace, "packages")?, create_folder(workspace, "root")?);
    report::print("fetching packages with apt-get and unpacking them into target/peers/root; nothing is installed");
    for package in packages {
        report_failure(package, subprocess::run(subprocess::command("apt-get", &cache).args(["download", package])));
    }
    for entry in fs::read_dir(&cache).with_context(|| format!("could not list `{}`", cache.display()))? {
        let file = entry.with_context(|| format!("could not list `{}`", cache.display()))?.path();
        let unpacked = subprocess::run(subprocess::command("dpkg-deb", &cache).arg("-x").arg(&file).arg(&root));
        report_failure(&file.to_string_lossy(), unpacked);
    }
    Ok(())
}

fn create_folder(workspace: &ProjectWorkspace, name: &str) -> anyhow::Result<PathBuf> {
    let place = folder(workspace).join(name);
    fs::create_dir_all(&place).with_context(|| format!("could not make `{}`", place.display()))?;
    Ok(place)
}

fn report_failure(what: &str, done: anyhow::Result<()>) {
    if let Err(error) = done {
        report::print_error(&format!("`{what}` could not be installed: {error:#}"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modules_of_platforms() {
        #[track_caller]
        fn check(system: &str, machine: &str, want: &str) {
            assert_eq!(native_module("@a/b", system, machine), want);
        }
        check("linux", "x86_64", "@a/b-linux-x64");
        check("linux", "aarch64", "@a/b-linux-arm64");
        check("macos", "aarch64", "@a/b-darwin-arm64");
        check("linux", "riscv64", "@a/b-linux-riscv64");
    }

    #[test]
    fn versions_of_python_packages() {
        let folder = std::env::temp_dir().join(format!("ralph-xtask-{}", std::process::id()));
        let site = folder.join("lib/python3.11/site-packages");
        for name in ["litellm", "litellm_extras-9.9.dist-info", "litellm-1.2.3.dist-info", "pip-1.dist-info"] {
            fs::create_dir_all(site.join(name)).expect("a folder");
        }
        assert_eq!(version_of(&folder, "litellm").as_deref(), Some("1.2.3"));
        assert_eq!(version_of(&folder, "other"), None);
        fs::remove_dir_all(&folder).expect("it was just made");
    }

    #[test]
    fn a_missing_agent_has_no_native_program() {
        for agent in AGENTS {
            assert_eq!(native_program(Path::new("no-folder-of-this-name"), agent), None);
        }
    }
}
