//! What the end of a session means for the run.

use jiff::Timestamp;

use super::error_phrases::{self, AgentErrorClass};
use super::output_event::AgentResult;
use crate::rate_limit_reset;

/// What the door saw of one call of a model.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ObservedModelCall {
    pub at: Timestamp,
    /// What the agent was answered with; `None` when it hung up before.
    pub status: Option<u16>,
    /// What the provider said about its rate limits, header by header.
    pub limits: Vec<(String, String)>,
    /// The run's own budget refused it.
    pub budget_refused: bool,
    /// Its endpoint must not be spoken to as things are set: why, and what to do next.
    pub blocked: Option<String>,
}

/// What is known of a session at its end.
#[derive(Debug, Clone, Copy)]
pub struct AgentSessionEnd<'a> {
    /// `None` when it was ended by a signal or by us.
    pub code: Option<i32>,
    /// Its program was not there.
    pub missing: bool,
    /// It was ended because it said nothing for too long.
    pub idle: bool,
    pub timed_out: bool,
    pub result: Option<&'a AgentResult>,
    pub stderr: &'a str,
    /// What the door saw, in order.
    pub calls: &'a [ObservedModelCall],
    pub now: Timestamp,
}

/// What the end of a session means.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SessionOutcome {
    /// It did what it wanted to do. Whether that is what was asked for, the checks say.
    Done,
    /// The provider refuses for now.
    Limit {
        until: Option<Timestamp>,
    },
    /// The provider cannot answer anybody.
    Overload,
    /// The provider does not take the key.
    Auth,
    /// The provider must not be spoken to as things are set, which a person has to change.
    EndpointBlocked {
        why: String,
    },
    /// The run's own budget is spent.
    BudgetSpent,
    /// No money left at the provider.
    NoProviderCredit,
    /// The program, or what it needs to run, is not there.
    Missing,
    Idle,
    TimedOut,
    Crash {
        why: String,
    },
}

/// Judges the end of a session. What the door saw counts more than what the agent says, its result more than its exit
/// code, and its words come last.
pub fn classify_session_end(ended: &AgentSessionEnd<'_>) -> SessionOutcome {
    // A shell's word for a program that is not there; a script whose interpreter is missing ends so as well.
    if ended.missing || (ended.code == Some(127) && ended.calls.is_empty()) {
        return SessionOutcome::Missing;
    }
    // Agents have calls beside their work, for titles and memories. One of these may fail last and spoil nothing.
    let answered = ended.calls.iter().any(|call| call.status.is_some_and(|status| (200..300).contains(&status)));
    let went_well = ended.result.is_some_and(|finished| finished.ok) && answered;
    let telling = ended.calls.last().filter(|call| call.budget_refused || !went_well);
    if let Some(outcome) = telling.and_then(|call| by_last_call(call, ended)) {
        return outcome;
    }
    if let Some(finished) = ended.result {
        return if finished.ok { SessionOutcome::Done } else { by_agent_result(finished, ended) };
    }
    if ended.timed_out {
        return SessionOutcome::TimedOut;
    }
    if ended.idle {
        return SessionOutcome::Idle;
    }
    if ended.code == Some(0) {
        return SessionOutcome::Done;
    }
    by_error_text(ended.stderr, ended).unwrap_or_else(|| SessionOutcome::Crash { why: crash_reason(ended) })
}

/// After so many failures one after the other an agent will not get an answer by asking again.
const MAX_FAILED_CALLS: usize = 6;

/// Says whether a session should be ended because its calls are all refused: some agents ask again for ever, silently.
pub fn should_abort(calls: &[ObservedModelCall]) -> bool {
    let failed = |call: &&ObservedModelCall| call.budget_refused || call.status.is_some_and(|status| status >= 400);
    // A client that hung up says nothing about the provider, neither good nor bad.
    let told = calls.iter().rev().filter(|call| call.budget_refused || call.status.is_some());
    let last = told.take_while(failed);
    let (all, spent) = last.fold((0, 0), |(all, spent), call| (all + 1, spent + usize::from(call.budget_refused)));
    // A spent budget stays spent, and so does what nobody may speak to.
    all >= MAX_FAILED_CALLS || spent >= 3 || calls.last().is_some_and(|call| call.blocked.is_some())
}

