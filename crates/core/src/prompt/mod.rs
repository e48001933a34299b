//! Builds the prompt of one iteration: the same inputs give the same bytes, in a fixed order and a bounded size.
//!
//! Nothing here reads a file or calls a model; the engine provides the texts and sends the prompt.

mod build;
mod egress_refusals;
mod last_actions;
mod prompt_part;
mod rules;
pub mod templates;

pub use build::{
    IterationPrompt, PromptCheckbox, PromptInputs, PromptRequest, RemainingBudget, build, build_from_ends,
    retry_message,
};
pub use egress_refusals::EgressRefusals;
pub use last_actions::{LastAction, LastActions, OutputEnds, SHOWN_ACTIONS, output_caps};
pub(crate) use prompt_part::PromptFence;
pub use prompt_part::{ERROR_LINES, MAX_PROMPT_BYTES, PromptPart, ShownEnd, TruncatedPart, UnreadBytes};
