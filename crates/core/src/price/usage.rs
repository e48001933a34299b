//! Token counts by price class.

use std::ops::AddAssign;

use serde::{Deserialize, Serialize};

/// Tokens of one or more model calls, by price class.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct TokenUsage {
    /// Prompt tokens that were neither read from nor written to a cache.
    pub input: u64,
    /// Prompt tokens read from the provider's cache.
    pub cached_input: u64,
    /// Prompt tokens written to the provider's cache for its usual, short time.
    pub cache_write: u64,
    /// Prompt tokens written to the provider's cache for an hour, which costs more.
    #[serde(skip_serializing_if = "none")]
    pub cache_write_long: u64,
    /// Completion tokens, reasoning included.
    pub output: u64,
    /// The part of `output` that was reasoning.
    pub reasoning: u64,
}

impl TokenUsage {
    pub fn total(&self) -> u64 {
        self.prompt().saturating_add(self.output)
    }

    /// Returns the tokens of the whole prompt, cached or not.
    pub fn prompt(&self) -> u64 {
        let written = self.cache_write.saturating_add(self.cache_write_long);
        self.input.saturating_add(self.cached_input).saturating_add(written)
    }
}

/// Returns whether the field is omitted, so that files written before this class existed stay unchanged.
#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde calls it with a reference")]
fn none(tokens: &u64) -> bool {
    *tokens == 0
}

impl AddAssign for TokenUsage {
    fn add_assign(&mut self, other: Self) {
        self.input = self.input.saturating_add(other.input);
        self.cached_input = self.cached_input.saturating_add(other.cached_input);
        self.cache_write = self.cache_write.saturating_add(other.cache_write);
        self.cache_write_long = self.cache_write_long.saturating_add(other.cache_write_long);
        self.output = self.output.saturating_add(other.output);
        self.reasoning = self.reasoning.saturating_add(other.reasoning);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unused_hour_long_writes_are_omitted() {
        let old = r#"{"input":1,"cached_input":2,"cache_write":3,"output":4,"reasoning":1}"#;
        let usage =
            TokenUsage { input: 1, cached_input: 2, cache_write: 3, output: 4, reasoning: 1, ..TokenUsage::default() };
        assert_eq!(serde_json::from_str::<TokenUsage>(old).expect("an old line"), usage);
        assert_eq!(serde_json::to_string(&usage).expect("a line"), old);
        let long = TokenUsage { cache_write_long: 5, ..usage };
        let line = serde_json::to_string(&long).expect("a line");
        assert_eq!(serde_json::from_str::<TokenUsage>(&line).expect("a new line"), long);
        assert_eq!((long.prompt(), long.total()), (11, 15));
        let mut sum = usage;
        sum += long;
        assert_eq!((sum.cache_write_long, sum.total()), (5, 25));
    }
}
