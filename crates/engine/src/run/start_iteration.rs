//! Starts an iteration.

use ralph_core::event::Event;

use super::iteration_close_checkpoint::CloseCheckpoint;
use super::model_clients::ModelState;
use super::run_context::RunContext;
use super::work_sandbox::WorkSandbox;
use crate::error::Error;

pub(super) async fn start_iteration(
    run: &mut RunContext,
    work: &mut WorkSandbox,
    models: &mut ModelState,
    n: u32,
    profile: String,
) -> Result<(), Error> {
    let survey = work.tree_status(run.state()).await?;
    work.recreated = false;
    let because = run.state().rotate_because.clone();
    models.reply = None;
    CloseCheckpoint::remove_attempt(&run.folder, n)?;
    run.append(Event::IterationStarted { n, profile, because, head: survey.head, tree: survey.tree })?;
    run.warn_of_budgets()
}
