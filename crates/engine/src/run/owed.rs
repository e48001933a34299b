//! What was bought and stands in no event yet: calls that a dead process left behind, answers that nobody came to read,
//! calls that are still being counted when the run comes to rest. It is told before anything happens that would forget
//! it, because the events are a run's truth about money.

use std::time::{Duration, Instant};

use ralph_core::event::{Level, PinnedProfile};

use super::call::Place;
use super::runner::Runner;
use crate::error::Error;

/// How long calls may take to be counted after whoever made them is gone.
const SETTLE: Duration = Duration::from_secs(10);
/// Who waits longer than this is told for what.
const QUIET: Duration = Duration::from_secs(2);

/// A call of the run's own that may have left traces and no event.
struct Next {
    place: Place,
    n: u32,
    call: u32,
    profile: PinnedProfile,
}

impl Runner {
    /// Charges what a process before this one left without a charge: at its worst, since nobody knows what it cost. An
    /// answer that was kept is not lost; it is taken up, or told by [`Self::tell_unread`].
    pub(super) fn charge_left_behind(&mut self) -> Result<(), Error> {
        self.tell_of_calls()?;
        let Some(Next { place, n, call, profile }) = self.next_call() else { return Ok(()) };
        if self.kept(&place)?.is_some() {
            return Ok(());
        }
        match self.folder.read(&place.reserved)? {
            Some(worst) => self.lost(n, call, &profile, &worst, &place),
            None => Ok(()),
        }
    }

    /// Tells of an answer that was paid for and stands in no event, for whoever is about to forget its iteration.
    pub(super) fn tell_unread(&mut self) -> Result<(), Error> {
        let Some(Next { place, n, call, profile }) = self.next_call() else { return Ok(()) };
        match self.kept(&place)? {
            Some(kept) if self.state().open.is_some() => self.heard(n, call, &profile, kept),
            Some(kept) => self.doctor_said(n, call, &profile, kept),
            None => Ok(()),
        }
    }

    /// Returns the call that comes after those the events tell of: of the open iteration, else of the doctor.
    fn next_call(&self) -> Option<Next> {
        let state = self.state();
        let Some(open) = &state.open else {
            let profile = state.started.profiles.doctor().clone();
            let call = state.diagnoses.under.as_ref().map_or(0, |under| under.calls);
            let n = state.last.as_ref().map_or(0, |last| last.n);
            return Some(Next { place: Place::new(&self.ward(), call), n, call, profile });
        };
        if state.started.agent.is_some() {
            return None;
        }
        let profile = state.started.profiles.get(&open.profile)?.clone();
        let place = Place::new(&self.folder.iteration(open.n), open.calls);
        Some(Next { place, n: open.n, call: open.calls, profile })
    }

    /// Lets nobody buy anything more and tells of all that was bought: what follows is the end of the run.
    pub(super) async fn close_books(&mut self) -> Result<(), Error> {
        self.ledger.close();
        self.tell_unread()?;
        self.settle().await
    }

    /// Tells of what is under way before this process goes, and with it those who count what calls cost.
    pub(super) async fn depart(&mut self) -> Result<(), Error> {
        if self.book.calls().busy() && !self.state().status.ended() {
            self.settle().await?;
            self.anchor()?;
        }
        Ok(())
    }

    /// Waits until every call through the doors is counted; what takes too long is charged at its worst.
    pub(super) async fn settle(&mut self) -> Result<(), Error> {
        let (began, patience) = (Instant::now(), self.host.pace.of(SETTLE));
        let mut told = false;
        while self.book.calls().busy() && began.elapsed() < patience && !self.stops.now.is_cancelled() {
            if !told && began.elapsed() > QUIET {
                told = true;
                self.log(Level::Info, "waiting for calls whose cost is still being counted")?;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        self.give_up_calls();
        self.tell_of_refusals()?;
        self.tell_of_calls()
    }

    /// Charges what is under way through the doors at its worst, in the account book too.
    pub(super) fn give_up_calls(&self) {
        for id in self.book.calls().give_up() {
            self.ledger.forfeit(id);
        }
    }
}
