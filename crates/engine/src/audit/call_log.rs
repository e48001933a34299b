//! Records the model calls of a run's agents, before each call is made and when it is charged.
//!
//! The events of a run are the truth about its costs, but the proxy does not write events. So the proxy writes each
//! call to `calls.jsonl` first, and the runner reports it from there. A process that died leaves calls without a
//! charge: their cost is unknown, so they are charged at their worst case.

use std::collections::{BTreeMap, VecDeque};
use std::fs::{File, OpenOptions};
use std::io::{self, BufRead as _, BufReader, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::sync::{Mutex, MutexGuard, PoisonError};

use jiff::Timestamp;
use ralph_core::agent::ObservedModelCall;
use ralph_core::money::MicroUsd;
use ralph_core::price::TokenUsage;
use ralph_core::redact::Redactor;
use ralph_core::text;
use ralph_proxy::egress_events::{ChargeBasis, EgressEntry, EgressEvent};
use ralph_proxy::meter::GatewayRefusal;
use serde::{Deserialize, Serialize};

use crate::error::{Error, file_error};
use crate::store::RunFolder;

const FILE_NAME: &str = "calls.jsonl";
/// The longest text kept of a call.
const MAX_TEXT_BYTES: usize = 200;
/// The most calls of a run that may end without cost. No budget bounds them, and each leaves records on disk: after
/// this many the run gets no more.
const MAX_FREE_CALLS: u64 = 100_000;
/// How many responses of the gateway are kept: a session is assessed by its last ones.
const MAX_RECENT_RESPONSES: usize = 64;

/// A call that was charged, possibly with nothing.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LoggedCharge {
    pub id: u64,
    pub at: Timestamp,
    pub model: String,
    /// The status that the agent received.
    pub status: Option<u16>,
    pub usage: TokenUsage,
    pub cost: MicroUsd,
    /// The provider's token count was never seen.
    pub worst: bool,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub limits: Vec<(String, String)>,
}

impl LoggedCharge {
    /// Reports whether the call cost nothing: the provider refused it, or it was never sent.
    pub fn is_free(&self) -> bool {
        !self.worst && self.cost == MicroUsd::ZERO && self.usage == TokenUsage::default()
    }
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "kebab-case")]
enum CallLogLine {
    Calling(StartedCall),
    Charged(LoggedCharge),
}

#[derive(Debug, Clone, Serialize, Deserialize)]
struct StartedCall {
    id: u64,
    at: Timestamp,
    model: String,
    cost: MicroUsd,
    tokens: u64,
}

impl StartedCall {
    fn into_worst_case(self) -> LoggedCharge {
        let Self { id, model, cost, tokens, .. } = self;
        let usage = TokenUsage { input: tokens, ..TokenUsage::default() };
        LoggedCharge { id, at: Timestamp::now(), model, status: None, usage, cost, worst: true, limits: Vec::new() }
    }
}

/// The model calls of one run.
#[derive(Debug)]
pub struct ModelCallLog {
    state: Mutex<CallLogState>,
    /// How many lines are certainly on disk. The thread that holds this lock flushes for all that wait.
    flushed: Mutex<u64>,
}

#[derive(Debug)]
struct CallLogState {
    file: File,
    in_flight: BTreeMap<u64, StartedCall>,
    /// Charges not reported yet, in order; of reported ones only the count is kept.
    charged: VecDeque<LoggedCharge>,
    reported: u64,
    /// How many calls of the run cost nothing, and whether the warning that they were too many is still due.
    free_calls: u64,
    limit_reached: bool,
    responses: RecentResponses,
    last_error: Option<String>,
    /// The last write failed, possibly after writing a part of the line.
    partial_write: bool,
    /// How many lines this process has written.
    written: u64,
}

