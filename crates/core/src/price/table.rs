//! Prices by LiteLLM's model names: the shipped table, and what the user imported over it.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use serde::{Deserialize, Serialize};

use super::litellm_prices::read_saved;
use super::rate::Price;

/// An upper bound: no known model has a larger maximum output, reasoning included.
pub const MAX_OUTPUT_TOKENS: u64 = 1 << 20;

/// One model of the table: its provider and its price.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct PriceEntry {
    pub(super) provider: String,
    pub(super) price: Price,
    /// The maximum output in tokens, if known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) most_output: Option<u64>,
}

/// A price list.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct PriceTable(BTreeMap<String, PriceEntry>);

/// The shipped prices; `crates/core/examples/prices.rs` generates them.
const SHIPPED: &str = include_str!("../../../../config/prices.json");

/// Returns whether a provider's models cost nothing because they run on the user's machine or from a file.
pub fn is_free_provider(provider: &str) -> bool {
    matches!(provider, "ollama" | "ollama_chat" | "scripted")
}

impl PriceTable {
    /// Returns the shipped prices of this version.
    pub fn shipped() -> Self {
        static TABLE: LazyLock<PriceTable> =
            LazyLock::new(|| read_saved(SHIPPED).expect("a list that a test has read"));
        TABLE.clone()
    }

    /// Returns the date of the shipped prices.
    pub fn shipped_on() -> String {
        #[derive(Deserialize)]
        struct PriceTableDate {
            made: String,
        }
        serde_json::from_str::<PriceTableDate>(SHIPPED).expect("a list that a test has read").made
    }

    /// Returns the price of a model: by its full name, else by its bare name if the same provider sells it.
    ///
    /// `None` means that the price is unknown, and a run needs a token cap.
    pub fn lookup(&self, provider: &str, model: &str) -> Option<Price> {
        if is_free_provider(provider) {
            return Some(Price::FREE);
        }
        self.entry(provider, model).map(|entry| entry.price)
    }

    /// Returns the maximum output of a model, looked up like its price; `None` when it is unknown.
    pub fn max_output(&self, provider: &str, model: &str) -> Option<u64> {
        self.entry(provider, model)?.most_output
    }

    fn entry(&self, provider: &str, model: &str) -> Option<&PriceEntry> {
        let whole = self.0.get(&format!("{provider}/{model}"));
        whole.or_else(|| self.0.get(model).filter(|entry| entry.provider == provider))
    }

    /// Overlays another table on this one, model by model. A maximum output that the other table lacks is kept.
    #[must_use]
    pub fn overlaid(mut self, over: Self) -> Self {
        for (key, mut entry) in over.0 {
            let known = self.0.get(&key).filter(|known| known.provider == entry.provider);
            entry.most_output = entry.most_output.or(known.and_then(|known| known.most_output));
            self.0.insert(key, entry);
        }
        self
    }

