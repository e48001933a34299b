//! What a whole answer says it cost, read by the meter that reads the agents' answers too.

use ralph_core::price::{MOST_OUTPUT, Usage};
use ralph_proxy::meter::{Call, Tee};

use super::super::Request;

/// Tokens of a prompt beyond its own text: what a server puts around it.
const AROUND: u64 = 16 * 1024;
/// No model reads more at once.
const MOST_PROMPT: u64 = 2_000_000;

/// What a provider says of the tokens of one call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Counted {
    Believed(Usage),
    /// It does not fit the question and its answer. A server that adds to a question may charge for that all the same.
    Doubted(Usage),
    /// Nothing, or what cannot be true of any model.
    Nothing,
}

/// Reads what an answer, or an error, says that it cost.
///
/// Only the usage object at its own place counts, never text that looks like one.
fn said(call: &Call, body: &str) -> Option<Usage> {
    let mut tee = Tee::new(call, Some("application/json"), false);
    tee.pass(body.as_bytes().to_vec().into());
    tee.rest();
    tee.seen().usage
}

/// Tells whether an error says that it cost something.
pub(super) fn is_billed(call: &Call, body: &str) -> bool {
    said(call, body).is_some_and(|usage| usage.total() > 0)
}

/// Reads the provider's usage and judges whether it can be true.
pub(super) fn counted(call: &Call, body: &str, text: &str, request: &Request) -> Counted {
    let Some(usage) = said(call, body) else { return Counted::Nothing };
    // No tokenizer makes more tokens than there are bytes.
    let bytes = request.texts().map(str::len).fold(0, usize::saturating_add);
    let most = u64::try_from(bytes).unwrap_or(u64::MAX).saturating_add(AROUND);
    let prompt = (1..=most).contains(&usage.prompt());
    let output = usage.output <= MOST_OUTPUT && (usage.output > 0 || text.is_empty());
    match usage {
        usage if prompt && output => Counted::Believed(usage),
        usage if usage.prompt() <= MOST_PROMPT && usage.output <= MOST_OUTPUT => Counted::Doubted(usage),
        _ => Counted::Nothing,
    }
}
