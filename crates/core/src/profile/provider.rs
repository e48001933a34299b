//! The providers ralph knows, by LiteLLM's names.

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::price::PriceTable;
use crate::{env_vars, text};

/// The protocol an endpoint speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
#[schemars(rename = "Wire")]
pub enum ProviderProtocol {
    /// OpenAI chat completions, which most providers copy.
    Chat,
    /// OpenAI responses.
    Responses,
    /// Anthropic messages.
    Anthropic,
    /// Google's `generateContent`.
    Gemini,
    /// Chat completions of an Azure deployment: an `api-key` header and an API version.
    Azure,
    /// A recorded conversation in a file. No network.
    Scripted,
}

impl fmt::Display for ProviderProtocol {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Chat => "OpenAI's chat completions",
            Self::Responses => "OpenAI's responses",
            Self::Anthropic => "Anthropic's messages",
            Self::Gemini => "Gemini's protocol",
            Self::Azure => "Azure's chat completions",
            Self::Scripted => "from a script",
        })
    }
}

/// One provider.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Provider {
    /// The first segment of a model name.
    pub name: &'static str,
    /// The base URL; `None` when only the user knows it.
    pub base_url: Option<&'static str>,
    /// Variables and secret names that may hold the key, in order; empty where no key is needed.
    pub key_envs: &'static [&'static str],
    /// Variables that may hold another base URL, in order.
    pub base_envs: &'static [&'static str],
    pub wire: ProviderProtocol,
    /// The full `provider/model` is sent, because a LiteLLM proxy splits it.
    pub whole_name: bool,
}

const fn chat(name: &'static str, base_url: &'static str, key_envs: &'static [&'static str]) -> Provider {
    Provider {
        name,
        base_url: Some(base_url),
        key_envs,
        base_envs: &[],
        wire: ProviderProtocol::Chat,
        whole_name: false,
    }
}

const fn own_server(
    name: &'static str,
    key_envs: &'static [&'static str],
    base_envs: &'static [&'static str],
) -> Provider {
    Provider { name, base_url: None, key_envs, base_envs, wire: ProviderProtocol::Chat, whole_name: false }
}

const LITELLM_KEY: &[&str] = &[env_vars::LITELLM_PROXY_API_KEY];
const LITELLM_BASE: &[&str] = &[env_vars::LITELLM_PROXY_API_BASE];

