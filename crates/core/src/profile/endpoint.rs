//! Resolves where a profile's calls go.

use core::net::IpAddr;

use super::models_yaml::Profile;
use super::provider::{ProviderProtocol, UnknownModel};
use crate::env_vars::{self, Env};
use crate::policy;

/// An address to call, with the model name and the credentials used there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProfileEndpoint {
    /// Without a trailing slash; the protocol adds its own path. Empty for a scripted model.
    pub base_url: String,
    /// Variables or secret names that may hold the key, in order.
    pub key_envs: Vec<String>,
    pub key_is_optional: bool,
    pub wire: ProviderProtocol,
    /// The model's name as the endpoint knows it; the file of a scripted model.
    pub model: String,
    /// The API version of an Azure deployment.
    pub api_version: Option<String>,
}

impl ProfileEndpoint {
    /// Returns the canonical host and the port the calls go to; `None` for a scripted model.
    pub fn host(&self) -> Option<(String, u16)> {
        host_and_port(&self.base_url).ok()
    }

    /// Returns whether others can read what is sent there: plain HTTP that leaves this machine.
    pub fn is_cleartext(&self) -> bool {
        self.base_url.starts_with("http://") && !self.is_loopback()
    }

    /// Returns whether the token of a Claude subscription may be sent there: to Anthropic itself, or to this machine.
    pub fn accepts_subscription(&self) -> bool {
        self.is_loopback() || self.host().is_some_and(|(host, _)| host == ANTHROPIC)
    }

    /// Returns whether it is on this machine.
    fn is_loopback(&self) -> bool {
        self.host().is_some_and(|(host, _)| {
            let literal = host.trim_start_matches('[').trim_end_matches(']').parse::<IpAddr>();
            host == "localhost" || literal.is_ok_and(|address| address.to_canonical().is_loopback())
        })
    }
}

/// The host that accepts Claude subscriptions.
pub const ANTHROPIC: &str = "api.anthropic.com";

/// The API version of Azure deployments when no other is configured.
pub const DEFAULT_AZURE_VERSION: &str = "2024-10-21";

