//! Builds the smallest request that shows whether a credential is accepted: its address and headers. It is sent
//! elsewhere.

use std::collections::BTreeMap;

use super::{Secret, SecretKind};
use crate::env_vars::{self, Env};
use crate::profile::{self, BadEndpoint, PROVIDERS, Profile, ProfileEndpoint, Provider, ProviderProtocol};

const GITHUB: &str = "https://api.github.com";
const DAYTONA: &str = "https://app.daytona.io/api";

/// One `GET` without a body. A successful response says something about the credential only where the same request
/// without it is refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CredentialProbe {
    pub url: String,
    /// The header that carries the credential, and its value.
    pub credential: (&'static str, Secret),
    pub headers: Vec<(&'static str, &'static str)>,
}

/// The reasons why there is no request to send.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ProbeUnavailable {
    #[error("ralph does not know where `{name}` is used, so it cannot be checked")]
    UnknownAddress { name: String },
    #[error("the address to check `{name}` at cannot be used")]
    BadAddress { name: String, source: BadEndpoint },
    #[error("`{name}` would be checked at `{host}` over `http://`, which would send the key unencrypted")]
    Cleartext { name: String, host: String },
    #[error("`{name}` is a Claude subscription, and `{host}` is not the provider that sold it")]
    ForeignHost { name: String, host: String },
}

/// Returns what to do about a subscription that would be sent to another host.
pub fn subscription_hint(host: &str) -> String {
    format!(
        "unset {} and {}, or store a token for `{host}` itself: ralph secret set {}",
        env_vars::ANTHROPIC_BASE_URL,
        env_vars::ANTHROPIC_API_BASE,
        env_vars::ANTHROPIC_AUTH_TOKEN
    )
}

/// Returns what to do about a key for a host that is reached over plain HTTP.
pub fn cleartext_hint(host: &str) -> String {
    format!(
        "use `https://{host}`, or a tunnel: ssh -N -L 4000:localhost:PORT {host}, and `http://localhost:4000` as base URL"
    )
}

impl ProbeUnavailable {
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::UnknownAddress { name } => Some(format!(
                "give its address: ralph secret set {name} --base-url https://HOST/v1, or skip the check: ralph secret set {name} --no-validate"
            )),
            Self::BadAddress { source, .. } => source.hint(),
            Self::Cleartext { host, .. } => Some(cleartext_hint(host)),
            Self::ForeignHost { host, .. } => Some(subscription_hint(host)),
        }
    }
}

/// Returns the request that checks a secret; `None` for a private key, which is only parsed.
pub fn build_probe(
    name: &str,
    kind: SecretKind,
    secret: &Secret,
    base_url: Option<&str>,
    env: &Env,
) -> Result<Option<CredentialProbe>, ProbeUnavailable> {
    let bearer = || ("authorization", Secret::new(format!("Bearer {}", secret.expose())));
    let provider = match kind {
        SecretKind::GithubApp => return Ok(None),
        SecretKind::GithubPat => {
            let base = base_url.or_else(|| env.get(env_vars::GITHUB_API_URL)).unwrap_or(GITHUB);
            let base = resolve_address(name, openai(), Some(base), env)?.base_url;
            let headers = vec![("accept", "application/vnd.github+json"), ("x-github-api-version", "2022-11-28")];
            return Ok(Some(CredentialProbe { url: format!("{base}/user"), credential: bearer(), headers }));
        }
        SecretKind::Oauth => anthropic(),
        SecretKind::ApiKey if name == env_vars::DAYTONA_API_KEY => {
            let base = base_url.or_else(|| env.get(env_vars::DAYTONA_API_URL)).unwrap_or(DAYTONA);
            let base = resolve_address(name, openai(), Some(base), env)?.base_url;
            return Ok(Some(CredentialProbe {
                url: format!("{base}/api-keys/current"),
                credential: bearer(),
                headers: Vec::new(),
            }));
        }
        SecretKind::ApiKey | SecretKind::Gateway => match provider_of_key(name, secret) {
            Some(provider) => provider,
            None if base_url.is_some() => openai(),
            None => return Err(ProbeUnavailable::UnknownAddress { name: name.to_owned() }),
        },
    };
    if kind == SecretKind::Gateway
        && base_url.is_none()
        && provider.base_envs.iter().all(|name| env.get(name).is_none())
    {
        return Err(ProbeUnavailable::UnknownAddress { name: name.to_owned() });
    }
    let endpoint = resolve_address(name, provider, base_url, env)?;
    if kind == SecretKind::Oauth && !endpoint.accepts_subscription() {
        let host = endpoint.host().map(|(host, _)| host).unwrap_or_default();
        return Err(ProbeUnavailable::ForeignHost { name: name.to_owned(), host });
    }
    let base = endpoint.base_url;
    let version = ("anthropic-version", "2023-06-01");
    Ok(Some(match (provider.wire, kind) {
        (ProviderProtocol::Anthropic, SecretKind::Oauth) => CredentialProbe {
            url: format!("{base}/v1/models"),
            credential: bearer(),
            headers: vec![version, ("anthropic-beta", "oauth-2025-04-20")],
        },
        (ProviderProtocol::Anthropic, SecretKind::Gateway) => {
            CredentialProbe { url: format!("{base}/v1/models"), credential: bearer(), headers: vec![version] }
        }
        (ProviderProtocol::Anthropic, _) => CredentialProbe {
            url: format!("{base}/v1/models"),
            credential: ("x-api-key", secret.clone()),
            headers: vec![version],
        },
        (ProviderProtocol::Gemini, _) => CredentialProbe {
            url: format!("{base}/models"),
            credential: ("x-goog-api-key", secret.clone()),
            headers: Vec::new(),
        },
        (ProviderProtocol::Azure, _) => {
            let version = env.get(env_vars::AZURE_API_VERSION).unwrap_or("2024-10-21");
            CredentialProbe {
                url: format!("{base}/openai/models?api-version={version}"),
                credential: ("api-key", secret.clone()),
                headers: Vec::new(),
            }
        }
        (ProviderProtocol::Chat | ProviderProtocol::Responses | ProviderProtocol::Scripted, _) => CredentialProbe {
            url: format!("{base}/{}", probe_path(provider)),
            credential: bearer(),
            headers: Vec::new(),
        },
    }))
}

