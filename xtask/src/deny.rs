//! cargo-deny: the licences, sources and banned crates of the whole tree, as `deny.toml` has them.

use crate::fuzz::FUZZ_MANIFEST;
use crate::report::TestStepOutcome;
use crate::subprocess;
use crate::tools::{self, CargoTool};
use crate::workspace::{BuildEnvironment, ProjectWorkspace};

pub(crate) const DENY: CargoTool = CargoTool { name: "cargo-deny", version: "0.20.2" };

/// Checks everything, advisories too, which are fetched from the network.
pub(crate) fn run(house: &ProjectWorkspace) -> anyhow::Result<()> {
    tools::ensure(&house.root, &DENY)?;
    check(house, &[], &["advisories", "bans", "licenses", "sources"])
}

/// Checks all but advisories, whose database cannot be fetched everywhere.
pub(crate) fn check_without_advisories(house: &ProjectWorkspace) -> anyhow::Result<TestStepOutcome> {
    match tools::ensure(&house.root, &DENY) {
        Ok(_) => (),
        Err(error) if house.environment == BuildEnvironment::Ci => return Err(error),
        Err(error) => return Ok(TestStepOutcome::NotRun(format!("{error:#}"))),
    }
    check(house, &[], &["bans", "licenses", "sources"])?;
    // A workspace of its own; what only fuzzing uses is not given to anybody, so its licences are no matter.
    check(house, &["--manifest-path", FUZZ_MANIFEST], &["sources"])?;
    Ok(TestStepOutcome::Passed)
}

fn check(house: &ProjectWorkspace, options: &[&str], what: &[&str]) -> anyhow::Result<()> {
    let mut deny = subprocess::cargo(&house.root);
    deny.env("PATH", tools::path(&house.root)?).args(["deny", "--workspace", "--locked"]).args(options);
    subprocess::run(deny.args(["check", "--hide-inclusion-graph"]).args(what))
}
