//! Provides what a run needs of the machine it is started on: folders, environment, backends, models.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use ralph_core::env_vars::{CLAUDE_CODE_OAUTH_TOKEN, Env};
use ralph_core::event::{PinnedAgent, PinnedProfile, RunStart};
use ralph_core::profile::{self, ProfileEndpoint, ProviderProtocol};
use ralph_core::redact::{Redactor, SHORTEST, is_too_short};
use ralph_core::secret::SecretKind;
use ralph_sandbox::local::LocalBackend;
use ralph_sandbox::platform::{self, HostUser, PlatformOptions};
use ralph_sandbox::{Backend, EgressServer, HostLayer};

use crate::egress::EgressManager;
use crate::error::{Error, NOT_INSTALLED};
use crate::git::{self, GitAuth, GitProgram, GitRemote, UserRepo};
use crate::model::scripted_model::ScriptedModel;
use crate::model::{self, KeyScheme, LanguageModel, RetryPace};
use crate::scm::{LocalScm, Scm};
use crate::secret::{ResolvedSecret, SecretStore};
use crate::store::RalphHome;

pub use ralph_sandbox::platform::DEFAULT_BACKEND;

/// The parts of the machine that a run may use.
#[derive(Debug, Clone)]
pub struct HostContext {
    pub home: RalphHome,
    pub env: Env,
    pub git: GitProgram,
    /// How long a run waits before it calls a provider again.
    pub pace: RetryPace,
    /// Keys in use that are too short to be masked, and whether that was reported.
    short_keys: Arc<Mutex<BTreeMap<String, bool>>>,
    scm: Arc<dyn Scm>,
    /// The default backend comes first.
    backends: Vec<Arc<dyn Backend>>,
    egress: Arc<EgressManager>,
}

impl HostContext {
    /// Opens the host and finds the programs that a run requires.
    pub async fn open(home: RalphHome, env: Env) -> Result<Self, Error> {
        let path = env.get("PATH").unwrap_or("");
        let tool = GitProgram::find(OsStr::new(path)).await?;
        let egress = EgressManager::new(home.clone(), SecretStore::open(&home, &env));
        let isolating = platform::backend(PlatformOptions {
            dir: home.state_dir().join("embedded"),
            user: env.get("HOME").map(|user| HostUser {
                home: user.into(),
                path: path.into(),
                env: env.iter().map(|(name, value)| (name.to_owned(), value.to_owned())).collect(),
            }),
            binds: Vec::new(),
            egress_server: Some(Arc::clone(&egress) as Arc<dyn EgressServer>),
        });
        let local = Arc::new(LocalBackend::with_path(home.sandboxes_dir(), path.into()));
        let backends = isolating.into_iter().chain([local as Arc<dyn Backend>]).collect();
        let scm = Arc::new(LocalScm::new(tool.clone(), git_auth(&env)));
        Ok(Self { home, env, git: tool, pace: RetryPace::default(), short_keys: Arc::default(), scm, backends, egress })
    }

    /// Adds a backend, or replaces the one with the same name.
    #[must_use]
    pub fn with_backend(mut self, backend: Arc<dyn Backend>) -> Self {
        let name = backend.capabilities().name;
        match self.backends.iter_mut().find(|known| known.capabilities().name == name) {
            Some(known) => *known = backend,
            None => self.backends.push(backend),
        }
        self
    }

    /// Serves the egress of sandboxes through another manager, which the backends must have been given as well: the
    /// attack suite puts its own network behind it.
    #[must_use]
    pub fn with_egress(mut self, egress: Arc<EgressManager>) -> Self {
        self.egress = egress;
        self
    }

    /// Returns the SCM that receives branches and pull requests of runs.
    pub(crate) fn scm(&self) -> Arc<dyn Scm> {
        Arc::clone(&self.scm)
    }

    /// Publishes runs through another SCM than the host's git.
    #[must_use]
    pub fn with_scm(mut self, scm: Arc<dyn Scm>) -> Self {
        self.scm = scm;
        self
    }

    /// Finds the repository a task names: a path, the current one, or a clone that ralph keeps.
    pub async fn repository(&self, named: &str, at_hand: &UserRepo) -> Result<Option<UserRepo>, Error> {
        let path = named.strip_prefix("file://").unwrap_or(named);
        if Path::new(path).is_absolute() || path.starts_with('.') {
            // A bare repository has no checkout and is cloned like a remote one.
            match UserRepo::find(&self.git, &at_hand.top().join(path)).await {
                Ok(found) => return Ok((found.top() != at_hand.top()).then_some(found)),
                Err(git::Error::NotARepository { .. }) => (),
                Err(error) => return Err(error.into()),
            }
        }
        if at_hand.remote().await?.is_some_and(|remote| git::same_address(remote.url.expose(), named)) {
            return Ok(None);
        }
        let remote = GitRemote::parse(named)?;
        let folder =
            self.home.state_dir().join("clones").join(ralph_core::hash::short_sha256(remote.display_url().as_bytes()));
        Ok(Some(git::clone(&self.git, &remote, &folder, &git_auth(&self.env)).await?))
    }

