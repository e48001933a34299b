//! The formats models are asked in, as data: a request into a body, a body into an answer. Nothing here sends or waits.
//!
//! One file per format. What they have in common is here: which optional fields a server takes ([`Shape`]), and what an
//! answer comes to. Usage is read by the meter's own readers (`usage`), so that a run and an agent are charged alike.

mod anthropic;
mod chat;
mod gemini;
mod responses;
mod usage;

use ralph_core::price::Usage;
use ralph_core::profile::Wire;
use ralph_proxy::meter::Call;
use serde_json::{Map, Value};

use self::usage::Counted;
use super::said::{Said, is_html};
use super::{Finish, Flaw, Request, Role};

/// A format of requests and answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Format {
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
pub(super) struct Answer {
    pub(super) text: String,
    pub(super) usage: Usage,
    pub(super) usage_reported: bool,
    pub(super) model: Option<String>,
    pub(super) finish: Finish,
}

/// What a format's file reads out of an answer.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Words {
    text: String,
    finish: Finish,
    model: Option<String>,
    /// Bytes that were thought and not said; they are paid for too.
    thought: usize,
}

impl Format {
    /// Returns the format of a protocol; none for a recorded conversation.
    pub(super) fn of(wire: Wire) -> Option<Self> {
        match wire {
            Wire::Chat | Wire::Azure => Some(Self::Chat),
            Wire::Responses => Some(Self::Responses),
            Wire::Anthropic => Some(Self::Messages),
            Wire::Gemini => Some(Self::Gemini),
            Wire::Scripted => None,
        }
    }

    /// Builds the request body. The error is the field of `extra` that is ours to set.
    pub(super) fn body(self, model: &str, request: &Request, shape: Shape) -> Result<Value, &'static str> {
        match self {
            Self::Chat => chat::body(model, request, shape),
            Self::Responses => responses::body(model, request, shape),
            Self::Messages => anthropic::body(model, request, shape),
            Self::Gemini => gemini::body(request, shape),
        }
    }

    /// Reads an answer, or says what is wrong with it.
    pub(super) fn answer(self, body: &str, request: &Request) -> Result<Answer, Flaw> {
        if body.trim().is_empty() {
            return Err(Flaw::Empty);
        }
        let value: Value =
            serde_json::from_str(body).map_err(|_| if is_html(body) { Flaw::Html } else { Flaw::NotJson })?;
        let words = match self {
            Self::Chat => chat::words(&value),
            Self::Responses => responses::words(&value),
            Self::Messages => anthropic::words(&value),
            Self::Gemini => gemini::words(&value),
        };
        let Words { text, finish, model, thought } = words.ok_or(Flaw::NoChoice)?;
        let guess = super::estimate(request, text.len().saturating_add(thought));
        let (usage, usage_reported) = match usage::counted(&self.call(), body, &text, request) {
            Counted::Believed(usage) => (usage, true),
            Counted::Doubted(said) if said.total() > guess.total() => (said, false),
            Counted::Doubted(_) | Counted::Nothing => (guess, false),
        };
        Ok(Answer { text, usage, usage_reported, model, finish })
    }

    /// Tells whether an error answer says that it cost something.
    pub(super) fn is_billed(self, body: &str) -> bool {
        usage::is_billed(&self.call(), body)
    }

    /// The meter's name for a call in this format.
    fn call(self) -> Call {
        match self {
            Self::Chat => Call::Chat,
            Self::Responses => Call::Responses,
            Self::Messages => Call::Messages,
            Self::Gemini => Call::Gemini { model: String::new(), stream: false },
        }
    }

    /// The wish for a JSON object; Anthropic has none.
    fn json(self) -> Option<Field> {
        match self {
            Self::Chat => Some(Field { at: "/response_format", names: &["response_format"] }),
            Self::Responses => Some(Field { at: "/text/format", names: &["text.format", "text[format]"] }),
            Self::Messages => None,
            Self::Gemini => Some(Field {
                at: "/generationConfig/responseMimeType",
                names: &["responsemimetype", "response_mime_type"],
            }),
        }
    }

    fn temperature(self) -> Field {
        let at = match self {
            Self::Chat | Self::Responses | Self::Messages => "/temperature",
            Self::Gemini => "/generationConfig/temperature",
        };
        Field { at, names: &["temperature"] }
    }
}

