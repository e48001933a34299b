//! `ralph profile prices`: lists what tokens cost, and imports LiteLLM's price file over the prices that ship with
//! ralph.

use std::fs::File;
use std::io::Read as _;
use std::path::Path;

use ralph_core::exit_code::RalphExitCode;
use ralph_core::price::{ImportedPrices, Price, PriceTable, import_litellm};
use ralph_core::text;
use ralph_engine::setup::{imported_prices, prices_file};
use ralph_engine::store::write_atomic;
use serde_json::{Value, json};

use super::profile::{FORMAT, price_cells, price_json, table_cell};
use crate::args::profile::ProfilePricesArgs;
use crate::error::{CliError, CliResult};
use crate::render::align_columns;
use crate::run_setup::{CliSetup, error_with_hint};
use crate::terminal_output::Ui;

/// The largest price file that is read; real ones are far smaller.
const MAX_PRICE_FILE_BYTES: u64 = 64 << 20;

pub(crate) fn prices(setup: &CliSetup, args: &ProfilePricesArgs, ui: &mut Ui) -> CliResult {
    let new = args.import.as_deref().map(|path| import(setup, path)).transpose()?;
    // Loaded again from the file that runs will read.
    let over = imported_prices(&setup.host.home)?;
    let table = PriceTable::shipped().overlaid(over.clone());
    let rows = match (&new, args.models.is_empty()) {
        // After an import, do not list thousands of prices that the user did not ask for.
        (Some(_), true) => Vec::new(),
        _ => select_models(&table, &over, &args.models)?,
    };
    if ui.json() {
        let imported = new.as_ref().map(
            |new| json!({"models": new.table.len(), "skipped": new.skipped, "file": prices_file(&setup.host.home)}),
        );
        let rows: Vec<Value> = rows.iter().map(PriceRow::json).collect();
        ui.print_json(&json!({"format": FORMAT, "imported": imported, "prices": rows}));
        return Ok(RalphExitCode::Success);
    }
    if let Some(ImportedPrices { table, skipped }) = &new {
        ui.print_message(&format!(
            "the prices of {} models were imported; {skipped} entries that are not sold by the token alone were skipped",
            table.len()
        ));
        ui.print_message(&format!(
            "they are in `{}` and apply to every run that starts from now on",
            prices_file(&setup.host.home).display()
        ));
    }
    if !rows.is_empty() {
        let heads = ["MODEL", "PROVIDER", "IN", "OUT", "CACHED", "ORIGIN"];
        let mut cells = vec![heads.map(str::to_owned).to_vec()];
        cells.extend(rows.iter().map(PriceRow::cells));
        for line in align_columns(&cells) {
            ui.print_data(&line);
        }
        ui.print_message(&format!(
            "prices are dollars per million tokens; the built-in ones date from {}",
            PriceTable::shipped_on()
        ));
    }
    Ok(RalphExitCode::Success)
}

/// Imports a price file. If it is not one, an earlier import stays in force.
fn import(setup: &CliSetup, path: &Path) -> Result<ImportedPrices, CliError> {
    let refused = || format!("`{}` was not imported, and the prices are unchanged", path.display());
    let unreadable = |error: &std::io::Error| {
        CliError::usage(refused()).with_cause(error).hint("name LiteLLM's `model_prices_and_context_window.json`")
    };
    let mut text = String::new();
    let file = File::open(path).map_err(|error| unreadable(&error))?;
    let read = file.take(MAX_PRICE_FILE_BYTES + 1).read_to_string(&mut text).map_err(|error| unreadable(&error))?;
    if read as u64 > MAX_PRICE_FILE_BYTES {
        return Err(unreadable(&std::io::Error::other(format!(
            "it is larger than {} MiB",
            MAX_PRICE_FILE_BYTES >> 20
        ))));
    }
    let imported = import_litellm(&text).map_err(|error| {
        let mut failure = error_with_hint(RalphExitCode::Usage, &error, error.hint());
        failure.causes.insert(0, std::mem::replace(&mut failure.message, refused()));
        failure
    })?;
    write_atomic(&prices_file(&setup.host.home), imported.to_saved_json().as_bytes())?;
    Ok(imported)
}

/// One model and its price.
struct PriceRow<'t> {
    model: &'t str,
    provider: &'t str,
    price: Price,
    most_output: Option<u64>,
    origin: &'static str,
}

impl PriceRow<'_> {
    fn cells(&self) -> Vec<String> {
        let [input, output, cached] = price_cells(Some(&self.price));
        vec![table_cell(self.model), table_cell(self.provider), input, output, cached, self.origin.to_owned()]
    }

    fn json(&self) -> Value {
        json!({"model": self.model, "provider": self.provider, "price": price_json(&self.price),
            "max_output_tokens": self.most_output, "origin": self.origin})
    }
}

/// Returns the models whose name, with or without its provider, contains one of the wanted words.
fn select_models<'t>(
    table: &'t PriceTable,
    over: &PriceTable,
    wanted: &[String],
) -> Result<Vec<PriceRow<'t>>, CliError> {
    let imported: std::collections::BTreeSet<&str> = over.rows().map(|(model, ..)| model).collect();
    let holds = |wanted: &str, model: &str, provider: &str| {
        model.contains(wanted) || format!("{provider}/{model}").contains(wanted)
    };
    for wanted in wanted {
        if !table.rows().any(|(model, provider, _)| holds(wanted, model, provider)) {
            let failure =
                CliError::new(RalphExitCode::Failed, format!("no price is known for `{}`", table_cell(wanted)));
            let meant = text::did_you_mean(wanted, table.rows().map(|(model, ..)| model));
            return Err(failure.hint(match meant {
                Some(meant) => format!("ralph profile prices {}", table_cell(meant)),
                None => "ralph profile prices --import FILE".to_owned(),
            }));
        }
    }
    let meant =
        |model: &str, provider: &str| wanted.is_empty() || wanted.iter().any(|wanted| holds(wanted, model, provider));
    let rows = table.rows().filter(|(model, provider, _)| meant(model, provider));
    let row = |(model, provider, price): (&'t str, &'t str, Price)| {
        let origin = if imported.contains(model) { "imported" } else { "built-in" };
        PriceRow { model, provider, price, most_output: table.max_output(provider, model), origin }
    };
    Ok(rows.map(row).collect())
}
