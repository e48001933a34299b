//! Gemini: every chunk counts anew, the last one counts everything.

use ralph_core::price::Usage;
use serde::Deserialize;

use super::super::tee::Seen;
use super::{Count, Failure, later, tokens};

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
#[serde(rename_all = "camelCase")]
struct Chunk {
    candidates: Option<Vec<Candidate>>,
    prompt_feedback: Option<Feedback>,
    usage_metadata: Option<Counts>,
    model_version: Option<String>,
    error: Option<Failure>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Candidate {
    finish_reason: Option<String>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Feedback {
    block_reason: Option<String>,
}

#[derive(Debug, Deserialize)]
struct Counts {
    #[serde(rename = "promptTokenCount")]
    prompt: Option<Count>,
    #[serde(rename = "toolUsePromptTokenCount")]
    tools: Option<Count>,
    #[serde(rename = "cachedContentTokenCount")]
    cached: Option<Count>,
    #[serde(rename = "candidatesTokenCount")]
    candidates: Option<Count>,
    #[serde(rename = "thoughtsTokenCount")]
    thoughts: Option<Count>,
    #[serde(rename = "totalTokenCount")]
    total: Option<Count>,
}

impl Answer {
    pub(super) fn event(&mut self, data: &[u8]) {
        if let Ok(chunk) = serde_json::from_slice::<Chunk>(data) {
            self.learn(chunk);
        }
    }

    /// Reads one answer, or the list of chunks that a stream without events is.
    pub(super) fn body(&mut self, body: &[u8]) {
        if body.starts_with(b"[") {
            let chunks: Vec<Chunk> = serde_json::from_slice(body).unwrap_or_default();
            for chunk in chunks {
                self.learn(chunk);
            }
        } else {
            self.event(body);
        }
    }

    pub(super) fn seen(&self, ended: bool) -> Seen {
        Seen {
            usage: self.usage,
            complete: ended && self.stop.is_some() && self.usage.is_some() && self.failed.is_none(),
            model: self.model.clone(),
            stop: self.stop.clone(),
            failed: self.failed.clone(),
        }
    }

    fn learn(&mut self, chunk: Chunk) {
        later(&mut self.model, chunk.model_version);
        later(&mut self.stop, chunk.prompt_feedback.and_then(|feedback| feedback.block_reason));
        let candidates = chunk.candidates.unwrap_or_default();
        self.begun |= !candidates.is_empty();
        for candidate in candidates {
            later(&mut self.stop, candidate.finish_reason);
        }
        if let Some(usage) = chunk.usage_metadata.and_then(|counts| usage(&counts)) {
            self.usage = Some(usage);
        }
        self.failed = chunk.error.map(Failure::words).or(self.failed.take());
    }
}

fn usage(counts: &Counts) -> Option<Usage> {
    let prompt = tokens(counts.prompt)?;
    let cached = tokens(counts.cached).filter(|cached| *cached <= prompt).unwrap_or(0);
    let tools = tokens(counts.tools).unwrap_or(0);
    let thoughts = tokens(counts.thoughts).unwrap_or(0);
    let output = tokens(counts.candidates).unwrap_or(0) + thoughts;
    // A part that was left out is still in the total.
    let beyond = tokens(counts.total).unwrap_or(0).saturating_sub(prompt + tools);
    Some(Usage {
        input: prompt - cached + tools,
        cached_input: cached,
        output: output.max(beyond),
        reasoning: thoughts,
        ..Usage::default()
    })
}
