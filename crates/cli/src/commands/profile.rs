//! `ralph profile ls`: lists the models a run may use, what they cost, and what is missing before they can be used.

use std::collections::BTreeMap;

use jiff::Timestamp;
use ralph_core::exit_code::RalphExitCode;
use ralph_core::price::{Price, TokenRates};
use ralph_core::profile::{ProfileEntry, credential_names, resolve_endpoint};
use ralph_core::text;
use ralph_engine::secret::SecretStore;
use ralph_engine::setup::{load_profiles, prices_in_force};
use serde_json::{Value, json};

use super::profile_prices::prices;
use super::profile_test::test;
use crate::args::profile::ProfileCommand;
use crate::error::CliResult;
use crate::render::align_columns;
use crate::run_setup::CliSetup;
use crate::terminal_output::{Ui, YELLOW, paint};

/// The format version of the `--json` output.
pub(super) const FORMAT: u32 = 1;

pub(crate) async fn profile(setup: &CliSetup, args: &ProfileCommand, ui: &mut Ui) -> CliResult {
    match args {
        ProfileCommand::Ls => ls(setup, ui).await,
        ProfileCommand::Test(args) => test(setup, args, ui).await,
        ProfileCommand::Prices(args) => prices(setup, args, ui),
    }
}

async fn ls(setup: &CliSetup, ui: &mut Ui) -> CliResult {
    let top = setup.repo_top().await.unwrap_or_else(|| std::path::absolute(".").unwrap_or_default());
    let profiles = load_profiles(&setup.host.home, &top)?;
    let table = prices_in_force(&setup.host.home)?;
    let mut keys = KeyLookup::new(setup);
    let rows: Vec<(&str, &ProfileEntry, Option<Price>, ProfileKeyStatus)> =
        profiles.iter().map(|(name, entry)| (name, entry, entry.profile.price(&table), keys.status(entry))).collect();
    if ui.json() {
        let rows: Vec<Value> = rows
            .iter()
            .map(|(name, entry, price, key)| {
                json!({"name": name, "model": entry.profile.litellm_model, "price": price.as_ref().map(price_json),
                    "origin": entry.origin.to_string(), "key": key.json(), "needs_trust": entry.needs_trust(),
                    "untrusted": entry.untrusted})
            })
            .collect();
        ui.print_json(&json!({"format": FORMAT, "profiles": rows}));
        return Ok(RalphExitCode::Success);
    }
    let heads = ["NAME", "MODEL", "IN", "OUT", "CACHED", "ORIGIN", "KEY", "TRUST"];
    let mut cells = vec![heads.map(str::to_owned).to_vec()];
    for (name, entry, price, key) in &rows {
        let [input, output, cached] = price_cells(price.as_ref());
        let trust = if entry.needs_trust() { "needed" } else { "-" };
        let (model, origin) = (table_cell(&entry.profile.litellm_model), table_cell(&entry.origin.to_string()));
        cells.push(vec![table_cell(name), model, input, output, cached, origin, key.text(), trust.to_owned()]);
    }
    for line in align_columns(&cells) {
        ui.print_data(&line);
    }
    ui.print_message("prices are dollars per million tokens");
    for (name, entry, price, key) in &rows {
        for remark in remarks(entry, *price, key) {
            ui.print_message(&format!("{} {}: {remark}", paint(YELLOW, "!"), table_cell(name)));
        }
    }
    Ok(RalphExitCode::Success)
}

/// Returns what must be done before a profile can be used in its current form.
fn remarks(entry: &ProfileEntry, price: Option<Price>, key: &ProfileKeyStatus) -> Vec<String> {
    let mut remarks = Vec::new();
    if entry.needs_trust() {
        let file = table_cell(entry.origin.location());
        remarks.push(format!("{file} sets {}; read it, then run `ralph trust`", entry.untrusted.join(", ")));
    }
    match key {
        ProfileKeyStatus::Failed(why) => remarks.push(why.clone()),
        ProfileKeyStatus::Expired { name } => {
            remarks.push(format!("its key has expired; next: ralph secret set {name}"));
        }
        _ => (),
    }
    if price.is_none() {
        remarks.push(
            "its price is unknown, so a run with it needs a token cap; next: ralph profile prices --import FILE"
                .to_owned(),
        );
    }
    remarks
}

/// The state of a profile's key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum ProfileKeyStatus {
    NotNeeded,
    Found {
        name: String,
        source: &'static str,
    },
    Expired {
        name: String,
    },
    Missing {
        name: String,
    },
    /// Not looked up: the file that names it is not trusted.
    Untrusted,
    Failed(String),
}

impl ProfileKeyStatus {
    pub(super) fn text(&self) -> String {
        match self {
            Self::NotNeeded => "not needed".to_owned(),
            Self::Found { name, source } => format!("{} ({source})", table_cell(name)),
            Self::Expired { name } => format!("{} has expired", table_cell(name)),
            Self::Missing { name } => format!("no {}", table_cell(name)),
            Self::Untrusted => "-".to_owned(),
            Self::Failed(_) => "?".to_owned(),
        }
    }

