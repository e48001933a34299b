//! Tests what `core` decides over a whole run, given as a history of events.

#![expect(clippy::disallowed_methods, reason = "tests read the corpus, which `core` itself may not")]
#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod decide;
mod gutter_corpus;
mod gutter_ladder;
mod prompt;
mod run_builder;
mod run_state_fold;
