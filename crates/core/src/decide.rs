//! What a run does next: a pure function of its state.
//!
//! Every step ends in at least one event, so that after a crash the same question gets the answer that continues.

use std::collections::BTreeSet;

use crate::budget::Limit;
use crate::diagnosis::Doing;
use crate::event::{PinnedBox, Reason, Started, TestEvery, Verdict};
use crate::gutter::{self, Rung};
use crate::run::{Checked, Open, State, Status, Wish};

/// The next thing to do.
#[derive(Debug, Clone, PartialEq)]
pub enum Step {
    /// Make the sandbox and put the branch into it.
    Prepare,
    /// Run every proof on the base commit.
    Baseline,
    StartIteration {
        n: u32,
        profile: String,
    },
    /// Ask the model; `reask` names what was wrong with its last answer.
    CallModel {
        n: u32,
        call: u32,
        reask: Option<String>,
    },
    /// Have the agent work for one session; `cut` says how often it was cut short by others before.
    Session {
        n: u32,
        cut: u32,
    },
    /// Do the next action; `again` when it was begun before and never reported.
    Act {
        n: u32,
        index: u32,
        again: bool,
    },
    /// Check claims, tick boxes, take the commits out and end the iteration.
    Close {
        n: u32,
    },
    Score {
        n: u32,
    },
    Mitigate {
        n: u32,
        rung: Rung,
    },
    /// Bring a diagnosis one step further.
    Diagnose {
        n: u32,
        doing: Doing,
    },
    /// Carry out a proposal that the task wants carried out without asking.
    Apply {
        number: u32,
    },
    /// Push what was imported and open or update the pull request.
    Publish {
        why: &'static str,
    },
    /// Re-run everything on the pushed commit in a fresh sandbox.
    Prove,
    Pause {
        reason: Reason,
    },
    Finish {
        verdict: Verdict,
    },
    /// The run is paused or over.
    Rest,
}

/// The share of a budget that is told when nothing more can be bought with the rest.
pub const SPENT: u8 = 100;

/// How often a model may answer with something invalid in one iteration.
const ANSWERS: usize = 2;

/// Returns the next step of a run.
pub fn next(state: &State) -> Step {
    match &state.status {
        Status::Queued | Status::Paused { .. } | Status::Succeeded | Status::Failed { .. } | Status::Stopped { .. } => {
            return Step::Rest;
        }
        Status::Preparing | Status::Running => (),
    }
    if state.workplace.is_none() {
        return Step::Prepare;
    }
    if state.started.baseline && state.baseline.is_none() {
        return Step::Baseline;
    }
    if let Some(why) = &state.baseline_refused {
        // Not a token is spent on a task that cannot show anything.
        return Step::Finish { verdict: Verdict::Failed { reason: Reason::Baseline { why: why.clone() } } };
    }
    match &state.open {
        Some(open) => within(state, open),
        None => between(state),
    }
}

fn within(state: &State, open: &Open) -> Step {
    let n = open.n;
    if state.started.agent.is_some() {
        return with_agent(state, open);
    }
    if open.answer.is_none() {
        if open.invalid.len() >= ANSWERS {
            return Step::Close { n };
        }
        if let Some(limit) = state.budget.forbids_call(&state.spent) {
            return over(limit);
        }
        return Step::CallModel { n, call: open.calls, reask: open.invalid.last().cloned() };
    }
    if open.actions_done() {
        return Step::Close { n };
    }
    match &open.begun {
        Some(begun) => Step::Act { n, index: begun.index, again: true },
        None => Step::Act { n, index: open.next_action, again: false },
    }
}

/// An iteration of an agent is one session. What it did is looked at even when the session has spent the budget.
fn with_agent(state: &State, open: &Open) -> Step {
    if open.next_action > 0 {
        return Step::Close { n: open.n };
    }
    match state.budget.forbids_call(&state.spent).or_else(|| spent_up(state)) {
        Some(_) if open.calls > 0 => Step::Close { n: open.n },
        Some(limit) => over(limit),
        None => Step::Session { n: open.n, cut: open.cut },
    }
}

/// Returns the budget of which so little is left that not one call can be made.
fn spent_up(state: &State) -> Option<Limit> {
    state.warned.iter().find(|(_, percent)| **percent >= SPENT).map(|(limit, _)| *limit)
}

