//! From flags, files and environment to what a run is made from. Every refusal names the file and the next step.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use ralph_core::budget::Budget;
use ralph_core::config::{
    self, BackendKind, BudgetValues, ConfigLayer, ConfigOrigin, ConfigValues, ModelValues, NetworkValues,
    SandboxValues, TaskOptions,
};
use ralph_core::env::RALPH_STATE_DIR;
use ralph_core::event::{CommitIdentity, PinnedAgent, PinnedProfile, PinnedResources, RunProfiles as PinnedProfiles};
use ralph_core::exit::RalphExitCode;
use ralph_core::lint::{self, BackendMaxima, LintContext, LintFinding, PriceStatus};
use ralph_core::money::MicroUsd;
use ralph_core::policy::{Policy, PolicyMode};
use ralph_core::price::{self, PriceTable};
use ralph_core::profile::{ProfileCatalog, ProfileFile, TrustedFiles};
use ralph_core::task::{self, EngineKind, FrontMatter, Task};
use ralph_engine::git::UserRepo;
use ralph_engine::host::HostContext;
use ralph_engine::run::RunSpec;
use ralph_engine::store::{RalphHome, RunFolder};

use crate::environment::ProcessEnvironment;
use crate::error::CliError;

/// The task file people are not asked for.
pub(crate) const TASK_FILE: &str = "ralph_task.md";

/// The machine and the user's folders.
#[derive(Debug, Clone)]
pub(crate) struct CliSetup {
    pub(crate) host: HostContext,
    pub(crate) environment: ProcessEnvironment,
}

/// What flags say about a run.
#[derive(Debug, Clone, Default)]
pub(crate) struct RunOverrides {
    pub(crate) backend: Option<String>,
    pub(crate) profile: Option<String>,
    pub(crate) engine: Option<String>,
    pub(crate) agent: Option<String>,
    pub(crate) max_iterations: Option<u32>,
    pub(crate) max_cost: Option<f64>,
    pub(crate) max_minutes: Option<u32>,
    pub(crate) max_tokens: Option<u64>,
    pub(crate) network: Option<PolicyMode>,
    pub(crate) allow_hosts: Vec<String>,
    pub(crate) lend: Vec<String>,
    pub(crate) no_baseline: bool,
    pub(crate) include_dirty: bool,
}

/// A task file that was read.
#[derive(Debug)]
pub(crate) struct LoadedTask {
    pub(crate) repo: UserRepo,
    /// Where it stands on the host, as people call it.
    pub(crate) display_path: PathBuf,
    /// Where it goes inside the repository.
    pub(crate) repo_path: String,
    pub(crate) source: Option<String>,
}

impl CliSetup {
    pub(crate) async fn new(environment: ProcessEnvironment) -> Result<Self, CliError> {
        let home = home(&environment)?;
        Ok(Self { host: HostContext::open(home, environment.env.clone()).await?, environment })
    }

    /// Finds a run to look at. `@` is the latest of the repository around, or of all where that has none.
    pub(crate) fn find_run(&self, wanted: &str) -> Result<RunFolder, CliError> {
        match self.latest_run_here(wanted)? {
            Some(folder) => Ok(folder),
            None => Ok(self.host.home.find(wanted)?),
        }
    }

    /// Finds whose record a person means: a run, or what `ralph sandbox exec` wrote down under its sandbox's name.
    pub(crate) fn find_audit_folder(&self, wanted: &str) -> Result<RunFolder, CliError> {
        let paper = self.host.home.exec_audit_folder(wanted);
        let is_name = wanted.starts_with("exec-") && !wanted.contains('/');
        if is_name && paper.path().is_dir() { Ok(paper) } else { self.find_run(wanted) }
    }

    /// Finds a run to change. Inside a repository without runs `@` is none: nobody means another repository's.
    pub(crate) fn find_run_to_change(&self, wanted: &str) -> Result<RunFolder, CliError> {
        match self.latest_run_here(wanted)? {
            Some(folder) => Ok(folder),
            None if wanted == "@" && in_repository() && !self.host.home.run_ids()?.is_empty() => {
                Err(CliError::usage("there is no run of this repository yet")
                    .hint("ralph ls shows all runs; name one by its id"))
            }
            None => Ok(self.host.home.find(wanted)?),
        }
    }

