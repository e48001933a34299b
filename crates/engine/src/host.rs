//! What a run needs of the machine it is started on: folders, environment, backends, models.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use ralph_core::env::{CLAUDE_CODE_OAUTH_TOKEN, Env};
use ralph_core::event::{PinnedAgent, PinnedProfile, Started};
use ralph_core::profile::{self, Endpoint, Wire};
use ralph_core::redact::{Redactor, SHORTEST, too_short};
use ralph_core::secret::Kind;
#[cfg(target_os = "linux")]
use ralph_sandbox::embedded::{Embedded, Options, User};
use ralph_sandbox::local::Local;
use ralph_sandbox::{Backend, Isolation, Layer};

#[cfg(target_os = "linux")]
use crate::egress::Egress;
use crate::error::{Error, NOT_INSTALLED};
use crate::git::{self, Auth, Remote, Repo, Tool};
use crate::model::scripted::Scripted;
use crate::model::{self, Model, Pace, Scheme};
use crate::secret::{Found, Store};
use crate::store::Home;

/// The name of the backend a run uses when nobody says otherwise.
pub const DEFAULT_BACKEND: &str = if cfg!(target_os = "linux") { "embedded" } else { "local" };

/// The machine, as far as a run may use it.
#[derive(Debug, Clone)]
pub struct Host {
    pub home: Home,
    pub env: Env,
    pub tool: Tool,
    /// How long a run waits before it asks a provider again.
    pub pace: Pace,
    /// Keys in use that are too short to be looked for, and whether somebody was told.
    short: Arc<Mutex<BTreeMap<String, bool>>>,
    local: Arc<Local>,
    #[cfg(target_os = "linux")]
    embedded: Arc<Embedded>,
    #[cfg(target_os = "linux")]
    egress: Arc<Egress>,
}

impl Host {
    /// Looks for the programs a run cannot do without.
    pub async fn open(home: Home, env: Env) -> Result<Self, Error> {
        let path = env.get("PATH").unwrap_or("");
        let tool = Tool::find(OsStr::new(path)).await?;
        let local = Arc::new(Local::with_path(home.sandboxes_dir(), path.into()));
        #[cfg(target_os = "linux")]
        let egress = Egress::new(home.clone(), Store::open(&home, &env));
        #[cfg(target_os = "linux")]
        let embedded = Arc::new(Embedded::new(Options {
            dir: home.state_dir().join("embedded"),
            user: env.get("HOME").map(|user| User {
                home: user.into(),
                path: path.into(),
                env: env.iter().map(|(name, value)| (name.to_owned(), value.to_owned())).collect(),
            }),
            door: Some(Arc::clone(&egress) as Arc<dyn ralph_sandbox::embedded::Door>),
            ..Options::default()
        }));
        Ok(Self {
            home,
            env,
            tool,
            pace: Pace::default(),
            short: Arc::default(),
            local,
            #[cfg(target_os = "linux")]
            embedded,
            #[cfg(target_os = "linux")]
            egress,
        })
    }

    /// Returns the backend of cages itself, for what only it can tell.
    #[cfg(target_os = "linux")]
    pub fn embedded(&self) -> &Embedded {
        &self.embedded
    }

    /// Uses another program as the launcher of cages than the one that is running, which a test is not.
    #[cfg(target_os = "linux")]
    #[must_use]
    pub fn with_embedded(mut self, embedded: Embedded) -> Self {
        self.embedded = Arc::new(embedded);
        self
    }

    /// Finds the repository a task names: a path, the one at hand, or a clone of ours.
    pub async fn repository(&self, named: &str, at_hand: &Repo) -> Result<Option<Repo>, Error> {
        let path = named.strip_prefix("file://").unwrap_or(named);
        if Path::new(path).is_absolute() || path.starts_with('.') {
            // A bare repository has no checkout of its own and is cloned like one that is far away.
            match Repo::find(&self.tool, &at_hand.top().join(path)).await {
                Ok(found) => return Ok((found.top() != at_hand.top()).then_some(found)),
                Err(git::Error::NotARepository { .. }) => (),
                Err(error) => return Err(error.into()),
            }
        }
        if at_hand.remote().await?.is_some_and(|remote| git::same_address(remote.url.expose(), named)) {
            return Ok(None);
        }
        let remote = Remote::parse(named)?;
        let folder = self.home.state_dir().join("clones").join(ralph_core::hash::short(remote.shown().as_bytes()));
        Ok(Some(git::clone(&self.tool, &remote, &folder, &self.auth()).await?))
    }

