//! The smallest call that tells whether a credential is taken: which address, which headers. Making it is not done here.

use std::collections::BTreeMap;

use super::{Kind, Secret};
use crate::env::{self, Env};
use crate::profile::{self, BadEndpoint, Endpoint, PROVIDERS, Profile, Provider, Wire};

const GITHUB: &str = "https://api.github.com";
const DAYTONA: &str = "https://app.daytona.io/api";

/// One `GET` without a body. That it is answered says something about the credential only where the same call without it
/// is refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Probe {
    pub url: String,
    /// The header that carries the credential, and what it holds.
    pub credential: (&'static str, Secret),
    pub headers: Vec<(&'static str, &'static str)>,
}

/// Why there is no call to make.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NoProbe {
    #[error("ralph does not know where `{name}` is used, so it cannot be tried")]
    Nowhere { name: String },
    #[error("the address to try `{name}` at cannot be used")]
    Address { name: String, source: BadEndpoint },
    #[error("`{name}` would be tried at `{host}` over `http://`, and a key does not travel in the clear")]
    InTheClear { name: String, host: String },
    #[error("`{name}` is a subscription of Claude, and `{host}` is not whom it was bought from")]
    Stranger { name: String, host: String },
}

/// Says what to do about a subscription where another host is asked.
pub fn subscription(host: &str) -> String {
    format!(
        "unset {} and {}, or keep a token of `{host}` itself: ralph secret set {}",
        env::ANTHROPIC_BASE_URL,
        env::ANTHROPIC_API_BASE,
        env::ANTHROPIC_AUTH_TOKEN
    )
}

/// Says what to do about a key for a host that is asked over plain HTTP.
pub fn in_the_clear(host: &str) -> String {
    format!(
        "use `https://{host}`, or a tunnel: ssh -N -L 4000:localhost:PORT {host}, and `http://localhost:4000` as base URL"
    )
}

impl NoProbe {
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::Nowhere { name } => Some(format!(
                "say where: ralph secret set {name} --base-url https://HOST/v1, or leave the trial out: ralph secret set {name} --no-validate"
            )),
            Self::Address { source, .. } => source.hint(),
            Self::InTheClear { host, .. } => Some(in_the_clear(host)),
            Self::Stranger { host, .. } => Some(subscription(host)),
        }
    }
}

/// Returns the call that tries a secret; `None` for a private key, which is only read.
pub fn probe(
    name: &str,
    kind: Kind,
    secret: &Secret,
    base_url: Option<&str>,
    env: &Env,
) -> Result<Option<Probe>, NoProbe> {
    let bearer = || ("authorization", Secret::new(format!("Bearer {}", secret.expose())));
    let provider = match kind {
        Kind::GithubApp => return Ok(None),
        Kind::GithubPat => {
            let base = base_url.or_else(|| env.get(env::GITHUB_API_URL)).unwrap_or(GITHUB);
            let base = address(name, openai(), Some(base), env)?.base_url;
            let headers = vec![("accept", "application/vnd.github+json"), ("x-github-api-version", "2022-11-28")];
            return Ok(Some(Probe { url: format!("{base}/user"), credential: bearer(), headers }));
        }
        Kind::Oauth => anthropic(),
        Kind::ApiKey if name == env::DAYTONA_API_KEY => {
            let base = base_url.or_else(|| env.get(env::DAYTONA_API_URL)).unwrap_or(DAYTONA);
            let base = address(name, openai(), Some(base), env)?.base_url;
            return Ok(Some(Probe {
                url: format!("{base}/api-keys/current"),
                credential: bearer(),
                headers: Vec::new(),
            }));
        }
        Kind::ApiKey | Kind::Gateway => match owner(name, secret) {
            Some(provider) => provider,
            None if base_url.is_some() => openai(),
            None => return Err(NoProbe::Nowhere { name: name.to_owned() }),
        },
    };
    if kind == Kind::Gateway && base_url.is_none() && provider.base_envs.iter().all(|name| env.get(name).is_none()) {
        return Err(NoProbe::Nowhere { name: name.to_owned() });
    }
    let endpoint = address(name, provider, base_url, env)?;
    if kind == Kind::Oauth && !endpoint.takes_subscriptions() {
        let host = endpoint.host().map(|(host, _)| host).unwrap_or_default();
        return Err(NoProbe::Stranger { name: name.to_owned(), host });
    }
    let base = endpoint.base_url;
    let version = ("anthropic-version", "2023-06-01");
    Ok(Some(match (provider.wire, kind) {
        (Wire::Anthropic, Kind::Oauth) => Probe {
            url: format!("{base}/v1/models"),
            credential: bearer(),
            headers: vec![version, ("anthropic-beta", "oauth-2025-04-20")],
        },
        (Wire::Anthropic, Kind::Gateway) => {
            Probe { url: format!("{base}/v1/models"), credential: bearer(), headers: vec![version] }
        }
        (Wire::Anthropic, _) => Probe {
            url: format!("{base}/v1/models"),
            credential: ("x-api-key", secret.clone()),
            headers: vec![version],
        },
        (Wire::Gemini, _) => {
            Probe { url: format!("{base}/models"), credential: ("x-goog-api-key", secret.clone()), headers: Vec::new() }
        }
        (Wire::Azure, _) => {
            let version = env.get(env::AZURE_API_VERSION).unwrap_or("2024-10-21");
            Probe {
                url: format!("{base}/openai/models?api-version={version}"),
                credential: ("api-key", secret.clone()),
                headers: Vec::new(),
            }
        }
        (Wire::Chat | Wire::Responses | Wire::Scripted, _) => {
            Probe { url: format!("{base}/{}", asked(provider)), credential: bearer(), headers: Vec::new() }
        }
    }))
}