    /// Returns the latest run of the repository this directory is in, when that is what is wanted.
    fn latest_run_here(&self, wanted: &str) -> Result<Option<RunFolder>, CliError> {
        let Some(here) = std::fs::canonicalize(".").ok().filter(|_| wanted == "@") else { return Ok(None) };
        let ids = self.host.home.run_ids()?;
        let folders = ids.iter().rev().map(|id| self.host.home.run_folder(id));
        let mut own = folders.filter(|folder| {
            folder
                .listing()
                .is_ok_and(|listing| here.ancestors().any(|above| above.as_os_str() == listing.repo.as_str()))
        });
        Ok(own.next())
    }

    pub(crate) fn config_file(&self) -> PathBuf {
        self.host.home.config_dir().join("config.toml")
    }

    pub(crate) fn user_models(&self) -> PathBuf {
        self.host.home.config_dir().join("models.yaml")
    }

    pub(crate) fn prices_file(&self) -> PathBuf {
        self.host.home.config_dir().join("prices.json")
    }

    pub(crate) fn trust_file(&self) -> PathBuf {
        self.host.home.config_dir().join("trusted")
    }

    /// Reads the task file a command names, or the one at the top of the repository.
    pub(crate) async fn load_task(&self, task: Option<&Path>) -> Result<LoadedTask, CliError> {
        let here = std::path::absolute(".").map_err(|error| CliError::from_error(RalphExitCode::Usage, &error))?;
        let start = match task.and_then(Path::parent) {
            Some(parent) if !parent.as_os_str().is_empty() && parent.is_dir() => parent.to_owned(),
            _ => here.clone(),
        };
        let repo = match UserRepo::find(&self.host.git, &start).await {
            Ok(repo) => repo,
            Err(error) => return Err(self.missing_repo_error(task, &here, error).await),
        };
        let path = match task {
            Some(task) => {
                std::path::absolute(task).map_err(|error| CliError::from_error(RalphExitCode::Usage, &error))?
            }
            None => repo.top().join(TASK_FILE),
        };
        let source = match std::fs::read_to_string(&path) {
            Ok(source) => Some(source),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound && task.is_none() => None,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                let message = format!("there is no task file `{}`", display_path(&path));
                return Err(CliError::usage(message).hint("ralph init"));
            }
            Err(error) => {
                let message = format!("could not read the task file `{}`", display_path(&path));
                return Err(CliError::usage(message)
                    .with_cause(&error)
                    .hint("name a Markdown file in UTF-8: ralph run PATH"));
            }
        };
        let real = path.canonicalize().unwrap_or_else(|_| path.clone());
        let top = repo.top().canonicalize().unwrap_or_else(|_| repo.top().to_owned());
        let within = real.strip_prefix(&top).ok().map(|inside| inside.display().to_string());
        let named = source.as_deref().and_then(|source| task::parse(source).ok()).and_then(|task| task.front.repo_url);
        let elsewhere = match named {
            Some(named) => self.host.repository(&named, &repo).await?,
            None => None,
        };
        let (repo, inside) = match (elsewhere, within) {
            // A task file that stands outside the repository it speaks of goes to its top.
            (Some(other), _) => (other, TASK_FILE.to_owned()),
            (None, Some(inside)) => (repo, inside),
            (None, None) => return Err(task_outside_repo(&real, &top)),
        };
        let shown = task.map_or_else(|| PathBuf::from(TASK_FILE), Path::to_owned);
        Ok(LoadedTask { repo, display_path: shown, repo_path: inside, source })
    }

    /// Finds the repository people stand in.
    pub(crate) async fn repo(&self) -> Result<UserRepo, CliError> {
        let here = std::path::absolute(".").map_err(|error| CliError::from_error(RalphExitCode::Usage, &error))?;
        Ok(UserRepo::find(&self.host.git, &here).await.map_err(ralph_engine::Error::from)?)
    }

    /// Returns the top of the repository people stand in, if they do.
    pub(crate) async fn repo_top(&self) -> Option<PathBuf> {
        self.repo().await.ok().map(|repo| repo.top().to_owned())
    }

    /// Says which of the two is missing: a repository, or the task in it.
    async fn missing_repo_error(&self, task: Option<&Path>, here: &Path, error: ralph_engine::git::Error) -> CliError {
        if let (Some(task), Ok(repo)) = (task, UserRepo::find(&self.host.git, here).await) {
            return task_outside_repo(task, repo.top());
        }
        ralph_engine::Error::from(error).into()
    }

    /// Loads the model profiles: the user's over the project's over the built-in ones.
    pub(crate) fn profiles(&self, top: &Path) -> Result<ProfileCatalog, CliError> {
        let mut sources =
            vec![ProfileFile { origin: ConfigOrigin::BuiltIn, text: ralph_core::profile::SHIPPED.to_owned() }];
        for name in ["config/models.yaml", "models.yaml"] {
            if let Ok(text) = std::fs::read_to_string(top.join(name)) {
                sources.push(ProfileFile { origin: ConfigOrigin::Project(name.to_owned()), text });
            }
        }
        let user = self.user_models();
        if let Ok(text) = std::fs::read_to_string(&user) {
            sources.push(ProfileFile { origin: ConfigOrigin::User(user.display().to_string()), text });
        }
        ProfileCatalog::load(&sources, &self.trust())
            .map_err(|error| error_with_hint(RalphExitCode::Usage, &error, error.hint()))
    }

    /// Returns the prices in force: what a person imported over what ships with ralph.
    pub(crate) fn prices(&self) -> Result<PriceTable, CliError> {
        Ok(PriceTable::shipped().overlaid(self.imported_prices()?))
    }

    /// Reads the prices a person imported; none when nobody did. A damaged file is told and never passed over: a run
    /// would be priced by another list than its owner believes.
    pub(crate) fn imported_prices(&self) -> Result<PriceTable, CliError> {
        let path = self.prices_file();
        let unusable = |why: String| {
            CliError::usage(format!("the imported prices in `{}` cannot be used: {why}", path.display())).hint(format!(
                "import them again with `ralph profile prices --import FILE`, or remove them: rm {}",
                shell_quote(&path)
            ))
        };
        match std::fs::read_to_string(&path) {
            Ok(text) => price::read_saved(&text).map_err(|error| unusable(error.to_string())),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(PriceTable::default()),
            Err(error) => Err(unusable(error.to_string())),
        }
    }

    pub(crate) fn trust(&self) -> TrustedFiles {
        let text = std::fs::read_to_string(self.trust_file()).unwrap_or_default();
        let sha256: BTreeSet<String> =
            text.lines().filter_map(|line| line.split_whitespace().next()).map(str::to_owned).collect();
        TrustedFiles { sha256 }
    }

    /// Reads the layers below flags and task.
    pub(crate) fn layers(&self, top: Option<&Path>) -> Result<Vec<ConfigLayer>, CliError> {
        let told = |error: config::Error| error_with_hint(RalphExitCode::Usage, &error, error.hint());
        let mut layers = config::env_layers(&self.environment.env).map_err(told)?;
        let project = |name: &str| top.and_then(|top| std::fs::read_to_string(top.join(name)).ok());
        if let Some(text) = project("ralph.toml") {
            layers.push(config::parse_toml(&text, ConfigOrigin::Project("ralph.toml".to_owned())).map_err(told)?);
        }
        let name = ".agent-loop/config.json";
        if let Some(text) = project(name) {
            layers.push(config::parse_agent_loop(&text, name).map_err(told)?);
        }
        let user = self.config_file();
        if let Ok(text) = std::fs::read_to_string(&user) {
            layers.push(config::parse_toml(&text, ConfigOrigin::User(user.display().to_string())).map_err(told)?);
        }
        Ok(layers)
    }

    pub(crate) fn resolve(
        &self,
        top: Option<&Path>,
        flags: &RunOverrides,
        ask: Option<(TaskOptions, &str)>,
    ) -> Result<config::Config, CliError> {
        let told = |error: config::Error| error_with_hint(RalphExitCode::Usage, &error, error.hint());
        let mut layers = vec![ConfigLayer::flags(flag_values(flags)?)];
        if let Some((ask, path)) = ask {
            layers.push(ask.layer(path).map_err(told)?);
        }
        layers.extend(self.layers(top)?);
        config::resolve(&layers, default_backend()).map_err(told)
    }

    /// Lints a task as it would be run here.
    pub(crate) async fn lint(&self, read: &LoadedTask, flags: &RunOverrides) -> Result<Vec<LintFinding>, CliError> {
        let profiles = self.profiles(read.repo.top())?;
        let config = self.resolve(Some(read.repo.top()), flags, None)?;
        if flags.profile.is_some() {
            // The linter would blame the task for a profile the task does not name.
            profiles
                .get(&config.model.default.value)
                .map_err(|error| error_with_hint(RalphExitCode::Usage, &error, error.hint()))?;
        }
        let table = self.prices()?;
        let priced = profiles
            .iter()
            .map(|(name, entry)| {
                let known = entry.profile.price(&table).is_some();
                (name.to_owned(), if known { PriceStatus::Known } else { PriceStatus::Unknown })
            })
            .collect();
        let backends: BTreeMap<String, BackendMaxima> =
            BackendKind::ALL.iter().map(|backend| (backend.as_str().to_owned(), BackendMaxima::default())).collect();
        let base = read.repo.base(None).await.map_err(ralph_engine::Error::from)?;
        let files = read.repo.odb().files_at(&base.sha).await.map_err(ralph_engine::Error::from)?;
        let context = LintContext {
            profiles: Some(priced),
            wanted_profile: flags.profile.clone(),
            default_profile: Some(config.model.default.value.clone()),
            fallback_profile: config.model.fallback.value.clone(),
            doctor_profile: config.model.doctor.value.clone(),
            has_token_cap: config.budget.max_tokens.value.is_some(),
            backends: Some(backends),
            default_backend: Some(config.sandbox.backend.value.as_str().to_owned()),
            files: Some(files.into_iter().map(|entry| entry.path).collect()),
            agents: Some(agent_names().map(str::to_owned).collect()),
            ..LintContext::default()
        };
        Ok(lint::lint(read.source.as_deref(), &context))
    }

    /// Returns the network policy that a run of this task would have. Of a task that cannot be read, or asks for more than
    /// it may have, nothing is taken: that is told in its place.
    pub(crate) fn policy(&self, read: &LoadedTask, flags: &RunOverrides) -> Result<Policy, CliError> {
        let (top, path) = (Some(read.repo.top()), read.display_path.display().to_string());
        let task = read.source.as_deref().and_then(|source| parse_task(source).ok());
        let asked =
            task.and_then(|task| self.resolve(top, flags, Some((task_request(&task.front, flags), &path))).ok());
        let config = asked.map_or_else(|| self.resolve(top, flags, None), Ok)?;
        Ok(config.sandbox.network.policy())
    }

    /// Works out everything a run is made from.
    pub(crate) fn resolve_run(&self, read: &LoadedTask, flags: &RunOverrides) -> Result<RunSpec, CliError> {
        let source = read.source.clone().unwrap_or_default();
        let task = parse_task(&source)?;
        let path = read.display_path.display().to_string();
        let config = self.resolve(Some(read.repo.top()), flags, Some((task_request(&task.front, flags), &path)))?;
        let profiles = self.pin_profiles(read.repo.top(), &config)?;
        let agent = resolve_agent(&task.front, flags, &config.agent)?;
        let budget = Budget {
            iterations: config.budget.max_iterations.value,
            wall_ms: u64::from(config.budget.max_wall_time_minutes.value).saturating_mul(60_000),
            cost: cost_cap(&task.front, &config),
            tokens: config.budget.max_tokens.value,
            consecutive_gutter: config.budget.max_consecutive_gutter.value,
        };
        let proof_timeout = u64::from(task.front.proof_timeout_s);
        Ok(RunSpec {
            repo: read.repo.top().to_owned(),
            source,
            task_path: read.repo_path.clone(),
            base_branch: task.front.base_branch.clone(),
            backend: config.sandbox.backend.value.as_str().to_owned(),
            image: config.sandbox.image.value.clone(),
            resources: resources(&config.sandbox.resources),
            toolchains: config.sandbox.toolchains.value.clone(),
            secret_grants: flags.lend.clone(),
            agent,
            profiles,
            budget,
            policy: config.sandbox.network.policy(),
            identity: CommitIdentity { name: config.git.name.value.clone(), email: config.git.email.value.clone() },
            ladder: config.run.ladder.value.clone(),
            alarm_after: Some(config.egress.alarm_after.value.bytes()),
            check_timeout_s: proof_timeout.min(u64::from(config.check.timeout_s.value)),
            baseline: !flags.no_baseline,
            include_dirty: flags.include_dirty,
            task,
        })
    }

    /// Resolves profiles by name, with their prices, as they stand now.
    pub(crate) fn pinned_profiles(&self, top: &Path, names: &[String]) -> Result<Vec<PinnedProfile>, CliError> {
        let (profiles, table) = (self.profiles(top)?, self.prices()?);
        names.iter().map(|name| pin_profile(&profiles, &table, name, top)).collect()
    }

    fn pin_profiles(&self, top: &Path, config: &config::Config) -> Result<PinnedProfiles, CliError> {
        let (profiles, table) = (self.profiles(top)?, self.prices()?);
        let pin = |name: &str| pin_profile(&profiles, &table, name, top);
        let optional = |name: &Option<String>| name.as_deref().map(pin).transpose();
        Ok(PinnedProfiles {
            default: pin(&config.model.default.value)?,
            fallback: optional(&config.model.fallback.value)?,
            doctor: optional(&config.model.doctor.value)?,
        })
    }
}

