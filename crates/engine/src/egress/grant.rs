//! Builds a sandbox's grant from the host's profiles and secrets: routes, phantoms, and the variables that name them.

use std::collections::BTreeMap;
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use ralph_core::egress::EgressEndpoint;
use ralph_core::env_vars::{ANTHROPIC_AUTH_TOKEN, CLAUDE_CODE_OAUTH_TOKEN};
use ralph_core::event::PinnedProfile;
use ralph_core::money::MicroUsd;
use ralph_core::policy::{Policy, PolicyMode};
use ralph_core::price::MAX_OUTPUT_TOKENS;
use ralph_core::profile::{ANTHROPIC, ProfileEndpoint, ProviderProtocol};
use ralph_core::redact::is_too_short;
use ralph_core::secret::SecretKind;
use ralph_proxy::credential::{CredentialPlacement, ProxyCredential};
use ralph_proxy::grant::ProxyGrant;
use ralph_proxy::inspect::MitmCa;
use ralph_proxy::ledger::{Ledger, LedgerCaps};
use ralph_proxy::meter;
use ralph_proxy::model_gateway::{ModelRoute, RouteModel};
use ralph_proxy::sent_bytes_alarm::OutflowMeter;
use ralph_sandbox::{BackendCapabilities, Sandbox};

use super::ca_bundle;
use super::sandbox_with_proxy_env::EnvSandbox;
use crate::error::Error;
use crate::host_environment::HostContext;
use crate::secret::ResolvedSecret;
use crate::store::RunFolder;

/// Name of the CA bundle in the exchange folder.
const CA_BUNDLE_FILE: &str = "ca-certificates.crt";

/// A secret that the user grants to requests to one host: `GITHUB_PAT=github.com`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SecretGrant {
    pub secret: String,
    pub host: String,
}

/// A text that is not a valid `NAME=HOST` grant.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{text}` does not say which secret to grant to which host")]
pub struct SecretGrantError {
    text: String,
}

impl SecretGrantError {
    pub fn hint(&self) -> Option<String> {
        Some("write NAME=HOST, for example `--lend GITHUB_PAT=github.com`".to_owned())
    }
}

impl std::str::FromStr for SecretGrant {
    type Err = SecretGrantError;

    fn from_str(text: &str) -> Result<Self, SecretGrantError> {
        let bad = || SecretGrantError { text: ralph_core::text::strip_control(ralph_core::text::first_line(text, 80)) };
        let (secret, host) = text.split_once('=').ok_or_else(bad)?;
        let name = |c: char| c.is_ascii_alphanumeric() || c == '_';
        let host = ralph_core::policy::canonical_host(host).map_err(|_| bad())?;
        if secret.is_empty() || !secret.chars().all(name) {
            return Err(bad());
        }
        Ok(Self { secret: secret.to_owned(), host })
    }
}

/// Decides when a sandbox gets egress listeners.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EgressAvailability {
    /// Only if its policy allows anything at all.
    AsNeeded,
    /// From its start, since its policy may change.
    Always,
}

/// What a sandbox requests from the egress proxy.
#[derive(Debug)]
pub struct EgressRequest {
    pub policy: Policy,
    /// Profiles whose models are reachable from inside.
    pub profiles: Vec<PinnedProfile>,
    pub secrets: Vec<SecretGrant>,
    /// The ledger that calls to the profiles' models are charged to.
    pub ledger: Ledger,
    pub availability: EgressAvailability,
    /// Raises an alarm when more than this many bytes were sent out.
    pub alarm_after: Option<u64>,
    /// Where the traffic of a sandbox without a run is recorded.
    pub audit_folder: Option<RunFolder>,
}

impl From<Policy> for EgressRequest {
    /// Requests a policy only, without credentials or models.
    fn from(policy: Policy) -> Self {
        Self {
            policy,
            profiles: Vec::new(),
            secrets: Vec::new(),
            ledger: Ledger::new(LedgerCaps::default(), MicroUsd::ZERO, 0),
            availability: EgressAvailability::AsNeeded,
            alarm_after: None,
            audit_folder: None,
        }
    }
}

/// What a sandbox is granted.
#[derive(Debug)]
pub(crate) struct SandboxGrant {
    pub(crate) terms: ProxyGrant,
    /// Variables for the secrets; those for models are known once the proxy has an address.
    secret_env: BTreeMap<String, String>,
    models: Vec<GrantedModel>,
    authority: Option<Arc<MitmCa>>,
}

