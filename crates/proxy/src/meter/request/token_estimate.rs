//! Estimates how many tokens a request's prompt has at most.
//!
//! Everything is counted as text, names and punctuation included, except what a provider does not read as text:
//! images and documents have their own estimate. The size of content stored elsewhere cannot be known, so it is
//! refused.

use ralph_core::price::estimate_tokens;
use serde_json::{Map, Value};

use super::super::endpoint::ModelCallKind;
use super::error::{BadRequest, printable};

/// The tokens that a provider adds around every conversation.
const CONVERSATION_OVERHEAD: u64 = 32;
/// The tokens around a message, a part of one, or a tool.
const PART_OVERHEAD: u64 = 4;
/// The tokens with which a provider introduces tools as soon as there are any.
const TOOLS_OVERHEAD: u64 = 800;
/// A tool whose description is stored at the provider, though it runs at the client.
const PROVIDER_TOOL_TOKENS: u64 = 1500;
/// The most expensive image of the providers that ralph ships profiles for costs less than half of it.
const IMAGE_TOKENS: u64 = 10_000;
/// A document of a hundred pages, some of them full.
const DOCUMENT_TOKENS: u64 = 200_000;

/// Returns an upper estimate of the tokens that the provider will count.
pub(super) fn estimate_input_tokens(call: &ModelCallKind, fields: &Map<String, Value>) -> Result<u64, BadRequest> {
    let mut sum = CONVERSATION_OVERHEAD;
    for (name, value) in fields {
        let weight = match (call, name.as_str()) {
            (ModelCallKind::Messages, "messages" | "system")
            | (ModelCallKind::Chat, "messages")
            | (ModelCallKind::Responses, "input") => count_content(value)?,
            (ModelCallKind::Gemini { .. }, _)
                if is_same_name(name, "contents") || is_same_name(name, "systemInstruction") =>
            {
                count_gemini(value)?
            }
            (_, "tools" | "functions") => TOOLS_OVERHEAD.saturating_add(count_tools(value)),
            _ => count_text(value),
        };
        sum = sum.saturating_add(weight).saturating_add(estimate_tokens(name));
    }
    Ok(sum)
}

/// Normalizes a name by removing what some parsers ignore.
pub(super) fn normalize_name(name: &str) -> String {
    name.chars().filter(|c| !matches!(c, '_' | '-')).map(|c| c.to_ascii_lowercase()).collect()
}

/// Says whether two names are the same for a parser that is lenient about spelling.
pub(super) fn is_same_name(one: &str, other: &str) -> bool {
    normalized_bytes(one).eq(normalized_bytes(other))
}

fn normalized_bytes(name: &str) -> impl Iterator<Item = u8> {
    name.bytes().filter(|byte| !matches!(byte, b'_' | b'-')).map(|byte| byte.to_ascii_lowercase())
}

/// Counts a value as the text that a model reads.
fn count_text(value: &Value) -> u64 {
    match value {
        Value::Null | Value::Bool(_) => 1,
        Value::Number(number) => estimate_tokens(&number.to_string()),
        Value::String(text) => estimate_tokens(text).saturating_add(1),
        Value::Array(list) => sum(list.iter().map(|value| count_text(value).saturating_add(1)), 1),
        Value::Object(map) => sum(
            map.iter().map(|(name, value)| estimate_tokens(name).saturating_add(2).saturating_add(count_text(value))),
            2,
        ),
    }
}

fn sum(weights: impl Iterator<Item = u64>, first: u64) -> u64 {
    weights.fold(first, u64::saturating_add)
}

fn count_tools(value: &Value) -> u64 {
    let known = |tool: &Value| tool.get("type").and_then(Value::as_str).is_some_and(|kind| kind.contains('_'));
    let list = value.as_array().map(Vec::as_slice).unwrap_or_default();
    sum(list.iter().map(|tool| if known(tool) { PROVIDER_TOOL_TOKENS } else { PART_OVERHEAD }), count_text(value))
}

/// Counts a message, a part, or a list of them.
fn count_content(value: &Value) -> Result<u64, BadRequest> {
    match value {
        Value::Array(list) => list.iter().try_fold(1, |sum: u64, value| Ok(sum.saturating_add(count_content(value)?))),
        Value::Object(part) => Ok(self::count_part(part)?.saturating_add(PART_OVERHEAD)),
        _ => Ok(count_text(value)),
    }
}

