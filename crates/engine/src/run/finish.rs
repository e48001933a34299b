//! Ends a run: its result is published first, then what it holds is released and its last event is written.

use ralph_core::event::{Event, RunVerdict};

use super::runner::Runner;
use super::work_sandbox::KeepSandbox;
use crate::error::Error;
use crate::sandboxes;

impl Runner {
    /// Publishes the result of a run and ends it. A process that dies between the two does both again.
    pub(super) async fn finish_run(&mut self, verdict: RunVerdict) -> Result<(), Error> {
        self.close_ledger().await?;
        self.publish_verdict(&verdict).await?;
        self.end_run(verdict).await
    }

    async fn end_run(&mut self, verdict: RunVerdict) -> Result<(), Error> {
        let next = match &verdict {
            RunVerdict::Succeeded => {
                format!("ralph diff {0}, then merge {1}", self.run.state().id(), self.run.state().started.branch)
            }
            RunVerdict::Failed { reason } | RunVerdict::Stopped { reason } => self.run.state().next_for(reason),
        };
        self.interrupts.clear_stop();
        self.discard_proof_sandboxes().await;
        // Before the last event, because after it nobody comes back to do it; a resume does not need it any more.
        if verdict == RunVerdict::Succeeded
            && self.work.keep == KeepSandbox::Never
            && let Some(sandbox) = self.work.sandbox.take()
        {
            sandboxes::discard(&*sandbox).await;
        }
        self.close_egress().await?;
        self.run.append(Event::RunFinished { verdict, next })
    }
}
