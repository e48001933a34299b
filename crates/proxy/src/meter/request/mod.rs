//! A request body: read strictly, weighed, and written anew within a limit.

mod dear;
mod error;
mod gemini;
mod json;
mod limit;
mod weigh;

use std::collections::BTreeSet;

use serde_json::{Map, Value};

use self::dear::Draft;
pub use self::error::BadRequest;
use self::json::Body;
use super::endpoint::Call;

/// No provider gives more answers to one question.
const MOST_CHOICES: u64 = 128;
/// No model has a longer name.
const MOST_NAME: usize = 200;

/// A request body that was read and understood.
#[derive(Debug)]
pub struct Request<'b> {
    call: Call,
    body: Body<'b>,
    model: String,
    input: u64,
    /// What the client wants at most for each choice.
    each: Option<u64>,
    choices: u64,
    long_cache: bool,
    stream: bool,
    old_limit: bool,
    changed: Vec<String>,
}

/// A request as it is sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Written {
    pub body: Vec<u8>,
    /// Words for the log: what was taken out, lowered or added.
    pub changed: Vec<String>,
    /// The stream carries a usage chunk the client did not ask for.
    pub usage_added: bool,
}

impl<'b> Request<'b> {
    /// Reads a body. Refuses what is not a JSON object, names no model, or cannot be estimated; takes out what costs
    /// extra.
    pub fn parse(call: &Call, body: &'b [u8]) -> Result<Self, BadRequest> {
        let mut draft = Draft { fields: json::object(body)?, touched: BTreeSet::new(), changed: Vec::new() };
        dear::strip(call, &mut draft)?;
        let fields = &draft.fields;
        let (each, choices) = limit::wanted(call, fields)?;
        let stream = match fields.get("stream") {
            None | Some(Value::Null) => false,
            Some(Value::Bool(stream)) => *stream,
            Some(_) => return Err(BadRequest::Field { name: "stream", what: "true or false" }),
        };
        let model = model(call, fields)?;
        let input = weigh::weigh(call, fields)?;
        let long_cache = fields.values().any(keeps_an_hour) || fields.get("cache_control").is_some_and(long);
        let mut text = Body::new(body);
        text.retain(|name| fields.contains_key(name));
        for name in &draft.touched {
            if let Some(value) = draft.fields.shift_remove(name) {
                text.set(name, value);
            }
        }
        let Draft { changed, .. } = draft;
        let call = call.clone();
        Ok(Self { call, body: text, model, input, each, choices, long_cache, stream, old_limit: false, changed })
    }

    pub fn model(&self) -> &str {
        &self.model
    }

    /// Returns an upper estimate of the prompt's tokens.
    pub fn input(&self) -> u64 {
        self.input
    }

    /// Returns what the client wants at most, all choices together; `None` if it does not say.
    pub fn wanted_output(&self) -> Option<u64> {
        self.each.map(|each| each.saturating_mul(self.choices))
    }

    /// Returns how many answers the client wants.
    pub fn choices(&self) -> u64 {
        self.choices
    }

    /// Tells whether a cache write of the longer, dearer kind is asked for.
    pub fn long_cache(&self) -> bool {
        self.long_cache
    }

    /// Says that the provider of a chat may know `max_tokens` only, the older name of the limit.
    pub fn with_old_limit(self) -> Self {
        Self { old_limit: true, ..self }
    }

    /// Writes the request anew with the answer limited to so many tokens in all choices together, and with usage asked
    /// for in a chat's stream. What the client wrote otherwise stays as it is, byte for byte and in order.
    pub fn write(mut self, most_output: u64) -> Written {
        limit::lower(&mut self, most_output);
        let usage_added = self.stream && self.call == Call::Chat && self.ask_usage();
        Written { body: self.body.write(), changed: self.changed, usage_added }
    }

    /// Writes the request anew as it is, for a question that is not answered but counted.
    pub fn write_to_count(self) -> Vec<u8> {
        self.body.write()
    }

    /// Asks for usage in a chat's stream, and tells whether the client had not.
    fn ask_usage(&mut self) -> bool {
        let mut options = match self.body.get("stream_options") {
            Some(Value::Object(options)) => options,
            _ => Map::new(),
        };
        if options.insert("include_usage".to_owned(), true.into()) == Some(Value::Bool(true)) {
            return false;
        }
        self.body.set("stream_options", Value::Object(options));
        self.changed.push("usage asked for".to_owned());
        true
    }
}

fn model(call: &Call, fields: &Map<String, Value>) -> Result<String, BadRequest> {
    let model = match call {
        Call::Gemini { model, .. } => Some(model.as_str()),
        Call::Messages | Call::Chat | Call::Responses => fields.get("model").and_then(Value::as_str),
    };
    let good = |model: &&str| !model.trim().is_empty() && model.len() <= MOST_NAME && !model.contains(char::is_control);
    model.filter(good).map(str::to_owned).ok_or(BadRequest::NoModel)
}

/// Tells whether anything within asks to stay in the cache longer than usual.
fn keeps_an_hour(value: &Value) -> bool {
    match value {
        Value::Array(list) => list.iter().any(keeps_an_hour),
        Value::Object(map) => {
            map.iter().any(|(name, value)| (name == "cache_control" && long(value)) || keeps_an_hour(value))
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => false,
    }
}

fn long(control: &Value) -> bool {
    control.get("ttl").is_some_and(|ttl| !ttl.is_null() && ttl.as_str() != Some("5m"))
}
