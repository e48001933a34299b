//! Provides what the benches share: facts of the machine, percentiles, a chart, and reporting of failures.
//!
//! What is measured, against which targets and in which table, is defined in each bench.

mod chart;
mod failure;
mod machine;
mod percentile;

pub use chart::{BarChart, ChartBar};
pub use failure::report_failure;
pub use machine::{BenchMachine, describe_machine, read_kib};
pub use percentile::percentile;
