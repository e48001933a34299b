//! Ends a run: publishes its result first, then releases what it holds and appends its last event.

use ralph_core::event::{Event, EventLogLevel, RunStopReason, RunVerdict};

use super::branch_update::ImportEnd;
use super::close_iteration::CloseStep;
use super::egress_events::EgressEvents;
use super::interrupts::Interrupts;
use super::model_clients::ModelState;
use super::publish::PublishStep;
use super::run_context::RunContext;
use super::sandbox_setup::discard_proof_sandboxes;
use super::unsettled_calls::UnsettledCalls;
use super::work_sandbox::{KeepSandbox, WorkSandbox};
use crate::error::Error;
use crate::sandbox_lifecycle;

/// Ends a run.
#[derive(Debug)]
pub(super) struct FinishStep<'a> {
    pub(super) run: &'a mut RunContext,
    pub(super) work: &'a mut WorkSandbox,
    pub(super) models: &'a mut ModelState,
    pub(super) interrupts: &'a mut Interrupts,
}

impl FinishStep<'_> {
    /// Publishes the result of a run and ends it. A process that dies between the two does both again.
    pub(super) async fn finish(&mut self, verdict: RunVerdict) -> Result<(), Error> {
        UnsettledCalls { run: self.run, models: self.models }.close_ledger(self.interrupts).await?;
        PublishStep { run: self.run }.publish_verdict(&verdict).await?;
        self.end_run(verdict).await
    }

    /// Ends the run because the user asked for it. Its commits so far are imported and published, although unproved.
    pub(super) async fn stop(&mut self) -> Result<(), Error> {
        if let Some(open) = self.run.state().open.clone()
            && self.work.sandbox.is_some()
        {
            let mut step =
                CloseStep { run: self.run, work: self.work, models: self.models, interrupts: self.interrupts };
            let why = match step.import_unfinished(&open).await {
                Ok(ImportEnd::Recorded) => None,
                Ok(ImportEnd::Aborted) => Some("ralph was ended before they were checked".to_owned()),
                Err(error) => Some(error.to_string()),
            };
            if let Some(why) = why {
                let message = format!("the commits of iteration {} stay in the sandbox: {why}", open.n);
                self.run.log(EventLogLevel::Warn, message)?;
            }
        }
        self.finish(RunVerdict::Stopped { reason: RunStopReason::Asked }).await
    }

    async fn end_run(&mut self, verdict: RunVerdict) -> Result<(), Error> {
        let next = match &verdict {
            RunVerdict::Succeeded => {
                format!("ralph diff {0}, then merge {1}", self.run.state().id(), self.run.state().started.branch)
            }
            RunVerdict::Failed { reason } | RunVerdict::Stopped { reason } => self.run.state().next_for(reason),
        };
        self.interrupts.clear_stop();
        discard_proof_sandboxes(self.run).await;
        // Before the last event, because no process opens the run again after it; a resume does not need the sandbox.
        if verdict == RunVerdict::Succeeded
            && self.work.keep == KeepSandbox::Never
            && let Some(sandbox) = self.work.sandbox.take()
        {
            sandbox_lifecycle::discard(&*sandbox).await;
        }
        EgressEvents { run: self.run }.close_egress().await?;
        self.run.append(Event::RunFinished { verdict, next })
    }
}
