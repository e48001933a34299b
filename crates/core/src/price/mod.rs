//! Computes what tokens cost: usage, prices, the shipped table and the import of LiteLLM's price file. The table also
//! has the maximum output of each model.
//!
//! An unknown price is `None`, never zero. What a run may spend is decided in `budget`, not here.

mod litellm_prices;
mod rate;
mod table;
mod token_estimate;
mod usage;

pub use litellm_prices::{ImportedPrices, PriceImportError, SavedPricesError, import_litellm, read_saved};
pub use rate::{CacheLifetime, Price, TokenRates};
pub use table::{MAX_OUTPUT_TOKENS, PriceTable, is_free_provider};
pub use token_estimate::estimate_tokens;
pub use usage::TokenUsage;
