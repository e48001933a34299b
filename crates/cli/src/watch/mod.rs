//! `ralph watch`: one run on a whole screen, folded from the same events as everything else.
//!
//! [`model`] is what is known and what a key means; [`draw`] turns it into cells. Both are pure. Only [`app`], [`screen`]
//! and [`ask`] touch the world.

mod app;
mod ask;
mod burn;
mod draw;
mod iterations;
mod keys;
mod log;
mod model;
mod pending;
mod plan;
mod screen;
mod tail;
mod text;

#[cfg(test)]
mod tests;

pub(crate) use app::watch;
pub(crate) use screen::drawable;
