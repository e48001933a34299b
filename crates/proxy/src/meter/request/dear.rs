//! What costs extra, and is taken out of a request before it is sent.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::LazyLock;

use serde_json::{Map, Value};

use super::super::endpoint::Call;
use super::error::{BadRequest, shown};
use super::weigh::{alike, loose};

/// A request on its way through our hands.
#[derive(Debug)]
pub(super) struct Draft {
    pub(super) fields: Map<String, Value>,
    /// The names of fields whose value is no longer the client's.
    pub(super) touched: BTreeSet<String>,
    pub(super) changed: Vec<String>,
}

/// Fields that change what a token costs, let the provider do paid work, let it answer with another model, or have it
/// pass over the limit of its answer.
const DEAR: &[&str] = &[
    "speed",
    "inference_geo",
    "mcp_servers",
    "container",
    "prediction",
    "web_search_options",
    "search_parameters",
    "enable_search",
    "plugins",
    "models",
    "model_list",
    "route",
    "provider",
    "fallbacks",
    "context_window_fallbacks",
    "content_policy_fallbacks",
    "default_fallbacks",
    "mock_testing_fallbacks",
    "mock_testing_context_fallbacks",
    "mock_testing_content_policy_fallbacks",
    "best_of",
    "audio",
    // What gateways merge into the request they make of it, over what was read here.
    "extra_body",
    "extra_headers",
    "extra_query",
    "api_base",
    "base_url",
    "api_key",
    "timeout",
    "request_timeout",
    "stream_timeout",
    "num_retries",
    "max_retries",
    "retry_policy",
    "custom_llm_provider",
    "additional_drop_params",
    "drop_params",
    "allowed_openai_params",
    "model_alias_map",
    "deployment_id",
    "prompt_id",
    "prompt_variables",
    "prompt_version",
    "router_settings_override",
    "preset",
    "providerOptions",
];

/// How the names of more such fields begin, loosely: by them a gateway is told whose account, and which host, to use.
const DEAR_BEGINS: &[&str] = &["aws", "azure", "vertex", "litellm"];

/// Fields whose prompt, or whose answer, lies at the provider.
const ELSEWHERE: &[&str] = &["previous_response_id", "conversation", "prompt", "background", "cached_content"];

/// Fields that are read here. A parser that cares less about spelling must not read them where we do not.
const KNOWN: &[&str] = &[
    "model",
    "messages",
    "system",
    "input",
    "instructions",
    "tools",
    "functions",
    "tool_choice",
    "max_tokens",
    "max_completion_tokens",
    "max_output_tokens",
    "n",
    "service_tier",
    "thinking",
    "stream",
    "stream_options",
    "modalities",
    "context_management",
];

/// All of them, by what is left of a name for a parser that cares less about spelling.
static MEANT: LazyLock<BTreeMap<String, Meant>> = LazyLock::new(|| {
    let dear = DEAR.iter().map(|name| (loose(name), Meant::Dear));
    let elsewhere = ELSEWHERE.iter().map(|name| (loose(name), Meant::Elsewhere(name)));
    dear.chain(elsewhere).chain(KNOWN.iter().map(|name| (loose(name), Meant::Known(name)))).collect()
});

