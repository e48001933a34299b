//! Reads the usage that a complete answer reports, with the same meter that reads the agents' answers.

use ralph_core::price::{MAX_OUTPUT_TOKENS, TokenUsage};
use ralph_proxy::meter::{ModelCallKind, UsageTee};

use super::super::ModelRequest;

/// Tokens of a prompt beyond its own text: what a server adds around it.
const PROMPT_OVERHEAD: u64 = 16 * 1024;
/// No model reads more at once.
const MAX_PROMPT: u64 = 2_000_000;

/// The token usage that a provider reports for one call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum UsageClaim {
    Plausible(TokenUsage),
    /// It does not fit the request and its answer. A server that adds to a prompt may charge for that all the same.
    Implausible(TokenUsage),
    /// Nothing, or figures that no model can reach.
    Unusable,
}

/// Reads the usage reported by an answer or an error.
///
/// Only the usage object at its proper place counts, never text that looks like one.
fn reported_usage(call: &ModelCallKind, body: &str) -> Option<TokenUsage> {
    let mut tee = UsageTee::new(call, Some("application/json"), false);
    tee.pass(body.as_bytes().to_vec().into());
    tee.finish();
    tee.snapshot().usage
}

/// Reports whether an error states a cost.
pub(super) fn is_billed(call: &ModelCallKind, body: &str) -> bool {
    reported_usage(call, body).is_some_and(|usage| usage.total() > 0)
}

/// Reads the provider's usage and checks whether it is plausible.
pub(super) fn read_usage(call: &ModelCallKind, body: &str, text: &str, request: &ModelRequest) -> UsageClaim {
    let Some(usage) = reported_usage(call, body) else { return UsageClaim::Unusable };
    // No tokenizer makes more tokens than there are bytes.
    let bytes = request.texts().map(str::len).fold(0, usize::saturating_add);
    let most = u64::try_from(bytes).unwrap_or(u64::MAX).saturating_add(PROMPT_OVERHEAD);
    let prompt = (1..=most).contains(&usage.prompt());
    let output = usage.output <= MAX_OUTPUT_TOKENS && (usage.output > 0 || text.is_empty());
    match usage {
        usage if prompt && output => UsageClaim::Plausible(usage),
        usage if usage.prompt() <= MAX_PROMPT && usage.output <= MAX_OUTPUT_TOKENS => UsageClaim::Implausible(usage),
        _ => UsageClaim::Unusable,
    }
}
