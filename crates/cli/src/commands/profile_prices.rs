//! `ralph profile prices`: what tokens cost, and an import of LiteLLM's price file over what ships with ralph.

use std::fs::File;
use std::io::Read as _;
use std::path::Path;

use ralph_core::exit::Exit;
use ralph_core::price::{Imported, Price, Table, import_litellm};
use ralph_core::text;
use ralph_engine::store::write_atomic;
use serde_json::{Value, json};

use super::profile::{FORMAT, cell, in_dollars, shown};
use crate::args::profile::Prices;
use crate::error::{Failure, Outcome};
use crate::render::columns;
use crate::setup::{Setup, told};
use crate::ui::Ui;

/// No price file is nearly as large.
const CAP: u64 = 64 << 20;

pub(crate) fn prices(setup: &Setup, args: &Prices, ui: &mut Ui) -> Outcome {
    let new = args.import.as_deref().map(|path| import(setup, path)).transpose()?;
    // Read again from where runs will read it.
    let over = setup.imported_prices()?;
    let table = Table::shipped().overlaid(over.clone());
    let rows = match (&new, args.models.is_empty()) {
        // Whoever imports thousands of prices does not want to read them all.
        (Some(_), true) => Vec::new(),
        _ => chosen(&table, &over, &args.models)?,
    };
    if ui.json() {
        let imported = new
            .as_ref()
            .map(|new| json!({"models": new.table.len(), "skipped": new.skipped, "file": setup.prices_file()}));
        let rows: Vec<Value> = rows.iter().map(Row::json).collect();
        ui.object(&json!({"format": FORMAT, "imported": imported, "prices": rows}));
        return Ok(Exit::Success);
    }
    if let Some(Imported { table, skipped }) = &new {
        ui.say(&format!(
            "the prices of {} models were taken; {skipped} entries that are not sold by the token alone were skipped",
            table.len()
        ));
        ui.say(&format!(
            "they are in `{}` and count for every run that starts from now on",
            setup.prices_file().display()
        ));
    }
    if !rows.is_empty() {
        let heads = ["MODEL", "PROVIDER", "IN", "OUT", "CACHED", "ORIGIN"];
        let mut cells = vec![heads.map(str::to_owned).to_vec()];
        cells.extend(rows.iter().map(Row::cells));
        for line in columns(&cells) {
            ui.data(&line);
        }
        ui.say(&format!("prices are dollars per million tokens; the built-in ones are of {}", Table::shipped_on()));
    }
    Ok(Exit::Success)
}

/// Takes a price file over; where it is none, what was imported before stays as it is.
fn import(setup: &Setup, path: &Path) -> Result<Imported, Failure> {
    let refused = || format!("`{}` was not imported, and the prices are what they were", path.display());
    let unreadable = |error: &std::io::Error| {
        Failure::usage(refused()).because(error).hint("name LiteLLM's `model_prices_and_context_window.json`")
    };
    let mut text = String::new();
    let file = File::open(path).map_err(|error| unreadable(&error))?;
    let read = file.take(CAP + 1).read_to_string(&mut text).map_err(|error| unreadable(&error))?;
    if read as u64 > CAP {
        return Err(unreadable(&std::io::Error::other(format!("it is larger than {} MiB", CAP >> 20))));
    }
    let imported = import_litellm(&text).map_err(|error| {
        let mut failure = told(Exit::Usage, &error, error.hint());
        failure.causes.insert(0, std::mem::replace(&mut failure.message, refused()));
        failure
    })?;
    write_atomic(&setup.prices_file(), imported.kept().as_bytes())?;
    Ok(imported)
}

/// One model and its price.
struct Row<'t> {
    model: &'t str,
    provider: &'t str,
    price: Price,
    most_output: Option<u64>,
    origin: &'static str,
}

impl Row<'_> {
    fn cells(&self) -> Vec<String> {
        let [input, output, cached] = shown(Some(&self.price));
        vec![cell(self.model), cell(self.provider), input, output, cached, self.origin.to_owned()]
    }

    fn json(&self) -> Value {
        json!({"model": self.model, "provider": self.provider, "price": in_dollars(&self.price),
            "max_output_tokens": self.most_output, "origin": self.origin})
    }
}

/// Returns the models whose name, with or without that of who sells it, holds one of the wanted words.
fn chosen<'t>(table: &'t Table, over: &Table, wanted: &[String]) -> Result<Vec<Row<'t>>, Failure> {
    let imported: std::collections::BTreeSet<&str> = over.rows().map(|(model, ..)| model).collect();
    let holds = |wanted: &str, model: &str, provider: &str| {
        model.contains(wanted) || format!("{provider}/{model}").contains(wanted)
    };
    for wanted in wanted {
        if !table.rows().any(|(model, provider, _)| holds(wanted, model, provider)) {
            let failure = Failure::new(Exit::Failed, format!("no price is known for `{}`", cell(wanted)));
            let meant = text::did_you_mean(wanted, table.rows().map(|(model, ..)| model));
            return Err(failure.hint(match meant {
                Some(meant) => format!("ralph profile prices {}", cell(meant)),
                None => "ralph profile prices --import FILE".to_owned(),
            }));
        }
    }
    let meant =
        |model: &str, provider: &str| wanted.is_empty() || wanted.iter().any(|wanted| holds(wanted, model, provider));
    let rows = table.rows().filter(|(model, provider, _)| meant(model, provider));
    let row = |(model, provider, price): (&'t str, &'t str, Price)| {
        let origin = if imported.contains(model) { "imported" } else { "built-in" };
        Row { model, provider, price, most_output: table.most_output(provider, model), origin }
    };
    Ok(rows.map(row).collect())
}
