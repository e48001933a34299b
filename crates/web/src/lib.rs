//! Defines the views of runs: the objects that users and other programs see.
//!
//! `ralph ls --json` and `ralph show --json` print them, and the terminal and `ralph watch` draw them. This crate adds
//! no rule: everything in a view is a fold of the run's events.

pub mod view;
