//! cargo-machete: dependencies that a manifest names and no file of the crate uses.

use crate::options::TestScope;
use crate::report::TestStepOutcome;
use crate::subprocess;
use crate::tools::{self, CargoTool};
use crate::workspace::{BuildEnvironment, ProjectWorkspace};

pub(crate) const MACHETE: CargoTool = CargoTool { name: "cargo-machete", version: "0.9.2" };

/// Fails at a dependency that nothing uses.
pub(crate) fn check(house: &ProjectWorkspace, scope: TestScope) -> anyhow::Result<TestStepOutcome> {
    if scope == TestScope::Quick && tools::find(&house.root, &MACHETE).is_none() {
        return Ok(TestStepOutcome::Skipped("--quick installs no cargo-machete".to_owned()));
    }
    let machete = match tools::ensure(&house.root, &MACHETE) {
        Ok(machete) => machete,
        Err(error) if house.environment == BuildEnvironment::Ci => return Err(error),
        Err(error) => return Ok(TestStepOutcome::NotRun(format!("{error:#}"))),
    };
    subprocess::run(subprocess::command(machete, &house.root).args(["--skip-target-dir", "."]))?;
    Ok(TestStepOutcome::Passed)
}
