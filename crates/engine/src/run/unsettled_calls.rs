//! What was bought and stands in no event yet: calls that a dead process left behind, answers that nobody came to read,
//! calls that are still being counted when the run comes to rest. It is told before anything happens that would forget
//! it, because the events are a run's truth about money.

use std::time::{Duration, Instant};

use ralph_core::event::{EventLogLevel, PinnedProfile};

use super::model_call::CallFiles;
use super::runner::Runner;
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

impl Runner {
    /// Charges what a process before this one left without a charge: at its worst, since nobody knows what it cost. An
    /// answer that was kept is not lost; it is taken up, or told by [`Self::record_unread_answer`].
    pub(super) fn charge_unsettled(&mut self) -> Result<(), Error> {
        self.record_agent_calls()?;
        let Some(UnsettledCall { files: place, n, call, profile }) = self.next_call() else { return Ok(()) };
        if self.saved_answer(&place)?.is_some() {
            return Ok(());
        }
        match self.run.folder.read(&place.reserved)? {
            Some(worst) => self.charge_lost_call(n, call, &profile, &worst, &place),
            None => Ok(()),
        }
    }

    /// Tells of an answer that was paid for and stands in no event, for whoever is about to forget its iteration.
    pub(super) fn record_unread_answer(&mut self) -> Result<(), Error> {
        let Some(UnsettledCall { files: place, n, call, profile }) = self.next_call() else { return Ok(()) };
        match self.saved_answer(&place)? {
            Some(kept) if self.run.state().open.is_some() => self.record_answer(n, call, &profile, kept),
            Some(kept) => self.record_diagnosis_answer(n, call, &profile, kept),
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
            return Some(UnsettledCall { files: CallFiles::new(&self.diagnosis_dir(), call), n, call, profile });
        };
        if state.started.agent.is_some() {
            return None;
        }
        let profile = state.started.profiles.get(&open.profile)?.clone();
        let place = CallFiles::new(&self.run.folder.iteration(open.n), open.calls);
        Some(UnsettledCall { files: place, n: open.n, call: open.calls, profile })
    }

    /// Lets nobody buy anything more and tells of all that was bought: what follows is the end of the run.
    pub(super) async fn close_ledger(&mut self) -> Result<(), Error> {
        self.models.ledger.close();
        self.record_unread_answer()?;
        self.settle_calls().await
    }

    /// Tells of what is under way before this process goes, and with it those who count what calls cost.
    pub(super) async fn settle_before_exit(&mut self) -> Result<(), Error> {
        if self.run.audit_log.calls().has_in_flight() && !self.run.state().status.is_ended() {
            self.settle_calls().await?;
            self.anchor_audit_log()?;
        }
        Ok(())
    }

    /// Waits until every call through the doors is counted; what takes too long is charged at its worst.
    pub(super) async fn settle_calls(&mut self) -> Result<(), Error> {
        let (began, patience) = (Instant::now(), self.run.host.pace.scale(SETTLE_TIMEOUT));
        let mut told = false;
        while self.run.audit_log.calls().has_in_flight()
            && began.elapsed() < patience
            && !self.interrupts.is_process_aborting()
        {
            if !told && began.elapsed() > LOG_WAIT_AFTER {
                told = true;
                self.run.log(EventLogLevel::Info, "waiting for calls whose cost is still being counted")?;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        self.models.charge_in_flight(&self.run.audit_log);
        self.record_refusals()?;
        self.record_agent_calls()
    }
}
