//! The formats models are asked in, as data: a request into a body, a body into an answer. Nothing here sends or waits.
//!
//! One file per format. What they have in common is here: which optional fields a server takes ([`SupportedFields`]), and what an
//! answer comes to. Usage is read by the meter's own readers (`usage`), so that a run and an agent are charged alike.

mod anthropic;
mod chat;
mod gemini;
mod responses;
mod usage;

use ralph_core::price::TokenUsage;
use ralph_core::profile::{OutputLimitField, ProviderProtocol, is_reasoning_model};
use ralph_proxy::meter::ModelCallKind;
use serde_json::{Map, Value};

use self::usage::UsageClaim;
use super::error_body::{ProviderErrorBody, is_html};
use super::{AnswerFlaw, ConversationRole, ModelFinishReason, ModelRequest};

/// A format of requests and answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ModelWireFormat {
    /// OpenAI's chat completions, which most providers copy.
    Chat,
    /// OpenAI's responses.
    Responses,
    /// Anthropic's messages.
    Messages,
    /// Google's `generateContent`.
    Gemini,
}

/// What a fine answer holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct DecodedAnswer {
    pub(super) text: String,
    pub(super) usage: TokenUsage,
    pub(super) usage_reported: bool,
    pub(super) model: Option<String>,
    pub(super) finish: ModelFinishReason,
}

/// What a format's file reads out of an answer.
#[derive(Debug, Clone, PartialEq, Eq)]
struct DecodedParts {
    text: String,
    finish: ModelFinishReason,
    model: Option<String>,
    /// Bytes that were thought and not said; they are paid for too.
    reasoning_bytes: usize,
}

impl ModelWireFormat {
    /// Returns the format of a protocol; none for a recorded conversation.
    pub(super) fn of(wire: ProviderProtocol) -> Option<Self> {
        match wire {
            ProviderProtocol::Chat | ProviderProtocol::Azure => Some(Self::Chat),
            ProviderProtocol::Responses => Some(Self::Responses),
            ProviderProtocol::Anthropic => Some(Self::Messages),
            ProviderProtocol::Gemini => Some(Self::Gemini),
            ProviderProtocol::Scripted => None,
        }
    }

    /// Builds the request body. The error is the field of `extra` that is ours to set.
    pub(super) fn body(
        self,
        model: &str,
        request: &ModelRequest,
        shape: SupportedFields,
    ) -> Result<Value, &'static str> {
        match self {
            Self::Chat => chat::body(model, request, shape),
            Self::Responses => responses::body(model, request, shape),
            Self::Messages => anthropic::body(model, request, shape),
            Self::Gemini => gemini::body(request, shape),
        }
    }

    /// Reads an answer, or says what is wrong with it.
    pub(super) fn decode_answer(self, body: &str, request: &ModelRequest) -> Result<DecodedAnswer, AnswerFlaw> {
        if body.trim().is_empty() {
            return Err(AnswerFlaw::Empty);
        }
        let value: Value = serde_json::from_str(body)
            .map_err(|_| if is_html(body) { AnswerFlaw::Html } else { AnswerFlaw::NotJson })?;
        let words = match self {
            Self::Chat => chat::read_answer(&value),
            Self::Responses => responses::read_answer(&value),
            Self::Messages => anthropic::read_answer(&value),
            Self::Gemini => gemini::read_answer(&value),
        };
        let DecodedParts { text, finish, model, reasoning_bytes: thought } = words.ok_or(AnswerFlaw::NoChoice)?;
        let guess = super::estimate_usage(request, text.len().saturating_add(thought));
        let (usage, usage_reported) = match usage::read_usage(&self.meter_call(), body, &text, request) {
            UsageClaim::Plausible(usage) => (usage, true),
            UsageClaim::Implausible(said) if said.total() > guess.total() => (said, false),
            UsageClaim::Implausible(_) | UsageClaim::Unusable => (guess, false),
        };
        Ok(DecodedAnswer { text, usage, usage_reported, model, finish })
    }

    /// Tells whether an error answer says that it cost something.
    pub(super) fn is_billed(self, body: &str) -> bool {
        usage::is_billed(&self.meter_call(), body)
    }

    /// The meter's name for a call in this format.
    fn meter_call(self) -> ModelCallKind {
        match self {
            Self::Chat => ModelCallKind::Chat,
            Self::Responses => ModelCallKind::Responses,
            Self::Messages => ModelCallKind::Messages,
            Self::Gemini => ModelCallKind::Gemini { model: String::new(), stream: false },
        }
    }

    /// The wish for a JSON object; Anthropic has none.
    fn json_field(self) -> Option<OptionalField> {
        match self {
            Self::Chat => Some(OptionalField { at: "/response_format", names: &["response_format"] }),
            Self::Responses => Some(OptionalField { at: "/text/format", names: &["text.format", "text[format]"] }),
            Self::Messages => None,
            Self::Gemini => Some(OptionalField {
                at: "/generationConfig/responseMimeType",
                names: &["responsemimetype", "response_mime_type"],
            }),
        }
    }

    fn temperature_field(self) -> OptionalField {
        let at = match self {
            Self::Chat | Self::Responses | Self::Messages => "/temperature",
            Self::Gemini => "/generationConfig/temperature",
        };
        OptionalField { at, names: &["temperature"] }
    }
}

