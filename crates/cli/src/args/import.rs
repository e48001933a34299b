//! Defines the arguments of `ralph import`.

use std::path::PathBuf;

use clap::Args;

#[derive(Debug, Args)]
pub(crate) struct ImportArgs {
    /// The plan: prd.json, fix_plan.md, RALPH_TASK.md or a page of docs/plans
    pub(crate) file: PathBuf,
    /// Where to write the task [default: ralph_task.md at the top of the repository]
    #[arg(long, value_name = "PATH")]
    pub(crate) to: Option<PathBuf>,
    /// Overwrite an existing task file
    #[arg(long)]
    pub(crate) force: bool,
}