/// Every provider.
pub const PROVIDERS: &[Provider] = &[
    Provider {
        base_envs: &[env_vars::ZAI_API_BASE],
        ..chat("zai", "https://api.z.ai/api/paas/v4", &[env_vars::ZAI_API_KEY])
    },
    Provider {
        base_envs: &[env_vars::OPENAI_BASE_URL, env_vars::OPENAI_API_BASE],
        ..chat("openai", "https://api.openai.com/v1", &[env_vars::OPENAI_API_KEY])
    },
    Provider {
        base_envs: &[env_vars::ANTHROPIC_API_BASE, env_vars::ANTHROPIC_BASE_URL],
        wire: ProviderProtocol::Anthropic,
        ..chat("anthropic", "https://api.anthropic.com", &[env_vars::ANTHROPIC_API_KEY, env_vars::ANTHROPIC_AUTH_TOKEN])
    },
    Provider {
        base_envs: &[env_vars::GEMINI_API_BASE],
        wire: ProviderProtocol::Gemini,
        ..chat(
            "gemini",
            "https://generativelanguage.googleapis.com/v1beta",
            &[env_vars::GEMINI_API_KEY, env_vars::GOOGLE_API_KEY],
        )
    },
    Provider {
        base_envs: &[env_vars::DEEPSEEK_API_BASE],
        ..chat("deepseek", "https://api.deepseek.com/beta", &[env_vars::DEEPSEEK_API_KEY])
    },
    Provider {
        base_envs: &[env_vars::OPENROUTER_API_BASE],
        ..chat("openrouter", "https://openrouter.ai/api/v1", &[env_vars::OPENROUTER_API_KEY])
    },
    chat("groq", "https://api.groq.com/openai/v1", &[env_vars::GROQ_API_KEY]),
    chat("mistral", "https://api.mistral.ai/v1", &[env_vars::MISTRAL_API_KEY]),
    chat("xai", "https://api.x.ai/v1", &[env_vars::XAI_API_KEY]),
    chat("moonshot", "https://api.moonshot.ai/v1", &[env_vars::MOONSHOT_API_KEY]),
    chat("dashscope", "https://dashscope.aliyuncs.com/compatible-mode/v1", &[env_vars::DASHSCOPE_API_KEY]),
    own_server("minimax", &[env_vars::MINIMAX_API_KEY], &[env_vars::MINIMAX_API_BASE]),
    chat("together_ai", "https://api.together.ai/v1", &[env_vars::TOGETHER_API_KEY, env_vars::TOGETHERAI_API_KEY]),
    chat("fireworks_ai", "https://api.fireworks.ai/inference/v1", &[env_vars::FIREWORKS_AI_API_KEY]),
    chat("cerebras", "https://api.cerebras.ai/v1", &[env_vars::CEREBRAS_API_KEY]),
    chat("perplexity", "https://api.perplexity.ai", &[env_vars::PERPLEXITYAI_API_KEY]),
    chat("nvidia_nim", "https://integrate.api.nvidia.com/v1", &[env_vars::NVIDIA_NIM_API_KEY]),
    chat("deepinfra", "https://api.deepinfra.com/v1/openai", &[env_vars::DEEPINFRA_API_KEY]),
    chat("novita", "https://api.novita.ai/v3/openai", &[env_vars::NOVITA_API_KEY]),
    chat("volcengine", "https://ark.cn-beijing.volces.com/api/v3", &[env_vars::VOLCENGINE_API_KEY]),
    chat("vercel_ai_gateway", "https://ai-gateway.vercel.sh/v1", &[env_vars::VERCEL_AI_GATEWAY_API_KEY]),
    Provider {
        base_envs: &[env_vars::OLLAMA_API_BASE],
        ..chat("ollama", "http://localhost:11434/v1", &[env_vars::OLLAMA_API_KEY])
    },
    Provider {
        base_envs: &[env_vars::OLLAMA_API_BASE],
        ..chat("ollama_chat", "http://localhost:11434/v1", &[env_vars::OLLAMA_API_KEY])
    },
    Provider {
        wire: ProviderProtocol::Azure,
        ..own_server("azure", &[env_vars::AZURE_API_KEY], &[env_vars::AZURE_API_BASE])
    },
    own_server("hosted_vllm", &[env_vars::HOSTED_VLLM_API_KEY], &[env_vars::HOSTED_VLLM_API_BASE]),
    own_server("lm_studio", &[env_vars::LM_STUDIO_API_KEY], &[env_vars::LM_STUDIO_API_BASE]),
    own_server("litellm_proxy", LITELLM_KEY, LITELLM_BASE),
    // These two sign requests in ways that need a LiteLLM proxy.
    Provider { whole_name: true, ..own_server("bedrock", LITELLM_KEY, LITELLM_BASE) },
    Provider { whole_name: true, ..own_server("vertex_ai", LITELLM_KEY, LITELLM_BASE) },
    Provider { wire: ProviderProtocol::Scripted, ..own_server("scripted", &[], &[]) },
];

impl Provider {
    /// Returns whether it is reachable only through a LiteLLM proxy, because its requests are signed in a way of its
    /// own.
    pub fn needs_proxy(&self) -> bool {
        self.whole_name
    }

    /// Returns whether calls may be made without a key.
    pub fn key_is_optional(&self) -> bool {
        matches!(self.name, "ollama" | "ollama_chat" | "hosted_vllm" | "lm_studio" | "scripted")
    }

    pub fn find(name: &str) -> Option<&'static Self> {
        PROVIDERS.iter().find(|provider| provider.name == name)
    }
}

/// A model of a provider.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProviderModel {
    pub provider: &'static Provider,
    pub model: String,
}

/// The reasons why a text does not name a model.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum UnknownModel {
    #[error("model `{name}` names no provider")]
    NoProvider { name: String, meant: Option<String> },
    #[error("model `{name}` names the provider `{provider}`, which ralph does not know")]
    Provider { name: String, provider: String, meant: Option<&'static str> },
    #[error("model `{name}` is not a plain name")]
    Malformed { name: String },
}

impl UnknownModel {
    pub fn hint(&self) -> Option<String> {
        Some(match self {
            Self::NoProvider { meant: Some(meant), .. } => format!("did you mean `{meant}`?"),
            Self::Provider { meant: Some(meant), .. } => format!("did you mean `{meant}/…`?"),
            Self::NoProvider { .. } => "write `provider/model`, for example `zai/glm-4.7`".to_owned(),
            Self::Provider { .. } => {
                "use `litellm_proxy/…` for everything a LiteLLM proxy knows, or `openai/…` with a `base_url`".to_owned()
            }
            Self::Malformed { .. } => "write `provider/model` without spaces".to_owned(),
        })
    }
}

