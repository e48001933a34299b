//! Shows runs: the objects that people and programs outside get to see.
//!
//! `ralph ls --json` and `ralph show --json` print them; an HTTP server will answer with the same ones. This crate adds
//! no rule: everything in a view is read from the folded state.

pub mod view;