/// The model of a profile, reachable by the route of the same name.
#[derive(Debug)]
struct GrantedModel {
    profile: String,
    model: String,
    wire: ProviderProtocol,
    api: meter::RouteApi,
}

/// How a program inside the sandbox reaches the model of a profile.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ModelAccess {
    pub profile: String,
    pub base_url: String,
    /// The phantom that the program sends as its key.
    pub phantom_key: String,
    /// The name of the secret that the phantom represents.
    pub key_name: String,
    pub model: String,
    pub wire: ProviderProtocol,
}

/// Builds the grant of a sandbox: models of profiles by route, secrets by host.
pub(crate) fn build_grant(host: &HostContext, sandbox: &str, request: &EgressRequest) -> Result<SandboxGrant, Error> {
    let EgressRequest { policy, profiles, secrets: grants, availability, .. } = request;
    let (mut routes, mut env, mut models) = (Vec::new(), BTreeMap::new(), Vec::new());
    for profile in profiles {
        models.push(add_profile_routes(host, profile, &mut routes)?);
    }
    let mut credentials = Vec::new();
    let mut names: Vec<&str> = grants.iter().map(|grant| grant.secret.as_str()).collect();
    names.sort_unstable();
    names.dedup();
    for name in names {
        let hosts: Vec<&str> =
            grants.iter().filter(|grant| grant.secret == name).map(|grant| grant.host.as_str()).collect();
        let other = |grant: &&SecretGrant| grant.secret != name && hosts.contains(&grant.host.as_str());
        if let Some(grant) = grants.iter().find(other) {
            let why = format!(
                "`{}` is already granted to {}, and a request carries only one credential",
                grant.secret, grant.host
            );
            return Err(Error::Grant { what: name.to_owned(), why });
        }
        credentials.push(Arc::new(host_credential(host, name, &hosts, &mut env)?));
    }
    // Where hosts may be reached, the policy may contain a rule about single requests, now or later, and that needs a
    // CA.
    let authority =
        (!credentials.is_empty() || policy.mode != PolicyMode::Deny || *availability == EgressAvailability::Always)
            .then(|| MitmCa::new(sandbox).map(Arc::new))
            .transpose()
            .map_err(|error| Error::Grant { what: sandbox.to_owned(), why: error.to_string() })?;
    let terms = ProxyGrant {
        routes,
        credentials,
        authority: authority.clone(),
        ledger: request.ledger.clone(),
        outflow: OutflowMeter::new(request.alarm_after, 0),
        ..ProxyGrant::from(policy.clone())
    };
    Ok(SandboxGrant { terms, secret_env: env, models, authority })
}

impl SandboxGrant {
    /// Returns how programs inside reach the models of profiles through a proxy at this address.
    pub(crate) fn model_access(&self, proxy_url: &str) -> Vec<ModelAccess> {
        let access = |granted: &GrantedModel| {
            let route = self.terms.routes.iter().find(|route| route.name() == granted.profile)?;
            // A route that existed before has its own phantom.
            let credential = route.credential();
            Some(ModelAccess {
                profile: granted.profile.clone(),
                base_url: route.base_url(proxy_url),
                phantom_key: credential.map_or("none", |credential| credential.phantom()).to_owned(),
                key_name: credential.map_or("", |credential| credential.name()).to_owned(),
                model: granted.model.clone(),
                wire: granted.wire,
            })
        };
        self.models.iter().filter_map(access).collect()
    }

    /// Returns the variables for commands inside, without the proxy's own.
    fn env(&self, proxy_url: &str) -> BTreeMap<String, String> {
        let mut env = BTreeMap::new();
        for (access, granted) in self.model_access(proxy_url).iter().zip(&self.models) {
            // Programs use the first profile by default; they reach the others by the names of their routes.
            for (name, value) in
                provider_env(granted.api, &access.key_name, &access.base_url, &access.phantom_key, &access.model)
            {
                env.entry(name.to_owned()).or_insert(value);
            }
        }
        env.extend(self.secret_env.clone());
        env
    }