    fn json(&self) -> Value {
        match self {
            Self::NotNeeded => json!({"state": "not-needed"}),
            Self::Found { name, source } => json!({"state": "found", "name": name, "source": source}),
            Self::Expired { name } => json!({"state": "over", "name": name}),
            Self::Missing { name } => json!({"state": "missing", "name": name}),
            Self::Untrusted => json!({"state": "untrusted"}),
            Self::Failed(why) => json!({"state": "trouble", "why": why}),
        }
    }
}

/// Looks up keys, each name once, because some lookups start a program.
struct KeyLookup<'s> {
    setup: &'s CliSetup,
    store: SecretStore,
    known: BTreeMap<Vec<String>, ProfileKeyStatus>,
}

/// Returns the state of one profile's key.
pub(super) fn profile_key_status(setup: &CliSetup, entry: &ProfileEntry) -> ProfileKeyStatus {
    KeyLookup::new(setup).status(entry)
}

impl<'s> KeyLookup<'s> {
    fn new(setup: &'s CliSetup) -> Self {
        Self { setup, store: super::secret::open_store(setup), known: BTreeMap::new() }
    }

    fn status(&mut self, entry: &ProfileEntry) -> ProfileKeyStatus {
        if entry.needs_trust() {
            return ProfileKeyStatus::Untrusted;
        }
        let place = match resolve_endpoint(&entry.profile, &self.setup.environment.env) {
            Ok(place) => place,
            Err(error) => {
                let hint = error.hint().map(|hint| format!("; {hint}")).unwrap_or_default();
                return ProfileKeyStatus::Failed(format!("{error}{hint}"));
            }
        };
        let names = credential_names(&entry.profile, &place);
        let Some(first) = names.first().cloned() else { return ProfileKeyStatus::NotNeeded };
        let key = match self.known.get(&names) {
            Some(key) => key.clone(),
            None => {
                let key = self.lookup(&names, first);
                self.known.insert(names, key.clone());
                key
            }
        };
        match key {
            ProfileKeyStatus::Missing { .. } if place.key_is_optional => ProfileKeyStatus::NotNeeded,
            key => key,
        }
    }

    fn lookup(&self, names: &[String], first: String) -> ProfileKeyStatus {
        match self.store.first_valid(names) {
            Ok(Some(found)) if found.is_expired(Timestamp::now()) => ProfileKeyStatus::Expired { name: found.name },
            Ok(Some(found)) => ProfileKeyStatus::Found { name: found.name, source: found.source.as_str() },
            Ok(None) => ProfileKeyStatus::Missing { name: first },
            Err(error) => ProfileKeyStatus::Failed(error.to_string()),
        }
    }
}

/// Formats a price as input, output and cached input.
pub(super) fn price_cells(price: Option<&Price>) -> [String; 3] {
    match price {
        Some(price) => [price.input, price.output, price.cached_input].map(format_dollars),
        None => ["?".to_owned(), "?".to_owned(), "?".to_owned()],
    }
}

/// Formats micro-dollars as dollars, without trailing zeros but always with cents.
fn format_dollars(micros: u64) -> String {
    let text = format!("{}.{:06}", micros / 1_000_000, micros % 1_000_000);
    let kept = text.trim_end_matches('0').len().max(text.len() - 4);
    text.get(..kept).unwrap_or(&text).to_owned()
}

/// Returns a price as dollars per million tokens, with the keys of `models.yaml`.
pub(super) fn price_json(price: &Price) -> Value {
    let rates = |rates: &TokenRates| {
        json!({"input_per_mtok": micros_to_usd(rates.input), "output_per_mtok": micros_to_usd(rates.output),
            "cached_input_per_mtok": micros_to_usd(rates.cached_input), "cache_write_per_mtok": micros_to_usd(rates.cache_write),
            "cache_write_long_per_mtok": rates.cache_write_long.map(micros_to_usd), "reasoning_per_mtok": rates.reasoning.map(micros_to_usd)})
    };
    let mut value = rates(&TokenRates {
        input: price.input,
        output: price.output,
        cached_input: price.cached_input,
        cache_write: price.cache_write,
        cache_write_long: price.cache_write_long,
        reasoning: price.reasoning,
    });
    value["above_200k"] = price.above_200k.as_ref().map(rates).into();
    if let Some(after) = price.long_after {
        value["long_after"] = after.into();
    }
    value
}

fn micros_to_usd(micros: u64) -> f64 {
    ralph_core::money::MicroUsd(micros).as_usd()
}

/// Makes text from an untrusted file safe for a table: one line, no escape sequences, limited length.
pub(super) fn table_cell(text: &str) -> String {
    text::first_line(&text::strip_control(text), 80).to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prices_in_words() {
        for (micros, want) in [
            (0, "0.00"),
            (600_000, "0.60"),
            (125_000, "0.125"),
            (28_000, "0.028"),
            (1, "0.000001"),
            (25_000_000, "25.00"),
            (10_050_000, "10.05"),
        ] {
            assert_eq!(format_dollars(micros), want);
        }
        assert_eq!(price_cells(None), ["?", "?", "?"]);
    }

    #[test]
    fn cells() {
        for (text, want) in [("a", "a"), ("a\u{1b}[31mb", "ab"), ("a\nb", "a"), (&"x".repeat(99), &"x".repeat(80))] {
            assert_eq!(table_cell(text), want);
        }
    }
}
