//! What was bought and stands in no event yet: calls that a dead process left behind, answers that nobody came to read,
//! calls that are still being counted when the run comes to rest. It is told before anything happens that would forget
//! it, because the events are a run's truth about money.

use std::time::{Duration, Instant};

use ralph_core::event::{EventLogLevel, PinnedProfile};

use super::call_files::CallFiles;
use super::call_record::CallRecord;
use super::context::RunContext;
use super::diagnose::diagnosis_dir;
use super::egress_events::EgressEvents;
use super::interrupts::Interrupts;
use super::model_account::ModelAccount;
use crate::error::Error;

/// How long calls may take to be counted after whoever made them is gone.
const SETTLE_TIMEOUT: Duration = Duration::from_secs(10);
/// Who waits longer than this is told for what.
const LOG_WAIT_AFTER: Duration = Duration::from_secs(2);

/// A call of the run's own that may have left traces and no event.
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
    pub(super) models: &'a mut ModelAccount,
}

impl UnsettledCalls<'_> {
    /// Charges what a process before this one left without a charge: at its worst, since nobody knows what it cost. An
    /// answer that was kept is not lost; it is taken up, or told by [`Self::record_unread_answer`].
    pub(super) fn charge_unsettled(&mut self) -> Result<(), Error> {
        EgressEvents { run: self.run }.record_agent_calls()?;
        let Some(UnsettledCall { files: place, n, call, profile }) = self.next_call() else { return Ok(()) };
        if place.saved_answer(&self.run.folder)?.is_some() {
            return Ok(());
        }
        match self.run.folder.read(&place.reserved)? {
            Some(worst) => CallRecord { run: self.run, n, call, profile: &profile }.lost(&worst, &place),
            None => Ok(()),
        }
    }

    /// Tells of an answer that was paid for and stands in no event, for whoever is about to forget its iteration.
    pub(super) fn record_unread_answer(&mut self) -> Result<(), Error> {
        let Some(UnsettledCall { files: place, n, call, profile }) = self.next_call() else { return Ok(()) };
        match place.saved_answer(&self.run.folder)? {
            Some(kept) if self.run.state().open.is_some() => {
                CallRecord { run: self.run, n, call, profile: &profile }.answer(self.models, kept)
            }
            Some(kept) => CallRecord { run: self.run, n, call, profile: &profile }.diagnosis(kept),
            None => Ok(()),
        }
    }

    /// Returns the call that comes after those the events tell of: of the open iteration, else of the doctor.
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
        let place = CallFiles::new(&self.run.folder.iteration(open.n), open.calls);
        Some(UnsettledCall { files: place, n: open.n, call: open.calls, profile })
    }

    /// Lets nobody buy anything more and tells of all that was bought: what follows is the end of the run.
    pub(super) async fn close_ledger(&mut self, interrupts: &Interrupts) -> Result<(), Error> {
        self.models.ledger.close();
        self.record_unread_answer()?;
        self.settle_calls(interrupts).await
    }

    /// Tells of what is under way before this process goes, and with it those who count what calls cost.
    pub(super) async fn settle_before_exit(&mut self, interrupts: &Interrupts) -> Result<(), Error> {
        if self.run.audit_log.calls().has_in_flight() && !self.run.state().status.is_ended() {
            self.settle_calls(interrupts).await?;
            EgressEvents { run: self.run }.anchor_audit_log()?;
        }
        Ok(())
    }

    /// Waits until every call through the doors is counted; what takes too long is charged at its worst.
    pub(super) async fn settle_calls(&mut self, interrupts: &Interrupts) -> Result<(), Error> {
        let (began, patience) = (Instant::now(), self.run.host.pace.scale(SETTLE_TIMEOUT));
        let mut told = false;
        while self.run.audit_log.calls().has_in_flight()
            && began.elapsed() < patience
            && !interrupts.is_process_aborting()
        {
            if !told && began.elapsed() > LOG_WAIT_AFTER {
                told = true;
                self.run.log(EventLogLevel::Info, "waiting for calls whose cost is still being counted")?;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        self.models.charge_in_flight(&self.run.audit_log);
        EgressEvents { run: self.run }.record_refusals()?;
        EgressEvents { run: self.run }.record_agent_calls()
    }
}