    /// Writes the CA bundle into the sandbox and returns the sandbox with the grant's variables in every command. A
    /// sandbox without an egress proxy gets no variables, and nothing can be granted to it.
    pub(crate) async fn install(
        &self,
        backend: &BackendCapabilities,
        sandbox: Arc<dyn Sandbox>,
    ) -> Result<Arc<dyn Sandbox>, Error> {
        let nothing_granted = self.secret_env.is_empty() && self.models.is_empty();
        let url = match sandbox.egress_url().filter(|_| backend.egress.is_available()) {
            Some(url) => url,
            None if nothing_granted => return Ok(sandbox),
            None => {
                let why = format!("backend `{}` has no egress proxy, so nothing can be granted", backend.name);
                return Err(Error::Grant { what: sandbox.id().to_owned(), why });
            }
        };
        if nothing_granted && self.authority.is_none() {
            return Ok(sandbox);
        }
        let trusted = match &self.authority {
            Some(authority) => {
                let file = sandbox.exchange().join(CA_BUNDLE_FILE);
                sandbox.write(&file, ca_bundle::bundle(authority.certificate()).as_bytes(), Some(0o644)).await?;
                Some(file.to_string_lossy().into_owned())
            }
            None => None,
        };
        let granted = self.env(&url);
        let mut env = EgressEndpoint { url, ca_bundle: trusted }.env_vars();
        env.extend(granted);
        Ok(Arc::new(EnvSandbox { inner: sandbox, env, _lease: None }))
    }
}

/// Adds the routes of a profile: one under its own name, one under its provider's, which all its profiles share.
fn add_profile_routes(
    host: &HostContext,
    profile: &PinnedProfile,
    routes: &mut Vec<ModelRoute>,
) -> Result<GrantedModel, Error> {
    let refuse = |why: String| Error::Profile { profile: profile.name.clone(), why };
    let endpoint = host.endpoint(profile)?;
    let wire = match endpoint.wire {
        ProviderProtocol::Anthropic => meter::RouteApi::Anthropic,
        ProviderProtocol::Chat | ProviderProtocol::Responses => meter::RouteApi::OpenAi,
        ProviderProtocol::Gemini => meter::RouteApi::Gemini,
        other => return Err(refuse(format!("a provider that speaks {other} cannot be reached from a sandbox"))),
    };
    let provider = profile.model.split('/').next().unwrap_or(&profile.model).to_owned();
    let known =
        routes.iter().find(|route: &&ModelRoute| route.name() == provider).and_then(ModelRoute::credential).cloned();
    let credential = match (known, host.credential(profile, &endpoint)?) {
        (Some(known), Some(found)) if known.name() == found.name => Some(known),
        (_, Some(found)) => Some(Arc::new(route_credential(&found, wire, &endpoint)?)),
        (_, None) => None,
    };
    let model = route_model(profile);
    let key = credential.as_ref().map(|credential| credential.name().to_owned());
    for name in [profile.name.as_str(), provider.as_str()] {
        let mut route = ModelRoute::new(name, wire, &endpoint.base_url).map_err(|error| refuse(error.to_string()))?;
        if let Some(known) = routes.iter_mut().find(|known| known.name() == name) {
            let same = known.has_same_upstream(&route) && known.credential().map(|one| one.name()) == key.as_deref();
            if same && known.accepts_model(&endpoint.model, model) {
                // Under the provider's name the first profile counts, since programs use that one by default.
                if name == profile.name || !known.has_model(&endpoint.model) {
                    *known = known.clone().with_model(&endpoint.model, model);
                }
            } else if name == profile.name {
                return Err(refuse(format!("another profile has the route `{name}`; use one of them at a time")));
            }
            // The provider's route already leads elsewhere; the route under the profile's own name is enough.
            continue;
        }
        route = route.with_model(&endpoint.model, model);
        if provider != "openai" || profile.base_url.is_some() {
            route = route.with_legacy_limit();
        }
        if let Some(credential) = &credential {
            route = route.with_credential(Arc::clone(credential));
        }
        routes.push(route);
    }
    Ok(GrantedModel { profile: profile.name.clone(), model: endpoint.model, wire: endpoint.wire, api: wire })
}

/// Returns the output limits of a call. A requested limit is lowered to the model's known maximum; a call without a
/// limit gets the profile's.
fn route_model(profile: &PinnedProfile) -> RouteModel {
    let most_output = profile.most_output.unwrap_or(MAX_OUTPUT_TOKENS);
    let usual_output = u64::from(profile.max_output_tokens).min(most_output);
    RouteModel { price: profile.price, max_output: most_output, default_output: usual_output }
}

