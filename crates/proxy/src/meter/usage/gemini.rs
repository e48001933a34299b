//! Reads usage from Gemini: every chunk has new counts, and those of the last one are final.

use ralph_core::price::TokenUsage;
use serde::Deserialize;

use super::super::tee::MeteredAnswer;
use super::{UsageFailure, UsageTokenCount, plausible_tokens, replace_if_some};

#[derive(Debug, Default)]
pub(crate) struct GeminiUsageReader {
    /// The model has begun to answer.
    pub(super) begun: bool,
    usage: Option<TokenUsage>,
    model: Option<String>,
    stop: Option<String>,
    failed: Option<String>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct GeminiUsageChunk {
    candidates: Option<Vec<GeminiUsageCandidate>>,
    prompt_feedback: Option<GeminiPromptFeedback>,
    usage_metadata: Option<GeminiUsageCounts>,
    model_version: Option<String>,
    error: Option<UsageFailure>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct GeminiUsageCandidate {
    finish_reason: Option<String>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct GeminiPromptFeedback {
    block_reason: Option<String>,
}

#[derive(Debug, Deserialize)]
struct GeminiUsageCounts {
    #[serde(rename = "promptTokenCount")]
    prompt: Option<UsageTokenCount>,
    #[serde(rename = "toolUsePromptTokenCount")]
    tools: Option<UsageTokenCount>,
    #[serde(rename = "cachedContentTokenCount")]
    cached: Option<UsageTokenCount>,
    #[serde(rename = "candidatesTokenCount")]
    candidates: Option<UsageTokenCount>,
    #[serde(rename = "thoughtsTokenCount")]
    thoughts: Option<UsageTokenCount>,
    #[serde(rename = "totalTokenCount")]
    total: Option<UsageTokenCount>,
}

impl GeminiUsageReader {
    pub(super) fn event(&mut self, data: &[u8]) {
        if let Ok(chunk) = serde_json::from_slice::<GeminiUsageChunk>(data) {
            self.update(chunk);
        }
    }

    /// Reads one answer, or the list of chunks that a stream without events is.
    pub(super) fn body(&mut self, body: &[u8]) {
        if body.starts_with(b"[") {
            let chunks: Vec<GeminiUsageChunk> = serde_json::from_slice(body).unwrap_or_default();
            for chunk in chunks {
                self.update(chunk);
            }
        } else {
            self.event(body);
        }
    }

    pub(super) fn snapshot(&self, ended: bool) -> MeteredAnswer {
        MeteredAnswer {
            usage: self.usage,
            complete: ended && self.stop.is_some() && self.usage.is_some() && self.failed.is_none(),
            model: self.model.clone(),
            stop: self.stop.clone(),
            failed: self.failed.clone(),
        }
    }

    fn update(&mut self, chunk: GeminiUsageChunk) {
        replace_if_some(&mut self.model, chunk.model_version);
        replace_if_some(&mut self.stop, chunk.prompt_feedback.and_then(|feedback| feedback.block_reason));
        let candidates = chunk.candidates.unwrap_or_default();
        self.begun |= !candidates.is_empty();
        for candidate in candidates {
            replace_if_some(&mut self.stop, candidate.finish_reason);
        }
        if let Some(usage) = chunk.usage_metadata.and_then(|counts| usage(&counts)) {
            self.usage = Some(usage);
        }
        self.failed = chunk.error.map(UsageFailure::message).or(self.failed.take());
    }
}

fn usage(counts: &GeminiUsageCounts) -> Option<TokenUsage> {
    let prompt = plausible_tokens(counts.prompt)?;
    let cached = plausible_tokens(counts.cached).filter(|cached| *cached <= prompt).unwrap_or(0);
    let tools = plausible_tokens(counts.tools).unwrap_or(0);
    let thoughts = plausible_tokens(counts.thoughts).unwrap_or(0);
    let output = plausible_tokens(counts.candidates).unwrap_or(0) + thoughts;
    // A class of tokens that was not reported is still in the total.
    let beyond = plausible_tokens(counts.total).unwrap_or(0).saturating_sub(prompt + tools);
    Some(TokenUsage {
        input: prompt - cached + tools,
        cached_input: cached,
        output: output.max(beyond),
        reasoning: thoughts,
        ..TokenUsage::default()
    })
}
