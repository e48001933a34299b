//! Imports LiteLLM's `model_prices_and_context_window.json`, and writes and reads the saved import.
//!
//! Speed tiers (batch, flex, priority) are not read: ralph never requests them. Nor are fees for the provider's own
//! tools, which ralph removes from every call; a model that always charges a fee per call is left out.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::rate::{Price, TokenRates};
use super::table::{MAX_OUTPUT_TOKENS, PriceEntry, PriceTable, is_free_provider};
use crate::text;

/// More than a dollar per token is a mistake in the file, not a price.
const ABSURD_USD_PER_TOKEN: f64 = 1.0;

#[derive(Debug, thiserror::Error)]
pub enum PriceImportError {
    #[error("the price file is not a JSON object, at line {line}, column {column}")]
    Json { line: usize, column: usize, source: serde_json::Error },
    #[error("the price file has no model with a price")]
    Empty { skipped: usize },
}

impl PriceImportError {
    pub fn hint(&self) -> Option<String> {
        Some("use LiteLLM's `model_prices_and_context_window.json`".to_owned())
    }
}

/// The format version of a saved import.
const FORMAT: u32 = 1;

/// The reasons why a saved import cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum SavedPricesError {
    #[error("it is not a price list written by ralph, at line {line}, column {column}")]
    Json { line: usize, column: usize, source: serde_json::Error },
    #[error("it has format {found}, and this ralph reads {FORMAT}")]
    Format { found: u32 },
    #[error("`{model}` has a price of zero, which would disable the cost cap")]
    Free { model: String },
    #[error("it has no models")]
    Empty,
}

/// Parsed separately, so that a newer version is reported as such and not as a syntax error.
#[derive(Deserialize)]
struct SavedPricesVersion {
    format: u32,
}

#[derive(Serialize, Deserialize)]
struct SavedPrices {
    format: u32,
    models: PriceTable,
}

/// The result of importing a price file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ImportedPrices {
    pub table: PriceTable,
    /// Entries without a usable price per token: images, speech, free trials, mistakes.
    pub skipped: usize,
}

impl ImportedPrices {
    /// Returns the import as JSON text; [`read_saved`] reads it.
    pub fn to_saved_json(&self) -> String {
        let saved = SavedPrices { format: FORMAT, models: self.table.clone() };
        serde_json::to_string_pretty(&saved).expect("plain data with string keys") + "\n"
    }
}

/// Reads a saved import. It was written from valid prices, so a single odd value makes the whole file untrustworthy.
pub fn read_saved(json: &str) -> Result<PriceTable, SavedPricesError> {
    let bad =
        |source: serde_json::Error| SavedPricesError::Json { line: source.line(), column: source.column(), source };
    let SavedPricesVersion { format } = serde_json::from_str(json).map_err(bad)?;
    if format != FORMAT {
        return Err(SavedPricesError::Format { found: format });
    }
    let SavedPrices { models, .. } = serde_json::from_str(json).map_err(bad)?;
    let free = |(_, provider, price): &(&str, &str, Price)| {
        price.input == 0 && price.output == 0 && !is_free_provider(provider)
    };
    if let Some((model, ..)) = models.rows().find(free) {
        return Err(SavedPricesError::Free { model: text::strip_control(text::first_line(model, 80)) });
    }
    if models.is_empty() { Err(SavedPricesError::Empty) } else { Ok(models) }
}

/// Reads a price file; invalid entries are counted, not fatal.
pub fn import_litellm(json: &str) -> Result<ImportedPrices, PriceImportError> {
    let entries: BTreeMap<String, Value> = serde_json::from_str(json).map_err(|source| PriceImportError::Json {
        line: source.line(),
        column: source.column(),
        source,
    })?;
    let mut table = PriceTable::default();
    let mut skipped = 0;
    for (key, value) in entries.iter().filter(|(key, _)| *key != "sample_spec") {
        let provider = value.get("litellm_provider").and_then(Value::as_str);
        match provider.and_then(|provider| Some((provider, price(provider, value).filter(|_| !has_fee(key, value))?))) {
            Some((provider, price)) => {
                table.insert(key, PriceEntry { provider: provider.to_owned(), price, most_output: max_output(value) });
            }
            None => skipped += 1,
        }
    }
    if table.is_empty() { Err(PriceImportError::Empty { skipped }) } else { Ok(ImportedPrices { table, skipped }) }
}