fn between(state: &State) -> Step {
    if let Some(last) = &state.last {
        if !last.scored {
            return Step::Score { n: last.n };
        }
        if let Some(why) = &state.import_stopped {
            return Step::Pause { reason: Reason::Findings { why: why.clone() } };
        }
        if let Some(step) = publish(state) {
            return step;
        }
        if proof_cut_off(state) {
            return Step::Prove;
        }
        if state.all_verified() && state.gate == Some(true) {
            return finish_proved(state);
        }
        match &last.wish {
            Some(Wish::Pause { why }) => return Step::Pause { reason: Reason::NeedsDecision { why: why.clone() } },
            Some(Wish::StopFailure { why }) => {
                return end(state, Verdict::Failed { reason: Reason::GaveUp { why: why.clone() } });
            }
            Some(Wish::Rotate { .. } | Wish::StopSuccess { .. }) | None => (),
        }
        if state.unmitigated {
            return mitigate(state, last.n);
        }
    }
    if let Some(number) = state.diagnoses.due.first() {
        return Step::Apply { number: *number };
    }
    let spent = state.budget.exhausted(&state.spent).or_else(|| spent_up(state));
    if spent.is_none()
        && let Some(step) = diagnosis(state)
    {
        return step;
    }
    if state.pause_due {
        return Step::Pause { reason: Reason::Gutter };
    }
    if let Some(limit) = spent {
        return end(state, Verdict::Failed { reason: Reason::Budget { limit } });
    }
    Step::StartIteration { n: state.next_iteration(), profile: state.profile.clone() }
}

/// Returns the next step of a diagnosis: of one that somebody wants, or of the one that is due every so many iterations.
pub fn diagnosis(state: &State) -> Option<Step> {
    let n = state.last.as_ref().map_or(0, |last| last.n);
    let every = state.started.diagnose.every;
    let due = every > 0 && n > 0 && n.is_multiple_of(every) && state.diagnoses.after.is_none_or(|after| after < n);
    let under = match &state.diagnoses.under {
        Some(under) => under.doing(),
        None if due => Doing::Call { call: 0, reask: None },
        None => return None,
    };
    Some(Step::Diagnose { n, doing: under })
}

/// Pushes for the first time as soon as there is something, and again whenever a milestone is complete.
fn publish(state: &State) -> Option<Step> {
    let imported = state.imported.as_ref()?;
    match &state.pushed {
        None => Some(Step::Publish { why: "first commits" }),
        // Pushed and not told yet: the process died in between.
        Some(pushed) if pushed == imported => stale(state).then_some(Step::Publish {
            why: if state.pull_request.is_none() { "first commits" } else { "milestone complete" },
        }),
        Some(_) => {
            let new = state.complete_milestones().difference(&state.pushed_milestones).next().is_some();
            new.then_some(Step::Publish { why: "milestone complete" })
        }
    }
}

/// Brings the pushed branch up to date before the run ends for whatever reason.
fn end(state: &State, verdict: Verdict) -> Step {
    if state.imported.is_some() && (state.pushed != state.imported || stale(state)) {
        return Step::Publish { why: "the run ends" };
    }
    Step::Finish { verdict }
}

fn stale(state: &State) -> bool {
    state.pull_request.as_ref().is_none_or(|pr| pr.sha != state.pushed)
}

fn finish_proved(state: &State) -> Step {
    if state.imported.is_none() {
        // Everything held on the base already: there is nothing to hand over, so nothing was done.
        let why = "every proof passes without a commit; there is nothing to hand over".to_owned();
        return Step::Finish { verdict: Verdict::Failed { reason: Reason::VerificationFailed { why } } };
    }
    if state.pushed != state.imported || stale(state) {
        return Step::Publish { why: "all boxes verified" };
    }
    let due = proof_due(&state.started);
    if due.iter().all(|due| state.proof.get(&due.command).is_some_and(Checked::passed)) {
        return Step::Finish { verdict: Verdict::Succeeded };
    }
    Step::Prove
}

/// A proof that was begun is brought to its end, even when it has failed already: all that failed is to be told.
fn proof_cut_off(state: &State) -> bool {
    !state.proof.is_empty() && proof_due(&state.started).iter().any(|due| !state.proof.contains_key(&due.command))
}

fn mitigate(state: &State, n: u32) -> Step {
    let fallback = state.started.profiles.fallback.as_ref().map(|profile| profile.name.as_str());
    let rung = gutter::next_rung(state.climb, &state.started.ladder, fallback, state.budget.consecutive_gutter);
    match rung {
        Rung::GiveUp => end(state, Verdict::Failed { reason: Reason::Gutter }),
        rung => Step::Mitigate { n, rung },
    }
}

fn over(limit: Limit) -> Step {
    Step::Finish { verdict: Verdict::Failed { reason: Reason::Budget { limit } } }
}

/// A command to run and what it proves.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Due {
    pub command: String,
    /// `test` and checkbox ids.
    pub proves: Vec<String>,
}

