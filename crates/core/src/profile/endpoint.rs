//! Where a profile's calls go.

use super::provider::{UnknownModel, Wire};
use super::yaml::Profile;
use crate::env::{self, Env};
use crate::policy;

/// An address to call and what to say there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Endpoint {
    /// Without a trailing slash; the wire adds its own path. Empty for a scripted model.
    pub base_url: String,
    /// Variables or secret names that may hold the key, in order.
    pub key_envs: Vec<String>,
    pub key_is_optional: bool,
    pub wire: Wire,
    /// The model's name as the endpoint knows it; the file of a scripted model.
    pub model: String,
    /// The API version of an Azure deployment.
    pub api_version: Option<String>,
}

impl Endpoint {
    /// Returns the canonical host and the port the calls go to; `None` for a scripted model.
    pub fn host(&self) -> Option<(String, u16)> {
        split(&self.base_url).ok()
    }
}

/// Why a profile leads nowhere.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BadEndpoint {
    #[error(transparent)]
    Model(#[from] UnknownModel),
    #[error("provider `{provider}` has no base URL of its own")]
    NoBaseUrl { provider: &'static str, envs: &'static [&'static str] },
    #[error("base URL `{url}` {problem}")]
    Url { url: String, problem: &'static str },
}

impl BadEndpoint {
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::Model(model) => model.hint(),
            Self::NoBaseUrl { envs, .. } => {
                let name = envs.first()?;
                Some(format!("set {name}, or `base_url` in your own models.yaml"))
            }
            Self::Url { .. } => Some("write `https://host/path`".to_owned()),
        }
    }
}

/// Returns where a profile's calls go: its own base URL, else the environment's, else the provider's.
pub fn endpoint(profile: &Profile, env: &Env) -> Result<Endpoint, BadEndpoint> {
    let model = profile.model()?;
    let provider = model.provider;
    let key_envs = match &profile.api_key_env {
        Some(name) => vec![name.clone()],
        None => provider.key_envs.iter().map(|name| (*name).to_owned()).collect(),
    };
    let from_env = || provider.base_envs.iter().find_map(|name| env.get(name));
    let base_url = match profile.base_url.as_deref().or_else(from_env).or(provider.base_url) {
        _ if model.is_scripted() => String::new(),
        Some(url) => clean(url, provider.name)?,
        None => return Err(BadEndpoint::NoBaseUrl { provider: provider.name, envs: provider.base_envs }),
    };
    let wire = model.wire();
    let api_version = env.get(env::AZURE_API_VERSION).filter(|_| wire == Wire::Azure).map(str::to_owned);
    Ok(Endpoint {
        base_url,
        key_envs,
        key_is_optional: provider.key_is_optional(),
        wire,
        model: model.wire_name(),
        api_version,
    })
}

fn clean(url: &str, provider: &str) -> Result<String, BadEndpoint> {
    let url = url.trim().trim_end_matches('/');
    split(url)?;
    // Ollama's own base has no `/v1`; the chat protocol lives below it.
    let ollama = matches!(provider, "ollama" | "ollama_chat") && !url.ends_with("/v1");
    Ok(if ollama { format!("{url}/v1") } else { url.to_owned() })
}

fn split(url: &str) -> Result<(String, u16), BadEndpoint> {
    // The value may hold a password, so it is shown only once nothing in it can be one.
    let bad = |problem| Err(BadEndpoint::Url { url: "…".to_owned(), problem });
    let (rest, default_port) = match (url.strip_prefix("https://"), url.strip_prefix("http://")) {
        (Some(rest), _) => (rest, 443),
        (_, Some(rest)) => (rest, 80),
        _ => return bad("does not start with https:// or http://"),
    };
    if url.contains(['?', '#', '\\']) || url.chars().any(|c| c.is_control() || c.is_whitespace()) {
        return bad("has a query, a fragment or a blank");
    }
    let authority = rest.split('/').next().unwrap_or("");
    if authority.contains('@') {
        return bad("holds a user name or password");
    }
    let shown = |problem| BadEndpoint::Url { url: url.to_owned(), problem };
    let colon = authority.rfind(':').filter(|at| authority.rfind(']').is_none_or(|end| end < *at));
    let (host, port) = match colon {
        Some(at) => (authority.get(..at).unwrap_or(""), authority.get(at + 1..).unwrap_or("")),
        None => (authority, ""),
    };
    let port = match port {
        "" if colon.is_none() => default_port,
        digits => digits.parse().ok().filter(|port| *port != 0).ok_or_else(|| shown("has no valid port"))?,
    };
    let host = policy::canonical(host).map_err(|_| shown("has no valid host"))?;
    Ok((host, port))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn profile(model: &str, base_url: Option<&str>) -> Profile {
        Profile {
            litellm_model: model.to_owned(),
            max_output_tokens: 1,
            temperature: None,
            tags: Vec::new(),
            base_url: base_url.map(str::to_owned),
            api_key_env: None,
            price: None,
            timeout_s: 1,
            extra: std::collections::BTreeMap::new(),
        }
    }

    #[track_caller]
    fn check(model: &str, base_url: Option<&str>, env: &[(&str, &str)], want: &str) {
        let env = Env::new(env.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())));
        let got = match endpoint(&profile(model, base_url), &env) {
            Ok(endpoint) => format!("{} {} {}", endpoint.base_url, endpoint.model, endpoint.key_envs.join(",")),
            Err(error) => format!("{error} | {}", error.hint().unwrap_or_default()),
        };
        assert_eq!(got, want);
    }

    #[test]
    fn endpoints() {
        check("zai/glm-4.7", None, &[], "https://api.z.ai/api/paas/v4 glm-4.7 ZAI_API_KEY");
        check("zai/g", None, &[("ZAI_API_BASE", "https://z.io/v4/")], "https://z.io/v4 g ZAI_API_KEY");
        check("zai/g", Some("https://own.io"), &[("ZAI_API_BASE", "https://z.io")], "https://own.io g ZAI_API_KEY");
        check("openai/g", None, &[("OPENAI_API_BASE", "https://b.io")], "https://b.io g OPENAI_API_KEY");
        check("ollama/l", None, &[("OLLAMA_API_BASE", "http://box:11434")], "http://box:11434/v1 l OLLAMA_API_KEY");
        check("scripted/a/b.jsonl", None, &[], " a/b.jsonl ");
        check(
            "bedrock/x",
            None,
            &[("LITELLM_PROXY_API_BASE", "http://localhost:4000")],
            "http://localhost:4000 bedrock/x LITELLM_PROXY_API_KEY",
        );
        check(
            "azure/d",
            None,
            &[],
            "provider `azure` has no base URL of its own | set AZURE_API_BASE, or `base_url` in your own models.yaml",
        );
        check(
            "zai/g",
            Some("ftp://x"),
            &[],
            "base URL `…` does not start with https:// or http:// | write `https://host/path`",
        );
        check(
            "zai/g",
            Some("https://u:pw@x.io"),
            &[],
            "base URL `…` holds a user name or password | write `https://host/path`",
        );
        check(
            "zai/g",
            Some("https://0x7f.1/v1"),
            &[],
            "base URL `https://0x7f.1/v1` has no valid host | write `https://host/path`",
        );
        check(
            "zai/g",
            Some("https://x.io:0"),
            &[],
            "base URL `https://x.io:0` has no valid port | write `https://host/path`",
        );
    }

    #[test]
    fn hosts() {
        for (url, want) in [
            ("https://API.z.ai/x", ("api.z.ai", 443)),
            ("http://localhost:4000/v1", ("localhost", 4000)),
            ("https://[::1]:8/", ("[::1]", 8)),
        ] {
            let endpoint = endpoint(&profile("zai/g", Some(url)), &Env::default()).expect("an endpoint");
            assert_eq!(endpoint.host(), Some((want.0.to_owned(), want.1)));
        }
    }

    proptest! {
        #[test]
        fn never_panics(url in "\\PC{0,40}|https?://[a-z@:.\\[\\]/0-9?#]{0,30}") {
            let _ = endpoint(&profile("zai/g", Some(&url)), &Env::default());
        }
    }
}