impl ModelCallLog {
    /// Opens the log of a run. Calls that a dead process left without a charge are charged at their worst case.
    pub(super) fn open(folder: &RunFolder) -> Result<Self, Error> {
        let path = folder.path().join(FILE_NAME);
        let mut open = OpenOptions::new();
        let file =
            open.create(true).read(true).append(true).mode(0o600).open(&path).map_err(file_error("open", &path))?;
        let mut in_flight = BTreeMap::new();
        let mut state = CallLogState {
            file: file.try_clone().map_err(self::file_error("open", &path))?,
            in_flight: BTreeMap::new(),
            charged: VecDeque::new(),
            reported: 0,
            free_calls: 0,
            limit_reached: false,
            responses: RecentResponses::default(),
            last_error: None,
            partial_write: false,
            written: 0,
        };
        let (mut reader, mut line) = (BufReader::with_capacity(1 << 16, file), Vec::new());
        while reader.read_until(b'\n', &mut line).map_err(self::file_error("read", &path))? > 0 {
            state.partial_write = !line.ends_with(b"\n");
            // A line that a crash cut short belongs to a call that was not sent yet.
            match serde_json::from_str(&String::from_utf8_lossy(&line)) {
                Ok(CallLogLine::Calling(calling)) => drop(in_flight.insert(calling.id, calling)),
                Ok(CallLogLine::Charged(one)) => {
                    in_flight.remove(&one.id);
                    state.add_charged(one);
                }
                Err(_) => (),
            }
            line.clear();
        }
        for calling in in_flight.into_values() {
            state.charge(calling.into_worst_case());
        }
        Ok(Self { state: Mutex::new(state), flushed: Mutex::new(0) })
    }

    /// Records a call that is about to be sent and returns how many lines must be flushed before it is; the error says
    /// why it could not be written.
    pub(super) fn persist_call(&self, event: &EgressEvent, redactor: &Redactor) -> Result<u64, String> {
        let EgressEvent::CallReserved { id, model, cost, tokens, .. } = event else { return Ok(0) };
        let (at, model) = (Timestamp::now(), text::head(&redactor.redact(model), MAX_TEXT_BYTES).to_owned());
        let calling = StartedCall { id: *id, at, model, cost: *cost, tokens: *tokens };
        let mut state = self.lock_state();
        if state.free_calls >= MAX_FREE_CALLS {
            return Err(format!("{MAX_FREE_CALLS} calls of this run ended without a result, so it may make no more"));
        }
        state.write(&CallLogLine::Calling(calling.clone())).map_err(|error| error.to_string())?;
        state.in_flight.insert(*id, calling);
        Ok(state.written)
    }

    /// Returns once this many lines are on disk.
    pub(super) fn flush_to(&self, lines: u64) -> Result<(), String> {
        let mut flushed = self.flushed.lock().unwrap_or_else(PoisonError::into_inner);
        if *flushed >= lines {
            return Ok(());
        }
        let state = self.lock_state();
        let (written, file) = (state.written, state.file.try_clone());
        // Others may write during the flush.
        drop(state);
        file.and_then(|file| file.sync_data())
            .map_err(|error| format!("the call log could not be flushed: {error}"))?;
        *flushed = written;
        Ok(())
    }

    /// Records an egress event. Never waits for the disk: what must be on disk goes through [`Self::persist_call`].
    pub(super) fn observe(&self, event: &EgressEvent, redactor: &Redactor) {
        let masked = |text: &str| text::head(&redactor.redact(text), MAX_TEXT_BYTES).to_owned();
        let (at, mut state) = (Timestamp::now(), self.lock_state());
        match event {
            EgressEvent::CallReserved { .. } => {
                drop(state);
                if let Err(why) = self.persist_call(event, redactor) {
                    self.lock_state().last_error = Some(why);
                }
            }
            EgressEvent::Exchange(exchanged) if exchanged.entry == EgressEntry::Route => {
                // A refusal by the gateway is no response of the provider; a refusal for lack of budget was recorded
                // before.
                let Some(call) = &exchanged.call else { return };
                let limits = call.limits.clone();
                let barred = match exchanged.refused.as_deref() {
                    Some(GatewayRefusal::Barred(why)) => Some(redactor.redact(why).into_owned()),
                    _ => None,
                };
                state.responses.push(ObservedModelCall {
                    at,
                    status: exchanged.status,
                    limits: limits.clone(),
                    budget_refused: false,
                    blocked: barred,
                });
                // A call that was given up and already charged is not charged again.
                if state.in_flight.remove(&call.id).is_some() {
                    state.charge(LoggedCharge {
                        id: call.id,
                        at,
                        model: masked(&call.model),
                        status: exchanged.status,
                        usage: call.usage,
                        cost: call.cost,
                        worst: call.charge == ChargeBasis::Worst,
                        limits: limits.iter().map(|(name, value)| (masked(name), masked(value))).collect(),
                    });
                }
            }
            EgressEvent::BudgetSpent { .. } => {
                state.responses.push(ObservedModelCall {
                    at,
                    status: None,
                    limits: Vec::new(),
                    budget_refused: true,
                    blocked: None,
                });
            }
            _ => (),
        }
    }

