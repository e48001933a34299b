//! Reads usage from OpenAI's Chat Completions, and the many providers that use it: a usage chunk near the end.

use std::collections::{BTreeMap, BTreeSet};

use ralph_core::price::TokenUsage;
use serde::Deserialize;
use serde::de::IgnoredAny;

use super::super::tee::MeteredAnswer;
use super::{UsageFailure, UsageTokenCount, plausible_tokens, replace_if_some};

/// More choices than a client may ask for.
const MAX_CHOICES: usize = 1024;

#[derive(Debug, Default)]
pub(crate) struct ChatUsageReader {
    /// The model has begun to answer.
    pub(super) begun: bool,
    usage: Option<TokenUsage>,
    /// The usage came after the content: some providers send it with every chunk, so what came with content is a
    /// count so far.
    counted: bool,
    /// The choices that have begun and not ended.
    open: BTreeSet<u64>,
    model: Option<String>,
    stop: Option<String>,
    failed: Option<String>,
    ended: bool,
}

#[derive(Debug, Deserialize)]
struct ChatUsageChunk {
    model: Option<String>,
    choices: Option<Vec<ChatUsageChoice>>,
    usage: Option<ChatUsageCounts>,
    error: Option<UsageFailure>,
}

#[derive(Debug, Deserialize)]
struct ChatUsageChoice {
    index: Option<u64>,
    finish_reason: Option<String>,
    delta: Option<BTreeMap<String, Option<IgnoredAny>>>,
}

#[derive(Debug, Deserialize)]
struct ChatUsageCounts {
    prompt_tokens: Option<UsageTokenCount>,
    completion_tokens: Option<UsageTokenCount>,
    total_tokens: Option<UsageTokenCount>,
    prompt_tokens_details: Option<ChatPromptDetails>,
    completion_tokens_details: Option<ChatCompletionDetails>,
    prompt_cache_hit_tokens: Option<UsageTokenCount>,
}

#[derive(Debug, Deserialize)]
struct ChatPromptDetails {
    cached_tokens: Option<UsageTokenCount>,
    cache_write_tokens: Option<UsageTokenCount>,
}

#[derive(Debug, Deserialize)]
struct ChatCompletionDetails {
    reasoning_tokens: Option<UsageTokenCount>,
}

impl ChatUsageReader {
    pub(super) fn event(&mut self, data: &[u8]) -> bool {
        if data.trim_ascii() == b"[DONE]" {
            self.ended = true;
            return false;
        }
        self.update(data)
    }

    pub(super) fn body(&mut self, body: &[u8]) {
        self.update(body);
        self.ended = true;
    }

    pub(super) fn snapshot(&self) -> MeteredAnswer {
        MeteredAnswer {
            usage: self.usage,
            complete: (self.ended || self.counted) && self.usage.is_some() && self.failed.is_none(),
            model: self.model.clone(),
            stop: self.stop.clone(),
            failed: self.failed.clone(),
        }
    }

    /// Reads a chunk, or a whole answer, and says whether it carries nothing but usage.
    fn update(&mut self, data: &[u8]) -> bool {
        let Ok(chunk) = serde_json::from_slice::<ChatUsageChunk>(data) else { return false };
        let failed = chunk.error.map(UsageFailure::message);
        let choices = chunk.choices.unwrap_or_default();
        self.begun |= !choices.is_empty();
        // Most providers leave the choices empty, some send one without content.
        let silent = choices.iter().all(|choice| {
            let words = choice.delta.iter().flat_map(BTreeMap::values).flatten().count();
            choice.finish_reason.is_none() && choice.delta.is_some() && words == 0
        });
        let only_usage = chunk.usage.is_some() && silent && failed.is_none();
        replace_if_some(&mut self.model, chunk.model);
        for choice in choices {
            let index = choice.index.unwrap_or(0);
            if choice.finish_reason.is_some() {
                self.open.remove(&index);
            } else if !silent && self.open.len() < MAX_CHOICES {
                self.open.insert(index);
            }
            replace_if_some(&mut self.stop, choice.finish_reason);
        }
        if let Some(usage) = chunk.usage.and_then(usage) {
            self.usage = Some(usage);
            self.counted = silent && self.stop.is_some() && self.open.is_empty();
        }
        self.failed = failed.or(self.failed.take());
        only_usage
    }
}

/// Converts the provider's counts into ours; `None` if they are inconsistent.
fn usage(counts: ChatUsageCounts) -> Option<TokenUsage> {
    let prompt = plausible_tokens(counts.prompt_tokens).filter(|prompt| *prompt > 0)?;
    let completion = plausible_tokens(counts.completion_tokens)?;
    let (cached, written) = counts
        .prompt_tokens_details
        .map_or((None, None), |details| (details.cached_tokens, details.cache_write_tokens));
    let cached = plausible_tokens(cached).or_else(|| plausible_tokens(counts.prompt_cache_hit_tokens));
    let cached = cached.filter(|cached| *cached <= prompt).unwrap_or(0);
    let rest = prompt - cached;
    let written = plausible_tokens(written).filter(|written| *written <= rest).unwrap_or(0);
    let reasoning =
        plausible_tokens(counts.completion_tokens_details.and_then(|details| details.reasoning_tokens)).unwrap_or(0);
    // Some servers count reasoning beside the completion, not within it: their total shows that.
    let beside = plausible_tokens(counts.total_tokens) == Some(prompt + completion + reasoning);
    let output = if beside { completion + reasoning } else { completion };
    Some(TokenUsage {
        input: rest - written,
        cached_input: cached,
        cache_write: written,
        output,
        reasoning: reasoning.min(output),
        ..TokenUsage::default()
    })
}
