//! What a model is told in one iteration: the same inputs give the same bytes, in a fixed order and a bounded size.
//!
//! Nothing here reads a file or calls a model; the engine brings the texts and sends the prompt.

mod build;
mod last_actions;
mod part;
mod refused;
mod rules;
pub mod templates;

pub use build::{Ask, Checkbox, Inputs, Left, Prompt, build, build_from_ends, reask};
pub use last_actions::{Ends, LastAction, LastActions, SHOWN_ACTIONS, rooms};
pub(crate) use part::Fence;
pub use part::{Cut, ERROR_LINES, Keep, Part, Unread, WHOLE_BYTES};
pub use refused::Refusals;
