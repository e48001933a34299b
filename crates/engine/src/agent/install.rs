//! Fetches an agent's package in a cage that may reach only its registry, and puts it into the store.
//!
//! No script of a package is run: npm and pip would run some on install. The fetched files are checked from outside,
//! one by one, and the program is tried once in a cage without network before it can be found.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use ralph_core::agent::{Agent, AgentPackage};
use ralph_core::config::ToolchainSelection;
use ralph_core::event::Event;
use ralph_core::policy::{Policy, PolicyMode};
use ralph_core::text;
use ralph_sandbox::{Backend, ExecOutput, ExecRequest, Sandbox, SandboxSpec, capture};

use super::copy_from_sandbox;
use super::error::Error;
use super::find::AgentProgram;
use super::package::{self, NpmManifest};
use super::store::{AgentInstallation, AgentRuntime, FILES_DIR, InstalledAgent};
use crate::egress::{EgressLease, EgressRequest};
use crate::host_environment::HostContext;
use crate::sandbox_lifecycle::{self, GrantedSandbox, SandboxRequest};

/// How long fetching a package may take.
const FETCH_TIMEOUT: Duration = Duration::from_mins(20);
/// How long a program may take to print its version the first time.
const TRIAL_TIMEOUT: Duration = Duration::from_mins(2);
const OUTPUT_CAP: usize = 256 << 10;
/// The folder that pip installs into.
const PIP_TARGET: &str = "there";

/// What to fetch.
#[derive(Debug, Clone, Copy)]
pub struct AgentInstallRequest<'a> {
    pub agent: &'a dyn Agent,
    /// `None` for the newest version.
    pub version: Option<&'a str>,
    /// Rules for the user's own registries, beside the preset.
    pub allow: &'a [String],
}

/// Fetches an agent and puts it into the store. `say` receives progress messages for the user.
pub async fn install(
    host: &HostContext,
    request: &AgentInstallRequest<'_>,
    say: &mut (dyn FnMut(&str) + Send),
) -> Result<AgentProgram, Error> {
    let agent = request.agent;
    let Some(package) = agent.package() else {
        return Err(Error::NoPackage { agent: agent.name().to_owned(), by_hand: agent.install_hint().to_owned() });
    };
    if let Some(version) = request.version.filter(|version| !package::is_version(version)) {
        return Err(Error::Version { version: text::strip_control(text::first_line(version, 40)) });
    }
    let backend = fetch_backend(host, agent)?;
    let new = AgentInstallation::begin(&host.home, agent)?;
    say(&format!("fetching {package} in a cage that may reach only `{}`", package.preset()));
    let cage = FetchCage::make(host, &*backend, request, package).await?;
    let fetched = match cage.fetch(request, package).await {
        Ok(()) => copy_package_out(cage.0.sandbox.as_ref(), agent, package, &new).await,
        Err(error) => Err(error),
    };
    sandbox_lifecycle::discard(&*cage.0.sandbox).await;
    let about = fetched?;
    say(&format!("{package} {} was fetched; trying it in a cage without network", about.version));
    try_version(host, &*backend, agent, package, &about, &new).await?;
    new.finish(&about)
}

/// Returns a backend in which untrusted code can be fetched and tried.
fn fetch_backend(host: &HostContext, agent: &dyn Agent) -> Result<Arc<dyn Backend>, Error> {
    let fits = |backend: &&Arc<dyn Backend>| {
        let capabilities = backend.capabilities();
        capabilities.isolation.is_isolated() && capabilities.egress.is_available() && capabilities.host_layers
    };
    let missing = || Error::NoCage { agent: agent.name().to_owned(), program: agent.program().to_owned() };
    host.backends().iter().find(fits).cloned().ok_or_else(missing)
}

/// The cage in which a package is fetched.
struct FetchCage(GrantedSandbox);

impl FetchCage {
    async fn make(
        host: &HostContext,
        backend: &dyn Backend,
        request: &AgentInstallRequest<'_>,
        package: AgentPackage,
    ) -> Result<Self, Error> {
        let failed =
            |source: crate::Error| Error::Sandbox { agent: request.agent.name().to_owned(), source: Box::new(source) };
        let mut rules = vec![package.preset()];
        rules.extend(request.allow.iter().map(String::as_str));
        let policy = Policy::parse(PolicyMode::Allowlist, &rules, &[])
            .map_err(|error| failed(crate::Error::Refused(error.to_string())))?;
        let name = sandbox_name("fetch", request.agent);
        let spec = SandboxSpec { name, toolchains: toolchains(package), ..SandboxSpec::default() };
        let egress = Some(EgressRequest::from(policy));
        let granted =
            sandbox_lifecycle::create(host, SandboxRequest { backend, spec, egress }).await.map_err(failed)?;
        Ok(Self(granted))
    }