/// What a field is, however it is spelt.
#[derive(Debug, Clone, Copy)]
enum Meant {
    Dear,
    Elsewhere(&'static str),
    Known(&'static str),
}

/// The most fields of a request.
const MOST_FIELDS: usize = 256;
const MOST_FIELDS_TOLD: u32 = 256;

const TIERS: &[&str] = &["default", "standard", "standard_only", "flex", "auto"];

/// Takes out what costs extra; refuses what cannot be taken out without changing the question.
pub(super) fn strip(call: &Call, draft: &mut Draft) -> Result<(), BadRequest> {
    // No honest request has so many.
    if draft.fields.len() > MOST_FIELDS {
        return Err(BadRequest::TooMany { most: MOST_FIELDS_TOLD });
    }
    plain(&draft.fields)?;
    let gemini = matches!(call, Call::Gemini { .. });
    let mut dear = Vec::new();
    for (name, value) in &draft.fields {
        let loose = loose(name);
        match MEANT.get(&loose) {
            Some(Meant::Dear) => dear.push(name.clone()),
            None if DEAR_BEGINS.iter().any(|begin| loose.starts_with(begin)) => dear.push(name.clone()),
            // Its own fields have two spellings each, and are read where those are known.
            Some(_) if gemini => (),
            Some(Meant::Elsewhere(meant) | Meant::Known(meant)) if meant != name => {
                return Err(BadRequest::Spelling { name: shown(name), meant });
            }
            Some(Meant::Elsewhere(name)) if !matches!(value, Value::Null | Value::Bool(false)) => {
                return Err(BadRequest::Elsewhere { name });
            }
            Some(Meant::Elsewhere(_) | Meant::Known(_)) | None => (),
        }
    }
    for name in &dear {
        draft.remove(name);
    }
    if gemini {
        return super::gemini::strip(call, draft);
    }
    draft.keep_if("service_tier", |tier| tier.as_str().is_some_and(|tier| TIERS.contains(&tier)));
    draft.keep_if("modalities", |kinds| {
        kinds.as_array().is_some_and(|kinds| kinds.iter().all(|kind| kind.as_str() == Some("text")))
    });
    match call {
        Call::Messages => draft.edits(),
        // The provider would write a summary of its own, beyond the answer's limit.
        Call::Responses => draft.remove("context_management"),
        Call::Chat | Call::Gemini { .. } => (),
    }
    draft.tools(call)
}

/// Refuses names that are not ASCII. No field has one, and some parsers take their letters for others: `ſ` for `s`, and
/// the sign of the kelvin for `k`.
pub(super) fn plain(fields: &Map<String, Value>) -> Result<(), BadRequest> {
    match fields.keys().find(|name| !name.is_ascii()) {
        Some(name) => Err(BadRequest::Letters { name: shown(name) }),
        None => Ok(()),
    }
}

impl Draft {
    pub(super) fn remove(&mut self, name: &str) {
        if self.fields.shift_remove(name).is_some_and(|value| !value.is_null()) {
            self.changed.push(format!("`{}` taken out", shown(name)));
        }
    }

    pub(super) fn set(&mut self, name: &str, value: Value) {
        self.fields.insert(name.to_owned(), value);
        self.touched.insert(name.to_owned());
    }

    fn keep_if(&mut self, name: &str, good: impl Fn(&Value) -> bool) {
        if self.fields.get(name).is_some_and(|value| !value.is_null() && !good(value)) {
            self.remove(name);
        }
    }

    /// Keeps those edits of the conversation that only leave things out; others are paid work beyond the answer.
    fn edits(&mut self) {
        let Some(management) = self.fields.get("context_management").filter(|value| !value.is_null()) else { return };
        let Some(edits) = management.get("edits").and_then(Value::as_array) else {
            return self.remove("context_management");
        };
        let kept: Vec<Value> = edits
            .iter()
            .filter(|edit| edit.get("type").and_then(Value::as_str).is_some_and(|kind| kind.starts_with("clear_")))
            .cloned()
            .collect();
        if kept.is_empty() {
            self.remove("context_management");
        } else if kept.len() < edits.len() {
            let mut management = management.clone();
            if let Some(edits) = management.get_mut("edits") {
                *edits = Value::Array(kept);
            }
            self.set("context_management", management);
            self.changed.push("an edit of `context_management` taken out".to_owned());
        }
    }

    /// Takes out the tools that run at the provider.
    fn tools(&mut self, call: &Call) -> Result<(), BadRequest> {
        let tools = match self.fields.get("tools") {
            None | Some(Value::Null) => return Ok(()),
            Some(Value::Array(tools)) => tools,
            Some(_) => return Err(BadRequest::Field { name: "tools", what: "a list" }),
        };
        let mut gone = Vec::new();
        let kept = keep(call, tools, &mut gone);
        if gone.is_empty() {
            return Ok(());
        }
        self.changed.extend(gone.into_iter().map(|kind| format!("tool `{kind}` taken out")));
        if kept.is_empty() {
            self.fields.shift_remove("tools");
            self.fields.shift_remove("tool_choice");
        } else {
            self.set("tools", Value::Array(kept));
            // It may name a tool that is gone.
            if self.fields.get("tool_choice").is_some_and(Value::is_object) {
                self.remove("tool_choice");
            }
        }
        Ok(())
    }
}

fn keep(call: &Call, tools: &[Value], gone: &mut Vec<String>) -> Vec<Value> {
    let mut kept = Vec::new();
    for tool in tools {
        let kind = match tool.get("type") {
            None | Some(Value::Null) => None,
            Some(kind) => Some(kind.as_str().unwrap_or("?")),
        };
        if !tool.is_object() || !runs_here(call, kind, tool) || is_hosted_shell(kind, tool) || is_two(tool) {
            gone.push(shown(kind.unwrap_or("?")));
            continue;
        }
        let mut tool = tool.clone();
        if kind == Some("namespace")
            && let Some(inner) = tool.get_mut("tools")
        {
            let within = inner.as_array().map(|tools| keep(call, tools, gone)).unwrap_or_default();
            *inner = Value::Array(within);
        }
        kept.push(tool);
    }
    kept
}

/// A tool that whoever cares less about spelling would take for another.
fn is_two(tool: &Value) -> bool {
    let names = ["type", "environment", "tools"];
    let other = |own: &String| names.iter().any(|name| own != name && alike(own, name));
    tool.as_object().is_some_and(|tool| tool.keys().any(|own| !own.is_ascii() || other(own)))
}

/// The same tool is a container of the provider's, with a network of its own, unless it is said to be here.
fn is_hosted_shell(kind: Option<&str>, tool: &Value) -> bool {
    let place = tool.get("environment").and_then(|place| place.get("type")).and_then(Value::as_str);
    kind == Some("shell") && place != Some("local")
}

/// All that a tool of a chat can say of itself. What else it says may be for a gateway, which makes a paid one of it.
const CHAT_TOOL: [&str; 8] =
    ["type", "function", "custom", "name", "description", "parameters", "strict", "cache_control"];

/// Tells whether a tool is run by the client, at no cost beyond its words.
fn runs_here(call: &Call, kind: Option<&str>, tool: &Value) -> bool {
    let plain =
        |tool: &Value| tool.as_object().is_some_and(|tool| tool.keys().all(|name| CHAT_TOOL.contains(&name.as_str())));
    match (call, kind) {
        (Call::Chat, _) if !plain(tool) => false,
        (Call::Messages, None | Some("custom")) | (Call::Chat, None | Some("function" | "custom")) => true,
        (Call::Messages, Some(kind)) => {
            let ours = ["bash_", "text_editor_", "computer_", "memory_", "tool_search_"];
            ours.iter().any(|ours| kind.starts_with(ours))
        }
        (Call::Responses, Some(kind)) => matches!(
            kind,
            "function" | "custom" | "local_shell" | "shell" | "apply_patch" | "namespace" | "tool_search"
        ),
        (Call::Chat | Call::Responses | Call::Gemini { .. }, _) => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_two_known_names_are_alike() {
        assert_eq!(MEANT.len(), DEAR.len() + ELSEWHERE.len() + KNOWN.len());
    }
}