fn pin_profile(
    profiles: &ProfileCatalog,
    table: &PriceTable,
    name: &str,
    top: &Path,
) -> Result<PinnedProfile, CliError> {
    let entry = profiles.get(name).map_err(|error| error_with_hint(RalphExitCode::Usage, &error, error.hint()))?;
    let profile = &entry.profile;
    Ok(PinnedProfile {
        name: name.to_owned(),
        model: script_path(&profile.litellm_model, &entry.origin, top),
        base_url: profile.base_url.clone(),
        api_key_env: profile.api_key_env.clone(),
        max_output_tokens: profile.max_output_tokens,
        temperature: profile.temperature,
        timeout_s: u64::from(profile.timeout_s),
        price: profile.price(table),
        most_output: profile.model_max_output(table),
        extra: profile.extra.clone(),
    })
}

/// The name of the agent whose command line is the user's own.
const CUSTOM_AGENT: &str = "custom";

/// The agents a task may name.
fn agent_names() -> impl Iterator<Item = &'static str> {
    ralph_core::agent::all().iter().map(|agent| agent.name()).chain([CUSTOM_AGENT])
}

/// Returns the agent that works in the sandbox; `None` where ralph's own engine does.
fn resolve_agent(
    front: &FrontMatter,
    flags: &RunOverrides,
    config: &config::AgentConfig,
) -> Result<Option<PinnedAgent>, CliError> {
    let engine = match flags.engine.as_deref() {
        Some("actions") if flags.agent.is_some() => {
            return Err(CliError::usage("`--agent` names an agent, and `--engine actions` uses none")
                .hint("leave one of them out"));
        }
        Some("actions") => EngineKind::Actions,
        Some("agent") => EngineKind::Agent,
        Some(other) => {
            return Err(CliError::usage(format!("there is no engine `{}`", ralph_core::text::strip_control(other)))
                .hint("use `--engine actions` or `--engine agent`"));
        }
        None if flags.agent.is_some() => EngineKind::Agent,
        None => front.engine,
    };
    if engine == EngineKind::Actions {
        return Ok(None);
    }
    let name = flags.agent.as_deref().unwrap_or(front.agent());
    if !agent_names().any(|known| known == name) {
        let shown = ralph_core::text::strip_control(ralph_core::text::head(name, 64));
        let hint = ralph_core::text::did_you_mean(&shown, agent_names())
            .map_or_else(|| "ralph agent ls".to_owned(), |meant| format!("did you mean `{meant}`?"));
        return Err(CliError::usage(format!("there is no agent `{shown}`")).hint(hint));
    }
    let template = (name == CUSTOM_AGENT).then(|| config.command.value.clone());
    if let Some(template) = &template {
        ralph_core::agent::CustomAgent::new(template).map_err(|error| {
            CliError::usage(format!("the agent `custom` cannot be started: {error}"))
                .hint("set `agent.command` in your `config.toml`, for example [\"my-agent\", \"--prompt-file\", \"{prompt_file}\"]")
        })?;
    }
    Ok(Some(PinnedAgent {
        name: name.to_owned(),
        template,
        session_s: u64::from(config.session_s.value),
        idle_s: u64::from(config.idle_s.value),
        grace_s: u64::from(config.grace_s.value),
    }))
}

