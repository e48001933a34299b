//! Implements `ralph watch`: shows one run full screen, computed from its event file.
//!
//! [`model`] holds the state and handles keys; [`draw`] renders it. Both are pure. Only [`app`], [`terminal`] and
//! [`control_sender`] do I/O.

mod control_sender;
mod draw;
mod event_loop;
mod event_tail;
mod keys;
mod layout;
mod log_panel;
mod model;
mod spend_text;
mod terminal;
mod text_layout;

#[cfg(test)]
mod tests;

pub(crate) use event_loop::watch;
pub(crate) use terminal::can_draw;
