//! OpenAI's Responses: the usage within the one event that ends the stream.

use ralph_core::price::Usage;
use serde::Deserialize;

use super::super::tee::Seen;
use super::{Count, Failure, Name, later, tokens};

#[derive(Debug, Default)]
pub(crate) struct Answer {
    /// Words of the model have come.
    pub(super) begun: bool,
    usage: Option<Usage>,
    model: Option<String>,
    stop: Option<String>,
    failed: Option<String>,
}

#[derive(Debug, Deserialize)]
struct Event {
    #[serde(rename = "type")]
    kind: String,
    response: Option<Body>,
    error: Option<Failure>,
    code: Option<Name>,
    message: Option<Name>,
}

#[derive(Debug, Deserialize)]
struct Body {
    model: Option<String>,
    status: Option<String>,
    usage: Option<Counts>,
    error: Option<Failure>,
    incomplete_details: Option<Incomplete>,
}

#[derive(Debug, Deserialize)]
struct Incomplete {
    reason: Option<String>,
}

#[derive(Debug, Deserialize)]
struct Counts {
    input_tokens: Option<Count>,
    output_tokens: Option<Count>,
    input_tokens_details: Option<Input>,
    output_tokens_details: Option<Output>,
}

#[derive(Debug, Deserialize)]
struct Input {
    cached_tokens: Option<Count>,
    cache_write_tokens: Option<Count>,
}

#[derive(Debug, Deserialize)]
struct Output {
    reasoning_tokens: Option<Count>,
}

impl Answer {
    pub(super) fn event(&mut self, data: &[u8]) {
        let Ok(event) = serde_json::from_slice::<Event>(data) else { return };
        match event.kind.as_str() {
            "response.completed" | "response.incomplete" | "response.failed" => {
                let failed = event.kind == "response.failed";
                if let Some(body) = event.response {
                    self.learn(body);
                }
                if failed && self.failed.is_none() {
                    self.failed = Some("failed".to_owned());
                }
            }
            "response.created" => later(&mut self.model, event.response.and_then(|body| body.model)),
            "error" => {
                let message = event.message.and_then(Name::text);
                let here = Failure::Said { message, kind: None, status: None, code: event.code };
                self.failed = Some(event.error.unwrap_or(here).words());
            }
            "response.queued" | "response.in_progress" => (),
            // Everything else is about words.
            _ => self.begun = true,
        }
    }

    pub(super) fn body(&mut self, body: &[u8]) {
        if let Ok(body) = serde_json::from_slice::<Body>(body) {
            self.learn(body);
        }
    }

    pub(super) fn seen(&self) -> Seen {
        Seen {
            usage: self.usage,
            // Usage only comes with the event that ends the answer.
            complete: self.usage.is_some(),
            model: self.model.clone(),
            stop: self.stop.clone(),
            failed: self.failed.clone(),
        }
    }

    fn learn(&mut self, body: Body) {
        later(&mut self.model, body.model);
        later(&mut self.stop, body.incomplete_details.and_then(|details| details.reason).or(body.status));
        if let Some(usage) = body.usage.and_then(usage) {
            self.usage = Some(usage);
        }
        self.failed = body.error.map(Failure::words).or(self.failed.take());
    }
}

fn usage(counts: Counts) -> Option<Usage> {
    let prompt = tokens(counts.input_tokens)?;
    let output = tokens(counts.output_tokens)?;
    let (cached, written) =
        counts.input_tokens_details.map_or((None, None), |details| (details.cached_tokens, details.cache_write_tokens));
    let cached = tokens(cached).filter(|cached| *cached <= prompt).unwrap_or(0);
    let rest = prompt - cached;
    let written = tokens(written).filter(|written| *written <= rest).unwrap_or(0);
    let reasoning = tokens(counts.output_tokens_details.and_then(|details| details.reasoning_tokens)).unwrap_or(0);
    Some(Usage {
        input: rest - written,
        cached_input: cached,
        cache_write: written,
        output,
        reasoning: reasoning.min(output),
        ..Usage::default()
    })
}