    /// Returns what the host's git authenticates a push with: the user's own agent and helpers.
    pub(crate) fn auth(&self) -> Auth {
        match self.env.get("HOME") {
            Some(home) => Auth::User { home: home.into(), ssh_agent: self.env.get("SSH_AUTH_SOCK").map(Into::into) },
            None => Auth::None,
        }
    }

    /// Returns every backend of this ralph, the default first.
    pub fn backends(&self) -> Vec<Arc<dyn Backend>> {
        vec![
            #[cfg(target_os = "linux")]
            self.embedded.clone(),
            self.local.clone(),
        ]
    }

    /// Finds the backend that has a sandbox of this name: the one that was named, or the first that has it.
    pub async fn backend_of(&self, sandbox: &str, named: Option<&str>) -> Result<Arc<dyn Backend>, Error> {
        if let Some(name) = named {
            return self.backend(name);
        }
        for backend in self.backends() {
            if backend.list().await?.iter().any(|listed| listed.id == sandbox) {
                return Ok(backend);
            }
        }
        self.backend(DEFAULT_BACKEND)
    }

    pub fn backend(&self, name: &str) -> Result<Arc<dyn Backend>, Error> {
        match name {
            "local" => Ok(self.local.clone()),
            #[cfg(target_os = "linux")]
            "embedded" => Ok(self.embedded.clone()),
            other => Err(Error::NoBackend { name: other.to_owned() }),
        }
    }

    /// Opens the model of a profile, with its key when it needs one.
    pub async fn model(&self, profile: &PinnedProfile) -> Result<Arc<dyn Model>, Error> {
        let refuse = |why: String| Error::Profile { profile: profile.name.clone(), why };
        let endpoint = self.endpoint(profile)?;
        if endpoint.wire == Wire::Scripted {
            let script = Scripted::load(Path::new(&endpoint.model), profile.name.clone()).await;
            return Ok(Arc::new(script.map_err(|error| refuse(error.to_string()))?));
        }
        let found = self.credential(profile, &endpoint)?;
        // A subscription is sold for the provider's own agent, not for calls of ours.
        if let (Some(Kind::Oauth), Some(variable)) = (found.as_ref().map(|found| found.kind), endpoint.key_envs.first())
        {
            return Err(Error::NoKey { profile: profile.name.clone(), variable: variable.clone() });
        }
        let scheme = match found.as_ref().map(|found| found.kind) {
            Some(Kind::Gateway) => Scheme::Bearer,
            _ => Scheme::Key,
        };
        let credential = found.as_ref().map(|found| found.name.clone());
        let endpoint = model::Endpoint {
            name: profile.model.clone(),
            model: endpoint.model,
            wire: endpoint.wire,
            base_url: endpoint.base_url,
            api_version: endpoint.api_version,
            key: found.map(|found| found.secret),
            scheme,
        };
        let client = model::client(None).map_err(|error| refuse(error.to_string()))?;
        let remote = model::Remote::new(client, endpoint).map_err(|error| refuse(error.to_string()))?;
        Ok(Arc::new(remote.called(credential)))
    }

    /// Returns where the calls of a profile go.
    pub(crate) fn endpoint(&self, profile: &PinnedProfile) -> Result<Endpoint, Error> {
        profile::endpoint(&asked(profile), &self.env)
            .map_err(|error| Error::Profile { profile: profile.name.clone(), why: error.to_string() })
    }