/// An optional field: where it stands in a body, and what complaints call it, in small letters.
#[derive(Debug, Clone, Copy)]
struct OptionalField {
    at: &'static str,
    names: &'static [&'static str],
}

impl OptionalField {
    fn was_sent(self, sent: &Value) -> bool {
        sent.pointer(self.at).is_some()
    }

    fn is_named_in(self, said: &ProviderErrorBody) -> bool {
        self.names.contains(&said.param.as_str()) || said.mentions(self.names)
    }
}

/// Which optional fields a server takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct SupportedFields {
    /// A wish for a JSON object.
    json: bool,
    temperature: bool,
    /// Only chat has two names for it.
    limit: OutputLimitField,
}

impl SupportedFields {
    /// Guesses from the model's name: OpenAI's reasoning models take neither `max_tokens` nor a temperature.
    pub(super) fn of(model: &str) -> Self {
        Self { json: true, temperature: !is_reasoning_model(model), limit: OutputLimitField::of(model) }
    }

    /// Returns the shape to try after the server complained about a field that was sent, if it did.
    pub(super) fn after_rejection(
        self,
        format: ModelWireFormat,
        status: u16,
        said: &ProviderErrorBody,
        sent: &Value,
    ) -> Option<Self> {
        if !matches!(status, 400 | 422) {
            return None;
        }
        let unsupported = said.has_code(&["unsupported_parameter", "unsupported_value"])
            || said.mentions(&["unsupported", "not support", "deprecated", "may only be set"]);
        let json =
            |field: &OptionalField| field.was_sent(sent) && (field.is_named_in(said) || said.mentions(&["json mode"]));
        if format.json_field().as_ref().is_some_and(json) {
            return Some(Self { json: false, ..self });
        }
        let limit = OptionalField { at: "/max_tokens", names: &["max_tokens"] };
        if format == ModelWireFormat::Chat
            && limit.was_sent(sent)
            && limit.is_named_in(said)
            && said.mentions(&["max_completion_tokens"])
        {
            return Some(Self { limit: OutputLimitField::MaxCompletionTokens, ..self });
        }
        let temperature = format.temperature_field();
        if temperature.was_sent(sent) && temperature.is_named_in(said) && unsupported {
            return Some(Self { temperature: false, ..self });
        }
        None
    }
}

/// Adds the profile's own fields, deep into objects that are ours too. The error is one that is ours to set.
fn merge_extra(
    body: &mut Map<String, Value>,
    extra: &Map<String, Value>,
    ours: &[&'static str],
) -> Result<(), &'static str> {
    if let Some(field) = ours.iter().find(|field| extra.contains_key(**field)) {
        return Err(field);
    }
    for (name, value) in extra {
        match (body.get_mut(name), value) {
            (Some(Value::Object(own)), Value::Object(more)) => merge_extra(own, more, ours)?,
            _ => {
                body.insert(name.clone(), value.clone());
            }
        }
    }
    Ok(())
}

/// Returns all that was said, as the role's name in this format and the text.
fn conversation_turns<'a>(
    request: &'a ModelRequest,
    assistant: &'static str,
) -> impl Iterator<Item = (&'static str, &'a str)> {
    let history = request.history.iter().map(move |turn| {
        let role = match turn.role {
            ConversationRole::User => "user",
            ConversationRole::Assistant => assistant,
        };
        (role, turn.text.as_str())
    });
    std::iter::once(("user", request.user.as_str())).chain(history)
}

fn string_at(value: &Value, pointer: &str) -> Option<String> {
    value.pointer(pointer).and_then(Value::as_str).map(str::to_owned)
}

#[cfg(test)]
mod tests;
