//! Parses `models.yaml`, with errors that name the position.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_saphyr::Error as Yaml;

use super::provider::{ProviderModel, UnknownModel};
use crate::price::{Price, PriceTable, is_free_provider};
use crate::text;

/// One configured way to call a model.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Profile {
    /// LiteLLM's name of the model: `provider/model`.
    pub litellm_model: String,
    /// The maximum output of one call, in tokens.
    #[serde(default = "default_output")]
    pub max_output_tokens: u32,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub temperature: Option<f64>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tags: Vec<String>,
    /// An endpoint other than the provider's own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub base_url: Option<String>,
    /// A variable or secret other than the provider's own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub api_key_env: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub price: Option<ProfilePrice>,
    /// The longest wait for one answer, in seconds.
    #[serde(default = "default_timeout")]
    pub timeout_s: u32,
    /// Further fields of the request.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub extra: BTreeMap<String, serde_json::Value>,
}

fn default_output() -> u32 {
    2048
}

fn default_timeout() -> u32 {
    600
}

/// Dollars per million tokens.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "PriceAsk")]
pub struct ProfilePrice {
    pub input_per_mtok: f64,
    pub output_per_mtok: f64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cached_input_per_mtok: Option<f64>,
}

impl Profile {
    pub fn model(&self) -> Result<ProviderModel, UnknownModel> {
        ProviderModel::parse(&self.litellm_model)
    }

    /// Returns the profile's own price, else the table's; `None` when it is unknown.
    pub fn price(&self, table: &PriceTable) -> Option<Price> {
        match self.price {
            Some(ask) => Some(Price::per_mtok_usd(ask.input_per_mtok, ask.output_per_mtok, ask.cached_input_per_mtok)),
            None => self.model().ok().and_then(|model| lookup_price(&model, table)),
        }
    }

    /// Returns the model's maximum output according to the table.
    pub fn model_max_output(&self, table: &PriceTable) -> Option<u64> {
        let model = self.model().ok()?;
        let behind = || proxied_model(&model).and_then(|behind| table.max_output(behind.provider.name, &behind.model));
        table.max_output(model.provider.name, &model.model).or_else(behind)
    }

    /// Returns the fields that could misdirect the user's key or money if an untrusted author sets them.
    pub fn sensitive_fields(&self) -> Vec<&'static str> {
        let fields = [
            ("base_url", self.base_url.is_some()),
            ("api_key_env", self.api_key_env.is_some()),
            // A zero price would disable the cost cap, and a request field can cost more than was reserved.
            ("price", self.price.is_some()),
            ("extra", !self.extra.is_empty()),
        ];
        fields.into_iter().filter(|(_, named)| *named).map(|(field, _)| field).collect()
    }
}

/// Looks up the price of a model, or else of the model behind a proxy.
fn lookup_price(model: &ProviderModel, table: &PriceTable) -> Option<Price> {
    // A free model is free on its own machine, not behind another party's proxy.
    let behind = || proxied_model(model).filter(|behind| !is_free_provider(behind.provider.name));
    let own = table.lookup(model.provider.name, &model.model);
    own.or_else(|| behind().and_then(|behind| table.lookup(behind.provider.name, &behind.model)))
}

/// Returns the model behind a LiteLLM proxy: its name is a LiteLLM name again, with that model's price and output.
fn proxied_model(model: &ProviderModel) -> Option<ProviderModel> {
    (model.provider.name == "litellm_proxy").then(|| ProviderModel::parse(&model.model).ok()).flatten()
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ModelsFile {
    #[serde(default)]
    profiles: BTreeMap<String, Profile>,
}

/// The reasons why a `models.yaml` could not be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BadModelsFile {
    #[error("{file}:{line}:{column}: unknown key `{key}`")]
    UnknownKey { file: String, line: u64, column: u64, key: String, meant: Option<&'static str> },
    #[error("{file}:{line}:{column}: {message}")]
    Yaml { file: String, line: u64, column: u64, message: String },
    #[error("{file}: profile `{profile}`: {source}")]
    Model { file: String, profile: String, source: UnknownModel },
    #[error("{file}: profile `{profile}`: `{field}` {problem}")]
    Field { file: String, profile: String, field: String, problem: &'static str },
}

impl BadModelsFile {
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::UnknownKey { meant: Some(meant), .. } => Some(format!("did you mean `{meant}`?")),
            Self::Model { source, .. } => source.hint(),
            Self::UnknownKey { meant: None, file, .. } | Self::Yaml { file, .. } | Self::Field { file, .. } => {
                Some(format!("correct it in {file}"))
            }
        }
    }
}

