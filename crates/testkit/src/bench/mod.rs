//! What the benches share: facts of the machine, percentiles, a chart, and how a failure is told.
//!
//! What is measured, against which targets and in which table, is each bench's own.

mod chart;
mod failure;
mod machine;
mod percentile;

pub use chart::{BarChart, ChartBar};
pub use failure::report_failure;
pub use machine::{BenchMachine, describe_machine, read_kib};
pub use percentile::percentile;
