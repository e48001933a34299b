//! Implements `ralph watch`: one run on the full screen, folded from the same events as everything else.
//!
//! [`model`] holds the state and handles keys; [`draw`] renders it. Both are pure. Only [`app`], [`terminal`] and
//! [`control_sender`] do I/O.

mod app;
mod control_sender;
mod draw;
mod event_tail;
mod keys;
mod layout;
mod log_panel;
mod model;
mod spend_text;
mod terminal;
mod text;

#[cfg(test)]
mod tests;

pub(crate) use app::watch;
pub(crate) use terminal::can_draw;