/// Returns the checks that an iteration's changes and claims call for, each command once.
pub fn checks_due(
    started: &Started,
    verified: &BTreeSet<String>,
    claimed: &BTreeSet<String>,
    changed: bool,
) -> Vec<Due> {
    let known: BTreeSet<&str> = started.boxes.iter().map(|pinned| pinned.id.as_str()).collect();
    let claimed: BTreeSet<&str> = claimed.iter().map(String::as_str).filter(|id| known.contains(id)).collect();
    // When the claims would complete the task, everything is looked at again: an old proof may have broken since.
    let candidate = known.iter().all(|id| claimed.contains(id) || verified.contains(*id));
    let test = match started.test_every {
        TestEvery::Iteration => changed || !claimed.is_empty(),
        TestEvery::Claim => !claimed.is_empty(),
    };
    let again = candidate && (changed || !claimed.is_empty());
    let boxes = started.boxes.iter().filter(|pinned| again || claimed.contains(pinned.id.as_str()));
    due(started, test || again, boxes)
}

/// Returns every check of the final proof.
pub fn proof_due(started: &Started) -> Vec<Due> {
    due(started, true, started.boxes.iter())
}

fn due<'a>(started: &Started, test: bool, boxes: impl Iterator<Item = &'a PinnedBox>) -> Vec<Due> {
    let mut all: Vec<Due> = Vec::new();
    let mut add = |command: &str, id: &str| match all.iter_mut().find(|due| due.command == command) {
        Some(due) => due.proves.push(id.to_owned()),
        None => all.push(Due { command: command.to_owned(), proves: vec![id.to_owned()] }),
    };
    if test {
        add(&started.test_command, "test");
    }
    for pinned in boxes {
        for command in &pinned.proofs {
            add(command, &pinned.id);
        }
    }
    all
}

/// Returns the boxes that stand verified after an iteration: what held before, less what failed now, plus claims all of
/// whose proofs passed.
pub fn verified_after(
    started: &Started,
    before: &BTreeSet<String>,
    claimed: &BTreeSet<String>,
    open: &Open,
) -> BTreeSet<String> {
    started
        .boxes
        .iter()
        .filter(|pinned| {
            let ran: Vec<bool> =
                pinned.proofs.iter().filter_map(|command| open.checks.get(command)).map(Checked::passed).collect();
            if ran.iter().any(|passed| !passed) {
                return false;
            }
            let all = !pinned.proofs.is_empty() && ran.len() == pinned.proofs.len();
            before.contains(&pinned.id) || (claimed.contains(&pinned.id) && all)
        })
        .map(|pinned| pinned.id.clone())
        .collect()
}

/// What a reply claims, in the words of the task.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Claimed {
    /// The ids of boxes.
    pub boxes: BTreeSet<String>,
    /// What names no box and no milestone, or more than one box, as it was written.
    pub unknown: Vec<String>,
}

/// Turns a reply's claims into checkbox ids: those named, those of named milestones, and all of them when success is
/// claimed as a whole.
pub fn claimed(started: &Started, boxes: &[String], milestones: &[String], success: bool) -> Claimed {
    let mut claimed = Claimed::default();
    for named in boxes.iter().filter(|named| !named.trim().is_empty()) {
        match named_box(&started.boxes, named) {
            Some(pinned) => _ = claimed.boxes.insert(pinned.id.clone()),
            None => claimed.unknown.push(named.clone()),
        }
    }
    for named in milestones.iter().filter(|named| !named.trim().is_empty()) {
        let of = |pinned: &&PinnedBox| {
            // Without headings, the ids themselves say what belongs together.
            let by_id = pinned.id.strip_prefix(named.trim()).is_some_and(|rest| rest.starts_with('.'));
            by_id || pinned.milestone.as_ref().is_some_and(|milestone| same_milestone(milestone, named.trim()))
        };
        let ids: Vec<String> = started.boxes.iter().filter(of).map(|pinned| pinned.id.clone()).collect();
        if ids.is_empty() {
            claimed.unknown.push(named.clone());
        }
        claimed.boxes.extend(ids);
    }
    if success {
        claimed.boxes.extend(started.boxes.iter().map(|pinned| pinned.id.clone()));
    }
    claimed
}

/// Finds the box a claim names: by its id, by its text where only one box says so, or by its id with more words behind it.
/// A claim is proved in any case, so a generous reading costs no more than a check.
fn named_box<'a>(boxes: &'a [PinnedBox], named: &str) -> Option<&'a PinnedBox> {
    let named = named.trim();
    let by_id = |id: &str| boxes.iter().find(|pinned| pinned.id == id);
    let mut saying = boxes.iter().filter(|pinned| pinned.text.split_whitespace().eq(named.split_whitespace()));
    let by_text = match (saying.next(), saying.next()) {
        (Some(only), None) => Some(only),
        _ => None,
    };
    let first = named.split_whitespace().next().unwrap_or_default().trim_end_matches([':', '.', ',']);
    by_id(named).or(by_text).or_else(|| by_id(first))
}

/// A milestone is named by its first word (`M1`) or in full.
fn same_milestone(milestone: &str, named: &str) -> bool {
    let first = |text: &str| text.split_whitespace().next().map(str::to_owned);
    !named.is_empty() && (milestone == named || first(milestone).as_deref() == Some(named))
}
