//! What `core` decides over a whole run, as stories of events.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod decide;
mod gutter_corpus;
mod gutter_ladder;
mod prompt;
mod pure;
mod run_builder;
mod run_state_fold;
