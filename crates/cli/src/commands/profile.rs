//! `ralph profile ls`: which models a run may use, what they cost, and what is missing before they can be used.

use std::collections::BTreeMap;

use jiff::Timestamp;
use ralph_core::exit::Exit;
use ralph_core::price::{Price, Rates};
use ralph_core::profile::{Entry, credential_names, endpoint};
use ralph_core::text;
use ralph_engine::secret::Store;
use serde_json::{Value, json};

use super::profile_prices::prices;
use super::profile_test::test;
use crate::args::profile::Profile;
use crate::error::Outcome;
use crate::render::columns;
use crate::setup::Setup;
use crate::ui::{Ui, YELLOW, paint};

/// The version of what `--json` prints.
pub(super) const FORMAT: u32 = 1;

pub(crate) async fn profile(setup: &Setup, args: &Profile, ui: &mut Ui) -> Outcome {
    match args {
        Profile::Ls => ls(setup, ui).await,
        Profile::Test(args) => test(setup, args, ui).await,
        Profile::Prices(args) => prices(setup, args, ui),
    }
}

async fn ls(setup: &Setup, ui: &mut Ui) -> Outcome {
    let top = setup.top().await.unwrap_or_else(|| std::path::absolute(".").unwrap_or_default());
    let profiles = setup.profiles(&top)?;
    let table = setup.prices()?;
    let mut keys = Keys::new(setup);
    let rows: Vec<(&str, &Entry, Option<Price>, Key)> =
        profiles.iter().map(|(name, entry)| (name, entry, entry.profile.price(&table), keys.of(entry))).collect();
    if ui.json() {
        let rows: Vec<Value> = rows
            .iter()
            .map(|(name, entry, price, key)| {
                json!({"name": name, "model": entry.profile.litellm_model, "price": price.as_ref().map(in_dollars),
                    "origin": entry.origin.to_string(), "key": key.json(), "needs_trust": entry.needs_trust(),
                    "untrusted": entry.untrusted})
            })
            .collect();
        ui.object(&json!({"format": FORMAT, "profiles": rows}));
        return Ok(Exit::Success);
    }
    let heads = ["NAME", "MODEL", "IN", "OUT", "CACHED", "ORIGIN", "KEY", "TRUST"];
    let mut cells = vec![heads.map(str::to_owned).to_vec()];
    for (name, entry, price, key) in &rows {
        let [input, output, cached] = shown(price.as_ref());
        let trust = if entry.needs_trust() { "needed" } else { "-" };
        let (model, origin) = (cell(&entry.profile.litellm_model), cell(&entry.origin.to_string()));
        cells.push(vec![cell(name), model, input, output, cached, origin, key.word(), trust.to_owned()]);
    }
    for line in columns(&cells) {
        ui.data(&line);
    }
    ui.say("prices are dollars per million tokens");
    for (name, entry, price, key) in &rows {
        for remark in remarks(entry, *price, key) {
            ui.say(&format!("{} {}: {remark}", paint(YELLOW, "!"), cell(name)));
        }
    }
    Ok(Exit::Success)
}

/// Says what must be done before a profile can be used as it stands.
fn remarks(entry: &Entry, price: Option<Price>, key: &Key) -> Vec<String> {
    let mut remarks = Vec::new();
    if entry.needs_trust() {
        let file = cell(entry.origin.place());
        remarks.push(format!("{file} sets {}; read it, then run `ralph trust`", entry.untrusted.join(", ")));
    }
    match key {
        Key::Trouble(why) => remarks.push(why.clone()),
        Key::Over { name } => remarks.push(format!("its key is over; next: ralph secret set {name}")),
        _ => (),
    }
    if price.is_none() {
        remarks.push(
            "nobody knows its price, so a run with it needs a token cap; next: ralph profile prices --import FILE"
                .to_owned(),
        );
    }
    remarks
}

/// How the key of a profile stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Key {
    NotNeeded,
    Found {
        name: String,
        source: &'static str,
    },
    Over {
        name: String,
    },
    Missing {
        name: String,
    },
    /// Not looked for: the file that names it is a stranger's.
    Untrusted,
    Trouble(String),
}

impl Key {
    pub(super) fn word(&self) -> String {
        match self {
            Self::NotNeeded => "not needed".to_owned(),
            Self::Found { name, source } => format!("{} ({source})", cell(name)),
            Self::Over { name } => format!("{} is over", cell(name)),
            Self::Missing { name } => format!("no {}", cell(name)),
            Self::Untrusted => "-".to_owned(),
            Self::Trouble(_) => "?".to_owned(),
        }
    }

