//! The screen without a terminal: stories told as events, drawn on a backend that can be read.

mod controls;
mod hostile;
mod picture;
mod screens;
pub(super) mod story;