fn route_credential(
    found: &ResolvedSecret,
    wire: meter::RouteApi,
    endpoint: &ProfileEndpoint,
) -> Result<ProxyCredential, Error> {
    let bearer = matches!(found.kind, SecretKind::Oauth | SecretKind::Gateway) || found.name == ANTHROPIC_AUTH_TOKEN;
    let place = match wire {
        meter::RouteApi::Anthropic if !bearer => CredentialPlacement::header("x-api-key"),
        meter::RouteApi::Gemini => CredentialPlacement::header("x-goog-api-key"),
        meter::RouteApi::Anthropic | meter::RouteApi::OpenAi => CredentialPlacement::Bearer,
    };
    let made = ProxyCredential::new(&found.name, &found.secret, place)
        .map_err(|error| Error::Grant { what: found.name.clone(), why: error.to_string() })?;
    let subscription = endpoint.wire == ProviderProtocol::Anthropic && found.kind == SecretKind::Oauth;
    Ok(if subscription { made.for_subscription() } else { made })
}

/// Returns the variables that programs read to find a route: those of the providers' own libraries and of known
/// agents.
fn provider_env(
    wire: meter::RouteApi,
    key: &str,
    url: &str,
    phantom: &str,
    model: &str,
) -> Vec<(&'static str, String)> {
    let (url, phantom, model) = (url.to_owned(), phantom.to_owned(), model.to_owned());
    match wire {
        meter::RouteApi::Anthropic => {
            let key = match key {
                CLAUDE_CODE_OAUTH_TOKEN => CLAUDE_CODE_OAUTH_TOKEN,
                ANTHROPIC_AUTH_TOKEN => ANTHROPIC_AUTH_TOKEN,
                _ => "ANTHROPIC_API_KEY",
            };
            let models = [
                "ANTHROPIC_MODEL",
                "ANTHROPIC_SMALL_FAST_MODEL",
                "ANTHROPIC_DEFAULT_OPUS_MODEL",
                "ANTHROPIC_DEFAULT_SONNET_MODEL",
                "ANTHROPIC_DEFAULT_HAIKU_MODEL",
                "CLAUDE_CODE_SUBAGENT_MODEL",
            ];
            let mut all = vec![
                ("ANTHROPIC_BASE_URL", url),
                (key, phantom),
                // The agent has no other network access and must not wait for any.
                ("CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC", "1".to_owned()),
                ("DISABLE_AUTOUPDATER", "1".to_owned()),
            ];
            all.extend(models.map(|name| (name, model.clone())));
            all
        }
        meter::RouteApi::OpenAi => {
            vec![
                ("OPENAI_BASE_URL", url.clone()),
                ("OPENAI_API_BASE", url),
                ("OPENAI_API_KEY", phantom),
                ("OPENAI_MODEL", model),
            ]
        }
        meter::RouteApi::Gemini => {
            vec![("GOOGLE_GEMINI_BASE_URL", url), ("GEMINI_API_KEY", phantom), ("GEMINI_MODEL", model)]
        }
    }
}

/// Refuses secrets that must not be granted to hosts: a secret too short to be told apart from other text, and a
/// subscription, which only its own provider may see.
pub fn check_grantable(found: &ResolvedSecret, hosts: &[&str]) -> Result<(), Error> {
    let name = found.name.clone();
    if is_too_short(found.secret.expose()) {
        return Err(Error::ShortSecret { name });
    }
    match hosts.iter().find(|host| found.kind == SecretKind::Oauth && **host != ANTHROPIC) {
        Some(host) => {
            let why = format!("it is a Claude subscription, which only {ANTHROPIC} may see, not {host}");
            Err(Error::Grant { what: name, why })
        }
        None => Ok(()),
    }
}