/// Request fields that ralph fills in itself: the model, the prompt and everything the metering relies on.
const RESERVED_FIELDS: [&str; 18] = [
    "model",
    "messages",
    "input",
    "contents",
    "system",
    "instructions",
    "stream",
    "stream_options",
    "max_tokens",
    "max_completion_tokens",
    "max_output_tokens",
    "n",
    "best_of",
    "candidateCount",
    "api_key",
    "api_base",
    "base_url",
    "service_tier",
];

/// Parses the profiles of one file.
pub fn parse(text: &str, file: &str) -> Result<BTreeMap<String, Profile>, BadModelsFile> {
    // An empty file is an empty list, not a mistake.
    if text.lines().all(|line| line.trim().is_empty() || line.trim_start().starts_with('#')) {
        return Ok(BTreeMap::new());
    }
    let parsed: ModelsFile = serde_saphyr::from_str(text).map_err(|error| bad_yaml(&error, file))?;
    for (name, profile) in &parsed.profiles {
        check_profile(name, profile, file)?;
    }
    Ok(parsed.profiles)
}

fn bad_yaml(error: &Yaml, file: &str) -> BadModelsFile {
    let file = file.to_owned();
    let (line, column) = error.location().map_or((1, 1), |at| (at.line(), at.column()));
    match error.without_snippet() {
        Yaml::SerdeUnknownField { field, expected, .. } => BadModelsFile::UnknownKey {
            file,
            line,
            column,
            key: text::strip_control(text::first_line(field, 60)),
            meant: text::did_you_mean(field, expected.iter().copied()),
        },
        other => {
            let message = other.to_string();
            // The position is already reported separately.
            let message = message.split(" at line ").next().unwrap_or(&message).to_owned();
            BadModelsFile::Yaml { file, line, column, message: text::strip_control(text::first_line(&message, 300)) }
        }
    }
}

fn check_profile(name: &str, profile: &Profile, file: &str) -> Result<(), BadModelsFile> {
    let model = profile.model().map_err(|source| BadModelsFile::Model {
        file: file.to_owned(),
        profile: excerpt(name),
        source,
    })?;
    let bad = |field: &str, problem| {
        Err(BadModelsFile::Field { file: file.to_owned(), profile: excerpt(name), field: field.to_owned(), problem })
    };
    if name.is_empty() || !name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte)) {
        return bad("profiles", "names are letters, digits, `-`, `_` and `.`");
    }
    if profile.max_output_tokens == 0 {
        return bad("max_output_tokens", "must be at least 1");
    }
    if profile.timeout_s == 0 {
        return bad("timeout_s", "must be at least 1");
    }
    if profile.temperature.is_some_and(|value| !(0.0..=2.0).contains(&value)) {
        return bad("temperature", "must be between 0 and 2");
    }
    if profile.api_key_env.as_deref().is_some_and(|name| !is_env_var_name(name)) {
        return bad("api_key_env", "must be the name of a variable, not a key");
    }
    if let Some(price) = profile.price {
        let rates = [Some(price.input_per_mtok), Some(price.output_per_mtok), price.cached_input_per_mtok];
        if rates.into_iter().flatten().any(|usd| !(0.0..=1e6).contains(&usd)) {
            return bad("price", "must be dollars per million tokens, zero or more");
        }
    }
    match profile.extra.keys().find(|key| RESERVED_FIELDS.contains(&key.as_str())) {
        Some(key) => bad(&format!("extra.{key}"), "is set by ralph"),
        None if model.is_scripted() && profile.base_url.is_some() => {
            bad("base_url", "has no effect for a scripted model")
        }
        None => Ok(()),
    }
}

fn is_env_var_name(name: &str) -> bool {
    name.starts_with(|c: char| c.is_ascii_uppercase() || c == '_')
        && name.len() <= 64
        && name.bytes().all(|byte| byte.is_ascii_uppercase() || byte.is_ascii_digit() || byte == b'_')
}