/// Returns the path that is requested below a provider's base URL: its models, unless that list is public and the
/// provider documents a request about the key itself, or the list is elsewhere.
fn probe_path(provider: &Provider) -> &'static str {
    match provider.name {
        "openrouter" => "key",
        "vercel_ai_gateway" => "credits",
        "perplexity" => "v1/models",
        _ => "models",
    }
}

/// Returns the provider of a key: by its name, else by its shape.
fn provider_of_key(name: &str, secret: &Secret) -> Option<&'static Provider> {
    let named = PROVIDERS.iter().find(|provider| provider.key_envs.contains(&name));
    let shapes = [("sk-ant-", "anthropic"), ("sk-or-", "openrouter"), ("sk-proj-", "openai"), ("AIza", "gemini")];
    let shaped = || shapes.iter().find(|(start, _)| secret.expose().starts_with(start));
    named.or_else(|| Provider::find(shaped()?.1))
}

fn anthropic() -> &'static Provider {
    Provider::find("anthropic").expect("it is in the table")
}

fn openai() -> &'static Provider {
    Provider::find("openai").expect("it is in the table")
}

/// Returns the address of a provider, as a run would resolve it.
fn resolve_address(
    name: &str,
    provider: &Provider,
    base_url: Option<&str>,
    env: &Env,
) -> Result<ProfileEndpoint, ProbeUnavailable> {
    let profile = Profile {
        litellm_model: format!("{}/any", provider.name),
        max_output_tokens: 1,
        temperature: None,
        tags: Vec::new(),
        base_url: base_url.map(str::to_owned),
        api_key_env: None,
        price: None,
        timeout_s: 1,
        extra: BTreeMap::new(),
    };
    let found = profile::resolve_endpoint(&profile, env).map_err(|source| match source {
        BadEndpoint::NoBaseUrl { .. } => ProbeUnavailable::UnknownAddress { name: name.to_owned() },
        source => ProbeUnavailable::BadAddress { name: name.to_owned(), source },
    })?;
    if found.is_cleartext() {
        let host = found.host().map(|(host, _)| host).unwrap_or_default();
        return Err(ProbeUnavailable::Cleartext { name: name.to_owned(), host });
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(name: &str, kind: SecretKind, base_url: Option<&str>, env: &[(&str, &str)], want: &str) {
        let env = Env::new(env.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())));
        let got = match build_probe(name, kind, &Secret::new("V"), base_url, &env) {
            Ok(Some(probe)) => {
                let (header, value) = &probe.credential;
                let rest: Vec<String> = probe.headers.iter().map(|(name, value)| format!(" {name}={value}")).collect();
                format!("{} {header}={}{}", probe.url, value.expose(), rest.concat())
            }
            Ok(None) => "none".to_owned(),
            Err(error) => error.to_string(),
        };
        assert_eq!(got, want, "{name}");
    }

    #[test]
    fn probes() {
        let version = "anthropic-version=2023-06-01";
        check(
            "ANTHROPIC_API_KEY",
            SecretKind::ApiKey,
            None,
            &[],
            &format!("https://api.anthropic.com/v1/models x-api-key=V {version}"),
        );
        check(
            "ANTHROPIC_API_KEY",
            SecretKind::ApiKey,
            None,
            &[("ANTHROPIC_BASE_URL", "http://127.0.0.1:9/")],
            &format!("http://127.0.0.1:9/v1/models x-api-key=V {version}"),
        );
        check(
            "CLAUDE_CODE_OAUTH_TOKEN",
            SecretKind::Oauth,
            None,
            &[],
            &format!(
                "https://api.anthropic.com/v1/models authorization=Bearer V {version} anthropic-beta=oauth-2025-04-20"
            ),
        );
        check(
            "ANTHROPIC_AUTH_TOKEN",
            SecretKind::Gateway,
            Some("https://gw.example/anthropic"),
            &[],
            &format!("https://gw.example/anthropic/v1/models authorization=Bearer V {version}"),
        );
        for (base_url, env) in [
            (Some("https://api.z.ai/api/anthropic"), &[][..]),
            (None, &[("ANTHROPIC_BASE_URL", "https://api.z.ai/api/anthropic")]),
        ] {
            let message = "`MINE` is a Claude subscription, and `api.z.ai` is not the provider that sold it";
            check("MINE", SecretKind::Oauth, base_url, env, message);
        }
        // Without an address of its own, a gateway's token would be sent to the wrong host.
        let nowhere = "ralph does not know where `ANTHROPIC_AUTH_TOKEN` is used, so it cannot be checked";
        check("ANTHROPIC_AUTH_TOKEN", SecretKind::Gateway, None, &[], nowhere);
        check(
            "ZAI_API_KEY",
            SecretKind::ApiKey,
            None,
            &[],
            "https://api.z.ai/api/paas/v4/models authorization=Bearer V",
        );
        for (name, url) in [
            // Their lists of models are public.
            ("OPENROUTER_API_KEY", "https://openrouter.ai/api/v1/key"),
            ("VERCEL_AI_GATEWAY_API_KEY", "https://ai-gateway.vercel.sh/v1/credits"),
            ("PERPLEXITYAI_API_KEY", "https://api.perplexity.ai/v1/models"),
        ] {
            check(name, SecretKind::ApiKey, None, &[], &format!("{url} authorization=Bearer V"));
        }
        check(
            "GEMINI_API_KEY",
            SecretKind::ApiKey,
            None,
            &[],
            "https://generativelanguage.googleapis.com/v1beta/models x-goog-api-key=V",
        );
        check(
            "AZURE_API_KEY",
            SecretKind::ApiKey,
            Some("https://a.example"),
            &[],
            "https://a.example/openai/models?api-version=2024-10-21 api-key=V",
        );
        let github = "authorization=Bearer V accept=application/vnd.github+json x-github-api-version=2022-11-28";
        check("GITHUB_PAT", SecretKind::GithubPat, None, &[], &format!("https://api.github.com/user {github}"));
        check(
            "GITHUB_PAT",
            SecretKind::GithubPat,
            None,
            &[("GITHUB_API_URL", "http://127.0.0.1:9/api/v3")],
            &format!("http://127.0.0.1:9/api/v3/user {github}"),
        );
        check("K", SecretKind::GithubApp, None, &[], "none");
        check(
            "MINE",
            SecretKind::ApiKey,
            None,
            &[],
            "ralph does not know where `MINE` is used, so it cannot be checked",
        );
        check(
            "MINE",
            SecretKind::Gateway,
            Some("https://x.io/v1"),
            &[],
            "https://x.io/v1/models authorization=Bearer V",
        );
        let clear = "`MINE` would be checked at `gw.corp` over `http://`, which would send the key unencrypted";
        check("MINE", SecretKind::Gateway, Some("http://gw.corp:4000/v1"), &[], clear);
        check("MINE", SecretKind::ApiKey, Some("ftp://x"), &[], "the address to check `MINE` at cannot be used");
        let daytona = |base: &str| format!("{base}/api-keys/current authorization=Bearer V");
        check("DAYTONA_API_KEY", SecretKind::ApiKey, None, &[], &daytona("https://app.daytona.io/api"));
        let own = [("DAYTONA_API_URL", "https://daytona.corp/api")];
        check("DAYTONA_API_KEY", SecretKind::ApiKey, None, &own, &daytona("https://daytona.corp/api"));
    }
}
