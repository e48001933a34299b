//! Removes what costs extra from a request before it is sent.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::LazyLock;

use serde_json::{Map, Value};

use super::super::endpoint::ModelCallKind;
use super::error::{BadRequest, printable};
use super::token_estimate::{is_same_name, normalize_name};

/// A request while it is rewritten.
#[derive(Debug)]
pub(super) struct RequestDraft {
    pub(super) fields: Map<String, Value>,
    /// The names of fields whose value is no longer the client's.
    pub(super) touched: BTreeSet<String>,
    pub(super) changed: Vec<String>,
}

/// Fields that change what a token costs, let the provider do paid work, let it answer with another model, or make it
/// ignore the output limit.
const COST_FIELDS: &[&str] = &[
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
    // What gateways merge into the request they send, over what was checked here.
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

/// Prefixes of further such fields, in any spelling: they tell a gateway whose account, and which host, to use.
const COST_FIELD_PREFIXES: &[&str] = &["aws", "azure", "vertex", "litellm"];

/// Fields whose prompt, or whose answer, is stored at the provider.
const STORED_FIELDS: &[&str] = &["previous_response_id", "conversation", "prompt", "background", "cached_content"];

/// Fields that are read here. A more lenient parser must not find them in a spelling that was not read here.
const KNOWN_FIELDS: &[&str] = &[
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
    "store",
];

/// All of them, by their normalized name, as a parser sees it that is lenient about spelling.
static FIELD_CLASSES: LazyLock<BTreeMap<String, CostFieldClass>> = LazyLock::new(|| {
    let extra_cost = COST_FIELDS.iter().map(|name| (normalize_name(name), CostFieldClass::CostsExtra));
    let elsewhere = STORED_FIELDS.iter().map(|name| (normalize_name(name), CostFieldClass::StoredAtProvider(name)));
    extra_cost
        .chain(elsewhere)
        .chain(KNOWN_FIELDS.iter().map(|name| (normalize_name(name), CostFieldClass::Known(name))))
        .collect()
});

/// The class of a field, in any spelling.
#[derive(Debug, Clone, Copy)]
enum CostFieldClass {
    CostsExtra,
    StoredAtProvider(&'static str),
    Known(&'static str),
}

/// The most fields of a request.
const MAX_FIELDS: usize = 256;
const MAX_FIELDS_REPORTED: u32 = 256;

const ALLOWED_TIERS: &[&str] = &["default", "standard", "standard_only", "flex", "auto"];

/// Removes what costs extra; refuses what cannot be removed without changing the request.
pub(super) fn strip_cost_fields(call: &ModelCallKind, draft: &mut RequestDraft) -> Result<(), BadRequest> {
    // No legitimate request has so many.
    if draft.fields.len() > MAX_FIELDS {
        return Err(BadRequest::TooMany { most: MAX_FIELDS_REPORTED });
    }
    require_ascii_names(&draft.fields)?;
    let gemini = matches!(call, ModelCallKind::Gemini { .. });
    let mut extra_cost = Vec::new();
    for (name, value) in &draft.fields {
        let loose = normalize_name(name);
        match FIELD_CLASSES.get(&loose) {
            Some(CostFieldClass::CostsExtra) => extra_cost.push(name.clone()),
            None if COST_FIELD_PREFIXES.iter().any(|begin| loose.starts_with(begin)) => extra_cost.push(name.clone()),
            // Gemini's own fields have two spellings each, and are read where those are known.
            Some(_) if gemini => (),
            Some(CostFieldClass::StoredAtProvider(meant) | CostFieldClass::Known(meant)) if meant != name => {
                return Err(BadRequest::Spelling { name: printable(name), meant });
            }
            Some(CostFieldClass::StoredAtProvider(name)) if !matches!(value, Value::Null | Value::Bool(false)) => {
                return Err(BadRequest::StoredAtProvider { name });
            }
            Some(CostFieldClass::StoredAtProvider(_) | CostFieldClass::Known(_)) | None => (),
        }
    }
    for name in &extra_cost {
        draft.remove(name);
    }
    if gemini {
        return super::gemini::strip_cost_fields(call, draft);
    }
    draft.keep_if("service_tier", |tier| tier.as_str().is_some_and(|tier| ALLOWED_TIERS.contains(&tier)));
    draft.keep_if("modalities", |kinds| {
        kinds.as_array().is_some_and(|kinds| kinds.iter().all(|kind| kind.as_str() == Some("text")))
    });
    match call {
        ModelCallKind::Messages => draft.filter_context_edits(),
        // The provider would write a summary of its own, beyond the output limit.
        ModelCallKind::Responses => {
            draft.remove("context_management");
            draft.store_nothing();
        }
        ModelCallKind::Chat | ModelCallKind::Gemini { .. } => (),
    }
    draft.filter_tools(call)
}

/// Refuses names that are not ASCII. No field has one, and some parsers take their letters for others: `ſ` for `s`,
/// and the Kelvin sign for `k`.
pub(super) fn require_ascii_names(fields: &Map<String, Value>) -> Result<(), BadRequest> {
    match fields.keys().find(|name| !name.is_ascii()) {
        Some(name) => Err(BadRequest::NotAscii { name: printable(name) }),
        None => Ok(()),
    }
}

impl RequestDraft {
    pub(super) fn remove(&mut self, name: &str) {
        if self.fields.shift_remove(name).is_some_and(|value| !value.is_null()) {
            self.changed.push(format!("`{}` removed", printable(name)));
        }
    }

    pub(super) fn set(&mut self, name: &str, value: Value) {
        self.fields.insert(name.to_owned(), value);
        self.touched.insert(name.to_owned());
    }

    /// Keeps the provider from storing the answer, whose items a later call could name instead of sending them.
    fn store_nothing(&mut self) {
        if self.fields.get("store") != Some(&Value::Bool(false)) {
            if self.fields.get("store").is_some_and(|store| !store.is_null()) {
                self.changed.push("`store` set to false".to_owned());
            }
            self.set("store", Value::Bool(false));
        }
    }

    fn keep_if(&mut self, name: &str, good: impl Fn(&Value) -> bool) {
        if self.fields.get(name).is_some_and(|value| !value.is_null() && !good(value)) {
            self.remove(name);
        }
    }

    /// Keeps the edits of the conversation that only remove content; others are paid work beyond the answer.
    fn filter_context_edits(&mut self) {
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
            self.changed.push("an edit of `context_management` removed".to_owned());
        }
    }

    /// Removes the tools that run at the provider.
    fn filter_tools(&mut self, call: &ModelCallKind) -> Result<(), BadRequest> {
        let tools = match self.fields.get("tools") {
            None | Some(Value::Null) => return Ok(()),
            Some(Value::Array(tools)) => tools,
            Some(_) => return Err(BadRequest::Field { name: "tools", what: "a list" }),
        };
        let mut removed = Vec::new();
        let kept = retain_client_tools(call, tools, &mut removed);
        if removed.is_empty() {
            return Ok(());
        }
        self.changed.extend(removed.into_iter().map(|kind| format!("tool `{kind}` removed")));
        if kept.is_empty() {
            self.fields.shift_remove("tools");
            self.fields.shift_remove("tool_choice");
        } else {
            self.set("tools", Value::Array(kept));
            // It may name a tool that was removed.
            if self.fields.get("tool_choice").is_some_and(Value::is_object) {
                self.remove("tool_choice");
            }
        }
        Ok(())
    }
}

fn retain_client_tools(call: &ModelCallKind, tools: &[Value], removed: &mut Vec<String>) -> Vec<Value> {
    let mut kept = Vec::new();
    for tool in tools {
        let kind = match tool.get("type") {
            None | Some(Value::Null) => None,
            Some(kind) => Some(kind.as_str().unwrap_or("?")),
        };
        if !tool.is_object()
            || !runs_at_client(call, kind, tool)
            || is_hosted_shell(kind, tool)
            || is_ambiguous_tool(tool)
        {
            removed.push(printable(kind.unwrap_or("?")));
            continue;
        }
        let mut tool = tool.clone();
        if kind == Some("namespace")
            && let Some(inner) = tool.get_mut("tools")
        {
            let within = inner.as_array().map(|tools| retain_client_tools(call, tools, removed)).unwrap_or_default();
            *inner = Value::Array(within);
        }
        kept.push(tool);
    }
    kept
}

/// Says whether a parser that is lenient about spelling could read the tool as another one.
fn is_ambiguous_tool(tool: &Value) -> bool {
    let names = ["type", "environment", "tools"];
    let other = |own: &String| names.iter().any(|name| own != name && is_same_name(own, name));
    tool.as_object().is_some_and(|tool| tool.keys().any(|own| !own.is_ascii() || other(own)))
}

/// Says whether a shell tool is hosted: it runs in a container of the provider, with a network of its own, unless it
/// is declared local.
fn is_hosted_shell(kind: Option<&str>, tool: &Value) -> bool {
    let place = tool.get("environment").and_then(|place| place.get("type")).and_then(Value::as_str);
    kind == Some("shell") && place != Some("local")
}

/// All fields of a chat's tool. Others may be for a gateway, which makes a paid tool of it.
const CHAT_TOOL_FIELDS: [&str; 8] =
    ["type", "function", "custom", "name", "description", "parameters", "strict", "cache_control"];

/// Says whether a tool is run by the client, at no cost beyond its text.
fn runs_at_client(call: &ModelCallKind, kind: Option<&str>, tool: &Value) -> bool {
    let plain = |tool: &Value| {
        tool.as_object().is_some_and(|tool| tool.keys().all(|name| CHAT_TOOL_FIELDS.contains(&name.as_str())))
    };
    match (call, kind) {
        (ModelCallKind::Chat, _) if !plain(tool) => false,
        (ModelCallKind::Messages, None | Some("custom"))
        | (ModelCallKind::Chat, None | Some("function" | "custom")) => true,
        (ModelCallKind::Messages, Some(kind)) => {
            let ours = ["bash_", "text_editor_", "computer_", "memory_", "tool_search_"];
            ours.iter().any(|ours| kind.starts_with(ours))
        }
        (ModelCallKind::Responses, Some(kind)) => matches!(
            kind,
            "function" | "custom" | "local_shell" | "shell" | "apply_patch" | "namespace" | "tool_search"
        ),
        (ModelCallKind::Chat | ModelCallKind::Responses | ModelCallKind::Gemini { .. }, _) => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn normalized_field_names_are_unique() {
        assert_eq!(FIELD_CLASSES.len(), COST_FIELDS.len() + STORED_FIELDS.len() + KNOWN_FIELDS.len());
    }
}