    /// Returns up to `most` charges after the first `reported`, which are forgotten from now on.
    pub fn charged_since(&self, reported: u64, most: usize) -> Vec<LoggedCharge> {
        let mut state = self.lock_state();
        let known =
            usize::try_from(reported.saturating_sub(state.reported)).unwrap_or(usize::MAX).min(state.charged.len());
        state.charged.drain(..known);
        state.reported += known as u64;
        state.charged.iter().take(most).cloned().collect()
    }

    /// Returns how many calls have been charged so far.
    pub fn charged_count(&self) -> u64 {
        let state = self.lock_state();
        state.reported + state.charged.len() as u64
    }

    /// Adjusts the count to the number already reported, if a power cut took charges from the file; returns how many
    /// are gone.
    pub fn skip_missing(&self, reported: u64) -> u64 {
        let mut state = self.lock_state();
        let missing = reported.saturating_sub(state.reported + state.charged.len() as u64);
        // The missing ones came first and were reported.
        state.reported += missing;
        missing
    }

    /// Flushes the log to disk.
    pub fn flush(&self) {
        let file = self.lock_state().file.try_clone();
        // Other threads continue to write during the flush.
        if let Err(error) = file.and_then(|file| file.sync_data()) {
            self.lock_state().last_error = Some(error.to_string());
        }
    }

    /// Returns how many responses the gateway has given so far.
    pub fn response_count(&self) -> u64 {
        self.lock_state().responses.total
    }

    /// Returns the most recent responses after a mark.
    pub fn responses_since(&self, mark: u64) -> Vec<ObservedModelCall> {
        self.lock_state().responses.after(mark)
    }

    /// Returns, once, the warning that too many calls ended without a result for any more to be made.
    pub fn take_limit_warning(&self) -> Option<String> {
        std::mem::take(&mut self.lock_state().limit_reached).then(|| {
            format!("{MAX_FREE_CALLS} model calls of agents ended without a result, so no more are allowed in this run")
        })
    }

    /// Reports whether calls are in flight.
    pub fn has_in_flight(&self) -> bool {
        !self.lock_state().in_flight.is_empty()
    }

    /// Charges every call still in flight at its worst case, because no caller waits for it any longer; returns the
    /// ids.
    pub fn charge_in_flight(&self) -> Vec<u64> {
        let mut state = self.lock_state();
        let given_up = std::mem::take(&mut state.in_flight);
        let ids = given_up.keys().copied().collect();
        for calling in given_up.into_values() {
            state.charge(calling.into_worst_case());
        }
        ids
    }

    /// Returns the last write error since the previous call.
    pub fn take_error(&self) -> Option<String> {
        self.lock_state().last_error.take()
    }

    fn lock_state(&self) -> MutexGuard<'_, CallLogState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl CallLogState {
    fn charge(&mut self, charged: LoggedCharge) {
        if let Err(error) = self.write(&CallLogLine::Charged(charged.clone())) {
            self.last_error = Some(error.to_string());
        }
        let before = self.free_calls;
        self.add_charged(charged);
        self.limit_reached |= before < MAX_FREE_CALLS && self.free_calls >= MAX_FREE_CALLS;
    }

    /// Adds a charge that is in the file, without its limits, which are not needed again.
    fn add_charged(&mut self, charged: LoggedCharge) {
        self.free_calls += u64::from(charged.is_free());
        self.charged.push_back(LoggedCharge { limits: Vec::new(), ..charged });
    }

