//! What a whole answer says it cost, read by the meter that reads the agents' answers too.

use ralph_core::price::{MOST_OUTPUT, Usage};
use ralph_proxy::meter::{Call, Tee};

use super::super::Request;

/// Tokens of a prompt beyond its own text: what a server puts around it.
const AROUND: u64 = 16 * 1024;

/// Reads the provider's usage; `None` when it cannot be true, so that nobody is charged by a mistake.
///
/// Only the usage object at its own place counts, never text that looks like one.
pub(super) fn reported(call: &Call, body: &str, text: &str, request: &Request) -> Option<Usage> {
    let mut tee = Tee::new(call, Some("application/json"), false);
    tee.pass(body.as_bytes().to_vec().into());
    tee.rest();
    let usage = tee.seen().usage?;
    // No tokenizer makes more tokens than there are bytes.
    let bytes = request.texts().map(str::len).fold(0, usize::saturating_add);
    let most = u64::try_from(bytes).unwrap_or(u64::MAX).saturating_add(AROUND);
    let prompt = (1..=most).contains(&usage.prompt());
    let output = usage.output <= MOST_OUTPUT && (usage.output > 0 || text.is_empty());
    (prompt && output).then_some(usage)
}
