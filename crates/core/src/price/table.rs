//! Prices by LiteLLM's model names: what ships with ralph, and what a person imported over it.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::rate::{Price, Rates};

/// No model is known to answer with more, its thoughts included.
pub const MOST_OUTPUT: u64 = 1 << 20;

/// One model of the table: who sells it and for how much.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Entry {
    pub(super) provider: String,
    pub(super) price: Price,
    /// The longest answer it gives, in tokens, where that is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) most_output: Option<u64>,
}

/// A price list.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Table(BTreeMap<String, Entry>);

/// Key, provider, dollars per million tokens: input, output, cache read, cache write (0 where there is no such price);
/// then the longest answer in tokens.
type Row = (&'static str, &'static str, f64, f64, f64, f64, u64);

#[rustfmt::skip]
const SHIPPED: &[Row] = &[
    ("zai/glm-4.7",              "zai",       0.60,  2.20, 0.11,  0.0,   128_000),
    ("zai/glm-4.6",              "zai",       0.60,  2.20, 0.11,  0.0,   128_000),
    ("zai/glm-5",                "zai",       1.00,  3.20, 0.20,  0.0,   128_000),
    ("gpt-5",                    "openai",    1.25, 10.00, 0.125, 0.0,   128_000),
    ("gpt-5-codex",              "openai",    1.25, 10.00, 0.125, 0.0,   128_000),
    ("gpt-5.2-codex",            "openai",    1.75, 14.00, 0.175, 0.0,   128_000),
    ("azure/gpt-5",              "azure",     1.25, 10.00, 0.125, 0.0,   128_000),
    ("claude-sonnet-4-5",        "anthropic", 3.00, 15.00, 0.30,  3.75,   64_000),
    ("claude-opus-4-5",          "anthropic", 5.00, 25.00, 0.50,  6.25,   64_000),
    ("deepseek/deepseek-chat",   "deepseek",  0.28,  0.42, 0.028, 0.0,     8_192),
    ("gemini/gemini-2.5-pro",    "gemini",    1.25, 10.00, 0.125, 0.0,    65_536),
];

/// Providers whose models cost nothing because they run on the user's machine or from a file.
pub fn free_by_nature(provider: &str) -> bool {
    matches!(provider, "ollama" | "ollama_chat" | "scripted")
}

impl Table {
    /// Returns the prices known when this version was made.
    pub fn shipped() -> Self {
        let mut table = Self::default();
        for (key, provider, input, output, cached, write, most) in SHIPPED {
            let mut price = Price::per_mtok_usd(*input, *output, Some(*cached));
            if *write > 0.0 {
                price.cache_write = crate::money::Micros::from_usd(*write).0;
            }
            if *provider == "anthropic" {
                price.cache_write_long = Some(price.input * 2);
            }
            if *key == "gemini/gemini-2.5-pro" {
                price.above_200k = Some(Rates {
                    input: 2_500_000,
                    output: 15_000_000,
                    cached_input: 250_000,
                    cache_write: 2_500_000,
                    cache_write_long: None,
                    reasoning: None,
                });
            }
            table.insert(key, Entry { provider: (*provider).to_owned(), price, most_output: Some(*most) });
        }
        table
    }

    /// Returns the price of a model: by its whole name, else by its bare name when the same provider sells it.
    ///
    /// `None` means that nobody knows, and a run needs a token cap.
    pub fn lookup(&self, provider: &str, model: &str) -> Option<Price> {
        if free_by_nature(provider) {
            return Some(Price::FREE);
        }
        self.entry(provider, model).map(|entry| entry.price)
    }

    /// Returns the longest answer that a model gives, found like its price; `None` when nobody knows.
    pub fn most_output(&self, provider: &str, model: &str) -> Option<u64> {
        self.entry(provider, model)?.most_output
    }

    fn entry(&self, provider: &str, model: &str) -> Option<&Entry> {
        let whole = self.0.get(&format!("{provider}/{model}"));
        whole.or_else(|| self.0.get(model).filter(|entry| entry.provider == provider))
    }

    /// Puts another table over this one, model by model. What it does not say of a model's answers stays known.
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

    pub(super) fn insert(&mut self, key: &str, entry: Entry) {
        self.0.insert(key.to_owned(), entry);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[track_caller]
    fn check(provider: &str, model: &str, want: Option<u64>) {
        assert_eq!(Table::shipped().lookup(provider, model).map(|price| price.output), want, "{provider}/{model}");
    }

    #[test]
    fn lookups() {
        check("zai", "glm-4.7", Some(2_200_000));
        check("openai", "gpt-5", Some(10_000_000));
        check("azure", "gpt-5", Some(10_000_000));
        check("anthropic", "claude-opus-4-5", Some(25_000_000));
        // Sold by another provider: its price is its own business.
        check("openrouter", "gpt-5", None);
        check("openrouter", "z-ai/glm-4.7", None);
        check("openai", "gpt-6000", None);
        check("ollama", "llama3", Some(0));
        check("scripted", "demo.jsonl", Some(0));
    }

    #[test]
    fn a_write_to_the_cache_is_never_cheaper_than_it_was_sold() {
        let table = Table::shipped();
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
    fn the_longest_answers() {
        for (provider, model, want) in [
            ("zai", "glm-4.7", Some(128_000)),
            ("openai", "gpt-5", Some(128_000)),
            ("anthropic", "claude-opus-4-5", Some(64_000)),
            ("gemini", "gemini-2.5-pro", Some(65_536)),
            ("deepseek", "deepseek-chat", Some(8192)),
            ("openrouter", "gpt-5", None),
            ("ollama", "llama3", None),
        ] {
            assert_eq!(Table::shipped().most_output(provider, model), want, "{provider}/{model}");
        }
        assert!(Table::shipped().0.values().all(|entry| entry.most_output.is_some_and(|most| most <= MOST_OUTPUT)));
    }

    #[test]
    fn an_import_wins() {
        let entry = |provider: &str, most_output| {
            let price = Price { output: 7, ..Price::FREE };
            Entry { provider: provider.to_owned(), price, most_output }
        };
        let mut over = Table::default();
        over.insert("gpt-5", entry("openai", Some(9)));
        // One that was imported before answers had a length.
        over.insert("claude-opus-4-5", entry("anthropic", None));
        over.insert("zai/glm-4.7", entry("somebody", None));
        let table = Table::shipped().overlaid(over);
        assert_eq!(table.lookup("openai", "gpt-5").map(|price| price.output), Some(7));
        assert_eq!(table.len(), Table::shipped().len());
        assert_eq!(table.most_output("openai", "gpt-5"), Some(9));
        assert_eq!(table.most_output("anthropic", "claude-opus-4-5"), Some(64_000));
        assert_eq!(table.most_output("zai", "glm-4.7"), None);
    }

    proptest! {
        #[test]
        fn unknown_is_never_zero(provider in "[a-z_]{1,10}", model in "[a-z0-9./-]{1,20}") {
            match Table::shipped().lookup(&provider, &model) {
                Some(price) if !free_by_nature(&provider) => prop_assert!(price.input > 0 && price.output > 0),
                Some(price) => prop_assert_eq!(price, Price::FREE),
                None => (),
            }
        }
    }
}