/// The last call says why a session ended, if it failed. An agent that went on after a failure has got over it.
fn by_last_call(last: &ObservedModelCall, ended: &AgentSessionEnd<'_>) -> Option<SessionOutcome> {
    if last.budget_refused {
        return Some(SessionOutcome::BudgetSpent);
    }
    if let Some(why) = &last.blocked {
        return Some(SessionOutcome::EndpointBlocked { why: why.clone() });
    }
    // A refusal of the door itself is no word of the provider.
    if let Some(why) = last.status.filter(|status| (400..500).contains(status)).and_then(|_| proxy_refusal(ended)) {
        return Some(SessionOutcome::Crash { why });
    }
    Some(match error_phrases::classify_status(last.status?)? {
        AgentErrorClass::Limit => {
            // An empty purse has the same status as a limit at some providers; only the body tells them apart.
            let until = rate_limit_reset::from_headers(&last.limits, last.at);
            let purse = until.is_none()
                && error_texts(ended)
                    .any(|text| error_phrases::classify_text(text) == Some(AgentErrorClass::NoProviderCredit));
            if purse {
                SessionOutcome::NoProviderCredit
            } else {
                SessionOutcome::Limit { until: until.or_else(|| reset_time_in_texts(ended)) }
            }
        }
        AgentErrorClass::Overload => SessionOutcome::Overload,
        AgentErrorClass::Auth => SessionOutcome::Auth,
        AgentErrorClass::NoProviderCredit => SessionOutcome::NoProviderCredit,
    })
}

/// Returns the door's own words of refusal, where the agent quotes them and failed.
fn proxy_refusal(ended: &AgentSessionEnd<'_>) -> Option<String> {
    if ended.result.is_some_and(|finished| finished.ok) {
        return None;
    }
    error_texts(ended).find_map(|text| {
        let at = text.find("ralph: ")?;
        Some(super::stream_state::one_line(text.get(at..)?.split('"').next()?))
    })
}

fn by_agent_result(finished: &AgentResult, ended: &AgentSessionEnd<'_>) -> SessionOutcome {
    let why = finished.why.as_deref().unwrap_or(&finished.text);
    if let Some(outcome) = by_error_text(why, ended) {
        return outcome;
    }
    match finished.status.and_then(error_phrases::classify_status) {
        Some(AgentErrorClass::Limit) => SessionOutcome::Limit { until: reset_time_in_texts(ended) },
        Some(AgentErrorClass::Overload) => SessionOutcome::Overload,
        Some(AgentErrorClass::Auth) => auth_or_refusal(ended),
        Some(AgentErrorClass::NoProviderCredit) => SessionOutcome::NoProviderCredit,
        None => SessionOutcome::Crash { why: crash_reason(ended) },
    }
}

fn by_error_text(text: &str, ended: &AgentSessionEnd<'_>) -> Option<SessionOutcome> {
    // Words about limits and logins may be what the task is about. Where the door saw an answer, the provider was fine.
    if ended.calls.last().and_then(|call| call.status).is_some_and(|status| (200..300).contains(&status)) {
        return None;
    }
    // Where the door is watched it would have seen its own refusal.
    if ended.calls.is_empty() && text.contains("ralph: budget spent") {
        return Some(SessionOutcome::BudgetSpent);
    }
    let class = error_phrases::classify_text(text);
    // The door refuses some calls before they are any: what it says then is no word of the provider.
    if class != Some(AgentErrorClass::Overload)
        && let Some(why) = proxy_refusal(ended)
    {
        return Some(SessionOutcome::Crash { why });
    }
    Some(match class? {
        AgentErrorClass::Limit => SessionOutcome::Limit { until: rate_limit_reset::from_text(text, ended.now) },
        AgentErrorClass::Overload => SessionOutcome::Overload,
        AgentErrorClass::Auth => auth_or_refusal(ended),
        AgentErrorClass::NoProviderCredit => SessionOutcome::NoProviderCredit,
    })
}

/// Tells a provider that does not take the key from a door that does not let the call pass: no other key helps there.
fn auth_or_refusal(ended: &AgentSessionEnd<'_>) -> SessionOutcome {
    proxy_refusal(ended).map_or(SessionOutcome::Auth, |why| SessionOutcome::Crash { why })
}

/// Everything the agent said about its end.
fn error_texts<'a>(ended: &AgentSessionEnd<'a>) -> impl Iterator<Item = &'a str> {
    let (finished, stderr) = (ended.result, ended.stderr);
    finished.into_iter().flat_map(|finished| [finished.why.as_deref().unwrap_or(""), &finished.text]).chain([stderr])
}

fn reset_time_in_texts(ended: &AgentSessionEnd<'_>) -> Option<Timestamp> {
    error_texts(ended).find_map(|text| rate_limit_reset::from_text(text, ended.now))
}

fn crash_reason(ended: &AgentSessionEnd<'_>) -> String {
    let last = ended.stderr.lines().rev().map(str::trim).find(|line| !line.is_empty()).unwrap_or("");
    let result = ended.result.and_then(|finished| finished.why.as_deref()).unwrap_or("");
    let why = [result, last].into_iter().map(super::stream_state::one_line).find(|why| !why.is_empty());
    match (why, ended.code) {
        (Some(why), _) => why,
        (None, Some(code)) => format!("it ended with code {code} and said nothing"),
        (None, None) => "it was ended and said nothing".to_owned(),
    }
}

#[cfg(test)]
mod tests;