/// The fields by which a part, or its contents, are recognized.
const PART_FIELDS: &[&str] = &[
    "type",
    "id",
    "role",
    "content",
    "output",
    "source",
    "data",
    "url",
    "media_type",
    "file",
    "file_id",
    "file_url",
    "file_data",
    "image_url",
    "audio",
    "signature",
    "encrypted_content",
];

/// Refuses another spelling of such a name: a more lenient parser would read what was not counted here.
fn check_spelling(fields: &Map<String, Value>) -> Result<(), BadRequest> {
    // The usual spelling, which is cheap to recognize.
    let usual = |name: &String| name.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_');
    for name in fields.keys().filter(|name| !usual(name)) {
        if !name.is_ascii() {
            return Err(BadRequest::NotAscii { name: printable(name) });
        }
        if let Some(meant) = PART_FIELDS.iter().find(|meant| is_same_name(name, meant)) {
            return Err(BadRequest::Spelling { name: printable(name), meant });
        }
    }
    Ok(())
}

fn count_part(part: &Map<String, Value>) -> Result<u64, BadRequest> {
    check_spelling(part)?;
    for held in ["source", "file", "image_url"].iter().filter_map(|name| part.get(*name)?.as_object()) {
        check_spelling(held)?;
    }
    let kind = part.get("type").and_then(Value::as_str).unwrap_or_default();
    let refused = || Err(BadRequest::Part { kind: printable(kind) });
    let there = |name: &str| part.get(name).filter(|value| !value.is_null());
    if there("file_id").or(there("file_url")).is_some() {
        return refused();
    }
    if kind.is_empty() && there("id").is_some() && there("role").is_none() {
        // An item with only an id refers to something stored at the provider.
        return Err(BadRequest::Part { kind: "item_reference".to_owned() });
    }
    match kind {
        "image_url" | "input_image" | "computer_screenshot" => {
            let url = there("image_url").and_then(|image| image.get("url").unwrap_or(image).as_str());
            match url.and_then(count_data_url) {
                Some(weight) => Ok(weight.saturating_add(count_except(part, &["image_url"])?)),
                None => refused(),
            }
        }
        "image" | "document" => match there("source").and_then(count_source) {
            Some(weight) => Ok(weight?.saturating_add(count_except(part, &["source"])?)),
            None => refused(),
        },
        "file" | "input_file" => {
            let file = there("file").and_then(Value::as_object).unwrap_or(part);
            match file.get("file_data").and_then(Value::as_str) {
                Some(data) if file.get("file_id").is_none_or(Value::is_null) => {
                    Ok(count_document(data).saturating_add(count_except(part, &["file", "file_data"])?))
                }
                _ => refused(),
            }
        }
        "input_audio" | "audio" | "video" | "video_url" | "input_video" | "container_upload" | "item_reference" => {
            refused()
        }
        "thinking" => count_encrypted(part, "signature"),
        "redacted_thinking" => count_encrypted(part, "data"),
        "reasoning" | "compaction" => {
            // Without its content the item stands for one that the provider has stored and would charge for.
            if there("id").is_some() && there("encrypted_content").is_none() {
                return Err(BadRequest::StoredReasoning);
            }
            count_encrypted(part, "encrypted_content")
        }
        // Work that the provider did, whose results it has stored under the item's id. Its tools are not passed on.
        "web_search_call"
        | "file_search_call"
        | "code_interpreter_call"
        | "image_generation_call"
        | "mcp_call"
        | "mcp_list_tools"
            if there("id").is_some() =>
        {
            refused()
        }
        // What a model asked for is text, whatever it looks like.
        "tool_use" | "function_call" | "custom_tool_call" => Ok(count_text(&Value::Object(part.clone()))),
        _ if there("audio").is_some() || there("source").is_some_and(is_remote) => refused(),
        _ => count_except(part, &[]),
    }
}

