//! What the end of a session means for the run.

use jiff::Timestamp;

use super::said::Finished;
use super::words::{self, Class};
use crate::reset;

/// What the door saw of one call of a model.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Seen {
    pub at: Timestamp,
    /// What the agent was answered with; `None` when it hung up before.
    pub status: Option<u16>,
    /// What the provider said about its rate limits, header by header.
    pub limits: Vec<(String, String)>,
    /// The run's own budget refused it.
    pub spent: bool,
    /// Its endpoint must not be spoken to as things are set: why, and what to do next.
    pub barred: Option<String>,
}

/// What is known of a session at its end.
#[derive(Debug, Clone, Copy)]
pub struct Ended<'a> {
    /// `None` when it was ended by a signal or by us.
    pub code: Option<i32>,
    /// Its program was not there.
    pub missing: bool,
    /// It was ended because it said nothing for too long.
    pub idle: bool,
    pub timed_out: bool,
    pub finished: Option<&'a Finished>,
    pub stderr: &'a str,
    /// What the door saw, in order.
    pub calls: &'a [Seen],
    pub now: Timestamp,
}

/// What the end of a session means.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
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
    Barred {
        why: String,
    },
    /// The run's own budget is spent.
    Spend,
    /// No money left at the provider.
    ProviderSpend,
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
pub fn judge(ended: &Ended<'_>) -> Outcome {
    // A shell's word for a program that is not there; a script whose interpreter is missing ends so as well.
    if ended.missing || (ended.code == Some(127) && ended.calls.is_empty()) {
        return Outcome::Missing;
    }
    // Agents have calls beside their work, for titles and memories. One of these may fail last and spoil nothing.
    let answered = ended.calls.iter().any(|call| call.status.is_some_and(|status| (200..300).contains(&status)));
    let went_well = ended.finished.is_some_and(|finished| finished.ok) && answered;
    let telling = ended.calls.last().filter(|call| call.spent || !went_well);
    if let Some(outcome) = telling.and_then(|call| by_door(call, ended)) {
        return outcome;
    }
    if let Some(finished) = ended.finished {
        return if finished.ok { Outcome::Done } else { by_result(finished, ended) };
    }
    if ended.timed_out {
        return Outcome::TimedOut;
    }
    if ended.idle {
        return Outcome::Idle;
    }
    if ended.code == Some(0) {
        return Outcome::Done;
    }
    by_words(ended.stderr, ended).unwrap_or_else(|| Outcome::Crash { why: crashed(ended) })
}

/// After so many failures one after the other an agent will not get an answer by asking again.
const ENOUGH: usize = 6;

/// Says whether a session should be ended because its calls are all refused: some agents ask again for ever, silently.
pub fn hopeless(calls: &[Seen]) -> bool {
    let failed = |call: &&Seen| call.spent || call.status.is_some_and(|status| status >= 400);
    // A client that hung up says nothing about the provider, neither good nor bad.
    let told = calls.iter().rev().filter(|call| call.spent || call.status.is_some());
    let last = told.take_while(failed);
    let (all, spent) = last.fold((0, 0), |(all, spent), call| (all + 1, spent + usize::from(call.spent)));
    // A spent budget stays spent, and so does what nobody may speak to.
    all >= ENOUGH || spent >= 3 || calls.last().is_some_and(|call| call.barred.is_some())
}

/// The last call says why a session ended, if it failed. An agent that went on after a failure has got over it.
fn by_door(last: &Seen, ended: &Ended<'_>) -> Option<Outcome> {
    if last.spent {
        return Some(Outcome::Spend);
    }
    if let Some(why) = &last.barred {
        return Some(Outcome::Barred { why: why.clone() });
    }
    // A refusal of the door itself is no word of the provider.
    if let Some(why) = last.status.filter(|status| (400..500).contains(status)).and_then(|_| refused(ended)) {
        return Some(Outcome::Crash { why });
    }
    Some(match words::by_status(last.status?)? {
        Class::Limit => {
            // An empty purse has the same status as a limit at some providers; only the body tells them apart.
            let until = reset::by_headers(&last.limits, last.at);
            let purse = until.is_none() && said(ended).any(|text| words::class(text) == Some(Class::ProviderSpend));
            if purse { Outcome::ProviderSpend } else { Outcome::Limit { until: until.or_else(|| spoken(ended)) } }
        }
        Class::Overload => Outcome::Overload,
        Class::Auth => Outcome::Auth,
        Class::ProviderSpend => Outcome::ProviderSpend,
    })
}