    async fn fetch(&self, request: &AgentInstallRequest<'_>, package: AgentPackage) -> Result<(), Error> {
        let exec = ExecRequest::new(command(package, request.version), FETCH_TIMEOUT);
        let output = run(self.0.sandbox.as_ref(), request.agent, &exec).await?;
        if output.exit.success() {
            return Ok(());
        }
        let report = self.0.lease.as_ref().map(EgressLease::take_report).unwrap_or_default();
        let denied = report.refusals.into_iter().find_map(|event| match event {
            Event::PolicyDenied { host, port, .. } => Some(format!("{host}:{port}")),
            _ => None,
        });
        Err(Error::Fetch { package: package.to_string(), why: last_line(&output), refused: denied })
    }
}

fn toolchains(package: AgentPackage) -> ToolchainSelection {
    let word = match package {
        AgentPackage::Npm(_) => "node",
        AgentPackage::Pip(_) => "python",
    };
    ToolchainSelection::Only(vec![word.to_owned()])
}

/// Returns the command that fetches a package without running anything of it.
fn command(package: AgentPackage, version: Option<&str>) -> Vec<String> {
    let words: Vec<&str> = match package {
        AgentPackage::Npm(_) => vec![
            "npm",
            "install",
            "--ignore-scripts",
            "--no-audit",
            "--no-fund",
            "--no-update-notifier",
            "--no-progress",
            "--loglevel=error",
            "--fetch-retries=2",
            "--no-save",
        ],
        AgentPackage::Pip(_) => vec![
            "python3",
            "-m",
            "pip",
            "install",
            "--disable-pip-version-check",
            "--no-input",
            "--no-cache-dir",
            "--no-warn-script-location",
            "--quiet",
            "--retries=2",
            "--only-binary=:all:",
            "--target",
            PIP_TARGET,
        ],
    };
    let name = match (package, version) {
        (AgentPackage::Npm(name), version) => format!("{name}@{}", version.unwrap_or("latest")),
        (AgentPackage::Pip(name), Some(version)) => format!("{name}=={version}"),
        (AgentPackage::Pip(name), None) => name.to_owned(),
    };
    words.into_iter().map(str::to_owned).chain([name]).collect()
}

/// Copies the fetched package out of the cage and describes it.
async fn copy_package_out(
    sandbox: &dyn Sandbox,
    agent: &dyn Agent,
    package: AgentPackage,
    new: &AgentInstallation,
) -> Result<InstalledAgent, Error> {
    let bad = |why: String| Error::Package { package: package.to_string(), why };
    let files = new.path().join(FILES_DIR);
    let refused = |why: copy_from_sandbox::PackageCopyError| bad(why.to_string());
    match package {
        AgentPackage::Npm(name) => {
            let modules = Path::new("node_modules");
            let manifest =
                manifest(sandbox, &modules.join(name)).await.ok_or_else(|| bad("it states no version".into()))?;
            if let Some(pattern) = agent.native_program() {
                let below = pattern.replace("{arch}", package::arch());
                let (native, rest) =
                    package::split_package_path(&below).ok_or_else(|| bad("it is not where it should be".into()))?;
                copy_from_sandbox::copy_tree(sandbox, &modules.join(&native), &files).await.map_err(refused)?;
                let program =
                    package::expand_glob(&files, &rest).ok_or_else(|| bad(format!("there is no `{below}` in it")))?;
                return Ok(InstalledAgent::new(
                    agent,
                    manifest.version,
                    relative_path(&program, &files),
                    AgentRuntime::None,
                ));
            }
            let script = manifest.bin(agent.program()).ok_or_else(|| bad("it names no program".into()))?;
            copy_from_sandbox::copy_tree(sandbox, modules, &files).await.map_err(refused)?;
            Ok(InstalledAgent::new(agent, manifest.version.clone(), format!("{name}/{script}"), AgentRuntime::Node))
        }
        AgentPackage::Pip(name) => {
            copy_from_sandbox::copy_tree(sandbox, Path::new(PIP_TARGET), &files).await.map_err(refused)?;
            let version = wheel_version(&files, name).ok_or_else(|| bad("it states no version".into()))?;
            Ok(InstalledAgent::new(agent, version, format!("bin/{}", agent.program()), AgentRuntime::Python))
        }
    }
}

fn relative_path(program: &Path, files: &Path) -> String {
    program.strip_prefix(files).unwrap_or(program).to_string_lossy().into_owned()
}

async fn manifest(sandbox: &dyn Sandbox, folder: &Path) -> Option<NpmManifest> {
    let bytes = sandbox.read(&folder.join("package.json"), 1 << 20).await.ok()?;
    NpmManifest::parse(&String::from_utf8_lossy(&bytes))
}

