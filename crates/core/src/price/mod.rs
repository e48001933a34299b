//! What tokens cost: usage, prices, the shipped table and the reader of LiteLLM's price file. The table also knows how
//! long an answer of a model may be.
//!
//! A price that nobody knows is `None`, never zero. What a run may spend is decided in `budget`, not here.

mod estimate;
mod import;
mod rate;
mod table;
mod usage;

pub use estimate::estimate_tokens;
pub use import::{BadKept, Error, Imported, import_litellm, read_kept};
pub use rate::{CacheWrites, Price, Rates};
pub use table::{MOST_OUTPUT, Table, free_by_nature};
pub use usage::Usage;