    /// Finds the credential of a profile: in the keyring, in a private file, in the environment.
    pub(crate) fn credential(&self, profile: &PinnedProfile, endpoint: &Endpoint) -> Result<Option<Found>, Error> {
        let Some(variable) = endpoint.key_envs.first() else { return Ok(None) };
        let names = profile::credential_names(&asked(profile), endpoint);
        match self.secrets().first(&names)? {
            Some(found) if found.kind == Kind::Oauth && !endpoint.takes_subscriptions() => {
                Err(stranger(profile, endpoint, &found.name))
            }
            // Both engines get their keys here, before anything is sent.
            Some(found) if endpoint.is_in_the_clear() => {
                let (profile, host) = (profile.name.clone(), endpoint.host().map(|(host, _)| host).unwrap_or_default());
                Err(Error::InTheClear { profile, name: found.name, host })
            }
            Some(found) => {
                if too_short(found.secret.expose()) {
                    self.short.lock().unwrap_or_else(PoisonError::into_inner).entry(found.name.clone()).or_default();
                }
                self.note_use(&found.name);
                Ok(Some(found))
            }
            None if endpoint.key_is_optional => Ok(None),
            // It would be taken if it were its own provider that is asked.
            None if endpoint.wire == Wire::Anthropic
                && !endpoint.takes_subscriptions()
                && matches!(self.secrets().find(CLAUDE_CODE_OAUTH_TOKEN), Ok(Some(_))) =>
            {
                Err(stranger(profile, endpoint, CLAUDE_CODE_OAUTH_TOKEN))
            }
            None => Err(Error::NoKey { profile: profile.name.clone(), variable: variable.clone() }),
        }
    }

    /// Returns the keys in use that are too short to be looked for and that nobody was told of yet.
    pub fn short_keys(&self) -> Vec<String> {
        let mut short = self.short.lock().unwrap_or_else(PoisonError::into_inner);
        let fresh = short.iter_mut().filter_map(|(name, told)| (!std::mem::replace(told, true)).then(|| name.clone()));
        fresh.collect()
    }

    /// Writes down that a secret is used now. Nothing is stopped where that fails.
    pub(crate) fn note_use(&self, name: &str) {
        if let Err(error) = self.secrets().used(name) {
            tracing::warn!(%error, name, "the use of a secret could not be written down");
        }
    }

    /// Finds the program of a run's agent, and what of the host a sandbox has to see to run it.
    pub(crate) fn agent(&self, pinned: &PinnedAgent, backend: &str) -> Result<Installed, Error> {
        let chosen = crate::run::Chosen::of(pinned)?;
        let agent = chosen.get();
        if pinned.template.is_some() {
            return Ok(Installed { program: agent.program().to_owned(), layer: None, env: Vec::new() });
        }
        let isolation = self.backend(backend)?.capabilities().isolation;
        let missing = |why: String| Error::Agent { name: pinned.name.clone(), why };
        match crate::agent::find(self, agent).map_err(|error| missing(error.to_string()))? {
            Some(found) => Ok(Installed {
                program: found.program_in(isolation).display().to_string(),
                layer: found.layer.filter(|_| isolation != Isolation::None),
                env: found.env,
            }),
            None => Err(missing(NOT_INSTALLED.to_owned())),
        }
    }

    /// Returns the secrets of the user.
    pub fn secrets(&self) -> Store {
        Store::open(&self.home, &self.env)
    }

    /// Returns who stands at the doors of cages.
    #[cfg(target_os = "linux")]
    pub fn egress(&self) -> &Arc<Egress> {
        &self.egress
    }

    /// Returns a redactor that knows every stored secret and every secret-like value of the environment.
    pub fn redactor(&self) -> Redactor {
        Redactor::new(Store::open(&self.home, &self.env).all_values())
    }
}

/// Says what a key that is too short to be looked for means, and what to do about it.
pub fn short_key(name: &str) -> String {
    format!(
        "`{name}` is shorter than {SHORTEST} characters: if a server repeats it, it is neither masked nor kept out of the \
         sandbox; give that server a longer one"
    )
}

fn stranger(profile: &PinnedProfile, endpoint: &Endpoint, name: &str) -> Error {
    let host = endpoint.host().map(|(host, _)| host).unwrap_or_default();
    Error::Stranger { profile: profile.name.clone(), name: name.to_owned(), host }
}

/// The program of an agent.
#[derive(Debug)]
pub(crate) struct Installed {
    /// As commands inside call it.
    pub(crate) program: String,
    pub(crate) layer: Option<Layer>,
    /// Variables its commands need.
    pub(crate) env: Vec<(String, String)>,
}

/// Returns the pinned profile in the words of `models.yaml`.
fn asked(profile: &PinnedProfile) -> profile::Profile {
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

/// Returns a fingerprint of what a run's sandboxes are based on.
pub(crate) fn fingerprint(started: &Started) -> String {
    let base = match &started.image {
        Some(image) => format!("image {image}"),
        None => format!("{} {} {}", started.backend, std::env::consts::OS, std::env::consts::ARCH),
    };
    ralph_core::hash::sha256(base.as_bytes())
}