/// Returns the door's own words of refusal, where the agent quotes them and failed.
fn refused(ended: &Ended<'_>) -> Option<String> {
    if ended.finished.is_some_and(|finished| finished.ok) {
        return None;
    }
    said(ended).find_map(|text| {
        let at = text.find("ralph: ")?;
        Some(super::ear::one_line(text.get(at..)?.split('"').next()?))
    })
}

fn by_result(finished: &Finished, ended: &Ended<'_>) -> Outcome {
    let why = finished.why.as_deref().unwrap_or(&finished.text);
    if let Some(outcome) = by_words(why, ended) {
        return outcome;
    }
    match finished.status.and_then(words::by_status) {
        Some(Class::Limit) => Outcome::Limit { until: spoken(ended) },
        Some(Class::Overload) => Outcome::Overload,
        Some(Class::Auth) => not_let_in(ended),
        Some(Class::ProviderSpend) => Outcome::ProviderSpend,
        None => Outcome::Crash { why: crashed(ended) },
    }
}

fn by_words(text: &str, ended: &Ended<'_>) -> Option<Outcome> {
    // Words about limits and logins may be what the task is about. Where the door saw an answer, the provider was fine.
    if ended.calls.last().and_then(|call| call.status).is_some_and(|status| (200..300).contains(&status)) {
        return None;
    }
    // Where the door is watched it would have seen its own refusal.
    if ended.calls.is_empty() && text.contains("ralph: budget spent") {
        return Some(Outcome::Spend);
    }
    let class = words::class(text);
    // The door refuses some calls before they are any: what it says then is no word of the provider.
    if class != Some(Class::Overload)
        && let Some(why) = refused(ended)
    {
        return Some(Outcome::Crash { why });
    }
    Some(match class? {
        Class::Limit => Outcome::Limit { until: reset::by_words(text, ended.now) },
        Class::Overload => Outcome::Overload,
        Class::Auth => not_let_in(ended),
        Class::ProviderSpend => Outcome::ProviderSpend,
    })
}

/// Tells a provider that does not take the key from a door that does not let the call pass: no other key helps there.
fn not_let_in(ended: &Ended<'_>) -> Outcome {
    refused(ended).map_or(Outcome::Auth, |why| Outcome::Crash { why })
}

/// Everything the agent said about its end.
fn said<'a>(ended: &Ended<'a>) -> impl Iterator<Item = &'a str> {
    let (finished, stderr) = (ended.finished, ended.stderr);
    finished.into_iter().flat_map(|finished| [finished.why.as_deref().unwrap_or(""), &finished.text]).chain([stderr])
}

fn spoken(ended: &Ended<'_>) -> Option<Timestamp> {
    said(ended).find_map(|text| reset::by_words(text, ended.now))
}

fn crashed(ended: &Ended<'_>) -> String {
    let last = ended.stderr.lines().rev().map(str::trim).find(|line| !line.is_empty()).unwrap_or("");
    let result = ended.finished.and_then(|finished| finished.why.as_deref()).unwrap_or("");
    let why = [result, last].into_iter().map(super::ear::one_line).find(|why| !why.is_empty());
    match (why, ended.code) {
        (Some(why), _) => why,
        (None, Some(code)) => format!("it ended with code {code} and said nothing"),
        (None, None) => "it was ended and said nothing".to_owned(),
    }
}

#[cfg(test)]
mod tests;
