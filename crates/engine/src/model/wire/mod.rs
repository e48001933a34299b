//! Converts requests and answers of models to and from the wire formats. Nothing here sends or waits.
//!
//! One file per format. What they share is here: which optional fields a server accepts ([`SupportedFields`]), and the
//! result of decoding. Usage is read by the meter's own readers (`usage`), so that a run and an agent are charged
//! alike.

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

/// A wire format of requests and answers.
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

/// The content of a successful answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct DecodedAnswer {
    pub(super) text: String,
    pub(super) usage: TokenUsage,
    pub(super) usage_reported: bool,
    pub(super) model: Option<String>,
    pub(super) finish: ModelFinishReason,
}

/// The parts of an answer that a format's file decodes.
#[derive(Debug, Clone, PartialEq, Eq)]
struct DecodedParts {
    text: String,
    finish: ModelFinishReason,
    model: Option<String>,
    /// Bytes of reasoning that are not part of the text; they are charged too.
    reasoning_bytes: usize,
}

impl ModelWireFormat {
    /// Returns the format of a protocol; `None` for a recorded conversation.
    pub(super) fn of(wire: ProviderProtocol) -> Option<Self> {
        match wire {
            ProviderProtocol::Chat | ProviderProtocol::Azure => Some(Self::Chat),
            ProviderProtocol::Responses => Some(Self::Responses),
            ProviderProtocol::Anthropic => Some(Self::Messages),
            ProviderProtocol::Gemini => Some(Self::Gemini),
            ProviderProtocol::Scripted => None,
        }
    }

    /// Builds the request body. The error is a field of `extra` that only ralph may set.
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

    /// Decodes an answer, or returns its defect.
    pub(super) fn decode_answer(self, body: &str, request: &ModelRequest) -> Result<DecodedAnswer, AnswerFlaw> {
        if body.trim().is_empty() {
            return Err(AnswerFlaw::Empty);
        }
        let value: Value = serde_json::from_str(body)
            .map_err(|_| if is_html(body) { AnswerFlaw::Html } else { AnswerFlaw::NotJson })?;
        let parts = match self {
            Self::Chat => chat::read_answer(&value),
            Self::Responses => responses::read_answer(&value),
            Self::Messages => anthropic::read_answer(&value),
            Self::Gemini => gemini::read_answer(&value),
        };
        let DecodedParts { text, finish, model, reasoning_bytes: thought } = parts.ok_or(AnswerFlaw::NoChoice)?;
        let guess = super::estimate_usage(request, text.len().saturating_add(thought));
        let (usage, usage_reported) = match usage::read_usage(&self.meter_call(), body, &text, request) {
            UsageClaim::Plausible(usage) => (usage, true),
            UsageClaim::Implausible(claimed) if claimed.total() > guess.total() => (claimed, false),
            UsageClaim::Implausible(_) | UsageClaim::Unusable => (guess, false),
        };
        Ok(DecodedAnswer { text, usage, usage_reported, model, finish })
    }

    /// Reports whether an error answer states a cost.
    pub(super) fn is_billed(self, body: &str) -> bool {
        usage::is_billed(&self.meter_call(), body)
    }

    /// Returns the meter's kind for a call in this format.
    fn meter_call(self) -> ModelCallKind {
        match self {
            Self::Chat => ModelCallKind::Chat,
            Self::Responses => ModelCallKind::Responses,
            Self::Messages => ModelCallKind::Messages,
            Self::Gemini => ModelCallKind::Gemini { model: String::new(), stream: false },
        }
    }

    /// Returns the field that requests a JSON object; Anthropic has none.
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

/// An optional field: its position in a body, and its names in error messages, in lower case.
#[derive(Debug, Clone, Copy)]
struct OptionalField {
    at: &'static str,
    names: &'static [&'static str],
}

impl OptionalField {
    fn was_sent(self, sent: &Value) -> bool {
        sent.pointer(self.at).is_some()
    }

    fn is_named_in(self, error: &ProviderErrorBody) -> bool {
        self.names.contains(&error.param.as_str()) || error.mentions(self.names)
    }
}

/// The optional fields that a server accepts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct SupportedFields {
    /// The field that requests a JSON object.
    json: bool,
    temperature: bool,
    /// Only chat has two names for it.
    limit: OutputLimitField,
}

impl SupportedFields {
    /// Guesses from the model's name: OpenAI's reasoning models accept neither `max_tokens` nor a temperature.
    pub(super) fn of(model: &str) -> Self {
        Self { json: true, temperature: !is_reasoning_model(model), limit: OutputLimitField::of(model) }
    }

    /// Returns the fields to try after the server rejected one that was sent, if it did.
    pub(super) fn after_rejection(
        self,
        format: ModelWireFormat,
        status: u16,
        error: &ProviderErrorBody,
        sent: &Value,
    ) -> Option<Self> {
        if !matches!(status, 400 | 422) {
            return None;
        }
        let unsupported = error.has_code(&["unsupported_parameter", "unsupported_value"])
            || error.mentions(&["unsupported", "not support", "deprecated", "may only be set"]);
        let json = |field: &OptionalField| {
            field.was_sent(sent) && (field.is_named_in(error) || error.mentions(&["json mode"]))
        };
        if format.json_field().as_ref().is_some_and(json) {
            return Some(Self { json: false, ..self });
        }
        let limit = OptionalField { at: "/max_tokens", names: &["max_tokens"] };
        if format == ModelWireFormat::Chat
            && limit.was_sent(sent)
            && limit.is_named_in(error)
            && error.mentions(&["max_completion_tokens"])
        {
            return Some(Self { limit: OutputLimitField::MaxCompletionTokens, ..self });
        }
        let temperature = format.temperature_field();
        if temperature.was_sent(sent) && temperature.is_named_in(error) && unsupported {
            return Some(Self { temperature: false, ..self });
        }
        None
    }
}

/// Adds the profile's own fields, merging into objects that ralph sets too. The error is a field that only ralph may
/// set.
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

/// Returns all turns, as the format's role name and the text.
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