/// Returns the maximum output of a model. An impossible value counts as unknown; the prices are used all the same.
fn max_output(entry: &Value) -> Option<u64> {
    entry.get("max_output_tokens")?.as_u64().filter(|most| (1..=MAX_OUTPUT_TOKENS).contains(most))
}

/// Returns whether every call of a model costs a fee on top of its tokens, which would be neither reserved nor
/// charged.
fn has_fee(key: &str, entry: &Value) -> bool {
    let asked = |name: &str| entry.get(name).is_some_and(is_nonzero_fee);
    let fees = ["input_cost_per_request", "output_cost_per_request", "input_cost_per_query", "output_cost_per_query"];
    // With most models a search is a tool that can be left out. These search on every call.
    let searches = || {
        let provider = entry.get("litellm_provider").and_then(Value::as_str).unwrap_or_default();
        let words = ["perplexity", "sonar", "search-preview", "search-api", "deep-research"];
        provider == "perplexity" || words.iter().any(|word| key.contains(word))
    };
    fees.into_iter().any(asked) || (asked("search_context_cost_per_query") && searches())
}

/// Returns whether a fee is above zero; an unreadable fee counts as one.
fn is_nonzero_fee(fee: &Value) -> bool {
    match fee {
        Value::Null => false,
        Value::Number(number) => number.as_f64() != Some(0.0),
        // One fee for each search size.
        Value::Object(sizes) => sizes.values().any(is_nonzero_fee),
        Value::Bool(_) | Value::String(_) | Value::Array(_) => true,
    }
}

fn price(provider: &str, entry: &Value) -> Option<Price> {
    // A malformed rate invalidates the entry: half a price is a wrong price.
    let rate = |name: &str| match entry.get(name) {
        None | Some(Value::Null) => Some(None),
        Some(value) => per_million(value).map(Some),
    };
    let input = rate("input_cost_per_token")??;
    let output = rate("output_cost_per_token")??;
    // In that file zero stands for trials and flat rates. Here it would disable the cost cap.
    if input == 0 && output == 0 && !is_free_provider(provider) {
        return None;
    }
    let or = |rate: Option<u64>, fallback: u64| rate.filter(|rate| *rate > 0).unwrap_or(fallback);
    // Anthropic charges twice the input rate for an hour in the cache, also for models whose entry does not say so.
    let hour = |listed: Option<u64>, input: u64| {
        listed.filter(|rate| *rate > 0).or((provider == "anthropic").then(|| input.saturating_mul(2)))
    };
    let base = TokenRates {
        input,
        output,
        cached_input: or(rate("cache_read_input_token_cost")?, input),
        cache_write: or(rate("cache_creation_input_token_cost")?, input),
        cache_write_long: hour(rate("cache_creation_input_token_cost_above_1hr")?, input),
        reasoning: rate("output_cost_per_reasoning_token")?.filter(|rate| *rate > 0 && *rate != output),
    };
    let steps: BTreeSet<u64> = entry.as_object()?.keys().filter_map(|name| long_prompt_threshold(name)).collect();
    let mut long: Option<TokenRates> = None;
    for step in &steps {
        let above = |name: &str| rate(&format!("{name}_above_{step}k_tokens"));
        let input = or(above("input_cost_per_token")?, base.input);
        let known = long.unwrap_or_default();
        // The highest rate of all steps applies from the first one on: more than the bill, never less.
        long = Some(TokenRates {
            input: known.input.max(input),
            output: known.output.max(or(above("output_cost_per_token")?, base.output)),
            cached_input: known.cached_input.max(or(above("cache_read_input_token_cost")?, input)),
            cache_write: known.cache_write.max(or(above("cache_creation_input_token_cost")?, input)),
            cache_write_long: known
                .cache_write_long
                .max(hour(above("cache_creation_input_token_cost_above_1hr")?, input)),
            // The file has no such rate.
            reasoning: None,
        });
    }
    Some(Price {
        input: base.input,
        output: base.output,
        cached_input: base.cached_input,
        cache_write: base.cache_write,
        cache_write_long: base.cache_write_long,
        reasoning: base.reasoning,
        above_200k: long,
        long_after: steps.first().map(|step| step.saturating_mul(1000)).filter(|step| *step != 200_000),
    })
}

