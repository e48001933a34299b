//! Records what the egress proxy reported as events of the run, and anchors the audit file.

use ralph_core::event::{Event, EventLogLevel, ModelCallOutcome};
use ralph_core::money::MicroUsd;
use ralph_core::price::TokenUsage;
use ralph_proxy::egress_events::ChargeBasis;

use super::run_context::RunContext;
use crate::audit::{AuditLog, EngineCallResult, EngineCallTarget, LoggedCharge};
use crate::error::Error;
use crate::host_environment::short_key_warning;
use crate::model;

/// How many calls are read at once, and how many events they may become. Of more calls, those that cost nothing are
/// grouped, because every event is flushed to disk.
const CALL_BATCH: usize = 2000;
const MAX_CALL_EVENTS: usize = 50;

/// Turns what the audit log holds into events.
#[derive(Debug)]
pub(super) struct EgressEvents<'a> {
    pub(super) run: &'a mut RunContext,
}

impl EgressEvents<'_> {
    /// Records what was refused and what raised an alarm since the last time.
    pub(super) fn record_refusals(&mut self) -> Result<(), Error> {
        for event in self.run.audit_log.take_denial_events() {
            self.run.append(event)?;
        }
        for name in self.run.host.take_short_keys() {
            self.run.log(EventLogLevel::Warn, short_key_warning(&name))?;
        }
        let seen = self.run.redactor.take_sightings();
        self.alarm_on_leaks(seen)
    }

    /// Raises an alarm for secrets that were found where none may be: each of them must be considered leaked.
    pub(super) fn alarm_on_leaks(&mut self, seen: Vec<(String, &'static str)>) -> Result<(), Error> {
        for (name, place) in seen {
            let text = format!(
                "alarm: the real credential `{name}` was seen in {place} and masked there; take it for lost, have a new one \
                 made where it was issued, then: ralph secret set {name}"
            );
            self.run.log_once(EventLogLevel::Error, text)?;
        }
        Ok(())
    }

    /// Records the model calls of agents that were charged since the last time. Calls that are charged meanwhile are
    /// recorded the next time.
    pub(super) fn record_agent_calls(&mut self) -> Result<(), Error> {
        let all = self.run.audit_log.calls().charged_count();
        loop {
            self.record_agent_call_batch()?;
            if !self.run.events.begun() || self.run.state().through >= all {
                return Ok(());
            }
        }
    }

    /// As [`Self::record_agent_calls`], but only one batch, so that a session is not left unsupervised for long.
    pub(super) fn record_agent_call_batch(&mut self) -> Result<(), Error> {
        if !self.run.events.begun() {
            return Ok(());
        }
        let missing = self.run.audit_log.calls().skip_missing(self.run.state().through);
        if missing > 0 {
            self.run.log(EventLogLevel::Warn, format!("{missing} reported calls are missing from `calls.jsonl`"))?;
        }
        let state = self.run.state();
        let open = state.open.as_ref();
        let n = open.map_or_else(|| state.last.as_ref().map_or(0, |last| last.n), |open| open.n);
        let first = open.map_or(0, |open| open.calls);
        let profile = open.map_or_else(|| state.profile.clone(), |open| open.profile.clone());
        let charged = self.run.audit_log.calls().charged_since(state.through, CALL_BATCH);
        let any = !charged.is_empty();
        if any {
            self.run.audit_log.calls().flush();
        }
        for (call, (LoggedCharge { model, status, usage, cost, .. }, times)) in (first..).zip(group_free_calls(charged))
        {
            let (answer, profile) = (ModelCallOutcome::Through { status, times }, profile.clone());
            self.run.append(Event::ModelCalled { n, call, profile, model, answer, usage, cost, duration_ms: 0 })?;
        }
        if let Some(why) = self.run.audit_log.calls().take_error() {
            self.run.log(EventLogLevel::Warn, format!("a call of the agent could not be written down: {why}"))?;
        }
        if let Some(why) = self.run.audit_log.calls().take_limit_warning() {
            self.run.log(EventLogLevel::Error, why)?;
        }
        if any { self.run.warn_of_budgets() } else { Ok(()) }
    }

    /// Records what was refused since the last step, and anchors the audit file when an iteration ended or the run is
    /// paused: from then on the file cannot be shortened or rewritten unnoticed.
    pub(super) fn record_egress(&mut self) -> Result<(), Error> {
        self.record_refusals()?;
        if !self.run.state().status.is_ended() {
            self.record_agent_calls()?;
        }
        if let Some(why) = self.run.audit_log.take_error() {
            self.run
                .log(EventLogLevel::Warn, format!("the audit file lacks records that could not be written: {why}"))?;
        }
        let state = self.run.state();
        let ended = state.last.as_ref().map_or(0, |last| last.n);
        // The end of a run is its last event; the file was anchored just before it.
        if state.status.is_ended() || (state.status.is_active() && ended == self.run.anchored_after) {
            return Ok(());
        }
        self.run.anchored_after = ended;
        self.anchor_audit_log()
    }

    /// Closes the run's listeners and anchors the whole audit file: no record comes after it.
    pub(super) async fn close_egress(&mut self) -> Result<(), Error> {
        self.run.host.egress().close_run(&self.run.folder.id()).await;
        // Calls under way are charged now, with their worst case if their usage was not seen.
        self.record_agent_calls()?;
        self.anchor_audit_log()
    }

    /// Records the length and the hash of the audit file.
    pub(super) fn anchor_audit_log(&mut self) -> Result<(), Error> {
        self.record_refusals()?;
        let head = self.run.audit_log.flush_and_head()?;
        if head.lines > 0 && self.run.state().audited.as_ref() != Some(&head) {
            self.run.append(Event::AuditAnchored { lines: head.lines, head: head.hash })?;
        }
        Ok(())
    }
}