    fn write(&mut self, line: &CallLogLine) -> io::Result<()> {
        // A line that was cut short is ended first, so that it does not damage the next.
        let mut bytes = if self.partial_write { vec![b'\n'] } else { Vec::new() };
        bytes.extend(serde_json::to_vec(line).unwrap_or_default());
        bytes.push(b'\n');
        let written = self.file.write_all(&bytes);
        self.partial_write = written.is_err();
        self.written += u64::from(written.is_ok());
        written
    }
}

/// The last responses of the gateway, in order, including ralph's own refusals.
#[derive(Debug, Default)]
struct RecentResponses {
    /// Each response with its number, starting at 1.
    last: VecDeque<(u64, ObservedModelCall)>,
    total: u64,
}

impl RecentResponses {
    fn push(&mut self, seen: ObservedModelCall) {
        self.total += 1;
        // A series of clients that hang up must not push out responses that say more.
        let hung_up = |seen: &ObservedModelCall| !seen.budget_refused && seen.status.is_none();
        if hung_up(&seen) && self.last.back().is_some_and(|(_, last)| hung_up(last)) {
            self.last.pop_back();
        }
        if self.last.len() >= MAX_RECENT_RESPONSES {
            self.last.pop_front();
        }
        self.last.push_back((self.total, seen));
    }

    fn after(&self, mark: u64) -> Vec<ObservedModelCall> {
        self.last.iter().filter(|(number, _)| *number > mark).map(|(_, seen)| seen.clone()).collect()
    }
}

#[cfg(test)]
mod tests {
    use ralph_proxy::egress_events::{ChargedCall, EgressExchange};

    use super::*;

    fn calling(id: u64, cost: u64) -> EgressEvent {
        EgressEvent::CallReserved { id, route: "r".to_owned(), model: "m".to_owned(), cost: MicroUsd(cost), tokens: 7 }
    }

    fn answered(id: u64, status: u16, cost: u64) -> EgressEvent {
        let charge = if cost == 0 { ChargeBasis::Nothing } else { ChargeBasis::Reported };
        let call = ChargedCall {
            id,
            route: "r".to_owned(),
            model: "m".to_owned(),
            answered_by: None,
            usage: TokenUsage::default(),
            cost: MicroUsd(cost),
            charge,
            limits: Vec::new(),
        };
        EgressEvent::Exchange(EgressExchange {
            entry: EgressEntry::Route,
            host: "x.io".to_owned(),
            port: 443,
            method: "POST".to_owned(),
            path: "/".to_owned(),
            status: Some(status),
            refused: None,
            sent: 0,
            received: 0,
            credential: None,
            call: Some(call),
        })
    }

    fn costs(calls: &ModelCallLog, reported: u64) -> Vec<(u64, u64, bool)> {
        calls
            .charged_since(reported, usize::MAX)
            .iter()
            .map(|charged| (charged.id, charged.cost.0, charged.worst))
            .collect()
    }

    #[test]
    fn a_call_that_cannot_be_written_is_not_in_flight() {
        let dir = tempfile::tempdir().unwrap();
        let calls = ModelCallLog::open(&RunFolder::at(dir.path().to_owned())).unwrap();
        let redactor = Redactor::new([]);
        let file =
            std::mem::replace(&mut calls.lock_state().file, OpenOptions::new().write(true).open("/dev/full").unwrap());
        assert!(calls.persist_call(&calling(1, 50), &redactor).is_err() && !calls.has_in_flight());
        calls.lock_state().file = file;
        let lines = [2, 3].map(|id| calls.persist_call(&calling(id, 60), &redactor).unwrap());
        assert_eq!(lines, [1, 2]);
        // One flush is enough for both.
        calls.flush_to(1).unwrap();
        assert_eq!(*calls.flushed.lock().unwrap(), 2);
        assert_eq!(calls.charge_in_flight(), [2, 3]);
    }