/// A path as people would type it here.
fn display_path(path: &Path) -> String {
    let here = std::path::absolute(".").unwrap_or_default();
    path.strip_prefix(&here).unwrap_or(path).display().to_string()
}

/// A run's task is a file of its branch, so one from elsewhere has no place in it.
fn task_outside_repo(task: &Path, top: &Path) -> CliError {
    CliError::usage(format!("the task file `{}` is outside the repository `{}`", task.display(), top.display()))
        .hint(format!("cp {} {}", shell_quote(task), shell_quote(top)))
}

/// Makes a path one word of a shell.
pub(crate) fn shell_quote(path: &Path) -> String {
    let text = path.display().to_string();
    let plain = |c: char| c.is_alphanumeric() || "/._-+,@%".contains(c);
    if text.chars().all(plain) { text } else { format!("'{}'", text.replace('\'', "'\\''")) }
}

/// A script is found beside the file that names it, wherever the run is resumed from.
fn script_path(model: &str, origin: &ConfigOrigin, top: &Path) -> String {
    let Some(file) = model.strip_prefix("scripted/") else { return model.to_owned() };
    let base = match origin {
        ConfigOrigin::User(path) => Path::new(path).parent().unwrap_or(top).to_owned(),
        _ => top.to_owned(),
    };
    format!("scripted/{}", base.join(file).display())
}

