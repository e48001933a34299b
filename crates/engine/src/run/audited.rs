//! What the way out told, as events of the run, and the anchors of its audit file.

use ralph_core::event::{Answer, Event, Level};

use super::runner::Runner;
use crate::audit::Charged;
use crate::error::Error;
use crate::host::short_key;

impl Runner {
    /// Tells of what was refused and what raised an alarm since this was last done.
    pub(super) fn tell_of_refusals(&mut self) -> Result<(), Error> {
        for told in self.book.denied() {
            self.events.append(told)?;
        }
        for name in self.host.short_keys() {
            self.log(Level::Warn, short_key(&name))?;
        }
        let seen = self.redactor.seen();
        self.raise_alarm(seen)
    }

    /// Tells of secrets that were seen where none has any business: each of them is somebody else's by now.
    pub(super) fn raise_alarm(&mut self, seen: Vec<(String, &'static str)>) -> Result<(), Error> {
        for (name, place) in seen {
            let text = format!(
                "alarm: the real credential `{name}` was seen in {place} and masked there; take it for lost, have a new one \
                 made where it was issued, then: ralph secret set {name}"
            );
            self.log_once(Level::Error, text)?;
        }
        Ok(())
    }

    /// Tells of what agents asked of models and was charged since this was last done.
    pub(super) fn tell_of_calls(&mut self) -> Result<(), Error> {
        if !self.events.begun() {
            return Ok(());
        }
        let missing = self.book.calls().align(self.state().through);
        if missing > 0 {
            self.log(Level::Warn, format!("{missing} calls that were told of are missing from `calls.jsonl`"))?;
        }
        let state = self.state();
        let open = state.open.as_ref();
        let n = open.map_or_else(|| state.last.as_ref().map_or(0, |last| last.n), |open| open.n);
        let first = open.map_or(0, |open| open.calls);
        let profile = open.map_or_else(|| state.profile.clone(), |open| open.profile.clone());
        let charged = self.book.calls().since(state.through);
        let any = !charged.is_empty();
        if any {
            self.book.calls().flush();
        }
        for (call, Charged { model, status, usage, cost, .. }) in (first..).zip(charged) {
            let (answer, profile) = (Answer::Through { status }, profile.clone());
            self.events.append(Event::ModelCalled { n, call, profile, model, answer, usage, cost, duration_ms: 0 })?;
        }
        if let Some(why) = self.book.calls().trouble() {
            self.log(Level::Warn, format!("a call of the agent could not be written down: {why}"))?;
        }
        if any { self.warn_of_budgets() } else { Ok(()) }
    }

    /// Tells of what was refused since the last step, and anchors the audit file when an iteration ended or the run
    /// rests: from then on nobody can shorten the file or write it anew without being noticed.
    pub(super) fn audited(&mut self) -> Result<(), Error> {
        self.tell_of_refusals()?;
        if !self.state().status.ended() {
            self.tell_of_calls()?;
        }
        if let Some(why) = self.book.trouble() {
            self.log(Level::Warn, format!("the audit file lacks records that could not be written: {why}"))?;
        }
        let state = self.state();
        let ended = state.last.as_ref().map_or(0, |last| last.n);
        // The end of a run is its last word; the file was anchored just before it.
        if state.status.ended() || (state.status.active() && ended == self.anchored_after) {
            return Ok(());
        }
        self.anchored_after = ended;
        self.anchor()
    }

    /// Closes the doors of the run for good and anchors the whole of the audit file: nothing comes after it.
    pub(super) async fn close_doors(&mut self) -> Result<(), Error> {
        #[cfg(target_os = "linux")]
        self.host.egress().close(&self.folder.id()).await;
        // What was under way is charged now, at its worst if nobody saw the count.
        self.tell_of_calls()?;
        self.anchor()
    }

    /// Writes down how far the audit file goes and what it comes to.
    pub(super) fn anchor(&mut self) -> Result<(), Error> {
        self.tell_of_refusals()?;
        let head = self.book.settle()?;
        if head.lines > 0 && self.state().audited.as_ref() != Some(&head) {
            self.events.append(Event::AuditAnchored { lines: head.lines, head: head.hash })?;
        }
        Ok(())
    }
}
