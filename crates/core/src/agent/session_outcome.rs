//! Classifies the end of a session: what it means for the run.

use jiff::Timestamp;

use super::error_phrases::{self, AgentErrorClass};
use super::output_event::AgentResult;
use crate::rate_limit_reset;

/// A model call as the egress proxy observed it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ObservedModelCall {
    pub at: Timestamp,
    /// The status the agent received; `None` if it closed the connection before.
    pub status: Option<u16>,
    /// The rate-limit headers of the provider.
    pub limits: Vec<(String, String)>,
    /// The run's own budget refused it.
    pub budget_refused: bool,
    /// Why the current settings forbid calling the endpoint, and what to do next.
    pub blocked: Option<String>,
}

/// What is known of a session at its end.
#[derive(Debug, Clone, Copy)]
pub struct AgentSessionEnd<'a> {
    /// `None` if it was ended by a signal or by ralph.
    pub code: Option<i32>,
    /// Its program was not found.
    pub missing: bool,
    /// It was ended because it printed nothing for too long.
    pub idle: bool,
    pub timed_out: bool,
    pub result: Option<&'a AgentResult>,
    pub stderr: &'a str,
    /// The calls that the egress proxy observed, in order.
    pub calls: &'a [ObservedModelCall],
    pub now: Timestamp,
}

/// What the end of a session means.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SessionOutcome {
    /// The agent finished. Whether the work is right is for the checks to decide.
    Done,
    /// The provider refuses calls for now.
    Limit {
        until: Option<Timestamp>,
    },
    /// The provider is overloaded or down.
    Overload,
    /// The provider rejects the key.
    Auth,
    /// The current settings forbid calling the provider; the user has to change them.
    EndpointBlocked {
        why: String,
    },
    /// The run's own budget is spent.
    BudgetSpent,
    /// No credit left at the provider.
    NoProviderCredit,
    /// The program, or something it needs to run, was not found.
    Missing,
    Idle,
    TimedOut,
    Crash {
        why: String,
    },
}

/// Classifies the end of a session. The calls that the proxy observed count more than what the agent reports, its
/// result more than its exit code, and error texts come last.
pub fn classify_session_end(ended: &AgentSessionEnd<'_>) -> SessionOutcome {
    // The shell's exit code for a program that was not found; a script without its interpreter ends with it as well.
    if ended.missing || (ended.code == Some(127) && ended.calls.is_empty()) {
        return SessionOutcome::Missing;
    }
    // Agents also make calls for titles and memories. If one of these fails last, the work is not affected.
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

/// The number of consecutive failures after which retrying will not help an agent.
const MAX_FAILED_CALLS: usize = 6;

/// Returns whether to end a session because all its calls are refused: some agents retry forever, silently.
pub fn should_abort(calls: &[ObservedModelCall]) -> bool {
    let failed = |call: &&ObservedModelCall| call.budget_refused || call.status.is_some_and(|status| status >= 400);
    // A client that closed the connection says nothing about the provider, neither good nor bad.
    let answered = calls.iter().rev().filter(|call| call.budget_refused || call.status.is_some());
    let last = answered.take_while(failed);
    let (all, spent) = last.fold((0, 0), |(all, spent), call| (all + 1, spent + usize::from(call.budget_refused)));
    // A spent budget stays spent, and a blocked endpoint stays blocked.
    all >= MAX_FAILED_CALLS || spent >= 3 || calls.last().is_some_and(|call| call.blocked.is_some())
}

/// Classifies by the last call, if it failed. An agent that made further calls has recovered from earlier failures.
fn by_last_call(last: &ObservedModelCall, ended: &AgentSessionEnd<'_>) -> Option<SessionOutcome> {
    if last.budget_refused {
        return Some(SessionOutcome::BudgetSpent);
    }
    if let Some(why) = &last.blocked {
        return Some(SessionOutcome::EndpointBlocked { why: why.clone() });
    }
    // A refusal by the egress proxy itself says nothing about the provider.
    if let Some(why) = last.status.filter(|status| (400..500).contains(status)).and_then(|_| proxy_refusal(ended)) {
        return Some(SessionOutcome::Crash { why });
    }
    Some(match error_phrases::classify_status(last.status?)? {
        AgentErrorClass::Limit => {
            // Some providers use the same status for exhausted credit and for a rate limit; only the body differs.
            let until = rate_limit_reset::from_headers(&last.limits, last.at);
            let no_credit = until.is_none()
                && error_texts(ended)
                    .any(|text| error_phrases::classify_text(text) == Some(AgentErrorClass::NoProviderCredit));
            if no_credit {
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

/// Returns the egress proxy's own refusal message, if the agent failed and quotes it.
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
    // The task itself may be about limits and logins. If the last observed call succeeded, the provider was fine.
    if ended.calls.last().and_then(|call| call.status).is_some_and(|status| (200..300).contains(&status)) {
        return None;
    }
    // If calls were observed, they include the refusal by the budget.
    if ended.calls.is_empty() && text.contains("ralph: budget spent") {
        return Some(SessionOutcome::BudgetSpent);
    }
    let class = error_phrases::classify_text(text);
    // The proxy refuses some requests before they count as calls: such a message does not come from the provider.
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

/// Distinguishes a provider that rejects the key from a proxy that refuses the call, where no other key would help.
fn auth_or_refusal(ended: &AgentSessionEnd<'_>) -> SessionOutcome {
    proxy_refusal(ended).map_or(SessionOutcome::Auth, |why| SessionOutcome::Crash { why })
}

/// Returns every text of the agent about its end.
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
        (None, Some(code)) => format!("it exited with code {code} and reported no error"),
        (None, None) => "it was killed and reported no error".to_owned(),
    }
}

#[cfg(test)]
mod tests;