fn host_credential(
    host: &HostContext,
    name: &str,
    hosts: &[&str],
    env: &mut BTreeMap<String, String>,
) -> Result<ProxyCredential, Error> {
    let Some(found) = host.secrets().find(name)? else {
        return Err(Error::NoSecret { name: name.to_owned() });
    };
    check_grantable(&found, hosts)?;
    let made = ProxyCredential::new(&found.name, &found.secret, CredentialPlacement::AsSent)
        .and_then(|credential| credential.for_hosts(hosts))
        .map_err(|error| Error::Grant { what: name.to_owned(), why: error.to_string() })?;
    host.record_secret_use(&found.name);
    env.insert(found.name.clone(), made.phantom().to_owned());
    // git asks for a password only after a first refusal, and nobody can answer the prompt: configure the header up
    // front.
    let git = |host: &&&str| found.kind == SecretKind::GithubPat && !host.starts_with("api.");
    for host in hosts.iter().filter(git) {
        let n: usize = env.get("GIT_CONFIG_COUNT").and_then(|n| n.parse().ok()).unwrap_or(0);
        let pair = BASE64.encode(format!("x-access-token:{}", made.phantom()));
        env.insert(format!("GIT_CONFIG_KEY_{n}"), format!("http.https://{host}/.extraHeader"));
        env.insert(format!("GIT_CONFIG_VALUE_{n}"), format!("Authorization: Basic {pair}"));
        env.insert("GIT_CONFIG_COUNT".to_owned(), (n + 1).to_string());
    }
    Ok(made)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secret_grants_are_parsed() {
        for (text, want) in [
            ("GITHUB_PAT=github.com", Some(("GITHUB_PAT", "github.com"))),
            ("A=X.io.", Some(("A", "x.io"))),
            ("github.com", None),
            ("=x.io", None),
            ("A=", None),
            ("A=a b", None),
            ("A B=x.io", None),
        ] {
            let got = text.parse::<SecretGrant>().ok();
            assert_eq!(got.as_ref().map(|grant| (grant.secret.as_str(), grant.host.as_str())), want, "{text}");
        }
    }

    #[test]
    fn refused_grants() {
        let found = |kind, value: &str| ResolvedSecret {
            name: "K".to_owned(),
            secret: ralph_core::secret::Secret::new(value),
            kind,
            source: crate::secret::SecretSource::Environment,
            expires: None,
        };
        for (kind, value, hosts, want) in [
            (SecretKind::ApiKey, "sk-12345", &["x.io"][..], None),
            (SecretKind::ApiKey, "sk-1234\n", &["x.io"], Some("`K` is shorter than 8 characters")),
            (SecretKind::Oauth, "sk-ant-oat01-x", &[ANTHROPIC], None),
            (
                SecretKind::Oauth,
                "sk-ant-oat01-x",
                &[ANTHROPIC, "x.io"],
                Some("`K` cannot be granted to a sandbox: it is a Claude sub"),
            ),
        ] {
            let message = check_grantable(&found(kind, value), hosts).err().map(|error| error.to_string());
            assert_eq!(message.is_some(), want.is_some(), "{message:?}");
            assert!(message.unwrap_or_default().starts_with(want.unwrap_or_default()));
        }
    }

    #[test]
    fn longest_model_output() {
        for (own, known, most_output, usual_output) in [
            (2048, Some(128_000), 128_000, 2048),
            // Without a known maximum the requested limit stands, if there is one.
            (2048, None, MAX_OUTPUT_TOKENS, 2048),
            (128_000, Some(8192), 8192, 8192),
        ] {
            let profile = PinnedProfile {
                name: "p".to_owned(),
                model: "deepseek/deepseek-chat".to_owned(),
                base_url: None,
                api_key_env: None,
                max_output_tokens: own,
                temperature: None,
                timeout_s: 1,
                price: None,
                most_output: known,
                extra: BTreeMap::new(),
            };
            assert_eq!(
                route_model(&profile),
                RouteModel { price: None, max_output: most_output, default_output: usual_output },
                "{own} {known:?}"
            );
        }
    }

    #[test]
    fn provider_variables() {
        for (wire, key, want) in [
            (meter::RouteApi::Anthropic, "ANTHROPIC_API_KEY", "ANTHROPIC_API_KEY"),
            (meter::RouteApi::Anthropic, "CLAUDE_CODE_OAUTH_TOKEN", "CLAUDE_CODE_OAUTH_TOKEN"),
            (meter::RouteApi::Anthropic, "MY_KEY", "ANTHROPIC_API_KEY"),
            (meter::RouteApi::OpenAi, "ZAI_API_KEY", "OPENAI_API_KEY"),
            (meter::RouteApi::Gemini, "GOOGLE_API_KEY", "GEMINI_API_KEY"),
        ] {
            let all = provider_env(wire, key, "url", "phantom", "m");
            assert!(all.iter().any(|(name, value)| *name == want && value == "phantom"), "{key}");
            assert!(all.iter().any(|(_, value)| value == "url"), "{key}");
        }
    }
}
