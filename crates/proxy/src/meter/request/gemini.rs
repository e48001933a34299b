//! Checks Gemini's request: every name has two spellings, and the model is in the path.

use serde_json::{Map, Value};

use super::super::endpoint::ModelCallKind;
use super::cost_fields::{self, RequestDraft};
use super::error::{BadRequest, printable};
use super::token_estimate::{estimate_input_tokens, is_same_name};

/// Fields with two spellings that are read here.
const KNOWN_FIELDS: &[&str] =
    &["contents", "system_instruction", "tools", "tool_config", "generation_config", "service_tier"];

const ALLOWED_TIERS: &[&str] = &["unspecified", "standard", "flex"];

pub(super) fn strip_cost_fields(call: &ModelCallKind, draft: &mut RequestDraft) -> Result<(), BadRequest> {
    for name in KNOWN_FIELDS {
        find_field(&draft.fields, name)?;
    }
    refuse_cached_content(&draft.fields)?;
    check_nested_request(call, &draft.fields)?;
    // LiteLLM's name for `generationConfig`, which it would read as well.
    for other in ["model", "config"] {
        if let Some(name) = find_field(&draft.fields, other)? {
            draft.remove(&name);
        }
    }
    if let Some(name) = find_field(&draft.fields, "service_tier")? {
        let tier = draft.fields.get(&name).and_then(Value::as_str).map(str::to_ascii_lowercase);
        if !tier.is_some_and(|tier| ALLOWED_TIERS.contains(&tier.as_str())) {
            draft.remove(&name);
        }
    }
    filter_modalities(draft)?;
    filter_tools(draft)
}

/// Refuses a prompt that is stored at the provider.
fn refuse_cached_content(fields: &Map<String, Value>) -> Result<(), BadRequest> {
    match find_field(fields, "cached_content")?.and_then(|name| fields.get(&name)) {
        None | Some(Value::Null) => Ok(()),
        Some(_) => Err(BadRequest::StoredAtProvider { name: "cachedContent" }),
    }
}

/// Checks a nested request in the same way: a count request may contain a whole one, with a model of its own.
fn check_nested_request(call: &ModelCallKind, fields: &Map<String, Value>) -> Result<(), BadRequest> {
    let inner = match find_field(fields, "generate_content_request")?.and_then(|name| fields.get(&name)) {
        None | Some(Value::Null) => return Ok(()),
        Some(Value::Object(inner)) => inner,
        Some(_) => return Err(BadRequest::Field { name: "generateContentRequest", what: "an object" }),
    };
    cost_fields::require_ascii_names(inner)?;
    refuse_cached_content(inner)?;
    let asked = find_field(inner, "model")?.and_then(|name| inner.get(&name)).unwrap_or(&Value::Null);
    let same = |asked: &str| matches!(call, ModelCallKind::Gemini { model, .. } if asked.trim_start_matches("models/") == model);
    if !asked.is_null() && !asked.as_str().is_some_and(same) {
        return Err(BadRequest::Field { name: "generateContentRequest.model", what: "the requested model" });
    }
    estimate_input_tokens(call, inner).map(drop)
}

/// Returns the spelling of a field that the request uses, if any; two spellings of one field could be read in two
/// ways.
pub(super) fn find_field(map: &Map<String, Value>, name: &str) -> Result<Option<String>, BadRequest> {
    let mut found = map.keys().filter(|own| is_same_name(own, name));
    match (found.next(), found.next()) {
        (_, Some(second)) => Err(BadRequest::Twice { name: printable(second) }),
        (first, None) => Ok(first.cloned()),
    }
}

/// Removes modalities other than text: images and speech in an answer have other prices.
fn filter_modalities(draft: &mut RequestDraft) -> Result<(), BadRequest> {
    let Some(config_name) = find_field(&draft.fields, "generation_config")? else { return Ok(()) };
    let config = match draft.fields.get(&config_name) {
        Some(Value::Object(config)) => config,
        None | Some(Value::Null) => return Ok(()),
        Some(_) => return Err(BadRequest::Field { name: "generationConfig", what: "an object" }),
    };
    cost_fields::require_ascii_names(config)?;
    let Some(name) = find_field(config, "response_modalities")? else { return Ok(()) };
    let text = |kind: &Value| kind.as_str().is_some_and(|kind| kind.eq_ignore_ascii_case("text"));
    if config.get(&name).and_then(Value::as_array).is_some_and(|kinds| kinds.iter().all(text)) {
        return Ok(());
    }
    let mut config = config.clone();
    config.shift_remove(&name);
    draft.set(&config_name, Value::Object(config));
    draft.changed.push(format!("`{}` removed", printable(&name)));
    Ok(())
}

/// Keeps the functions that the client runs, and no tool that the provider runs.
fn filter_tools(draft: &mut RequestDraft) -> Result<(), BadRequest> {
    let Some(name) = find_field(&draft.fields, "tools")? else { return Ok(()) };
    let tools = match draft.fields.get(&name) {
        Some(Value::Array(tools)) => tools,
        None | Some(Value::Null) => return Ok(()),
        Some(_) => return Err(BadRequest::Field { name: "tools", what: "a list" }),
    };
    let mut removed = Vec::new();
    let mut kept = Vec::new();
    for tool in tools {
        let mut functions = Map::new();
        for (kind, value) in tool.as_object().into_iter().flatten() {
            if is_same_name(kind, "functionDeclarations") {
                functions.insert(kind.clone(), value.clone());
            } else {
                removed.push(format!("tool `{}` removed", printable(kind)));
            }
        }
        if !functions.is_empty() {
            kept.push(Value::Object(functions));
        }
    }
    if removed.is_empty() {
        return Ok(());
    }
    draft.changed.extend(removed);
    if kept.is_empty() {
        draft.fields.shift_remove(&name);
        if let Some(config) = find_field(&draft.fields, "tool_config")? {
            draft.fields.shift_remove(&config);
        }
    } else {
        draft.set(&name, Value::Array(kept));
    }
    Ok(())
}
