//! Other programs that benches measure and tests start: fetched and unpacked into `target/peers`, so that the system
//! stays as it is and `cargo clean` takes them away again.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};

use crate::workspace::ProjectWorkspace;
use crate::{report, subprocess};

/// What is unpacked from the system's own packages: the programs, what they start, and the libraries they lack.
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

/// Agents that tests start: the program, its module, and where the module of this platform has it.
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

/// Python programs, each with the folder that has its libraries to itself.
const PYTHON_PACKAGES: &[(&str, &str)] = &[("mitmproxy", "mitmproxy"), ("litellm", "litellm[proxy]")];

const NODE_CA_VARIABLE: &str = "NODE_EXTRA_CA_CERTS";
/// Where systems keep the certificates they believe.
const SYSTEM_CA_BUNDLES: [&str; 2] = ["/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt"];

/// Where they are put.
pub(crate) fn folder(house: &ProjectWorkspace) -> PathBuf {
    house.root.join("target").join("peers")
}

/// Gets the other cages. One that cannot be had is told, and the bench tells it again: the others are still worth
/// measuring.
pub(crate) fn install_cages(house: &ProjectWorkspace) -> anyhow::Result<()> {
    unpack(house, SANDBOX_PACKAGES)?;
    report::print("installing modules with npm into target/peers/npm");
    for module in NPM_MODULES {
        report_failure(module, install_module(house, module));
    }
    Ok(())
}

/// Gets the agents that are not there yet, and returns a line about each. One that cannot be had is an error.
pub(crate) fn install_agents(house: &ProjectWorkspace) -> anyhow::Result<Vec<String>> {
    let modules = folder(house).join("npm").join("node_modules");
    AGENTS.iter().map(|agent| ensure_agent(house, &modules, agent)).collect()
}

fn ensure_agent(house: &ProjectWorkspace, modules: &Path, agent: &NpmAgent) -> anyhow::Result<String> {
    let NpmAgent { name, module, .. } = agent;
    let found = || native_program(modules, agent);
    let program = match found() {
        Some(program) => program,
        None => {
            install_module(house, module)?;
            found().with_context(|| format!("`{module}` has no program `{name}` for this platform"))?
        }
    };
    // An agent makes itself at home wherever it is started, and the user's home is not ours.
    let home = create_folder(house, "home")?;
    let said = subprocess::output(subprocess::command(&program, &home).arg("--version").env("HOME", &home))?;
    Ok(format!("{name:<12} {}", said.lines().next().unwrap_or("").trim()))
}

/// Returns where the native program of an agent lies: in a module of its own beside the one that was asked for.
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

/// Says what the module of a platform is called, given the names that Rust has for it.
fn native_module(module: &str, system: &str, machine: &str) -> String {
    let system = if system == "macos" { "darwin" } else { system };
    let machine = match machine {
        "x86_64" => "x64",
        "aarch64" => "arm64",
        other => other,
    };
    format!("{module}-{system}-{machine}")
}

fn install_module(house: &ProjectWorkspace, module: &str) -> anyhow::Result<()> {
    if subprocess::which("npm").is_none() {
        bail!("`npm` is missing, which fetches `{module}`: apt-get install npm");
    }
    let modules = create_folder(house, "npm")?;
    let install = || {
        let mut npm = subprocess::command("npm", &modules);
        // Node believes a list of its own and not the system's, which may hold one more that stands before the registry.
        if std::env::var_os(NODE_CA_VARIABLE).is_none()
            && let Some(bundle) = SYSTEM_CA_BUNDLES.iter().find(|bundle| Path::new(bundle).exists())
        {
            npm.env(NODE_CA_VARIABLE, bundle);
        }
        subprocess::run(npm.args(["install", "--no-audit", "--no-fund", "--prefix"]).arg(&modules).arg(module))
    };
    // Registries stumble now and then.
    install().or_else(|_| install())
}