impl ProviderModel {
    /// Parses LiteLLM's `provider/model`; the model may contain further slashes.
    pub fn parse(name: &str) -> Result<Self, UnknownModel> {
        let shown = || text::strip_control(text::first_line(name, 80));
        if name.is_empty() || name.chars().any(|c| c.is_whitespace() || c.is_control()) {
            return Err(UnknownModel::Malformed { name: shown() });
        }
        let Some((provider, model)) = name.split_once('/').filter(|(_, model)| !model.is_empty()) else {
            let prices = PriceTable::shipped();
            let meant = prices.rows().find(|(key, ..)| *key == name).map(|(key, by, _)| format!("{by}/{key}"));
            return Err(UnknownModel::NoProvider { name: shown(), meant });
        };
        match Provider::find(provider) {
            Some(provider) => Ok(Self { provider, model: model.to_owned() }),
            None => Err(UnknownModel::Provider {
                name: shown(),
                provider: text::strip_control(text::first_line(provider, 40)),
                meant: text::did_you_mean(provider, PROVIDERS.iter().map(|provider| provider.name)),
            }),
        }
    }

    /// Returns the protocol of this model: some of OpenAI's support only the newer one.
    pub fn wire(&self) -> ProviderProtocol {
        if self.provider.name == "openai" && needs_responses_api(&self.model) {
            ProviderProtocol::Responses
        } else {
            self.provider.wire
        }
    }

    /// Returns the model name that is sent in requests.
    pub fn wire_name(&self) -> String {
        if self.provider.whole_name { self.to_string() } else { self.model.clone() }
    }

    pub fn is_scripted(&self) -> bool {
        self.provider.wire == ProviderProtocol::Scripted
    }
}

/// Returns whether OpenAI serves a model only by its newer protocol, as in LiteLLM's price file (`mode: responses`):
/// the coding and research models, and the `pro` ones, dated or not.
fn needs_responses_api(model: &str) -> bool {
    let part = |wanted: &str| model.split('-').any(|part| part == wanted);
    part("codex") || part("pro") || model.contains("deep-research") || model.starts_with("computer-use")
}

impl fmt::Display for ProviderModel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.provider.name, self.model)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[track_caller]
    fn check(name: &str, want: Result<(&str, &str, ProviderProtocol), &str>) {
        let got = ProviderModel::parse(name);
        let got = match &got {
            Ok(model) => Ok((model.provider.name, model.wire_name(), model.wire())),
            Err(error) => Err(format!("{error} | {}", error.hint().unwrap_or_default())),
        };
        assert_eq!(got, want.map(|(a, b, c)| (a, b.to_owned(), c)).map_err(str::to_owned));
    }

    #[test]
    fn names() {
        check("zai/glm-4.7", Ok(("zai", "glm-4.7", ProviderProtocol::Chat)));
        check("openrouter/z-ai/glm-4.7", Ok(("openrouter", "z-ai/glm-4.7", ProviderProtocol::Chat)));
        check("openai/gpt-5", Ok(("openai", "gpt-5", ProviderProtocol::Chat)));
        check("openai/gpt-5-codex", Ok(("openai", "gpt-5-codex", ProviderProtocol::Responses)));
        check("litellm_proxy/zai/glm-4.7", Ok(("litellm_proxy", "zai/glm-4.7", ProviderProtocol::Chat)));
        check("azure/gpt-5-codex", Ok(("azure", "gpt-5-codex", ProviderProtocol::Azure)));
        check("anthropic/claude-opus-4-5", Ok(("anthropic", "claude-opus-4-5", ProviderProtocol::Anthropic)));
        check("gemini/gemini-2.5-pro", Ok(("gemini", "gemini-2.5-pro", ProviderProtocol::Gemini)));
        check("bedrock/anthropic.claude", Ok(("bedrock", "bedrock/anthropic.claude", ProviderProtocol::Chat)));
        check("scripted/demo/turns.jsonl", Ok(("scripted", "demo/turns.jsonl", ProviderProtocol::Scripted)));
        check("gpt-5", Err("model `gpt-5` names no provider | did you mean `openai/gpt-5`?"));
        check("llama", Err("model `llama` names no provider | write `provider/model`, for example `zai/glm-4.7`"));
        check("zai/", Err("model `zai/` names no provider | write `provider/model`, for example `zai/glm-4.7`"));
        check(
            "antropic/claude",
            Err(
                "model `antropic/claude` names the provider `antropic`, which ralph does not know | did you mean `anthropic/…`?",
            ),
        );
        check("zai/glm 4", Err("model `zai/glm 4` is not a plain name | write `provider/model` without spaces"));
    }

    #[test]
    fn every_variable_is_in_the_table() {
        for provider in PROVIDERS {
            for name in provider.key_envs.iter().chain(provider.base_envs) {
                assert!(env_vars::ALL.iter().any(|var| var.name == *name), "{name}");
            }
            assert_eq!(Provider::find(provider.name), Some(provider), "{} twice", provider.name);
        }
    }

    proptest! {
        #[test]
        fn never_panics_and_round_trips(name in "\\PC{0,30}|(zai|openai|x)/[a-z/]{0,9}") {
            if let Ok(model) = ProviderModel::parse(&name) {
                prop_assert_eq!(model.to_string(), name);
            }
        }
    }
}
