//! Settles calls that cost money and are in no event yet: calls that a dead process left behind, answers that were not
//! used, calls whose usage is still being counted when the run pauses or ends. They are recorded before anything would
//! discard them, because a run's spend is the sum of its events.

use std::time::{Duration, Instant};

use ralph_core::event::{EventLogLevel, PinnedProfile};

use super::call_record::CallRecord;
use super::diagnose::diagnosis_dir;
use super::egress_events::EgressEvents;
use super::interrupts::Interrupts;
use super::model_call_files::CallFiles;
use super::model_clients::ModelState;
use super::run_context::RunContext;
use crate::error::Error;

/// How long to wait for the usage of calls whose client is gone.
const SETTLE_TIMEOUT: Duration = Duration::from_secs(10);
/// After this time the wait is logged.
const LOG_WAIT_AFTER: Duration = Duration::from_secs(2);

/// A call of ralph's own that may have left files but no event.
struct UnsettledCall {
    files: CallFiles,
    n: u32,
    call: u32,
    profile: PinnedProfile,
}

/// Settles calls that were paid for and that no event records yet.
#[derive(Debug)]
pub(super) struct UnsettledCalls<'a> {
    pub(super) run: &'a mut RunContext,
    pub(super) models: &'a mut ModelState,
}

impl UnsettledCalls<'_> {
    /// Charges the call that an earlier process left without a charge with its worst case, since its cost is unknown. A
    /// saved answer is not lost: it is used later, or recorded by [`Self::record_unread_answer`].
    pub(super) fn charge_unsettled(&mut self) -> Result<(), Error> {
        EgressEvents { run: self.run }.record_agent_calls()?;
        let Some(UnsettledCall { files, n, call, profile }) = self.next_call() else { return Ok(()) };
        if files.saved_answer(&self.run.folder)?.is_some() {
            return Ok(());
        }
        match self.run.folder.read(&files.reserved)? {
            Some(worst) => CallRecord { run: self.run, n, call, profile: &profile }.lost(&worst, &files),
            None => Ok(()),
        }
    }

    /// Records an answer that was paid for and is in no event yet. Called before its iteration is discarded.
    pub(super) fn record_unread_answer(&mut self) -> Result<(), Error> {
        let Some(UnsettledCall { files, n, call, profile }) = self.next_call() else { return Ok(()) };
        match files.saved_answer(&self.run.folder)? {
            Some(kept) if self.run.state().open.is_some() => {
                CallRecord { run: self.run, n, call, profile: &profile }.answer(self.models, kept)
            }
            Some(kept) => CallRecord { run: self.run, n, call, profile: &profile }.diagnosis(kept),
            None => Ok(()),
        }
    }

    /// Returns the call after the last recorded one: of the open iteration, otherwise of the diagnosis.
    fn next_call(&self) -> Option<UnsettledCall> {
        let state = self.run.state();
        let Some(open) = &state.open else {
            let profile = state.started.profiles.doctor().clone();
            let call = state.diagnoses.under.as_ref().map_or(0, |under| under.calls);
            let n = state.last.as_ref().map_or(0, |last| last.n);
            return Some(UnsettledCall { files: CallFiles::new(&diagnosis_dir(self.run), call), n, call, profile });
        };
        if state.started.agent.is_some() {
            return None;
        }
        let profile = state.started.profiles.get(&open.profile)?.clone();
        let files = CallFiles::new(&self.run.folder.iteration(open.n), open.calls);
        Some(UnsettledCall { files, n: open.n, call: open.calls, profile })
    }

    /// Refuses further calls and records all that were made, before the run ends.
    pub(super) async fn close_ledger(&mut self, interrupts: &Interrupts) -> Result<(), Error> {
        self.models.ledger.close();
        self.record_unread_answer()?;
        self.settle_calls(interrupts).await
    }

    /// Records the calls under way before this process exits, since its egress proxies, which count them, end with it.
    pub(super) async fn settle_before_exit(&mut self, interrupts: &Interrupts) -> Result<(), Error> {
        if self.run.audit_log.calls().has_in_flight() && !self.run.state().status.is_ended() {
            self.settle_calls(interrupts).await?;
            EgressEvents { run: self.run }.anchor_audit_log()?;
        }
        Ok(())
    }

    /// Waits until the usage of every call through the egress proxy is known; one that takes too long is charged with
    /// its worst case.
    pub(super) async fn settle_calls(&mut self, interrupts: &Interrupts) -> Result<(), Error> {
        let (began, patience) = (Instant::now(), self.run.host.pace.scale(SETTLE_TIMEOUT));
        let mut logged = false;
        while self.run.audit_log.calls().has_in_flight()
            && began.elapsed() < patience
            && !interrupts.is_process_aborting()
        {
            if !logged && began.elapsed() > LOG_WAIT_AFTER {
                logged = true;
                self.run.log(EventLogLevel::Info, "waiting for calls whose cost is still being counted")?;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        self.models.charge_in_flight(&self.run.audit_log);
        EgressEvents { run: self.run }.record_refusals()?;
        EgressEvents { run: self.run }.record_agent_calls()
    }
}
