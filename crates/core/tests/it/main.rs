//! What `core` decides over a whole run, as stories of events.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod corpus;
mod decide;
mod fold;
mod prompt;
mod pure;
mod story;
mod stuck;