/// Gets the other proxies, in the same spirit.
pub(crate) fn install_proxies(house: &ProjectWorkspace) -> anyhow::Result<()> {
    unpack(house, PROXY_PACKAGES)?;
    report::print("installing Python programs with pip, each into a folder of its own below target/peers");
    for (name, package) in PYTHON_PACKAGES {
        report_failure(package, install_python(house, name, package));
    }
    Ok(())
}

/// Gets the LiteLLM proxy that tests ask, once, and returns a line about it. One that cannot be had is an error.
pub(crate) fn install_litellm(house: &ProjectWorkspace) -> anyhow::Result<String> {
    let (name, package) = PYTHON_PACKAGES.iter().find(|(name, _)| *name == "litellm").context("it is in the list")?;
    let folder = folder(house).join(name);
    let program = folder.join("bin").join(name);
    if !program.is_file() {
        install_python(house, name, package)?;
    }
    if !program.is_file() {
        bail!("`{package}` has no program `{name}`");
    }
    Ok(format!("{name:<12} {}", version_of(&folder, name).unwrap_or_default()))
}

/// Returns the version of an installed Python package. Asking the program itself takes longer than most tests.
fn version_of(folder: &Path, name: &str) -> Option<String> {
    let inside = |folder: &Path| fs::read_dir(folder).ok().into_iter().flatten().flatten().map(|entry| entry.path());
    let sites = inside(&folder.join("lib")).map(|python| python.join("site-packages"));
    sites.flat_map(|site| inside(&site).collect::<Vec<_>>()).find_map(|path| {
        let word = path.file_name()?.to_str()?.strip_suffix(".dist-info")?;
        word.strip_prefix(name)?.strip_prefix('-').map(str::to_owned)
    })
}

fn install_python(house: &ProjectWorkspace, name: &str, package: &str) -> anyhow::Result<()> {
    let folder = create_folder(house, name)?;
    subprocess::run(subprocess::command("python3", &folder).args(["-m", "venv", "."]))
        .with_context(|| format!("`{package}` needs Python with venv: apt-get install python3-venv"))?;
    let install = || {
        let mut pip = subprocess::command(folder.join("bin").join("pip"), &folder);
        subprocess::run(pip.args(["install", "--quiet", "--disable-pip-version-check", package]))
    };
    // Indexes stumble now and then.
    install().or_else(|_| install())
}

/// Fetches packages of the system and unpacks them, without installing anything.
fn unpack(house: &ProjectWorkspace, packages: &[&str]) -> anyhow::Result<()> {
    let (shelf, root) = (create_folder(house, "packages")?, create_folder(house, "root")?);
    report::print("fetching packages with apt-get and unpacking them into target/peers/root; nothing is installed");
    for package in packages {
        report_failure(package, subprocess::run(subprocess::command("apt-get", &shelf).args(["download", package])));
    }
    for entry in fs::read_dir(&shelf).with_context(|| format!("could not list `{}`", shelf.display()))? {
        let file = entry.with_context(|| format!("could not list `{}`", shelf.display()))?.path();
        let unpacked = subprocess::run(subprocess::command("dpkg-deb", &shelf).arg("-x").arg(&file).arg(&root));
        report_failure(&file.to_string_lossy(), unpacked);
    }
    Ok(())
}

fn create_folder(house: &ProjectWorkspace, name: &str) -> anyhow::Result<PathBuf> {
    let place = folder(house).join(name);
    fs::create_dir_all(&place).with_context(|| format!("could not make `{}`", place.display()))?;
    Ok(place)
}

fn report_failure(what: &str, done: anyhow::Result<()>) {
    if let Err(error) = done {
        report::print_error(&format!("`{what}` could not be had: {error:#}"));
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
    fn an_agent_that_is_not_there() {
        for agent in AGENTS {
            assert_eq!(native_program(Path::new("no-folder-of-this-name"), agent), None);
        }
    }
}
