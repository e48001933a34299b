//! Reads the output limit of a request, and lowers it.

use ralph_core::profile::OutputLimitField;
use serde_json::{Map, Value};

use super::super::endpoint::ModelCallKind;
use super::error::BadRequest;
use super::gemini::find_field;
use super::{MAX_CHOICES, MeteredRequest};

/// Anthropic refuses a smaller thinking budget.
const MIN_THINKING_TOKENS: u64 = 1024;

/// Returns the client's output limit for each choice, and the number of choices.
pub(super) fn wanted_output(
    call: &ModelCallKind,
    fields: &Map<String, Value>,
) -> Result<(Option<u64>, u64), BadRequest> {
    match call {
        ModelCallKind::Messages => Ok((whole_number(fields, "max_tokens", "max_tokens")?, 1)),
        ModelCallKind::Responses => Ok((
            require_nonzero(whole_number(fields, "max_output_tokens", "max_output_tokens")?, "max_output_tokens")?,
            1,
        )),
        ModelCallKind::Chat => {
            let old = require_nonzero(whole_number(fields, "max_tokens", "max_tokens")?, "max_tokens")?;
            let new = require_nonzero(
                whole_number(fields, "max_completion_tokens", "max_completion_tokens")?,
                "max_completion_tokens",
            )?;
            Ok((old.max(new), choices(whole_number(fields, "n", "n")?, "n")?))
        }
        ModelCallKind::Gemini { .. } => {
            let Some(Value::Object(config)) = generation_config(fields)? else { return Ok((None, 1)) };
            let most = require_nonzero(config_number(config, "maxOutputTokens")?, "maxOutputTokens")?;
            let count = config_number(config, "candidateCount")?;
            Ok((most, choices(count, "candidateCount")?))
        }
    }
}

fn generation_config(fields: &Map<String, Value>) -> Result<Option<&Value>, BadRequest> {
    Ok(find_field(fields, "generation_config")?.and_then(|name| fields.get(&name)))
}

fn config_number(config: &Map<String, Value>, meant: &'static str) -> Result<Option<u64>, BadRequest> {
    find_field(config, meant)?.map_or(Ok(None), |name| whole_number(config, &name, meant))
}

fn whole_number(fields: &Map<String, Value>, name: &str, meant: &'static str) -> Result<Option<u64>, BadRequest> {
    match fields.get(name) {
        None | Some(Value::Null) => Ok(None),
        Some(value) => {
            value.as_u64().map(Some).ok_or(BadRequest::Field { name: meant, what: "a whole number, zero or more" })
        }
    }
}

/// Refuses a limit of zero: to some servers it is no limit at all.
fn require_nonzero(limit: Option<u64>, name: &'static str) -> Result<Option<u64>, BadRequest> {
    if limit == Some(0) { Err(BadRequest::Field { name, what: "a whole number, one or more" }) } else { Ok(limit) }
}

fn choices(count: Option<u64>, name: &'static str) -> Result<u64, BadRequest> {
    let count = count.unwrap_or(1);
    let good = (1..=MAX_CHOICES).contains(&count);
    good.then_some(count).ok_or(BadRequest::Field { name, what: "a whole number from 1 to 128" })
}

/// Lowers the output limit of a request, or adds one.
pub(super) fn lower_limits(request: &mut MeteredRequest<'_>, most_output: u64) {
    let most = most_output / request.choices.max(1);
    match &request.call {
        ModelCallKind::Messages => {
            if lower_field(request, "max_tokens", most) {
                lower_thinking_budget(request, most);
            }
        }
        ModelCallKind::Responses => {
            lower_field(request, "max_output_tokens", most);
        }
        ModelCallKind::Chat => limit_chat(request, most),
        ModelCallKind::Gemini { .. } => limit_gemini(request, most),
    }
}