/// Counts a part without the fields that were counted already. Parts may contain parts.
fn count_except(part: &Map<String, Value>, counted: &[&str]) -> Result<u64, BadRequest> {
    let mut rest = part.iter().filter(|(name, _)| !counted.contains(&name.as_str()));
    rest.try_fold(2u64, |sum, (name, value)| {
        let weight = match name.as_str() {
            "content" | "output" => count_content(value)?,
            _ => count_text(value),
        };
        Ok(sum.saturating_add(estimate_tokens(name)).saturating_add(2).saturating_add(weight))
    })
}

/// Counts a part with a field that only the provider can read: it contains a model's reasoning, encrypted.
fn count_encrypted(part: &Map<String, Value>, name: &str) -> Result<u64, BadRequest> {
    let bytes = part.get(name).and_then(Value::as_str).map_or(0, str::len);
    Ok(number(bytes.div_ceil(3)).saturating_add(count_except(part, &[name])?))
}

/// Counts the source of Anthropic's images and documents; `None` if it is stored elsewhere.
fn count_source(source: &Value) -> Option<Result<u64, BadRequest>> {
    let data = || source.get("data").and_then(Value::as_str);
    match source.get("type").and_then(Value::as_str)? {
        "base64" => {
            let kind = source.get("media_type").and_then(Value::as_str)?;
            Some(Ok(if kind.starts_with("image/") { IMAGE_TOKENS } else { count_document(data()?) }))
        }
        "text" => Some(Ok(count_text(source))),
        "content" => Some(count_content(source.get("content")?)),
        _ => None,
    }
}

fn is_remote(source: &Value) -> bool {
    matches!(source.get("type").and_then(Value::as_str), Some("url" | "file"))
}

/// Counts the data of a `data:` URL; `None` if the content is stored elsewhere.
fn count_data_url(url: &str) -> Option<u64> {
    let data = url.strip_prefix("data:")?;
    Some(if data.starts_with("image/") { IMAGE_TOKENS } else { count_document(data) })
}

/// Counts a document: its pages are read both as text and as images, and its file is compressed about as well as
/// tokens compress text. The number of pages of a small file is unknown without opening it, so it counts as much as
/// most models can read.
fn count_document(base64: &str) -> u64 {
    DOCUMENT_TOKENS.max(number(base64.len()) / 4 * 3)
}

fn number(bytes: usize) -> u64 {
    u64::try_from(bytes).unwrap_or(u64::MAX)
}

/// Counts Gemini's contents, whose parts are distinguished by the names of their fields.
fn count_gemini(value: &Value) -> Result<u64, BadRequest> {
    match value {
        Value::Array(list) => list.iter().try_fold(1, |sum: u64, value| Ok(sum.saturating_add(count_gemini(value)?))),
        Value::Object(map) => map.iter().try_fold(PART_OVERHEAD, |sum, (name, value)| {
            let weight = match normalize_name(name).as_str() {
                "parts" | "functionresponse" => count_gemini(value)?,
                "inlinedata" => count_inline_data(value)?,
                "filedata" => return Err(BadRequest::Part { kind: printable(name) }),
                "thoughtsignature" => number(value.as_str().map_or(0, str::len).div_ceil(3)),
                _ => count_text(value),
            };
            Ok(sum.saturating_add(estimate_tokens(name)).saturating_add(2).saturating_add(weight))
        }),
        _ => Ok(count_text(value)),
    }
}

fn count_inline_data(value: &Value) -> Result<u64, BadRequest> {
    let field = |wanted: &str| {
        let fields = value.as_object().into_iter().flatten();
        let mut found = fields.filter(|(name, _)| is_same_name(name, wanted)).map(|(_, value)| value.as_str());
        // Two spellings of one field could be read in two ways.
        found.next().flatten().filter(|_| found.next().is_none())
    };
    let kind = field("mimetype").unwrap_or_default();
    match field("data") {
        Some(_) if kind.starts_with("image/") => Ok(IMAGE_TOKENS),
        Some(data) if kind.starts_with("text/") => Ok(IMAGE_TOKENS.saturating_add(number(data.len()) / 4 * 3)),
        Some(data) if kind == "application/pdf" => Ok(count_document(data)),
        _ => Err(BadRequest::Part { kind: printable(kind) }),
    }
}