    #[test]
    fn calls_without_cost_are_limited() {
        let dir = tempfile::tempdir().unwrap();
        let folder = RunFolder::at(dir.path().to_owned());
        let redactor = Redactor::new([]);
        let calls = ModelCallLog::open(&folder).unwrap();
        let hang_up = |calls: &ModelCallLog, id: u64| {
            calls.observe(&calling(id, 50), &redactor);
            let EgressEvent::Exchange(exchanged) = answered(id, 200, 0) else { unreachable!("it is one") };
            calls.observe(&EgressEvent::Exchange(EgressExchange { status: None, ..exchanged }), &redactor);
        };
        let mark = calls.response_count();
        for id in 1..=5 {
            calls.observe(&calling(id, 50), &redactor);
            calls.observe(&answered(id, 429, 0), &redactor);
        }
        for id in 6..=2000 {
            hang_up(&calls, id);
            // The runner reports them as they come.
            assert!(calls.charged_since(id, 10).is_empty());
        }
        // Reported charges and hang-ups are not kept in memory, and informative responses are not pushed out.
        assert_eq!((calls.charged_count(), calls.lock_state().charged.capacity() < 64), (2000, true));
        let statuses: Vec<Option<u16>> = calls.responses_since(mark).iter().map(|seen| seen.status).collect();
        assert_eq!(statuses, [Some(429), Some(429), Some(429), Some(429), Some(429), None]);
        for id in 2001..=2200 {
            calls.observe(&calling(id, 50), &redactor);
            calls.observe(&answered(id, 200, 1), &redactor);
        }
        assert_eq!(
            (calls.responses_since(mark).len(), calls.responses_since(calls.response_count()).len()),
            (MAX_RECENT_RESPONSES, 0)
        );
        // The last call that is allowed and the first that is not.
        calls.lock_state().free_calls = MAX_FREE_CALLS - 1;
        assert_eq!(calls.take_limit_warning(), None);
        hang_up(&calls, 3000);
        assert!(calls.take_limit_warning().is_some() && calls.take_limit_warning().is_none(), "reported once");
        let length = std::fs::metadata(dir.path().join(FILE_NAME)).unwrap().len();
        let refused = calls.persist_call(&calling(3001, 50), &redactor);
        assert_eq!(refused.unwrap_err(), "100000 calls of this run ended without a result, so it may make no more");
        assert_eq!(std::fs::metadata(dir.path().join(FILE_NAME)).unwrap().len(), length);
        drop(calls);
        // The count continues after a resume.
        assert_eq!(ModelCallLog::open(&folder).unwrap().lock_state().free_calls, 2001);
    }

    #[test]
    fn every_call_is_charged_once() {
        let dir = tempfile::tempdir().unwrap();
        let folder = RunFolder::at(dir.path().to_owned());
        let redactor = Redactor::new([]);
        let calls = ModelCallLog::open(&folder).unwrap();
        for event in [calling(1, 50), calling(2, 60), answered(2, 429, 0), answered(1, 200, 9), calling(3, 70)] {
            calls.observe(&event, &redactor);
        }
        assert_eq!(costs(&calls, 0), [(2, 0, false), (1, 9, false)]);
        assert_eq!(calls.responses_since(1).len(), 1);
        assert!(calls.has_in_flight());
        drop(calls);
        // The process died with one call in flight, while writing another.
        let mut file = OpenOptions::new().append(true).open(dir.path().join(FILE_NAME)).unwrap();
        file.write_all(b"{\"type\":\"calling\",\"id\":4,\"co").unwrap();
        let calls = ModelCallLog::open(&folder).unwrap();
        assert_eq!(costs(&calls, 2), [(3, 70, true)]);
        assert!(!calls.has_in_flight());
        // Each process numbers its calls from 1.
        calls.observe(&calling(1, 80), &redactor);
        assert_eq!(calls.charge_in_flight(), [1]);
        calls.observe(&answered(1, 200, 8), &redactor);
        assert_eq!(costs(&calls, 3), [(1, 80, true)]);
        drop(calls);
        assert_eq!(costs(&ModelCallLog::open(&folder).unwrap(), 0).len(), 4);
    }
}