/// Lowers the fields that the client sent and adds no second one: OpenAI refuses a request with both names.
fn limit_chat(request: &mut MeteredRequest<'_>, most: u64) {
    let [old, new] = [OutputLimitField::MaxTokens, OutputLimitField::MaxCompletionTokens].map(OutputLimitField::name);
    let there = |name: &str| request.body.get(name).is_some_and(|value| !value.is_null());
    let fits = OutputLimitField::of(&request.model);
    match (there(old), there(new)) {
        (false, false) => {
            lower_field(request, fits.name(), most);
        }
        // A server that does not know the newer name ignores it, and answers without any limit.
        (false, true) if request.legacy_limit && fits == OutputLimitField::MaxTokens => {
            let wanted = request.body.get(new).as_ref().and_then(Value::as_u64).unwrap_or(most);
            request.body.remove(new);
            request.body.set(old, wanted.into());
            request.changed.push(format!("`{new}` sent as `{old}`"));
            lower_field(request, old, most);
        }
        (sent_old, sent_new) => {
            if sent_old {
                lower_field(request, old, most);
            }
            if sent_new {
                lower_field(request, new, most);
            }
        }
    }
}

/// Lowers one field, and says whether the client had asked for more or had set none.
fn lower_field(request: &mut MeteredRequest<'_>, name: &str, most: u64) -> bool {
    let wanted = request.body.get(name).as_ref().and_then(Value::as_u64);
    if wanted.is_some_and(|wanted| wanted <= most) {
        return false;
    }
    request.body.set(name, most.into());
    request.changed.push(change_text(name, wanted, most));
    true
}

fn change_text(name: &str, wanted: Option<u64>, most: u64) -> String {
    match wanted {
        Some(wanted) => format!("`{name}` lowered from {wanted} to {most}"),
        None => format!("`{name}` set to {most}"),
    }
}

fn limit_gemini(request: &mut MeteredRequest<'_>, most: u64) {
    let config_name = request.body.find_spelling("generation_config").unwrap_or("generationConfig".to_owned());
    let mut config = match request.body.get(&config_name) {
        Some(Value::Object(config)) => config,
        _ => Map::new(),
    };
    // Two spellings were refused when the request was parsed.
    let name = find_field(&config, "max_output_tokens").ok().flatten().unwrap_or("maxOutputTokens".to_owned());
    let wanted = config.get(&name).and_then(Value::as_u64);
    if wanted.is_some_and(|wanted| wanted <= most) {
        return;
    }
    config.insert(name, most.into());
    request.body.set(&config_name, Value::Object(config));
    request.changed.push(change_text("maxOutputTokens", wanted, most));
}

/// Lowers the thinking budget: thinking is part of the answer, and Anthropic refuses a budget above the output limit.
fn lower_thinking_budget(request: &mut MeteredRequest<'_>, most: u64) {
    let Some(Value::Object(mut thinking)) = request.body.get("thinking") else { return };
    let Some(budget) = thinking.get("budget_tokens").and_then(Value::as_u64).filter(|budget| *budget >= most) else {
        return;
    };
    let less = most.saturating_sub(1);
    if less >= MIN_THINKING_TOKENS {
        thinking.insert("budget_tokens".to_owned(), less.into());
        request.body.set("thinking", Value::Object(thinking));
        request.changed.push(change_text("thinking.budget_tokens", Some(budget), less));
    } else {
        request.body.set("thinking", serde_json::json!({"type": "disabled"}));
        request.changed.push("`thinking` turned off".to_owned());
        remove_thinking_edits(request);
    }
}

/// Removes edits of thinking: without thinking, Anthropic does not accept them.
fn remove_thinking_edits(request: &mut MeteredRequest<'_>) {
    let Some(mut management) = request.body.get("context_management") else { return };
    let Some(edits) = management.get_mut("edits").and_then(Value::as_array_mut) else { return };
    let before = edits.len();
    edits.retain(|edit| {
        !edit.get("type").and_then(Value::as_str).is_some_and(|kind| kind.starts_with("clear_thinking"))
    });
    match edits.len() {
        0 => request.body.remove("context_management"),
        after if after < before => request.body.set("context_management", management),
        _ => (),
    }
}
