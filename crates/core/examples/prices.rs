//! Generates `config/prices.json` from LiteLLM's price file:
//!
//! ```sh
//! cargo run -p ralph-core --example prices -- model_prices_and_context_window.json 2026-11-15 > config/prices.json
//! ```
//!
//! The shipped list has the models that providers sell themselves as of the given date: chat models with a known price
//! per token, without those deprecated more than a year before. Users who need another model import the whole file
//! (`ralph profile prices --import`).

#![expect(clippy::disallowed_methods, reason = "a program, which reads its arguments and a file")]

use std::io::Write as _;

use ralph_core::price::import_litellm;
use serde_json::{Map, Value};

/// Providers that sell their own models, or a list of others' models that is their own.
const SELLERS: [&str; 12] = [
    "anthropic",
    "cerebras",
    "dashscope",
    "deepseek",
    "gemini",
    "groq",
    "minimax",
    "mistral",
    "moonshot",
    "openai",
    "xai",
    "zai",
];

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let usage = "usage: prices FILE DATE";
    let (Some(file), Some(date)) = (std::env::args().nth(1), std::env::args().nth(2)) else { return Err(usage.into()) };
    let mut all: Map<String, Value> = serde_json::from_str(&std::fs::read_to_string(file)?)?;
    let year: u32 = date.get(..4).ok_or(usage)?.parse()?;
    let since = format!("{}{}", year - 1, date.get(4..).unwrap_or_default());
    all.retain(|key, entry| is_shipped(key, entry, &since));
    let imported = import_litellm(&Value::Object(all).to_string())?;
    let saved: Value = serde_json::from_str(&imported.to_saved_json())?;
    let models = saved.get("models").and_then(Value::as_object).ok_or("an import without models")?;
    // One model per line, so that a later list can be compared with this one.
    let lines: Vec<String> =
        models.iter().map(|(key, entry)| format!("{}:{entry}", Value::from(key.as_str()))).collect();
    let format = saved.get("format").ok_or("an import without a format")?;
    let text = format!("{{\"format\":{format},\"made\":\"{date}\",\"models\":{{\n{}\n}}}}\n", lines.join(",\n"));
    std::io::stdout().write_all(text.as_bytes())?;
    Ok(())
}

fn is_shipped(key: &str, entry: &Value, since: &str) -> bool {
    let text = |name: &str| entry.get(name).and_then(Value::as_str);
    let costs = |name: &str| entry.get(name).and_then(Value::as_f64).is_some_and(|usd| usd > 0.0);
    // Azure also sells by region; a name without one has the usual price.
    let azure =
        text("litellm_provider") == Some("azure") && key.starts_with("azure/gpt-5") && key.matches('/').count() == 1;
    (azure || text("litellm_provider").is_some_and(|seller| SELLERS.contains(&seller)))
        && matches!(text("mode"), Some("chat" | "responses"))
        && text("deprecation_date").is_none_or(|gone| gone > since)
        && costs("input_cost_per_token")
        && costs("output_cost_per_token")
        // Audio output costs more than its text tokens, and models that always search cost more than their tokens.
        && !costs("output_cost_per_audio_token")
        && !["search", "deep-research", "ft:"].iter().any(|part| key.contains(part))
}