    /// Returns every backend, the default first.
    pub fn backends(&self) -> &[Arc<dyn Backend>] {
        &self.backends
    }

    /// Finds the backend of a sandbox: the named one, or the first that has the sandbox.
    pub async fn backend_of(&self, sandbox: &str, named: Option<&str>) -> Result<Arc<dyn Backend>, Error> {
        if let Some(name) = named {
            return self.backend(name);
        }
        for backend in self.backends() {
            if backend.list().await?.iter().any(|listed| listed.id == sandbox) {
                return Ok(Arc::clone(backend));
            }
        }
        self.backend(DEFAULT_BACKEND)
    }

    pub fn backend(&self, name: &str) -> Result<Arc<dyn Backend>, Error> {
        let found = self.backends.iter().find(|backend| backend.capabilities().name == name);
        found.cloned().ok_or_else(|| Error::NoBackend { name: name.to_owned() })
    }

    /// Opens the model of a profile, with its key when it needs one.
    pub async fn model(&self, profile: &PinnedProfile) -> Result<Arc<dyn LanguageModel>, Error> {
        let refuse = |why: String| Error::Profile { profile: profile.name.clone(), why };
        let endpoint = self.endpoint(profile)?;
        if endpoint.wire == ProviderProtocol::Scripted {
            let script = ScriptedModel::load(Path::new(&endpoint.model), profile.name.clone()).await;
            return Ok(Arc::new(script.map_err(|error| refuse(error.to_string()))?));
        }
        let found = self.credential(profile, &endpoint)?;
        // A subscription is sold for the provider's own agent, not for ralph's calls.
        if let (Some(SecretKind::Oauth), Some(variable)) =
            (found.as_ref().map(|found| found.kind), endpoint.key_envs.first())
        {
            return Err(Error::NoKey { profile: profile.name.clone(), variable: variable.clone() });
        }
        let scheme = match found.as_ref().map(|found| found.kind) {
            Some(SecretKind::Gateway) => KeyScheme::Bearer,
            _ => KeyScheme::Key,
        };
        let credential = found.as_ref().map(|found| found.name.clone());
        let endpoint = model::RemoteEndpoint {
            name: profile.model.clone(),
            model: endpoint.model,
            wire: endpoint.wire,
            base_url: endpoint.base_url,
            api_version: endpoint.api_version,
            key: found.map(|found| found.secret),
            scheme,
        };
        let client = model::client(None).map_err(|error| refuse(error.to_string()))?;
        let remote = model::RemoteModel::new(client, endpoint).map_err(|error| refuse(error.to_string()))?;
        Ok(Arc::new(remote.with_credential_name(credential)))
    }

    /// Returns the endpoint that the calls of a profile go to.
    pub(crate) fn endpoint(&self, profile: &PinnedProfile) -> Result<ProfileEndpoint, Error> {
        profile::resolve_endpoint(&unpinned_profile(profile), &self.env)
            .map_err(|error| Error::Profile { profile: profile.name.clone(), why: error.to_string() })
    }

    /// Finds the credential of a profile: in the keyring, in a private file, in the environment.
    pub(crate) fn credential(
        &self,
        profile: &PinnedProfile,
        endpoint: &ProfileEndpoint,
    ) -> Result<Option<ResolvedSecret>, Error> {
        let Some(variable) = endpoint.key_envs.first() else { return Ok(None) };
        let names = profile::credential_names(&unpinned_profile(profile), endpoint);
        match self.secrets().first_valid(&names)? {
            Some(found) if found.kind == SecretKind::Oauth && !endpoint.accepts_subscription() => {
                Err(foreign_subscription(profile, endpoint, &found.name))
            }
            // Both engines get their keys here, before anything is sent.
            Some(found) if endpoint.is_cleartext() => {
                let (profile, host) = (profile.name.clone(), endpoint.host().map(|(host, _)| host).unwrap_or_default());
                Err(Error::PlaintextKey { profile, name: found.name, host })
            }
            Some(found) => {
                if is_too_short(found.secret.expose()) {
                    self.short_keys
                        .lock()
                        .unwrap_or_else(PoisonError::into_inner)
                        .entry(found.name.clone())
                        .or_default();
                }
                self.record_secret_use(&found.name);
                Ok(Some(found))
            }
            None if endpoint.key_is_optional => Ok(None),
            // The subscription would be used if the endpoint were its own provider.
            None if endpoint.wire == ProviderProtocol::Anthropic
                && !endpoint.accepts_subscription()
                && matches!(self.secrets().find(CLAUDE_CODE_OAUTH_TOKEN), Ok(Some(_))) =>
            {
                Err(foreign_subscription(profile, endpoint, CLAUDE_CODE_OAUTH_TOKEN))
            }
            None => Err(Error::NoKey { profile: profile.name.clone(), variable: variable.clone() }),
        }
    }

