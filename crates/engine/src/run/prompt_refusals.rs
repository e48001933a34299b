//! Lists what the egress proxy refused since the previous prompt. The list is saved beside the iteration, so that every
//! prompt of the iteration says the same, even when another process builds it.

use ralph_core::prompt::EgressRefusals;
use serde::{Deserialize, Serialize};

use crate::audit;
use crate::error::Error;
use crate::store::{RunFolder, write_unflushed};

const REFUSALS_FILE: &str = "refused.json";

#[derive(Debug, Serialize, Deserialize)]
struct SavedRefusals {
    /// How far the audit file was read.
    through: u64,
    refusals: EgressRefusals,
}

/// Returns what the prompt of an iteration says was refused.
pub(super) fn refusals_text(folder: &RunFolder, n: u32) -> Result<String, Error> {
    if let Some(kept) = saved_refusals(folder, n)? {
        return Ok(kept.refusals.text());
    }
    let mut from = 0;
    for before in (1..n).rev() {
        if let Some(kept) = saved_refusals(folder, before)? {
            from = kept.through;
            break;
        }
    }
    let (refusals, through) = audit::read_refusals(folder, from)?;
    let text = refusals.text();
    if through > 0 {
        let bytes = serde_json::to_vec(&SavedRefusals { through, refusals }).expect("plain data with string keys");
        write_unflushed(&folder.iteration(n).join(REFUSALS_FILE), &bytes)?;
    }
    Ok(text)
}

/// Reads the saved list. A file that does not parse counts as missing: the list is then worked out again.
fn saved_refusals(folder: &RunFolder, n: u32) -> Result<Option<SavedRefusals>, Error> {
    let bytes = folder.read(&folder.iteration(n).join(REFUSALS_FILE))?;
    Ok(bytes.and_then(|bytes| serde_json::from_slice(&bytes).ok()))
}
