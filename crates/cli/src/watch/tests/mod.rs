//! Tests the screen without a terminal: events are drawn on a backend whose cells can be read.

mod controls;
pub(super) mod fixture;
mod hostile_text;
mod readme_svg;
mod screens;
