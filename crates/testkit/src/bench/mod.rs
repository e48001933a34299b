//! Provides the harness of the benches: options, sample series, figures with targets, and one report as text, JSON and
//! Markdown page.
//!
//! What is measured, against which targets and with which further options, is defined in each bench.

mod bench_main;
mod chart;
mod column;
mod failure;
mod figure;
mod figure_table;
mod machine;
mod markdown_report;
mod number;
mod option_list;
mod parse_options;
mod percentile;
mod report;
mod report_json;
mod report_text;
mod series;
#[cfg(test)]
mod tests;

pub use bench_main::{BenchProgram, BenchResult, bench_runtime};
pub use chart::{BarChart, ChartBar};
pub use column::SeriesColumn;
pub use failure::report_failure;
pub use figure::{BenchFigure, FigureTarget};
pub use figure_table::FigureTable;
pub use machine::{BenchMachine, describe_machine, read_kib};
pub use markdown_report::BenchPage;
pub use option_list::{BenchOption, OptionValue};
pub use parse_options::BenchArguments;
pub use percentile::percentile;
pub use report::{BenchPeer, BenchReport};
pub use series::SampleSeries;
