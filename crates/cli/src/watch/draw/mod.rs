//! Renders the model into terminal cells, as a pure function that works at any screen size. Colour only repeats what
//! words and marks already say.

mod budgets;
mod chart;
mod checkboxes;
pub(super) mod header;
mod iterations;
mod log;
mod overlay;
mod screen;
mod theme;

pub(super) use screen::draw;