    fn json(&self) -> Value {
        match self {
            Self::NotNeeded => json!({"state": "not-needed"}),
            Self::Found { name, source } => json!({"state": "found", "name": name, "source": source}),
            Self::Over { name } => json!({"state": "over", "name": name}),
            Self::Missing { name } => json!({"state": "missing", "name": name}),
            Self::Untrusted => json!({"state": "untrusted"}),
            Self::Trouble(why) => json!({"state": "trouble", "why": why}),
        }
    }
}

/// Looks for keys, for each name once: some are found by asking a program.
struct Keys<'s> {
    setup: &'s Setup,
    store: Store,
    known: BTreeMap<Vec<String>, Key>,
}

/// Says how the key of one profile stands.
pub(super) fn key_of(setup: &Setup, entry: &Entry) -> Key {
    Keys::new(setup).of(entry)
}

impl<'s> Keys<'s> {
    fn new(setup: &'s Setup) -> Self {
        Self { setup, store: super::secret::store(setup), known: BTreeMap::new() }
    }

    fn of(&mut self, entry: &Entry) -> Key {
        if entry.needs_trust() {
            return Key::Untrusted;
        }
        let place = match endpoint(&entry.profile, &self.setup.environment.env) {
            Ok(place) => place,
            Err(error) => {
                let hint = error.hint().map(|hint| format!("; {hint}")).unwrap_or_default();
                return Key::Trouble(format!("{error}{hint}"));
            }
        };
        let names = credential_names(&entry.profile, &place);
        let Some(first) = names.first().cloned() else { return Key::NotNeeded };
        let key = match self.known.get(&names) {
            Some(key) => key.clone(),
            None => {
                let key = self.look(&names, first);
                self.known.insert(names, key.clone());
                key
            }
        };
        match key {
            Key::Missing { .. } if place.key_is_optional => Key::NotNeeded,
            key => key,
        }
    }

    fn look(&self, names: &[String], first: String) -> Key {
        match self.store.first(names) {
            Ok(Some(found)) if found.is_over(Timestamp::now()) => Key::Over { name: found.name },
            Ok(Some(found)) => Key::Found { name: found.name, source: found.source.as_str() },
            Ok(None) => Key::Missing { name: first },
            Err(error) => Key::Trouble(error.to_string()),
        }
    }
}

/// Writes a price as input, output and cached input.
pub(super) fn shown(price: Option<&Price>) -> [String; 3] {
    match price {
        Some(price) => [price.input, price.output, price.cached_input].map(dollars),
        None => ["?".to_owned(), "?".to_owned(), "?".to_owned()],
    }
}

/// Writes micro-dollars as dollars, with the digits that say something and never fewer than cents.
fn dollars(micros: u64) -> String {
    let text = format!("{}.{:06}", micros / 1_000_000, micros % 1_000_000);
    let kept = text.trim_end_matches('0').len().max(text.len() - 4);
    text.get(..kept).unwrap_or(&text).to_owned()
}

/// Returns a price as dollars per million tokens, by the words of `models.yaml`.
pub(super) fn in_dollars(price: &Price) -> Value {
    let rates = |rates: &Rates| {
        json!({"input_per_mtok": usd(rates.input), "output_per_mtok": usd(rates.output),
            "cached_input_per_mtok": usd(rates.cached_input), "cache_write_per_mtok": usd(rates.cache_write),
            "cache_write_long_per_mtok": rates.cache_write_long.map(usd), "reasoning_per_mtok": rates.reasoning.map(usd)})
    };
    let mut value = rates(&Rates {
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

fn usd(micros: u64) -> f64 {
    ralph_core::money::Micros(micros).as_usd()
}

/// Makes a word of somebody's file safe for a table: one line, no escape sequences, not too long.
pub(super) fn cell(text: &str) -> String {
    text::first_line(&text::plain(text), 80).to_owned()
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
            assert_eq!(dollars(micros), want);
        }
        assert_eq!(shown(None), ["?", "?", "?"]);
    }

    #[test]
    fn cells() {
        for (text, want) in [("a", "a"), ("a\u{1b}[31mb", "ab"), ("a\nb", "a"), (&"x".repeat(99), &"x".repeat(80))] {
            assert_eq!(cell(text), want);
        }
    }
}
