//! `ralph watch`: one run on a whole screen, folded from the same events as everything else.
//!
//! [`model`] is what is known and what a key means; [`draw`] turns it into cells. Both are pure. Only [`app`], [`screen`]
//! and [`ask`] touch the world.

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