    pub fn len(&self) -> usize {
        self.0.len()
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Lists every model as `key`, provider and price, by name.
    pub fn rows(&self) -> impl Iterator<Item = (&str, &str, Price)> {
        self.0.iter().map(|(key, entry)| (key.as_str(), entry.provider.as_str(), entry.price))
    }

    pub(super) fn insert(&mut self, key: &str, entry: PriceEntry) {
        self.0.insert(key.to_owned(), entry);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[track_caller]
    fn check(provider: &str, model: &str, want: Option<u64>) {
        assert_eq!(PriceTable::shipped().lookup(provider, model).map(|price| price.output), want, "{provider}/{model}");
    }

    #[test]
    fn lookups() {
        check("zai", "glm-4.7", Some(2_200_000));
        check("openai", "gpt-5", Some(10_000_000));
        check("azure", "gpt-5", Some(10_000_000));
        check("anthropic", "claude-opus-4-5", Some(25_000_000));
        // Sold by another provider, which sets its own price.
        check("openrouter", "gpt-5", None);
        check("openrouter", "z-ai/glm-4.7", None);
        check("openai", "gpt-6000", None);
        check("ollama", "llama3", Some(0));
        check("scripted", "demo.jsonl", Some(0));
    }

    #[test]
    fn cache_writes_are_never_underpriced() {
        let table = PriceTable::shipped();
        assert_eq!(table.lookup("zai", "glm-4.7").map(|price| price.cache_write), Some(600_000));
        assert_eq!(table.lookup("anthropic", "claude-opus-4-5").map(|price| price.cache_write), Some(6_250_000));
        assert_eq!(
            table.lookup("anthropic", "claude-opus-4-5").and_then(|price| price.cache_write_long),
            Some(10_000_000)
        );
        assert_eq!(
            table.lookup("gemini", "gemini-2.5-pro").and_then(|price| price.above_200k).map(|rates| rates.output),
            Some(15_000_000)
        );
    }

    #[test]
    fn maximum_outputs() {
        for (provider, model, want) in [
            ("zai", "glm-4.7", Some(128_000)),
            ("openai", "gpt-5", Some(128_000)),
            ("anthropic", "claude-opus-4-5", Some(64_000)),
            ("gemini", "gemini-2.5-pro", Some(65_536)),
            ("deepseek", "deepseek-chat", Some(8192)),
            ("openrouter", "gpt-5", None),
            ("ollama", "llama3", None),
        ] {
            assert_eq!(PriceTable::shipped().max_output(provider, model), want, "{provider}/{model}");
        }
        assert!(
            PriceTable::shipped()
                .0
                .values()
                .all(|entry| entry.most_output.is_none_or(|most| most <= MAX_OUTPUT_TOKENS))
        );
    }

    #[test]
    fn shipped_prices_are_sane() {
        let today = PriceTable::shipped_on();
        assert_eq!((today.len(), today.matches('-').count()), (10, 2), "{today} is no date");
        let table = PriceTable::shipped();
        for seller in ["anthropic", "deepseek", "gemini", "groq", "mistral", "moonshot", "openai", "xai", "zai"] {
            assert!(table.rows().any(|(_, provider, _)| provider == seller), "nothing of {seller}");
        }
        // A cache write never costs less than fresh input, except where the table says so.
        for (model, _, price) in table.rows() {
            assert!(price.input > 0 && price.output > 0 && price.cache_write > 0, "{model}");
            assert!(price.cached_input <= price.input, "{model}");
        }
    }

    #[test]
    fn imported_prices_take_precedence() {
        let entry = |provider: &str, most_output| {
            let price = Price { output: 7, ..Price::FREE };
            PriceEntry { provider: provider.to_owned(), price, most_output }
        };
        let mut over = PriceTable::default();
        over.insert("gpt-5", entry("openai", Some(9)));
        // An import from before tables had a maximum output.
        over.insert("claude-opus-4-5", entry("anthropic", None));
        over.insert("zai/glm-4.7", entry("somebody", None));
        let table = PriceTable::shipped().overlaid(over);
        assert_eq!(table.lookup("openai", "gpt-5").map(|price| price.output), Some(7));
        assert_eq!(table.len(), PriceTable::shipped().len());
        assert_eq!(table.max_output("openai", "gpt-5"), Some(9));
        assert_eq!(table.max_output("anthropic", "claude-opus-4-5"), Some(64_000));
        assert_eq!(table.max_output("zai", "glm-4.7"), None);
    }

    proptest! {
        #[test]
        fn unknown_is_never_zero(provider in "[a-z_]{1,10}", model in "[a-z0-9./-]{1,20}") {
            match PriceTable::shipped().lookup(&provider, &model) {
                Some(price) if !is_free_provider(&provider) => prop_assert!(price.input > 0 && price.output > 0),
                Some(price) => prop_assert_eq!(price, Price::FREE),
                None => (),
            }
        }
    }
}