/// Reads the version of a package from the name of pip's metadata folder.
fn wheel_version(files: &Path, name: &str) -> Option<String> {
    let wanted = name.replace(['-', '.'], "_").to_ascii_lowercase();
    let entries = std::fs::read_dir(files).ok()?.flatten();
    entries.filter_map(|entry| entry.file_name().into_string().ok()).find_map(|entry| {
        let (package, version) = entry.strip_suffix(".dist-info")?.rsplit_once('-')?;
        let same = package.replace(['-', '.'], "_").to_ascii_lowercase() == wanted;
        (same && package::is_version(version)).then(|| version.to_owned())
    })
}

/// Runs the program's `--version` in a cage that shows it the way every other cage will.
async fn try_version(
    host: &HostContext,
    backend: &dyn Backend,
    agent: &dyn Agent,
    package: AgentPackage,
    about: &InstalledAgent,
    new: &AgentInstallation,
) -> Result<(), Error> {
    let failed = |source: crate::Error| Error::Sandbox { agent: agent.name().to_owned(), source: Box::new(source) };
    let found = about.to_program(new.path());
    let layers = found.layer.iter().cloned().collect();
    let spec = SandboxSpec {
        name: sandbox_name("trial", agent),
        toolchains: toolchains(package),
        layers,
        ..SandboxSpec::default()
    };
    let request = SandboxRequest { backend, spec, egress: None };
    let sandbox = sandbox_lifecycle::create(host, request).await.map_err(failed)?.sandbox;
    let program = found.program.to_string_lossy().into_owned();
    let exec =
        ExecRequest { env: found.env.clone(), ..ExecRequest::new([program, "--version".to_owned()], TRIAL_TIMEOUT) };
    let output = run(sandbox.as_ref(), agent, &exec).await;
    sandbox.destroy().await.map_err(|error| failed(error.into()))?;
    match output {
        Ok(output) if output.exit.success() => Ok(()),
        Ok(output) => Err(Error::Package {
            package: package.to_string(),
            why: format!("it does not start: {}", last_line(&output)),
        }),
        // A program that cannot be started at all gets its own message.
        Err(Error::Sandbox { source, .. })
            if matches!(*source, crate::Error::Sandbox(ralph_sandbox::Error::Spawn { .. })) =>
        {
            Err(Error::Package { package: package.to_string(), why: "its program cannot be started".to_owned() })
        }
        Err(error) => Err(error),
    }
}

async fn run(sandbox: &dyn Sandbox, agent: &dyn Agent, exec: &ExecRequest) -> Result<ExecOutput, Error> {
    capture(sandbox, exec, OUTPUT_CAP)
        .await
        .map_err(|error| Error::Sandbox { agent: agent.name().to_owned(), source: Box::new(error.into()) })
}

/// Returns the last informative line, error output first.
fn last_line(output: &ExecOutput) -> String {
    let texts = [output.stderr_text(), output.stdout_text()];
    let line = texts.iter().find_map(|text| {
        // npm ends with the path of its log, which is gone with the cage.
        let informative = |line: &&str| !line.is_empty() && !line.contains("A complete log of this run");
        text.lines().rev().map(str::trim).find(informative).map(|line| text::strip_control(text::head(line, 300)))
    });
    line.unwrap_or_else(|| format!("it ended with code {}", output.exit.code()))
}

fn sandbox_name(what: &str, agent: &dyn Agent) -> String {
    let now = format!("{:?}{}", std::time::SystemTime::now(), std::process::id());
    format!("agent-{what}-{}-{}", agent.name(), ralph_core::hash::short_sha256(now.as_bytes()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands() {
        for (package, version, want) in [
            (AgentPackage::Npm("@a/b"), None, "@a/b@latest"),
            (AgentPackage::Npm("@a/b"), Some("1.2.3"), "@a/b@1.2.3"),
            (AgentPackage::Pip("a-b"), None, "a-b"),
            (AgentPackage::Pip("a-b"), Some("1.2"), "a-b==1.2"),
        ] {
            let words = command(package, version);
            assert_eq!(words.last().map(String::as_str), Some(want));
            // Nothing of a package is run while it is fetched.
            let careful = ["--ignore-scripts", "--only-binary=:all:"];
            assert!(words.iter().any(|word| careful.contains(&word.as_str())), "{words:?}");
        }
    }

    #[test]
    fn versions_of_wheels() {
        let files = tempfile::tempdir().unwrap();
        for name in ["aider", "aider_chat-0.86.2.dist-info", "other-1.0.dist-info"] {
            std::fs::create_dir(files.path().join(name)).unwrap();
        }
        assert_eq!(wheel_version(files.path(), "aider-chat").as_deref(), Some("0.86.2"));
        assert_eq!(wheel_version(files.path(), "missing"), None);
    }
}