/// An optional field: where it stands in a body, and what complaints call it, in small letters.
#[derive(Debug, Clone, Copy)]
struct Field {
    at: &'static str,
    names: &'static [&'static str],
}

impl Field {
    fn was_sent(self, sent: &Value) -> bool {
        sent.pointer(self.at).is_some()
    }

    fn is_named(self, said: &Said) -> bool {
        self.names.contains(&said.param.as_str()) || said.mentions(self.names)
    }
}

/// Which optional fields a server takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Shape {
    /// A wish for a JSON object.
    json: bool,
    temperature: bool,
    /// Only chat has two names for it.
    cap: CapField,
}

/// The name under which a chat server takes the output cap.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum CapField {
    MaxTokens,
    MaxCompletionTokens,
}

impl Shape {
    /// Guesses from the model's name: OpenAI's reasoning models take neither `max_tokens` nor a temperature.
    pub(super) fn of(model: &str) -> Self {
        let reasons = reasons(model);
        let cap = if reasons { CapField::MaxCompletionTokens } else { CapField::MaxTokens };
        Self { json: true, temperature: !reasons, cap }
    }

    /// Returns the shape to try after the server complained about a field that was sent, if it did.
    pub(super) fn after_complaint(self, format: Format, status: u16, said: &Said, sent: &Value) -> Option<Self> {
        if !matches!(status, 400 | 422) {
            return None;
        }
        let unsupported = said.has_mark(&["unsupported_parameter", "unsupported_value"])
            || said.mentions(&["unsupported", "not support", "deprecated", "may only be set"]);
        let json = |field: &Field| field.was_sent(sent) && (field.is_named(said) || said.mentions(&["json mode"]));
        if format.json().as_ref().is_some_and(json) {
            return Some(Self { json: false, ..self });
        }
        let cap = Field { at: "/max_tokens", names: &["max_tokens"] };
        if format == Format::Chat
            && cap.was_sent(sent)
            && cap.is_named(said)
            && said.mentions(&["max_completion_tokens"])
        {
            return Some(Self { cap: CapField::MaxCompletionTokens, ..self });
        }
        let temperature = format.temperature();
        if temperature.was_sent(sent) && temperature.is_named(said) && unsupported {
            return Some(Self { temperature: false, ..self });
        }
        None
    }
}

/// Says whether a model is one of OpenAI's that think first: `gpt-5` and later, and the `o` series.
fn reasons(model: &str) -> bool {
    let name = model.rsplit('/').next().unwrap_or(model).to_ascii_lowercase();
    if let Some(version) = name.strip_prefix("gpt-") {
        let digits = version.split(|c: char| !c.is_ascii_digit()).next().unwrap_or_default();
        return digits.parse::<u32>().is_ok_and(|major| major >= 5);
    }
    name.strip_prefix('o').is_some_and(|rest| {
        let digits = rest.trim_start_matches(|c: char| c.is_ascii_digit());
        digits.len() < rest.len() && (digits.is_empty() || digits.starts_with('-'))
    })
}

/// Adds the profile's own fields, deep into objects that are ours too. The error is one that is ours to set.
fn add(body: &mut Map<String, Value>, extra: &Map<String, Value>, ours: &[&'static str]) -> Result<(), &'static str> {
    if let Some(field) = ours.iter().find(|field| extra.contains_key(**field)) {
        return Err(field);
    }
    for (name, value) in extra {
        match (body.get_mut(name), value) {
            (Some(Value::Object(own)), Value::Object(more)) => add(own, more, ours)?,
            _ => {
                body.insert(name.clone(), value.clone());
            }
        }
    }
    Ok(())
}

/// Returns all that was said, as the role's name in this format and the text.
fn turns<'a>(request: &'a Request, assistant: &'static str) -> impl Iterator<Item = (&'static str, &'a str)> {
    let history = request.history.iter().map(move |turn| {
        let role = match turn.role {
            Role::User => "user",
            Role::Assistant => assistant,
        };
        (role, turn.text.as_str())
    });
    std::iter::once(("user", request.user.as_str())).chain(history)
}

fn word(value: &Value, pointer: &str) -> Option<String> {
    value.pointer(pointer).and_then(Value::as_str).map(str::to_owned)
}

#[cfg(test)]
mod tests;
