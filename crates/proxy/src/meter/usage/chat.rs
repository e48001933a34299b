//! OpenAI's Chat Completions, and the many that speak it: a usage chunk near the end.

use std::collections::{BTreeMap, BTreeSet};

use ralph_core::price::Usage;
use serde::Deserialize;
use serde::de::IgnoredAny;

use super::super::tee::Seen;
use super::{Count, Failure, later, tokens};

/// More choices than anybody may ask for.
const MOST_CHOICES: usize = 1024;

#[derive(Debug, Default)]
pub(crate) struct Answer {
    /// Words of the model have come.
    pub(super) begun: bool,
    usage: Option<Usage>,
    /// The usage came after the words: some tell it with every chunk, so what came with words is a count so far.
    counted: bool,
    /// The choices that have begun and not ended.
    open: BTreeSet<u64>,
    model: Option<String>,
    stop: Option<String>,
    failed: Option<String>,
    ended: bool,
}

#[derive(Debug, Deserialize)]
struct Chunk {
    model: Option<String>,
    choices: Option<Vec<Choice>>,
    usage: Option<Counts>,
    error: Option<Failure>,
}

#[derive(Debug, Deserialize)]
struct Choice {
    index: Option<u64>,
    finish_reason: Option<String>,
    delta: Option<BTreeMap<String, Option<IgnoredAny>>>,
}

#[derive(Debug, Deserialize)]
struct Counts {
    prompt_tokens: Option<Count>,
    completion_tokens: Option<Count>,
    total_tokens: Option<Count>,
    prompt_tokens_details: Option<Prompt>,
    completion_tokens_details: Option<Completion>,
    prompt_cache_hit_tokens: Option<Count>,
}

#[derive(Debug, Deserialize)]
struct Prompt {
    cached_tokens: Option<Count>,
    cache_write_tokens: Option<Count>,
}

#[derive(Debug, Deserialize)]
struct Completion {
    reasoning_tokens: Option<Count>,
}

impl Answer {
    pub(super) fn event(&mut self, data: &[u8]) -> bool {
        if data.trim_ascii() == b"[DONE]" {
            self.ended = true;
            return false;
        }
        self.learn(data)
    }

    pub(super) fn body(&mut self, body: &[u8]) {
        self.learn(body);
        self.ended = true;
    }

    pub(super) fn seen(&self) -> Seen {
        Seen {
            usage: self.usage,
            complete: (self.ended || self.counted) && self.usage.is_some() && self.failed.is_none(),
            model: self.model.clone(),
            stop: self.stop.clone(),
            failed: self.failed.clone(),
        }
    }

    /// Reads a chunk, or a whole answer, and tells whether it carries nothing but usage.
    fn learn(&mut self, data: &[u8]) -> bool {
        let Ok(chunk) = serde_json::from_slice::<Chunk>(data) else { return false };
        let failed = chunk.error.map(Failure::words);
        let choices = chunk.choices.unwrap_or_default();
        self.begun |= !choices.is_empty();
        // Most leave the choices empty, some send one without a word in it.
        let silent = choices.iter().all(|choice| {
            let words = choice.delta.iter().flat_map(BTreeMap::values).flatten().count();
            choice.finish_reason.is_none() && choice.delta.is_some() && words == 0
        });
        let only_usage = chunk.usage.is_some() && silent && failed.is_none();
        later(&mut self.model, chunk.model);
        for choice in choices {
            let index = choice.index.unwrap_or(0);
            if choice.finish_reason.is_some() {
                self.open.remove(&index);
            } else if !silent && self.open.len() < MOST_CHOICES {
                self.open.insert(index);
            }
            later(&mut self.stop, choice.finish_reason);
        }
        if let Some(usage) = chunk.usage.and_then(usage) {
            self.usage = Some(usage);
            self.counted = silent && self.stop.is_some() && self.open.is_empty();
        }
        self.failed = failed.or(self.failed.take());
        only_usage
    }
}

/// Turns the provider's counts into ours; `None` when they cannot be true.
fn usage(counts: Counts) -> Option<Usage> {
    let prompt = tokens(counts.prompt_tokens).filter(|prompt| *prompt > 0)?;
    let completion = tokens(counts.completion_tokens)?;
    let (cached, written) = counts
        .prompt_tokens_details
        .map_or((None, None), |details| (details.cached_tokens, details.cache_write_tokens));
    let cached = tokens(cached).or_else(|| tokens(counts.prompt_cache_hit_tokens));
    let cached = cached.filter(|cached| *cached <= prompt).unwrap_or(0);
    let rest = prompt - cached;
    let written = tokens(written).filter(|written| *written <= rest).unwrap_or(0);
    let reasoning = tokens(counts.completion_tokens_details.and_then(|details| details.reasoning_tokens)).unwrap_or(0);
    // Some servers count reasoning beside the completion, not within it: their total gives them away.
    let beside = tokens(counts.total_tokens) == Some(prompt + completion + reasoning);
    let output = if beside { completion + reasoning } else { completion };
    Some(Usage {
        input: rest - written,
        cached_input: cached,
        cache_write: written,
        output,
        reasoning: reasoning.min(output),
        ..Usage::default()
    })
}
