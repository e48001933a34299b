//! Defines the options of this bench.

use ralph_testkit::bench::BenchOption;

pub(crate) const ROUNDS: BenchOption =
    BenchOption::rounds(100, "samples of each quick measurement; slow ones get a fifth");
pub(crate) const QUICK: BenchOption = BenchOption::quick("leave out the large snapshot");
pub(crate) const SPEED: BenchOption =
    BenchOption::flag("--speed", "only the first and the further commands, to find out what takes so long");
pub(crate) const PROGRAM: BenchOption = BenchOption::text(
    "--program",
    "PATH",
    "measure this program as launcher too (the `ralph` beside this one, if there is one)",
);
pub(crate) const DIR: BenchOption = BenchOption::text(
    "--dir",
    "DIR",
    "where to keep the sandboxes while they are measured (the system's temporary folder)",
);

pub(crate) const OPTIONS: &[BenchOption] = &[
    BenchOption::JSON,
    BenchOption::STRICT,
    ROUNDS,
    QUICK,
    SPEED,
    BenchOption::PEERS,
    BenchOption::PATH,
    PROGRAM,
    DIR,
    BenchOption::WRITE,
];