/// Returns what a provider is asked below its base URL: its models, unless that list is open to everybody and it documents
/// a call about the key itself, or it is kept elsewhere.
fn asked(provider: &Provider) -> &'static str {
    match provider.name {
        "openrouter" => "key",
        "vercel_ai_gateway" => "credits",
        "perplexity" => "v1/models",
        _ => "models",
    }
}

/// Finds whose key it is: by its name, else by its shape.
fn owner(name: &str, secret: &Secret) -> Option<&'static Provider> {
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

/// Returns where a provider is, as a run would find it.
fn address(name: &str, provider: &Provider, base_url: Option<&str>, env: &Env) -> Result<Endpoint, NoProbe> {
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
    let found = profile::endpoint(&profile, env).map_err(|source| match source {
        BadEndpoint::NoBaseUrl { .. } => NoProbe::Nowhere { name: name.to_owned() },
        source => NoProbe::Address { name: name.to_owned(), source },
    })?;
    if found.is_in_the_clear() {
        let host = found.host().map(|(host, _)| host).unwrap_or_default();
        return Err(NoProbe::InTheClear { name: name.to_owned(), host });
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(name: &str, kind: Kind, base_url: Option<&str>, env: &[(&str, &str)], want: &str) {
        let env = Env::new(env.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())));
        let got = match probe(name, kind, &Secret::new("V"), base_url, &env) {
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
            Kind::ApiKey,
            None,
            &[],
            &format!("https://api.anthropic.com/v1/models x-api-key=V {version}"),
        );
        check(
            "ANTHROPIC_API_KEY",
            Kind::ApiKey,
            None,
            &[("ANTHROPIC_BASE_URL", "http://127.0.0.1:9/")],
            &format!("http://127.0.0.1:9/v1/models x-api-key=V {version}"),
        );
        check(
            "CLAUDE_CODE_OAUTH_TOKEN",
            Kind::Oauth,
            None,
            &[],
            &format!(
                "https://api.anthropic.com/v1/models authorization=Bearer V {version} anthropic-beta=oauth-2025-04-20"
            ),
        );
        check(
            "ANTHROPIC_AUTH_TOKEN",
            Kind::Gateway,
            Some("https://gw.example/anthropic"),
            &[],
            &format!("https://gw.example/anthropic/v1/models authorization=Bearer V {version}"),
        );
        for (base_url, env) in [
            (Some("https://api.z.ai/api/anthropic"), &[][..]),
            (None, &[("ANTHROPIC_BASE_URL", "https://api.z.ai/api/anthropic")]),
        ] {
            let told = "`MINE` is a subscription of Claude, and `api.z.ai` is not whom it was bought from";
            check("MINE", Kind::Oauth, base_url, env, told);
        }
        // Without an address of its own a gateway's token would go to a stranger.
        let nowhere = "ralph does not know where `ANTHROPIC_AUTH_TOKEN` is used, so it cannot be tried";
        check("ANTHROPIC_AUTH_TOKEN", Kind::Gateway, None, &[], nowhere);
        check("ZAI_API_KEY", Kind::ApiKey, None, &[], "https://api.z.ai/api/paas/v4/models authorization=Bearer V");
        for (name, url) in [
            // Their lists of models are open to everybody.
            ("OPENROUTER_API_KEY", "https://openrouter.ai/api/v1/key"),
            ("VERCEL_AI_GATEWAY_API_KEY", "https://ai-gateway.vercel.sh/v1/credits"),
            ("PERPLEXITYAI_API_KEY", "https://api.perplexity.ai/v1/models"),
        ] {
            check(name, Kind::ApiKey, None, &[], &format!("{url} authorization=Bearer V"));
        }
        check(
            "GEMINI_API_KEY",
            Kind::ApiKey,
            None,
            &[],
            "https://generativelanguage.googleapis.com/v1beta/models x-goog-api-key=V",
        );
        check(
            "AZURE_API_KEY",
            Kind::ApiKey,
            Some("https://a.example"),
            &[],
            "https://a.example/openai/models?api-version=2024-10-21 api-key=V",
        );
        let github = "authorization=Bearer V accept=application/vnd.github+json x-github-api-version=2022-11-28";
        check("GITHUB_PAT", Kind::GithubPat, None, &[], &format!("https://api.github.com/user {github}"));
        check(
            "GITHUB_PAT",
            Kind::GithubPat,
            None,
            &[("GITHUB_API_URL", "http://127.0.0.1:9/api/v3")],
            &format!("http://127.0.0.1:9/api/v3/user {github}"),
        );
        check("K", Kind::GithubApp, None, &[], "none");
        check("MINE", Kind::ApiKey, None, &[], "ralph does not know where `MINE` is used, so it cannot be tried");
        check("MINE", Kind::Gateway, Some("https://x.io/v1"), &[], "https://x.io/v1/models authorization=Bearer V");
        let clear = "`MINE` would be tried at `gw.corp` over `http://`, and a key does not travel in the clear";
        check("MINE", Kind::Gateway, Some("http://gw.corp:4000/v1"), &[], clear);
        check("MINE", Kind::ApiKey, Some("ftp://x"), &[], "the address to try `MINE` at cannot be used");
        let daytona = |base: &str| format!("{base}/api-keys/current authorization=Bearer V");
        check("DAYTONA_API_KEY", Kind::ApiKey, None, &[], &daytona("https://app.daytona.io/api"));
        let own = [("DAYTONA_API_URL", "https://daytona.corp/api")];
        check("DAYTONA_API_KEY", Kind::ApiKey, None, &own, &daytona("https://daytona.corp/api"));
    }
}
