//! Runs cargo-deny: checks the licences, sources and banned crates of the whole tree against `deny.toml`.

use crate::fuzz::FUZZ_MANIFEST;
use crate::report::TestStepOutcome;
use crate::subprocess;
use crate::tools::{self, CargoTool};
use crate::workspace::{BuildEnvironment, ProjectWorkspace};

pub(crate) const DENY: CargoTool = CargoTool { name: "cargo-deny", version: "0.20.2" };

/// Checks everything, advisories too, which are fetched from the network.
pub(crate) fn run(workspace: &ProjectWorkspace) -> anyhow::Result<()> {
    tools::ensure(&workspace.root, &DENY)?;
    check(workspace, &[], &["advisories", "bans", "licenses", "sources"])
}

/// Checks all but advisories, whose database cannot be fetched everywhere.
pub(crate) fn check_without_advisories(workspace: &ProjectWorkspace) -> anyhow::Result<TestStepOutcome> {
    match tools::ensure(&workspace.root, &DENY) {
        Ok(_) => (),
        Err(error) if workspace.environment == BuildEnvironment::Ci => return Err(error),
        Err(error) => return Ok(TestStepOutcome::NotRun(format!("{error:#}"))),
    }
    check(workspace, &[], &["bans", "licenses", "sources"])?;
    // A workspace of its own; what only fuzzing uses is not distributed, so its licences do not matter.
    check(workspace, &["--manifest-path", FUZZ_MANIFEST], &["sources"])?;
    Ok(TestStepOutcome::Passed)
}

fn check(workspace: &ProjectWorkspace, options: &[&str], what: &[&str]) -> anyhow::Result<()> {
    let mut deny = subprocess::cargo(&workspace.root);
    deny.env("PATH", tools::path(&workspace.root)?).args(["deny", "--workspace", "--locked"]).args(options);
    subprocess::run(deny.args(["check", "--hide-inclusion-graph"]).args(what))
}
