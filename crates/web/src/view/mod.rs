//! Folds a run's events into the views that the terminal, `ralph watch` and `--json` show.
//!
//! Colours, widths and layout are not here: the code that draws a view chooses them.

mod activity;
mod event_text;
mod iterations;
mod pending_controls;
mod run_json;
mod run_view;
mod spend_history;

pub use activity::RunActivity;
pub use event_text::{EventSpan, EventText, EventTone, baseline_words, event_text, one_line};
pub use iterations::{IterationRow, IterationTable};
pub use pending_controls::{ControlNotice, PendingControl, PendingControls, progress_text};
pub use run_json::{
    BudgetLine, CheckboxView, FORMAT, ProofView, RunDetail, RunSummary, detail, rest_reason, status_word, summary,
};
pub use run_view::{LastProofResult, RunView};
pub use spend_history::{SpendForecast, SpendHistory, charted_limit, forecast};
