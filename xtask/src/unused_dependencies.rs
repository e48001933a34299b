//! Runs cargo-machete, which finds dependencies that a manifest names and no file of the crate uses.

use crate::options::TestScope;
use crate::report::TestStepOutcome;
use crate::subprocess;
use crate::tools::{self, CargoTool};
use crate::workspace::{BuildEnvironment, ProjectWorkspace};

pub(crate) const MACHETE: CargoTool = CargoTool { name: "cargo-machete", version: "0.9.2" };

/// Fails if a dependency is unused.
pub(crate) fn check(workspace: &ProjectWorkspace, scope: TestScope) -> anyhow::Result<TestStepOutcome> {
    if scope == TestScope::Quick && tools::find(&workspace.root, &MACHETE).is_none() {
        return Ok(TestStepOutcome::Skipped("--quick installs no cargo-machete".to_owned()));
    }
    let machete = match tools::ensure(&workspace.root, &MACHETE) {
        Ok(machete) => machete,
        Err(error) if workspace.environment == BuildEnvironment::Ci => return Err(error),
        Err(error) => return Ok(TestStepOutcome::NotRun(format!("{error:#}"))),
    };
    subprocess::run(subprocess::command(machete, &workspace.root).args(["--skip-target-dir", "."]))?;
    Ok(TestStepOutcome::Passed)
}
