//! Counts what the server generated.

use serde_json::Value;

use super::script::BilledTokens;

/// Everything that was served, in full or in part.
///
/// A call is billed as soon as it is accepted: a provider continues generating when its client disconnects, and
/// charges for all of it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ServerBill {
    pub calls: u64,
    pub input: u64,
    pub cached: u64,
    pub cache_write: u64,
    pub cache_write_long: u64,
    pub output: u64,
}

impl ServerBill {
    pub(super) fn add(&mut self, tokens: BilledTokens) {
        self.calls += 1;
        self.input += tokens.input;
        self.cached += tokens.cached;
        self.cache_write += tokens.cache_write;
        self.cache_write_long += tokens.cache_write_long;
        self.output += tokens.output;
    }
}

/// Returns the number of tokens for a number of bytes.
pub(super) fn tokens_of_bytes(bytes: usize) -> u64 {
    bytes.div_ceil(4) as u64
}

/// Returns the bytes of all text within a value; the names of fields are not text.
pub(super) fn text_bytes(value: &Value) -> usize {
    match value {
        Value::String(text) => text.len(),
        Value::Array(items) => items.iter().map(text_bytes).sum(),
        Value::Object(fields) => fields.values().map(text_bytes).sum(),
        Value::Null | Value::Bool(_) | Value::Number(_) => 0,
    }
}

/// Returns a text up to its first `most` words, and how many words that are.
pub(super) fn truncate_words(text: &str, most: Option<u64>) -> (&str, u64) {
    let most = most.unwrap_or(u64::MAX);
    let (mut count, mut end, mut inside) = (0, 0, false);
    for (at, c) in text.char_indices() {
        if !c.is_whitespace() && !inside {
            if count == most {
                return (text.get(..end).unwrap_or(text), count);
            }
            count += 1;
        }
        inside = !c.is_whitespace();
        end = at + c.len_utf8();
    }
    (text, count)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn words_are_cut_at_the_limit() {
        #[track_caller]
        fn check(text: &str, most: Option<u64>, want: (&str, u64)) {
            assert_eq!(truncate_words(text, most), want, "{text:?} {most:?}");
        }
        check("", None, ("", 0));
        check("one two  three", None, ("one two  three", 3));
        check("one two  three", Some(2), ("one two  ", 2));
        check("one two", Some(0), ("", 0));
        check(" ä ö ", Some(9), (" ä ö ", 2));
    }

    #[test]
    fn prompts() {
        let prompt = json!([{"role": "user", "content": [{"text": "12345"}, 6, null]}]);
        assert_eq!(text_bytes(&prompt), 9);
        assert_eq!((tokens_of_bytes(0), tokens_of_bytes(1), tokens_of_bytes(4), tokens_of_bytes(5)), (0, 1, 1, 2));
    }
}