    /// Returns the keys in use that are too short to be masked and were not reported yet.
    pub fn take_short_keys(&self) -> Vec<String> {
        let mut short = self.short_keys.lock().unwrap_or_else(PoisonError::into_inner);
        let fresh =
            short.iter_mut().filter_map(|(name, reported)| (!std::mem::replace(reported, true)).then(|| name.clone()));
        fresh.collect()
    }

    /// Records that a secret is used now. A failure is only logged.
    pub(crate) fn record_secret_use(&self, name: &str) {
        if let Err(error) = self.secrets().mark_used(name) {
            tracing::warn!(%error, name, "the use of a secret could not be recorded");
        }
    }

    /// Finds the program of a run's agent, and the host layer a sandbox needs to run it.
    pub(crate) fn agent(&self, pinned: &PinnedAgent, backend: &str) -> Result<SandboxAgent, Error> {
        let chosen = crate::run::SelectedAgent::of(pinned)?;
        let agent = chosen.get();
        if pinned.template.is_some() {
            return Ok(SandboxAgent { program: agent.program().to_owned(), layer: None, env: Vec::new() });
        }
        let layered = self.backend(backend)?.capabilities().host_layers;
        let missing = |why: String| Error::Agent { name: pinned.name.clone(), why };
        match crate::agent::find(self, agent).map_err(|error| missing(error.to_string()))? {
            Some(found) => Ok(SandboxAgent {
                program: if layered { &found.program } else { &found.on_host }.display().to_string(),
                layer: found.layer.filter(|_| layered),
                env: found.env,
            }),
            None => Err(missing(NOT_INSTALLED.to_owned())),
        }
    }

    /// Returns the user's secret store.
    pub fn secrets(&self) -> SecretStore {
        SecretStore::open(&self.home, &self.env)
    }

    /// Returns the egress manager of the sandboxes.
    pub fn egress(&self) -> &Arc<EgressManager> {
        &self.egress
    }

    /// Returns a redactor that knows every stored secret and every secret-like value of the environment.
    pub fn redactor(&self) -> Redactor {
        Redactor::new(SecretStore::open(&self.home, &self.env).all_values())
    }
}

/// Returns the warning about a key that is too short to be masked.
pub fn short_key_warning(name: &str) -> String {
    format!(
        "`{name}` is shorter than {SHORTEST} characters: if a server repeats it, it is neither masked nor kept out of \
         the sandbox; give that server a longer one"
    )
}

/// Returns what the host's git authenticates with: the user's own agent and helpers.
fn git_auth(env: &Env) -> GitAuth {
    match env.get("HOME") {
        Some(home) => GitAuth::User { home: home.into(), ssh_agent: env.get("SSH_AUTH_SOCK").map(Into::into) },
        None => GitAuth::None,
    }
}

fn foreign_subscription(profile: &PinnedProfile, endpoint: &ProfileEndpoint, name: &str) -> Error {
    let host = endpoint.host().map(|(host, _)| host).unwrap_or_default();
    Error::ForeignSubscription { profile: profile.name.clone(), name: name.to_owned(), host }
}

/// The program of an agent.
#[derive(Debug)]
pub(crate) struct SandboxAgent {
    /// The program as commands inside call it.
    pub(crate) program: String,
    pub(crate) layer: Option<HostLayer>,
    /// Variables its commands need.
    pub(crate) env: Vec<(String, String)>,
}

/// Returns the pinned profile as a profile of `models.yaml`.
fn unpinned_profile(profile: &PinnedProfile) -> profile::Profile {
    profile::Profile {
        litellm_model: profile.model.clone(),
        max_output_tokens: profile.max_output_tokens,
        temperature: profile.temperature,
        tags: Vec::new(),
        base_url: profile.base_url.clone(),
        api_key_env: profile.api_key_env.clone(),
        price: None,
        timeout_s: u32::try_from(profile.timeout_s).unwrap_or(u32::MAX),
        extra: profile.extra.clone(),
    }
}

/// Returns a fingerprint of the environment of a run's proofs: its backend, image and limits, and the programs that the
/// checks were seen to run.
pub(crate) fn base_fingerprint(started: &RunStart, programs: &BTreeMap<String, String>) -> String {
    let system = (std::env::consts::OS, std::env::consts::ARCH);
    let parts = (&started.backend, &started.image, started.resources, &started.toolchains, system, programs);
    ralph_core::hash::sha256(&serde_json::to_vec(&parts).expect("strings and numbers"))
}
