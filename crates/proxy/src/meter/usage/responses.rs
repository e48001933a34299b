//! Reads usage from OpenAI's Responses: it is in the one event that ends the stream.

use ralph_core::price::TokenUsage;
use serde::Deserialize;

use super::super::tee::MeteredAnswer;
use super::{UsageFailure, UsageFailureName, UsageTokenCount, plausible_tokens, replace_if_some};

#[derive(Debug, Default)]
pub(crate) struct ResponsesUsageReader {
    /// The model has begun to answer.
    pub(super) begun: bool,
    usage: Option<TokenUsage>,
    model: Option<String>,
    stop: Option<String>,
    failed: Option<String>,
}

#[derive(Debug, Deserialize)]
struct ResponsesUsageEvent {
    #[serde(rename = "type")]
    kind: String,
    response: Option<ResponsesUsageBody>,
    error: Option<UsageFailure>,
    code: Option<UsageFailureName>,
    message: Option<UsageFailureName>,
}

#[derive(Debug, Deserialize)]
struct ResponsesUsageBody {
    model: Option<String>,
    status: Option<String>,
    usage: Option<ResponsesUsageCounts>,
    error: Option<UsageFailure>,
    incomplete_details: Option<ResponsesIncompleteDetails>,
}

#[derive(Debug, Deserialize)]
struct ResponsesIncompleteDetails {
    reason: Option<String>,
}

#[derive(Debug, Deserialize)]
struct ResponsesUsageCounts {
    input_tokens: Option<UsageTokenCount>,
    output_tokens: Option<UsageTokenCount>,
    input_tokens_details: Option<ResponsesInputDetails>,
    output_tokens_details: Option<ResponsesOutputDetails>,
}

#[derive(Debug, Deserialize)]
struct ResponsesInputDetails {
    cached_tokens: Option<UsageTokenCount>,
    cache_write_tokens: Option<UsageTokenCount>,
}

#[derive(Debug, Deserialize)]
struct ResponsesOutputDetails {
    reasoning_tokens: Option<UsageTokenCount>,
}

impl ResponsesUsageReader {
    pub(super) fn event(&mut self, data: &[u8]) {
        let Ok(event) = serde_json::from_slice::<ResponsesUsageEvent>(data) else { return };
        match event.kind.as_str() {
            "response.completed" | "response.incomplete" | "response.failed" => {
                let failed = event.kind == "response.failed";
                if let Some(body) = event.response {
                    self.update(body);
                }
                if failed && self.failed.is_none() {
                    self.failed = Some("failed".to_owned());
                }
            }
            "response.created" => replace_if_some(&mut self.model, event.response.and_then(|body| body.model)),
            "error" => {
                let message = event.message.and_then(UsageFailureName::text);
                let here = UsageFailure::Said { message, kind: None, status: None, code: event.code };
                self.failed = Some(event.error.unwrap_or(here).message());
            }
            "response.queued" | "response.in_progress" => (),
            // All other events are about content.
            _ => self.begun = true,
        }
    }

    pub(super) fn body(&mut self, body: &[u8]) {
        if let Ok(body) = serde_json::from_slice::<ResponsesUsageBody>(body) {
            self.update(body);
        }
    }

    pub(super) fn snapshot(&self) -> MeteredAnswer {
        MeteredAnswer {
            usage: self.usage,
            // Usage only comes with the event that ends the answer.
            complete: self.usage.is_some(),
            model: self.model.clone(),
            stop: self.stop.clone(),
            failed: self.failed.clone(),
        }
    }

    fn update(&mut self, body: ResponsesUsageBody) {
        replace_if_some(&mut self.model, body.model);
        replace_if_some(&mut self.stop, body.incomplete_details.and_then(|details| details.reason).or(body.status));
        if let Some(usage) = body.usage.and_then(usage) {
            self.usage = Some(usage);
        }
        self.failed = body.error.map(UsageFailure::message).or(self.failed.take());
    }
}

fn usage(counts: ResponsesUsageCounts) -> Option<TokenUsage> {
    let prompt = plausible_tokens(counts.input_tokens)?;
    let output = plausible_tokens(counts.output_tokens)?;
    let (cached, written) =
        counts.input_tokens_details.map_or((None, None), |details| (details.cached_tokens, details.cache_write_tokens));
    let cached = plausible_tokens(cached).filter(|cached| *cached <= prompt).unwrap_or(0);
    let rest = prompt - cached;
    let written = plausible_tokens(written).filter(|written| *written <= rest).unwrap_or(0);
    let reasoning =
        plausible_tokens(counts.output_tokens_details.and_then(|details| details.reasoning_tokens)).unwrap_or(0);
    Some(TokenUsage {
        input: rest - written,
        cached_input: cached,
        cache_write: written,
        output,
        reasoning: reasoning.min(output),
        ..TokenUsage::default()
    })
}
