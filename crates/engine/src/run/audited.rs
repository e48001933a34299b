//! What the way out told, as events of the run, and the anchors of its audit file.

use ralph_core::event::{Answer, Event, Level};
use ralph_core::money::Micros;
use ralph_core::price::Usage;
use ralph_proxy::notice::Charge;

use super::runner::Runner;
use crate::audit::{Book, Charged, Ended, Own};
use crate::error::Error;
use crate::host::short_key;
use crate::model;

/// So many calls are looked at at once, and so many are told one by one; of more those that came to nothing are told
/// together, because each event is waited for.
const AT_ONCE: usize = 2000;
const ONE_BY_ONE: usize = 50;

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

    /// Tells of what agents asked of models and was charged since this was last done. What comes while it is told is
    /// told the next time.
    pub(super) fn tell_of_calls(&mut self) -> Result<(), Error> {
        let all = self.book.calls().count();
        loop {
            self.tell_of_some_calls()?;
            if !self.events.begun() || self.state().through >= all {
                return Ok(());
            }
        }
    }

    /// As [`Self::tell_of_calls`], but no more than takes a moment: whoever listens to an agent has others to hear, too.
    pub(super) fn tell_of_some_calls(&mut self) -> Result<(), Error> {
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
        let charged = self.book.calls().since(state.through, AT_ONCE);
        let any = !charged.is_empty();
        if any {
            self.book.calls().flush();
        }
        for (call, (Charged { model, status, usage, cost, .. }, times)) in (first..).zip(together(charged)) {
            let (answer, profile) = (Answer::Through { status, times }, profile.clone());
            self.events.append(Event::ModelCalled { n, call, profile, model, answer, usage, cost, duration_ms: 0 })?;
        }
        if let Some(why) = self.book.calls().trouble() {
            self.log(Level::Warn, format!("a call of the agent could not be written down: {why}"))?;
        }
        if let Some(why) = self.book.calls().too_many() {
            self.log(Level::Error, why)?;
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

/// Writes down a call that came to nothing. What may have cost something is written down when it is charged.
pub(super) fn tell_attempt(book: &Book, own: &Own, model: &str, error: &model::Error) {
    let (status, sent) = match error {
        _ if error.may_have_cost() => return,
        model::Error::Status { status, .. } => (Some(*status), true),
        model::Error::Connect { .. } => (None, false),
        _ => return,
    };
    let own = Own { credential: own.credential.clone().filter(|_| sent), ..own.clone() };
    let (why, usage, cost) = (error.to_string(), Usage::default(), Micros::ZERO);
    book.called(&own, &Ended { model, status, why: Some(&why), usage, cost, charge: Charge::Nothing });
}

/// Puts calls together that came to nothing one after the other, by model and answer, when there are many; returns each
/// with how many it stands for, and no more than can be told at once. In which order they are told changes no sum.
fn together(charged: Vec<Charged>) -> Vec<(Charged, u64)> {
    let many = charged.len() > ONE_BY_ONE;
    let mut told: Vec<(Charged, u64)> = Vec::new();
    // Where those begin that came to nothing without one between them that did not.
    let mut first = 0;
    for one in charged {
        if !one.is_nothing() {
            first = told.len() + 1;
        }
        let alike = |(other, _): &(Charged, u64)| (&other.model, other.status) == (&one.model, one.status);
        let place = told.iter().skip(first).position(alike).filter(|_| many).map(|place| first + place);
        let room = told.len() < ONE_BY_ONE;
        match place.and_then(|place| told.get_mut(place)) {
            Some((_, times)) => *times += 1,
            None if room => told.push((one, 1)),
            None => break,
        }
    }
    told
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;

    use super::*;

    fn charged(model: &str, status: u16, cost: u64) -> Charged {
        Charged {
            id: 1,
            at: Timestamp::UNIX_EPOCH,
            model: model.to_owned(),
            status: Some(status),
            usage: Usage::default(),
            cost: Micros(cost),
            worst: false,
            limits: Vec::new(),
        }
    }

    #[track_caller]
    fn check(calls: &[(usize, Charged)], want: &[(&str, u16, u64)]) {
        let calls = calls.iter().flat_map(|(times, one)| vec![one.clone(); *times]).collect();
        let told = together(calls);
        let told: Vec<_> = told.iter().map(|(one, times)| (&*one.model, one.status.unwrap(), *times)).collect();
        assert_eq!(told, want);
    }

    #[test]
    fn calls_that_came_to_nothing_are_told_together_when_they_are_many() {
        let (limit, bad, paid) = (|| charged("a", 429, 0), || charged("b", 400, 0), || charged("a", 200, 7));
        check(&[(3, limit()), (1, paid())], &[("a", 429, 1), ("a", 429, 1), ("a", 429, 1), ("a", 200, 1)]);
        check(
            &[(900, limit()), (2, bad()), (5, limit()), (1, paid()), (1, paid()), (40, limit())],
            &[("a", 429, 905), ("b", 400, 2), ("a", 200, 1), ("a", 200, 1), ("a", 429, 40)],
        );
        // What costs is told one by one, and the rest the next time.
        check(&[(60, paid()), (60, limit())], &[("a", 200, 1); ONE_BY_ONE]);
        check(&[(49, paid()), (60, limit()), (1, bad()), (9, limit())], &{
            let mut want = vec![("a", 200, 1); 49];
            want.push(("a", 429, 60));
            want
        });
    }
}