/// The reasons why a profile has no endpoint.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BadEndpoint {
    #[error(transparent)]
    Model(#[from] UnknownModel),
    #[error("provider `{provider}` has no base URL of its own")]
    NoBaseUrl { provider: &'static str, envs: &'static [&'static str] },
    #[error("provider `{provider}` needs a LiteLLM proxy, and no address of one is set")]
    NoProxy { provider: &'static str },
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
            Self::NoProxy { .. } => Some(format!(
                "start one and set {}, or `base_url` in your own models.yaml",
                env_vars::LITELLM_PROXY_API_BASE
            )),
            Self::Url { .. } => Some("write `https://host/path`".to_owned()),
        }
    }
}

/// Returns the names a profile's credential may have, in the order in which a run looks for them. A subscription comes
/// last; it is valid only at the provider itself and must not be sent to anyone else.
pub fn credential_names(profile: &Profile, endpoint: &ProfileEndpoint) -> Vec<String> {
    let mut names = endpoint.key_envs.clone();
    let own = profile.base_url.is_none() && profile.api_key_env.is_none() && endpoint.accepts_subscription();
    if endpoint.wire == ProviderProtocol::Anthropic && own && !names.is_empty() {
        names.push(env_vars::CLAUDE_CODE_OAUTH_TOKEN.to_owned());
    }
    names
}

/// Returns where a profile's calls go: its own base URL, else the environment's, else the provider's.
pub fn resolve_endpoint(profile: &Profile, env: &Env) -> Result<ProfileEndpoint, BadEndpoint> {
    let model = profile.model()?;
    let provider = model.provider;
    let key_envs = match &profile.api_key_env {
        Some(name) => vec![name.clone()],
        None => provider.key_envs.iter().map(|name| (*name).to_owned()).collect(),
    };
    let from_env = || provider.base_envs.iter().find_map(|name| env.get(name));
    let base_url = match profile.base_url.as_deref().or_else(from_env).or(provider.base_url) {
        _ if model.is_scripted() => String::new(),
        Some(url) => normalise_url(url, provider.name)?,
        None if provider.needs_proxy() => return Err(BadEndpoint::NoProxy { provider: provider.name }),
        None => return Err(BadEndpoint::NoBaseUrl { provider: provider.name, envs: provider.base_envs }),
    };
    let wire = model.wire();
    let api_version = (wire == ProviderProtocol::Azure)
        .then(|| env.get(env_vars::AZURE_API_VERSION).unwrap_or(DEFAULT_AZURE_VERSION).to_owned());
    Ok(ProfileEndpoint {
        base_url,
        key_envs,
        key_is_optional: provider.key_is_optional(),
        wire,
        model: model.wire_name(),
        api_version,
    })
}

fn normalise_url(url: &str, provider: &str) -> Result<String, BadEndpoint> {
    let url = url.trim().trim_end_matches('/');
    host_and_port(url)?;
    // Ollama's own base URL has no `/v1`; the chat protocol is served below it.
    let ollama = matches!(provider, "ollama" | "ollama_chat") && !url.ends_with("/v1");
    Ok(if ollama { format!("{url}/v1") } else { url.to_owned() })
}

fn host_and_port(url: &str) -> Result<(String, u16), BadEndpoint> {
    // The value may hold a password, so it is shown only once that is ruled out.
    let bad = |problem| Err(BadEndpoint::Url { url: "…".to_owned(), problem });
    let (rest, default_port) = match (url.strip_prefix("https://"), url.strip_prefix("http://")) {
        (Some(rest), _) => (rest, 443),
        (_, Some(rest)) => (rest, 80),
        _ => return bad("does not start with https:// or http://"),
    };
    if url.contains(['?', '#', '\\']) || url.chars().any(|c| c.is_control() || c.is_whitespace()) {
        return bad("has a query, a fragment or a space");
    }
    let authority = rest.split('/').next().unwrap_or("");
    if authority.contains('@') {
        return bad("contains a user name or password");
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
    let host = policy::canonical_host(host).map_err(|_| shown("has no valid host"))?;
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
        let got = match resolve_endpoint(&profile(model, base_url), &env) {
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
            "bedrock/x",
            None,
            &[],
            "provider `bedrock` needs a LiteLLM proxy, and no address of one is set | start one and set LITELLM_PROXY_API_BASE, or `base_url` in your own models.yaml",
        );
        check(
            "litellm_proxy/zai/glm-4.7",
            None,
            &[("LITELLM_PROXY_API_BASE", "http://localhost:4000/")],
            "http://localhost:4000 zai/glm-4.7 LITELLM_PROXY_API_KEY",
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
            "base URL `…` contains a user name or password | write `https://host/path`",
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

    /// Every provider prefix of LiteLLM: its address, its protocol, and whose key it needs.
    #[test]
    fn every_provider_has_an_endpoint() {
        let proxy = "http://localhost:4000";
        let own = [
            ("LITELLM_PROXY_API_BASE", proxy),
            ("AZURE_API_BASE", "https://a.openai.azure.com"),
            ("MINIMAX_API_BASE", "https://minimax.example/v1"),
            ("HOSTED_VLLM_API_BASE", "http://localhost:8000/v1"),
            ("LM_STUDIO_API_BASE", "http://localhost:1234/v1"),
        ];
        let env = Env::new(own.map(|(name, value)| (name.to_owned(), value.to_owned())));
        let table = [
            ("zai/m", "https://api.z.ai/api/paas/v4", ProviderProtocol::Chat, "ZAI_API_KEY"),
            ("openai/m", "https://api.openai.com/v1", ProviderProtocol::Chat, "OPENAI_API_KEY"),
            ("openai/gpt-5.2-codex", "https://api.openai.com/v1", ProviderProtocol::Responses, "OPENAI_API_KEY"),
            ("openai/gpt-5.1-codex-mini", "https://api.openai.com/v1", ProviderProtocol::Responses, "OPENAI_API_KEY"),
            ("openai/codex-mini-latest", "https://api.openai.com/v1", ProviderProtocol::Responses, "OPENAI_API_KEY"),
            ("openai/gpt-5-pro-2025-10-06", "https://api.openai.com/v1", ProviderProtocol::Responses, "OPENAI_API_KEY"),
            ("openai/o3-pro", "https://api.openai.com/v1", ProviderProtocol::Responses, "OPENAI_API_KEY"),
            ("openai/o3-deep-research", "https://api.openai.com/v1", ProviderProtocol::Responses, "OPENAI_API_KEY"),
            ("openai/gpt-5-mini", "https://api.openai.com/v1", ProviderProtocol::Chat, "OPENAI_API_KEY"),
            (
                "anthropic/m",
                "https://api.anthropic.com",
                ProviderProtocol::Anthropic,
                "ANTHROPIC_API_KEY ANTHROPIC_AUTH_TOKEN",
            ),
            (
                "gemini/m",
                "https://generativelanguage.googleapis.com/v1beta",
                ProviderProtocol::Gemini,
                "GEMINI_API_KEY GOOGLE_API_KEY",
            ),
            ("vertex_ai/m", proxy, ProviderProtocol::Chat, "LITELLM_PROXY_API_KEY"),
            ("deepseek/m", "https://api.deepseek.com/beta", ProviderProtocol::Chat, "DEEPSEEK_API_KEY"),
            ("openrouter/z-ai/m", "https://openrouter.ai/api/v1", ProviderProtocol::Chat, "OPENROUTER_API_KEY"),
            ("ollama/m", "http://localhost:11434/v1", ProviderProtocol::Chat, "OLLAMA_API_KEY"),
            ("ollama_chat/m", "http://localhost:11434/v1", ProviderProtocol::Chat, "OLLAMA_API_KEY"),
            ("azure/d", "https://a.openai.azure.com", ProviderProtocol::Azure, "AZURE_API_KEY"),
            ("bedrock/m", proxy, ProviderProtocol::Chat, "LITELLM_PROXY_API_KEY"),
            ("groq/m", "https://api.groq.com/openai/v1", ProviderProtocol::Chat, "GROQ_API_KEY"),
            ("mistral/m", "https://api.mistral.ai/v1", ProviderProtocol::Chat, "MISTRAL_API_KEY"),
            ("xai/m", "https://api.x.ai/v1", ProviderProtocol::Chat, "XAI_API_KEY"),
            ("moonshot/m", "https://api.moonshot.ai/v1", ProviderProtocol::Chat, "MOONSHOT_API_KEY"),
            (
                "dashscope/m",
                "https://dashscope.aliyuncs.com/compatible-mode/v1",
                ProviderProtocol::Chat,
                "DASHSCOPE_API_KEY",
            ),
            ("minimax/m", "https://minimax.example/v1", ProviderProtocol::Chat, "MINIMAX_API_KEY"),
            (
                "together_ai/m",
                "https://api.together.ai/v1",
                ProviderProtocol::Chat,
                "TOGETHER_API_KEY TOGETHERAI_API_KEY",
            ),
            ("fireworks_ai/m", "https://api.fireworks.ai/inference/v1", ProviderProtocol::Chat, "FIREWORKS_AI_API_KEY"),
            ("cerebras/m", "https://api.cerebras.ai/v1", ProviderProtocol::Chat, "CEREBRAS_API_KEY"),
            ("perplexity/m", "https://api.perplexity.ai", ProviderProtocol::Chat, "PERPLEXITYAI_API_KEY"),
            ("nvidia_nim/m", "https://integrate.api.nvidia.com/v1", ProviderProtocol::Chat, "NVIDIA_NIM_API_KEY"),
            ("deepinfra/m", "https://api.deepinfra.com/v1/openai", ProviderProtocol::Chat, "DEEPINFRA_API_KEY"),
            ("novita/m", "https://api.novita.ai/v3/openai", ProviderProtocol::Chat, "NOVITA_API_KEY"),
            ("volcengine/m", "https://ark.cn-beijing.volces.com/api/v3", ProviderProtocol::Chat, "VOLCENGINE_API_KEY"),
            (
                "vercel_ai_gateway/m",
                "https://ai-gateway.vercel.sh/v1",
                ProviderProtocol::Chat,
                "VERCEL_AI_GATEWAY_API_KEY",
            ),
            ("hosted_vllm/m", "http://localhost:8000/v1", ProviderProtocol::Chat, "HOSTED_VLLM_API_KEY"),
            ("lm_studio/m", "http://localhost:1234/v1", ProviderProtocol::Chat, "LM_STUDIO_API_KEY"),
            ("litellm_proxy/zai/m", proxy, ProviderProtocol::Chat, "LITELLM_PROXY_API_KEY"),
            ("scripted/f.jsonl", "", ProviderProtocol::Scripted, ""),
        ];
        for (model, base, wire, keys) in table {
            let found = resolve_endpoint(&profile(model, None), &env).expect(model);
            assert_eq!((found.base_url.as_str(), found.wire, found.key_envs.join(" ").as_str()), (base, wire, keys));
        }
        for provider in super::super::PROVIDERS {
            let named = |(model, ..): &(&str, _, _, _)| model.split('/').next() == Some(provider.name);
            assert!(table.iter().any(named), "{} is not in the table", provider.name);
        }
    }

    #[test]
    fn azure_api_versions() {
        let base = ("AZURE_API_BASE".to_owned(), "https://a.openai.azure.com".to_owned());
        let named = ("AZURE_API_VERSION".to_owned(), "2025-01-01-preview".to_owned());
        let version = |env: Vec<(String, String)>, model: &str| {
            resolve_endpoint(&profile(model, None), &Env::new(env)).expect("an endpoint").api_version
        };
        assert_eq!(version(vec![base.clone()], "azure/d").as_deref(), Some(DEFAULT_AZURE_VERSION));
        assert_eq!(version(vec![base.clone(), named.clone()], "azure/d").as_deref(), Some("2025-01-01-preview"));
        assert_eq!(version(vec![base, named], "zai/m"), None);
    }

    #[test]
    fn hosts() {
        for (url, want) in [
            ("https://API.z.ai/x", ("api.z.ai", 443)),
            ("http://localhost:4000/v1", ("localhost", 4000)),
            ("https://[::1]:8/", ("[::1]", 8)),
        ] {
            let endpoint = resolve_endpoint(&profile("zai/g", Some(url)), &Env::default()).expect("an endpoint");
            assert_eq!(endpoint.host(), Some((want.0.to_owned(), want.1)));
        }
    }

    #[test]
    fn subscriptions_are_sent_only_to_their_provider() {
        for (base, want) in [
            (None, true),
            (Some("https://api.anthropic.com"), true),
            (Some("https://API.Anthropic.com:443/"), true),
            (Some("http://127.0.0.1:9"), true),
            (Some("https://api.z.ai/api/anthropic"), false),
            (Some("https://api.anthropic.com.evil.io"), false),
            (Some("https://anthropic.com"), false),
        ] {
            let env = Env::new(base.map(|base| ("ANTHROPIC_BASE_URL".to_owned(), base.to_owned())));
            let profile = profile("anthropic/m", None);
            let endpoint = resolve_endpoint(&profile, &env).expect("an endpoint");
            let names = credential_names(&profile, &endpoint);
            assert_eq!(names.iter().any(|name| name == env_vars::CLAUDE_CODE_OAUTH_TOKEN), want, "{base:?}");
            assert_eq!(endpoint.accepts_subscription(), want, "{base:?}");
        }
    }

    #[test]
    fn cleartext_endpoints() {
        for (url, want) in [
            ("http://localhost:11434", false),
            ("http://127.0.0.1:4000/v1", false),
            ("http://127.9.9.9", false),
            ("http://[::1]:8", false),
            ("https://gw.corp", false),
            ("http://gw.corp", true),
            ("http://10.0.0.5:11434", true),
            ("http://localhost.evil.io", true),
            ("http://127.0.0.1.nip.io", true),
            ("http://box:8000/v1", true),
        ] {
            let endpoint = resolve_endpoint(&profile("openai/g", Some(url)), &Env::default()).expect("an endpoint");
            assert_eq!(endpoint.is_cleartext(), want, "{url}");
        }
    }

    proptest! {
        #[test]
        fn never_panics(url in "\\PC{0,40}|https?://[a-z@:.\\[\\]/0-9?#]{0,30}") {
            let _ = resolve_endpoint(&profile("zai/g", Some(&url)), &Env::default());
        }
    }
}