/// Parses a task; the linter has shown its problems before.
pub(crate) fn parse_task(source: &str) -> Result<Task, CliError> {
    task::parse(source).map_err(|error| CliError::from_error(RalphExitCode::Usage, &error).hint("ralph lint"))
}

fn cost_cap(front: &FrontMatter, config: &config::Config) -> Option<MicroUsd> {
    // A task that caps tokens alone has no cost cap, unless somebody set one.
    let asked = front.max_cost_usd_estimate.is_some() || config.budget.max_cost.origin != ConfigOrigin::BuiltIn;
    (asked || front.max_tokens_total.is_none()).then_some(config.budget.max_cost.value)
}

fn task_request(front: &FrontMatter, flags: &RunOverrides) -> TaskOptions {
    let mode = front
        .sandbox_network
        .policy
        .as_deref()
        .and_then(|policy| PolicyMode::ALL.into_iter().find(|mode| mode.as_str() == policy));
    TaskOptions {
        // A flag decides the backend; what the task would like no longer matters.
        backend: if flags.backend.is_some() {
            None
        } else {
            front.sandbox_provider.as_deref().and_then(|name| name.parse().ok())
        },
        image: front.sandbox_image.clone(),
        vcpu: front.sandbox_resources.vcpu.map(f64::from),
        memory_gib: front.sandbox_resources.memory_gib.map(f64::from),
        disk_gib: front.sandbox_resources.disk_gib.map(f64::from),
        network_policy: mode,
        network_allow: front.sandbox_network.allow.clone(),
        max_cost_usd: if flags.max_cost.is_some() { None } else { front.max_cost_usd_estimate.map(MicroUsd::as_usd) },
        max_iterations: if flags.max_iterations.is_some() { None } else { front.max_iterations },
        max_wall_time_minutes: if flags.max_minutes.is_some() { None } else { front.max_wall_time_minutes },
        max_tokens: if flags.max_tokens.is_some() { None } else { front.max_tokens_total },
        max_consecutive_gutter: front.max_consecutive_gutter,
        profile_default: if flags.profile.is_some() { None } else { front.model_profile_default.clone() },
        profile_fallback: front.model_profile_fallback.clone(),
        profile_doctor: front.model_profile_doctor.clone(),
        ladder: front.ladder.clone(),
    }
}

