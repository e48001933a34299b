//! What the way out refused since the prompt before. It is kept beside the iteration, so that every prompt of it says the
//! same, whenever and by whomever it is put together.

use ralph_core::prompt::EgressRefusals;
use serde::{Deserialize, Serialize};

use super::runner::Runner;
use crate::audit;
use crate::error::Error;
use crate::store::write_unflushed;

const REFUSALS_FILE: &str = "refused.json";

#[derive(Debug, Serialize, Deserialize)]
struct SavedRefusals {
    /// How far the audit file was read.
    through: u64,
    refusals: EgressRefusals,
}

impl Runner {
    /// Returns what the prompt of an iteration says was refused.
    pub(super) fn refusals_text(&self, n: u32) -> Result<String, Error> {
        if let Some(kept) = self.saved_refusals(n)? {
            return Ok(kept.refusals.text());
        }
        let mut from = 0;
        for before in (1..n).rev() {
            if let Some(kept) = self.saved_refusals(before)? {
                from = kept.through;
                break;
            }
        }
        let (refusals, through) = audit::read_refusals(&self.folder, from)?;
        let text = refusals.text();
        if through > 0 {
            let bytes = serde_json::to_vec(&SavedRefusals { through, refusals }).expect("plain data with string keys");
            write_unflushed(&self.folder.iteration(n).join(REFUSALS_FILE), &bytes)?;
        }
        Ok(text)
    }

    /// What cannot be understood is worked out again.
    fn saved_refusals(&self, n: u32) -> Result<Option<SavedRefusals>, Error> {
        let bytes = self.folder.read(&self.folder.iteration(n).join(REFUSALS_FILE))?;
        Ok(bytes.and_then(|bytes| serde_json::from_slice(&bytes).ok()))
    }
}