/// Returns the prompt length, in thousands of tokens, from which a rate applies, by its name.
fn long_prompt_threshold(name: &str) -> Option<u64> {
    let rates = [
        "input_cost_per_token",
        "output_cost_per_token",
        "cache_read_input_token_cost",
        "cache_creation_input_token_cost",
    ];
    let rest = rates.iter().find_map(|rate| name.strip_prefix(rate))?;
    rest.strip_prefix("_above_")?.strip_suffix("k_tokens")?.parse().ok()
}

/// Converts dollars per token into micro-dollars per million tokens.
fn per_million(value: &Value) -> Option<u64> {
    let usd = value.as_f64().filter(|usd| (0.0..=ABSURD_USD_PER_TOKEN).contains(usd))?;
    let micros = (usd * 1e12).round();
    // A price too small to represent is still a price.
    let micros = if usd > 0.0 { micros.max(1.0) } else { 0.0 };
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "between 0 and 1e12")]
    Some(micros as u64)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::price::TokenUsage;

    #[test]
    fn a_price_file_is_imported() {
        let json = r#"{
            "sample_spec": {"input_cost_per_token": "a number", "litellm_provider": "one of …"},
            "gpt-5": {"input_cost_per_token": 1.25e-06, "output_cost_per_token": 1e-05,
                      "cache_read_input_token_cost": 1.25e-07, "litellm_provider": "openai", "mode": "chat"},
            "gemini/pro": {"input_cost_per_token": 1.25e-06, "output_cost_per_token": 1e-05, "litellm_provider": "gemini",
                      "input_cost_per_token_above_200k_tokens": 2.5e-06, "output_cost_per_token_above_200k_tokens": 1.5e-05},
            "claude": {"input_cost_per_token": 5e-06, "output_cost_per_token": 2.5e-05, "litellm_provider": "anthropic",
                      "cache_creation_input_token_cost": 6.25e-06, "cache_creation_input_token_cost_above_1hr": 1.1e-05},
            "old-claude": {"input_cost_per_token": 5e-06, "output_cost_per_token": 2.5e-05,
                      "litellm_provider": "anthropic"},
            "thinker": {"input_cost_per_token": 1e-06, "output_cost_per_token": 1e-06,
                      "output_cost_per_reasoning_token": 3e-06, "litellm_provider": "x"},
            "thinker-alike": {"input_cost_per_token": 1e-06, "output_cost_per_token": 1e-06,
                      "output_cost_per_reasoning_token": 1e-06, "litellm_provider": "x"},
            "thinker-for-nothing": {"input_cost_per_token": 1e-06, "output_cost_per_token": 1e-06,
                      "output_cost_per_reasoning_token": 0, "litellm_provider": "x"},
            "thinker-in-words": {"input_cost_per_token": 1e-06, "output_cost_per_token": 1e-06,
                      "output_cost_per_reasoning_token": "3e-06", "litellm_provider": "x"},
            "ollama/llama3": {"input_cost_per_token": 0.0, "output_cost_per_token": 0.0, "litellm_provider": "ollama"},
            "trial": {"input_cost_per_token": 0.0, "output_cost_per_token": 0.0, "litellm_provider": "gemini"},
            "picture": {"output_cost_per_image": 0.04, "litellm_provider": "openai"},
            "words": {"input_cost_per_token": "1e-6", "output_cost_per_token": 1e-06, "litellm_provider": "openai"},
            "minus": {"input_cost_per_token": -1, "output_cost_per_token": 1e-06, "litellm_provider": "openai"},
            "nobody": {"input_cost_per_token": 1e-06, "output_cost_per_token": 1e-06},
            "number": 7
        }"#;
        let ImportedPrices { table, skipped } = import_litellm(json).expect("a price file");
        let rows: Vec<_> = table.rows().collect();
        let flat =
            |input, output, cached_input| Price { input, output, cached_input, cache_write: input, ..Price::FREE };
        let long = TokenRates {
            input: 2_500_000,
            output: 15_000_000,
            cached_input: 2_500_000,
            cache_write: 2_500_000,
            cache_write_long: None,
            reasoning: None,
        };
        let thinker = flat(1_000_000, 1_000_000, 1_000_000);
        let claude = flat(5_000_000, 25_000_000, 5_000_000);
        assert_eq!(
            rows,
            [
                ("claude", "anthropic", Price { cache_write: 6_250_000, cache_write_long: Some(11_000_000), ..claude }),
                ("gemini/pro", "gemini", Price { above_200k: Some(long), ..flat(1_250_000, 10_000_000, 1_250_000) }),
                ("gpt-5", "openai", flat(1_250_000, 10_000_000, 125_000)),
                ("old-claude", "anthropic", Price { cache_write_long: Some(10_000_000), ..claude }),
                ("ollama/llama3", "ollama", Price::FREE),
                ("thinker", "x", Price { reasoning: Some(3_000_000), ..thinker }),
                ("thinker-alike", "x", thinker),
                ("thinker-for-nothing", "x", thinker),
            ]
        );
        assert_eq!(skipped, 7);
    }

    /// A fee per call is in no sum of tokens, so a model with one has no price that ralph could keep to.
    #[test]
    fn models_with_a_fee_per_call_are_left_out() {
        let sizes = r#"{"search_context_size_low": 0.005, "search_context_size_high": 0.012}"#;
        let nothing = r#"{"search_context_size_low": 0.0}"#;
        for (key, provider, fee, want) in [
            ("m", "x", "\"input_cost_per_request\": 0.005".to_owned(), false),
            ("m", "x", "\"input_cost_per_query\": \"0.005\"".to_owned(), false),
            ("m", "x", "\"output_cost_per_request\": 1".to_owned(), false),
            ("m", "x", "\"input_cost_per_request\": 0.0, \"input_cost_per_query\": null".to_owned(), true),
            ("perplexity/sonar-pro", "perplexity", format!("\"search_context_cost_per_query\": {sizes}"), false),
            ("perplexity/r1", "perplexity", format!("\"search_context_cost_per_query\": {nothing}"), true),
            ("openrouter/perplexity/sonar", "openrouter", format!("\"search_context_cost_per_query\": {sizes}"), false),
            ("gpt-4o-search-preview", "openai", format!("\"search_context_cost_per_query\": {sizes}"), false),
            // Where the search is a tool, ralph removes the tool from every call.
            ("claude-opus-4-1", "anthropic", format!("\"search_context_cost_per_query\": {sizes}"), true),
            ("gpt-5", "openai", format!("\"search_context_cost_per_query\": {sizes}"), true),
        ] {
            let json = format!(
                r#"{{"free": {{"litellm_provider": "ollama", "input_cost_per_token": 0, "output_cost_per_token": 0}},
                    "{key}": {{"input_cost_per_token": 1e-06, "output_cost_per_token": 1e-06,
                               "litellm_provider": "{provider}", {fee}}}}}"#
            );
            let ImportedPrices { table, skipped } = import_litellm(&json).expect("a price file");
            assert_eq!(
                (table.rows().any(|(name, ..)| name == key), skipped),
                (want, usize::from(!want)),
                "{key} {fee}"
            );
        }
    }

    #[test]
    fn long_prompts() {
        let file = r#"{"a": {"litellm_provider": "openai", "input_cost_per_token": 1e-06, "output_cost_per_token": 4e-06,
                             "input_cost_per_token_above_272k_tokens": 2e-06, "output_cost_per_token_above_272k_tokens": 6e-06},
                       "b": {"litellm_provider": "openai", "input_cost_per_token": 1e-06, "output_cost_per_token": 4e-06,
                             "input_cost_per_token_above_128k_tokens": 2e-06, "input_cost_per_token_above_256k_tokens": 3e-06}}"#;
        let table = import_litellm(file).unwrap().table;
        let prices: Vec<Price> = table.rows().map(|(_, _, price)| price).collect();
        let usage = |input: u64| TokenUsage { input, ..TokenUsage::default() };
        for (at, input, want) in [
            (0, 272_000, 272_000),
            (0, 272_001, 544_002),
            (1, 128_000, 128_000),
            // The highest step applies from the first one on.
            (1, 128_001, 384_003),
        ] {
            assert_eq!(prices[at].cost(&usage(input)).0, want, "{at} {input}");
        }
    }

    #[test]
    fn maximum_outputs() {
        for (limit, want) in [
            ("8192", Some(8192)),
            ("1048576", Some(1_048_576)),
            ("10000000", None),
            ("0", None),
            ("-1", None),
            ("1.5", None),
            ("\"8192\"", None),
            ("null", None),
        ] {
            let json = format!(
                r#"{{"m": {{"input_cost_per_token": 1e-06, "output_cost_per_token": 1e-06, "litellm_provider": "x",
                      "max_tokens": 7, "max_output_tokens": {limit}}}}}"#
            );
            let ImportedPrices { table, skipped } = import_litellm(&json).expect("a price file");
            assert_eq!((table.max_output("x", "m"), skipped), (want, 0), "{limit}");
        }
    }

    #[test]
    fn not_a_price_file() {
        for (json, want) in [
            ("{", "the price file is not a JSON object, at line 1, column 1"),
            ("[]", "the price file is not a JSON object, at line 1, column 0"),
            ("{}", "the price file has no model with a price"),
        ] {
            assert_eq!(import_litellm(json).expect_err("no prices").to_string(), want);
        }
    }

    #[test]
    fn saved_prices_round_trip() {
        let json = r#"{
            "a": {"input_cost_per_token": 1e-06, "output_cost_per_token": 2e-06, "litellm_provider": "x",
                  "input_cost_per_token_above_200k_tokens": 2e-06, "max_output_tokens": 4096},
            "b": {"input_cost_per_token": 5e-06, "output_cost_per_token": 2e-05, "litellm_provider": "anthropic",
                  "output_cost_per_reasoning_token": 3e-05},
            "ollama/c": {"input_cost_per_token": 0.0, "output_cost_per_token": 0.0, "litellm_provider": "ollama"}
        }"#;
        let imported = import_litellm(json).expect("a price file");
        assert_eq!(read_saved(&imported.to_saved_json()).expect("a saved import"), imported.table);
        assert!(imported.to_saved_json().starts_with("{\n  \"format\": 1,\n"), "{}", imported.to_saved_json());
    }

    #[test]
    fn damaged_saved_prices_are_refused() {
        let one = |price: &str, provider: &str| {
            format!(r#"{{"format": 1, "models": {{"m\u001b": {{"provider": "{provider}", "price": {price}}}}}}}"#)
        };
        let price = r#"{"input": 1, "output": 0, "cached_input": 0, "cache_write": 0}"#;
        let free = r#"{"input": 0, "output": 0, "cached_input": 0, "cache_write": 0}"#;
        for (json, want) in [
            (one(price, "x"), None),
            (one(free, "ollama"), None),
            (one(free, "x"), Some("`m` has a price of zero, which would disable the cost cap")),
            (one("7", "x"), Some("it is not a price list written by ralph, at line 1, column 64")),
            (one(price, "x").replace(": 1,", ": 2,"), Some("it has format 2, and this ralph reads 1")),
            (String::new(), Some("it is not a price list written by ralph, at line 1, column 0")),
            ("{}".to_owned(), Some("it is not a price list written by ralph, at line 1, column 2")),
            (r#"{"format": 1, "models": {}}"#.to_owned(), Some("it has no models")),
        ] {
            assert_eq!(read_saved(&json).err().map(|bad| bad.to_string()).as_deref(), want, "{json}");
        }
    }

    proptest! {
        #[test]
        fn damaged_saved_prices_never_panic(json in "\\PC{0,60}", at in any::<prop::sample::Index>(), byte in any::<char>()) {
            let _ = read_saved(&json);
            let entry = r#"{"m": {"input_cost_per_token": 1e-6, "output_cost_per_token": 1e-6, "litellm_provider": "x"}}"#;
            let saved = import_litellm(entry).expect("a price file").to_saved_json();
            let mut chars: Vec<char> = saved.chars().collect();
            let at = at.index(chars.len());
            chars[at] = byte;
            if let Ok(table) = read_saved(&chars.into_iter().collect::<String>()) {
                for (_, provider, price) in table.rows() {
                    prop_assert!(price.input > 0 || price.output > 0 || is_free_provider(provider));
                }
            }
        }

        #[test]
        fn never_panics_and_never_zero(json in "\\PC{0,60}", number in any::<f64>(), other in any::<f64>()) {
            let _ = import_litellm(&json);
            let entry = serde_json::json!({"m": {
                "input_cost_per_token": number, "output_cost_per_token": other, "litellm_provider": "openai"
            }});
            if let Ok(imported) = import_litellm(&entry.to_string()) {
                let price = imported.table.lookup("openai", "m").expect("the one model");
                prop_assert!(price.input > 0 || price.output > 0);
            }
        }
    }
}
