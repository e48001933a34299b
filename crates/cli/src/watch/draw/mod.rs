//! Renders the model as cells: pure, for any size. Colour only repeats what words and marks already say.

mod boxes;
mod budgets;
mod chart;
pub(super) mod header;
mod iterations;
mod log;
mod overlay;
mod screen;
mod theme;

pub(super) use screen::draw;
