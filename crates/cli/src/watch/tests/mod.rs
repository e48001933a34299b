//! The screen without a terminal: stories told as events, drawn on a backend that can be read.

mod controls;
pub(super) mod fixture;
mod hostile_text;
mod readme_svg;
mod screens;
