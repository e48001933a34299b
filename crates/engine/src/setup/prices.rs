//! Finds the prices in force: those the user imported over those that ship with ralph.

use std::io;
use std::path::PathBuf;

use ralph_core::price::{self, PriceTable};

use super::SetupError;
use crate::store::RalphHome;

/// Returns the file of imported prices, whether or not it exists.
pub fn prices_file(home: &RalphHome) -> PathBuf {
    home.config_dir().join("prices.json")
}

/// Returns the prices in force.
pub fn prices_in_force(home: &RalphHome) -> Result<PriceTable, SetupError> {
    Ok(PriceTable::shipped().overlaid(imported_prices(home)?))
}

/// Reads the prices the user imported; empty if there are none. A damaged file is an error and never skipped: a run
/// would be priced by another list than its owner expects.
pub fn imported_prices(home: &RalphHome) -> Result<PriceTable, SetupError> {
    let path = prices_file(home);
    let why = match std::fs::read_to_string(&path) {
        Ok(text) => match price::read_saved(&text) {
            Ok(table) => return Ok(table),
            Err(error) => error.to_string(),
        },
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(PriceTable::default()),
        Err(error) => error.to_string(),
    };
    Err(SetupError::ImportedPrices { path, why })
}
