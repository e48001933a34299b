//! Defines the options of this bench.

use ralph_testkit::bench::BenchOption;

pub(crate) const ROUNDS: BenchOption =
    BenchOption::rounds(1000, "requests by which a delay is measured, for each setup");
pub(crate) const SECONDS: BenchOption =
    BenchOption::number("--seconds", 2, 1..=60, "how long each measurement of requests per second takes");
pub(crate) const ONLY: BenchOption = BenchOption::text(
    "--only",
    "TEXT",
    "measure only what has this in its name, and write no page; the other figures are reported as not measured",
);

pub(crate) const OPTIONS: &[BenchOption] = &[
    BenchOption::JSON,
    BenchOption::STRICT,
    ROUNDS,
    SECONDS,
    BenchOption::PEERS,
    BenchOption::PATH,
    ONLY,
    BenchOption::WRITE,
];