/// Records an attempt that failed without cost. One that may have cost something is recorded when it is charged.
pub(super) fn record_failed_attempt(audit_log: &AuditLog, own: &EngineCallTarget, model: &str, error: &model::Error) {
    let (status, sent) = match error {
        _ if error.may_have_cost() => return,
        model::Error::Status { status, .. } => (Some(*status), true),
        model::Error::Connect { .. } => (None, false),
        _ => return,
    };
    let own = EngineCallTarget { credential: own.credential.clone().filter(|_| sent), ..own.clone() };
    let (why, usage, cost) = (error.to_string(), TokenUsage::default(), MicroUsd::ZERO);
    audit_log.engine_call_ended(
        &own,
        &EngineCallResult { model, status, why: Some(&why), usage, cost, charge: ChargeBasis::Nothing },
    );
}

/// Groups consecutive calls that cost nothing by model and status when there are many. Returns each with the number of
/// calls it stands for, and no more than may be recorded at once. The order of the events changes no sum.
fn group_free_calls(charged: Vec<LoggedCharge>) -> Vec<(LoggedCharge, u64)> {
    let many = charged.len() > MAX_CALL_EVENTS;
    let mut grouped: Vec<(LoggedCharge, u64)> = Vec::new();
    // Where the current sequence of calls without cost begins.
    let mut first = 0;
    for one in charged {
        if !one.is_free() {
            first = grouped.len() + 1;
        }
        let alike = |(other, _): &(LoggedCharge, u64)| (&other.model, other.status) == (&one.model, one.status);
        let place = grouped.iter().skip(first).position(alike).filter(|_| many).map(|place| first + place);
        let room = grouped.len() < MAX_CALL_EVENTS;
        match place.and_then(|place| grouped.get_mut(place)) {
            Some((_, times)) => *times += 1,
            None if room => grouped.push((one, 1)),
            None => break,
        }
    }
    grouped
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;

    use super::*;

    fn charged(model: &str, status: u16, cost: u64) -> LoggedCharge {
        LoggedCharge {
            id: 1,
            at: Timestamp::UNIX_EPOCH,
            model: model.to_owned(),
            status: Some(status),
            usage: TokenUsage::default(),
            cost: MicroUsd(cost),
            worst: false,
            limits: Vec::new(),
        }
    }

    #[track_caller]
    fn check(calls: &[(usize, LoggedCharge)], want: &[(&str, u16, u64)]) {
        let calls = calls.iter().flat_map(|(times, one)| vec![one.clone(); *times]).collect();
        let grouped = group_free_calls(calls);
        let grouped: Vec<_> = grouped.iter().map(|(one, times)| (&*one.model, one.status.unwrap(), *times)).collect();
        assert_eq!(grouped, want);
    }

    #[test]
    fn many_free_calls_are_grouped() {
        let (limit, bad, paid) = (|| charged("a", 429, 0), || charged("b", 400, 0), || charged("a", 200, 7));
        check(&[(3, limit()), (1, paid())], &[("a", 429, 1), ("a", 429, 1), ("a", 429, 1), ("a", 200, 1)]);
        check(
            &[(900, limit()), (2, bad()), (5, limit()), (1, paid()), (1, paid()), (40, limit())],
            &[("a", 429, 905), ("b", 400, 2), ("a", 200, 1), ("a", 200, 1), ("a", 429, 40)],
        );
        // Calls with a cost are recorded one by one, the rest the next time.
        check(&[(60, paid()), (60, limit())], &[("a", 200, 1); MAX_CALL_EVENTS]);
        check(&[(49, paid()), (60, limit()), (1, bad()), (9, limit())], &{
            let mut want = vec![("a", 200, 1); 49];
            want.push(("a", 429, 60));
            want
        });
    }
}