fn flag_values(flags: &RunOverrides) -> Result<ConfigValues, CliError> {
    let backend = match &flags.backend {
        Some(name) => Some(
            name.parse::<BackendKind>().map_err(|error| error_with_hint(RalphExitCode::Usage, &error, error.hint()))?,
        ),
        None => None,
    };
    // Parsed like a list of the configuration file, so that presets and paths work here too.
    let hosts = Policy::parse(PolicyMode::Allowlist, &flags.allow_hosts, &[])
        .map_err(|error| error_with_hint(RalphExitCode::Usage, &error, error.hint()))?
        .allow;
    let allowed = (!hosts.is_empty()).then_some(hosts);
    Ok(ConfigValues {
        sandbox: SandboxValues {
            backend,
            network: NetworkValues { policy: flags.network, allowed, ..NetworkValues::default() },
            ..SandboxValues::default()
        },
        budget: BudgetValues {
            max_cost_usd: flags.max_cost.map(MicroUsd::from_usd),
            max_iterations: flags.max_iterations,
            max_wall_time_minutes: flags.max_minutes,
            max_tokens: flags.max_tokens,
            ..BudgetValues::default()
        },
        model: ModelValues { default: flags.profile.clone(), ..ModelValues::default() },
        ..ConfigValues::default()
    })
}

