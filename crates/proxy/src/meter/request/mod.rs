//! Parses a request body strictly, estimates its tokens, and rewrites it within a limit.

mod cost_fields;
mod error;
mod gemini;
mod json;
mod output_limit;
mod token_estimate;

use std::collections::BTreeSet;

use serde_json::{Map, Value};

use self::cost_fields::RequestDraft;
pub use self::error::BadRequest;
use self::json::EditableJson;
use super::endpoint::ModelCallKind;

/// No provider gives more answers to one request.
const MAX_CHOICES: u64 = 128;
/// No model has a longer name.
const MAX_MODEL_NAME: usize = 200;

/// A request body that was parsed and checked.
#[derive(Debug)]
pub struct MeteredRequest<'b> {
    call: ModelCallKind,
    body: EditableJson<'b>,
    model: String,
    input: u64,
    /// The client's output limit for each choice.
    output_per_choice: Option<u64>,
    choices: u64,
    long_cache: bool,
    stream: bool,
    legacy_limit: bool,
    changed: Vec<String>,
}

/// A request as it is sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RewrittenRequest {
    pub body: Vec<u8>,
    /// For the log: what was removed, lowered or added.
    pub changed: Vec<String>,
    /// The stream carries a usage chunk the client did not ask for.
    pub usage_added: bool,
}

impl<'b> MeteredRequest<'b> {
    /// Parses a body. Refuses one that is not a JSON object, names no model, or cannot be estimated; removes what
    /// costs extra.
    pub fn parse(call: &ModelCallKind, body: &'b [u8]) -> Result<Self, BadRequest> {
        let mut draft =
            RequestDraft { fields: json::parse_strict_object(body)?, touched: BTreeSet::new(), changed: Vec::new() };
        cost_fields::strip_cost_fields(call, &mut draft)?;
        let fields = &draft.fields;
        let (each, choices) = output_limit::wanted_output(call, fields)?;
        let stream = match fields.get("stream") {
            None | Some(Value::Null) => false,
            Some(Value::Bool(stream)) => *stream,
            Some(_) => return Err(BadRequest::Field { name: "stream", what: "true or false" }),
        };
        let model = model(call, fields)?;
        let input = token_estimate::estimate_input_tokens(call, fields)?;
        let long_cache = fields.values().any(asks_long_cache) || fields.get("cache_control").is_some_and(is_long_ttl);
        let mut text = EditableJson::new(body);
        text.retain(|name| fields.contains_key(name));
        for name in &draft.touched {
            if let Some(value) = draft.fields.shift_remove(name) {
                text.set(name, value);
            }
        }
        let RequestDraft { changed, .. } = draft;
        let call = call.clone();
        Ok(Self {
            call,
            body: text,
            model,
            input,
            output_per_choice: each,
            choices,
            long_cache,
            stream,
            legacy_limit: false,
            changed,
        })
    }

    pub fn model(&self) -> &str {
        &self.model
    }

    /// Returns an upper estimate of the prompt's tokens.
    pub fn input(&self) -> u64 {
        self.input
    }

    /// Returns the client's output limit, all choices together; `None` if it sets none.
    pub fn wanted_output(&self) -> Option<u64> {
        self.output_per_choice.map(|each| each.saturating_mul(self.choices))
    }

    /// Returns how many answers the client asks for.
    pub fn choices(&self) -> u64 {
        self.choices
    }

    /// Says whether the longer, more expensive kind of cache write is requested.
    pub fn long_cache(&self) -> bool {
        self.long_cache
    }

    /// Marks a chat provider that may know only `max_tokens`, the older name of the limit.
    pub fn with_legacy_limit(self) -> Self {
        Self { legacy_limit: true, ..self }
    }

    /// Rewrites the request with the output limited to `most_output` tokens in all choices together, and with usage
    /// requested in a chat's stream. Everything else that the client wrote is kept, byte for byte and in order.
    pub fn write(mut self, most_output: u64) -> RewrittenRequest {
        output_limit::lower_limits(&mut self, most_output);
        let usage_added = self.stream && self.call == ModelCallKind::Chat && self.ask_usage();
        RewrittenRequest { body: self.body.write(), changed: self.changed, usage_added }
    }

    /// Rewrites the request without a limit, for one that is not answered but counted.
    pub fn write_for_count(self) -> Vec<u8> {
        self.body.write()
    }

    /// Requests usage in a chat's stream, and says whether the client had not.
    fn ask_usage(&mut self) -> bool {
        let mut options = match self.body.get("stream_options") {
            Some(Value::Object(options)) => options,
            _ => Map::new(),
        };
        if options.insert("include_usage".to_owned(), true.into()) == Some(Value::Bool(true)) {
            return false;
        }
        self.body.set("stream_options", Value::Object(options));
        self.changed.push("usage requested".to_owned());
        true
    }
}

fn model(call: &ModelCallKind, fields: &Map<String, Value>) -> Result<String, BadRequest> {
    let model = match call {
        ModelCallKind::Gemini { model, .. } => Some(model.as_str()),
        ModelCallKind::Messages | ModelCallKind::Chat | ModelCallKind::Responses => {
            fields.get("model").and_then(Value::as_str)
        }
    };
    let good =
        |model: &&str| !model.trim().is_empty() && model.len() <= MAX_MODEL_NAME && !model.contains(char::is_control);
    model.filter(good).map(str::to_owned).ok_or(BadRequest::NoModel)
}

/// Says whether anything in the value asks to stay in the cache longer than usual.
fn asks_long_cache(value: &Value) -> bool {
    match value {
        Value::Array(list) => list.iter().any(asks_long_cache),
        Value::Object(map) => {
            map.iter().any(|(name, value)| (name == "cache_control" && is_long_ttl(value)) || asks_long_cache(value))
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => false,
    }
}

fn is_long_ttl(control: &Value) -> bool {
    control.get("ttl").is_some_and(|ttl| !ttl.is_null() && ttl.as_str() != Some("5m"))
}