fn excerpt(name: &str) -> String {
    text::strip_control(text::first_line(name, 60))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_whole_profile() {
        let text = "profiles:\n  mine: {litellm_model: zai/glm-4.7, max_output_tokens: 9, temperature: 0.5, tags: [a], \
                    base_url: 'https://x.io/v1', api_key_env: MY_KEY, timeout_s: 5, \
                    price: {input_per_mtok: 1, output_per_mtok: 2.5, cached_input_per_mtok: 0.1}, \
                    extra: {reasoning_effort: low}}\n";
        let want = Profile {
            litellm_model: "zai/glm-4.7".into(),
            max_output_tokens: 9,
            temperature: Some(0.5),
            tags: vec!["a".into()],
            base_url: Some("https://x.io/v1".into()),
            api_key_env: Some("MY_KEY".into()),
            price: Some(ProfilePrice { input_per_mtok: 1.0, output_per_mtok: 2.5, cached_input_per_mtok: Some(0.1) }),
            timeout_s: 5,
            extra: BTreeMap::from([("reasoning_effort".to_owned(), "low".into())]),
        };
        assert_eq!(parse(text, "f"), Ok(BTreeMap::from([("mine".to_owned(), want.clone())])));
        assert_eq!(want.sensitive_fields(), ["base_url", "api_key_env", "price", "extra"]);
        assert_eq!(
            want.price(&PriceTable::shipped()),
            Some(Price {
                input: 1_000_000,
                output: 2_500_000,
                cached_input: 100_000,
                cache_write: 1_000_000,
                ..Price::FREE
            })
        );
        assert_eq!(parse("# nothing\n\n", "f"), Ok(BTreeMap::new()));
    }

    #[test]
    fn prices_of_models_behind_a_proxy() {
        for (model, output, longest) in [
            ("zai/glm-4.7", Some(2_200_000), Some(128_000)),
            ("litellm_proxy/zai/glm-4.7", Some(2_200_000), Some(128_000)),
            ("litellm_proxy/openai/gpt-5", Some(10_000_000), Some(128_000)),
            ("litellm_proxy/deepseek/deepseek-chat", Some(420_000), Some(8192)),
            ("litellm_proxy/our-own-name", None, None),
            ("litellm_proxy/ollama/llama3", None, None),
            ("litellm_proxy/litellm_proxy/zai/glm-4.7", None, None),
            ("openrouter/zai/glm-4.7", None, None),
        ] {
            let parsed = parse(&format!("profiles: {{a: {{litellm_model: {model}}}}}"), "f").expect("a profile");
            let price = parsed["a"].price(&PriceTable::shipped());
            assert_eq!(price.map(|price| price.output), output, "{model}");
            assert_eq!(parsed["a"].model_max_output(&PriceTable::shipped()), longest, "{model}");
        }
    }

    #[track_caller]
    fn check(text: &str, want: &str) {
        let error = parse(text, "models.yaml").expect_err("refused");
        assert_eq!(format!("{error} | {}", error.hint().unwrap_or_default()), want);
    }

    #[test]
    fn refusals() {
        check(
            "profiles:\n  a:\n    litellm_model: zai/x\n    max_output_token: 3\n",
            "models.yaml:4:5: unknown key `max_output_token` | did you mean `max_output_tokens`?",
        );
        check("profile: {}\n", "models.yaml:1:1: unknown key `profile` | did you mean `profiles`?");
        check(
            "profiles: {a: {litellm_model: zaii/x}}",
            "models.yaml: profile `a`: model `zaii/x` names the provider `zaii`, which ralph does not know | did you mean `zai/…`?",
        );
        check(
            "profiles: {a: {litellm_model: zai/x, api_key_env: sk-123}}",
            "models.yaml: profile `a`: `api_key_env` must be the name of a variable, not a key | correct it in models.yaml",
        );
        check(
            "profiles: {a: {litellm_model: zai/x, extra: {model: dear}}}",
            "models.yaml: profile `a`: `extra.model` is set by ralph | correct it in models.yaml",
        );
        check(
            "profiles: {a: {litellm_model: zai/x, price: {input_per_mtok: -1, output_per_mtok: 1}}}",
            "models.yaml: profile `a`: `price` must be dollars per million tokens, zero or more | correct it in models.yaml",
        );
        check(
            "profiles: {a: {litellm_model: zai/x, temperature: .nan}}",
            "models.yaml: profile `a`: `temperature` must be between 0 and 2 | correct it in models.yaml",
        );
    }

    #[test]
    fn syntax_errors_say_where() {
        let error = parse("profiles:\n  a: [\n", "models.yaml").expect_err("refused");
        assert!(matches!(error, BadModelsFile::Yaml { line: 2.., .. }), "{error}");
    }

    #[test]
    fn yaml_bombs_are_refused() {
        let deep = format!("profiles: {{a: {{litellm_model: zai/x, extra: {{x: {}", "[".repeat(100_000));
        let lines = (1..40).map(|n| format!("      a{n}: &a{n} [*a{0}, *a{0}, *a{0}, *a{0}]\n", n - 1));
        let head = "profiles:\n  a:\n    litellm_model: zai/x\n    extra:\n      a0: &a0 [x]\n";
        let bomb: String = std::iter::once(head.to_owned()).chain(lines).collect();
        for text in [deep, bomb] {
            assert!(parse(&text, "f").is_err());
        }
    }

    proptest! {
        #[test]
        fn never_panics(text in "\\PC{0,60}|(profiles|litellm_model|extra|price|zai/x|[:{},&*\\[\\]\n -]){0,30}") {
            let _ = parse(&text, "f");
        }
    }
}