/// Returns the folders of the user.
pub(crate) fn home(environment: &ProcessEnvironment) -> Result<RalphHome, CliError> {
    let env = &environment.env;
    let folder = |variable: &str, fallback: &str| -> Option<PathBuf> {
        match env.get(variable).filter(|value| Path::new(value).is_absolute()) {
            Some(value) => Some(PathBuf::from(value)),
            None => {
                env.get("HOME").filter(|home| Path::new(home).is_absolute()).map(|home| Path::new(home).join(fallback))
            }
        }
    };
    let missing = || {
        CliError::new(
            RalphExitCode::NotReady,
            "neither `HOME` nor the XDG folders are absolute paths, so there is no place for runs",
        )
        .hint("export HOME=/path/to/your/home")
    };
    let config = folder("XDG_CONFIG_HOME", ".config").ok_or_else(missing)?.join("ralph");
    let state = match env.get(RALPH_STATE_DIR).filter(|dir| !dir.is_empty()) {
        Some(dir) if Path::new(dir).is_absolute() => PathBuf::from(dir),
        Some(dir) => {
            return Err(CliError::usage(format!("`{RALPH_STATE_DIR}` is `{dir}`, which is not an absolute path"))
                .hint(format!("export {RALPH_STATE_DIR}=\"$PWD/{dir}\"")));
        }
        None => folder("XDG_STATE_HOME", ".local/state").ok_or_else(missing)?.join("ralph"),
    };
    Ok(RalphHome::new(state, config))
}

/// Tells an error with its hint.
pub(crate) fn error_with_hint(exit: RalphExitCode, error: &dyn std::error::Error, hint: Option<String>) -> CliError {
    let mut failure = CliError::from_error(exit, error);
    failure.hint = hint;
    failure
}

fn resources(config: &config::ResourceConfig) -> PinnedResources {
    PinnedResources {
        memory: config.memory.value.map(config::ByteSize::bytes),
        cpus: config.cpus.value.map(config::CpuCount::millis),
        disk: config.disk.value.map(config::ByteSize::bytes),
        pids: Some(u64::from(config.pids.value)),
    }
}

/// Returns the backend of a machine whose user said nothing.
fn default_backend() -> BackendKind {
    let default = |backend: &&BackendKind| backend.as_str() == ralph_engine::host::DEFAULT_BACKEND;
    BackendKind::ALL.iter().find(default).copied().unwrap_or(BackendKind::Local)
}

/// Returns whether this directory is in a git repository, as far as its folders tell.
fn in_repository() -> bool {
    let here = std::fs::canonicalize(".").unwrap_or_default();
    here.ancestors().any(|above| above.join(".git").exists())
}
