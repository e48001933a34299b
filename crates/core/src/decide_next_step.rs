//! Decides what a run does next, as a pure function of its state.
//!
//! Every step ends in at least one event, so that after a crash the same function returns the step that continues.

use std::collections::BTreeSet;

use crate::budget::BudgetKind;
use crate::diagnosis::DiagnosisStep;
use crate::event::{PinnedBox, RunStart, RunStopReason, RunTestSchedule, RunVerdict};
use crate::gate_or_checkbox::CheckTarget;
use crate::gutter::{self, LadderRung};
use crate::pull_request::PublishReason;
use crate::run::{FinalAction, OpenIteration, RunCheckResult, RunState, RunStatus};

/// The next step of a run.
#[derive(Debug, Clone, PartialEq)]
pub enum RunStep {
    /// Create the sandbox and clone the branch into it.
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
    /// Run the agent for one session; `cut` counts the earlier attempts that were interrupted from outside.
    Session {
        n: u32,
        cut: u32,
    },
    /// Execute the next action; `again` when it was started before and no result was recorded.
    Act {
        n: u32,
        index: u32,
        again: bool,
    },
    /// Check claims, tick boxes, import the commits and end the iteration.
    Close {
        n: u32,
    },
    Score {
        n: u32,
    },
    Mitigate {
        n: u32,
        rung: LadderRung,
    },
    /// Advance a diagnosis by one step.
    Diagnose {
        n: u32,
        doing: DiagnosisStep,
    },
    /// Apply a proposal that the task allows to apply without asking.
    Apply {
        number: u32,
    },
    /// Push what was imported and open or update the pull request.
    Publish {
        why: PublishReason,
    },
    /// Re-run everything on the pushed commit in a fresh sandbox.
    Prove,
    Pause {
        reason: RunStopReason,
    },
    Finish {
        verdict: RunVerdict,
    },
    /// The run is paused or over.
    Rest,
}

/// The share of a budget that is reported when what is left does not pay for another call.
pub const SPENT_PERCENT: u8 = 100;

/// How many invalid answers a model may give in one iteration.
const MAX_INVALID_ANSWERS: usize = 2;

/// Returns the next step of a run.
pub fn decide(state: &RunState) -> RunStep {
    match &state.status {
        RunStatus::Queued
        | RunStatus::Paused { .. }
        | RunStatus::Succeeded
        | RunStatus::Failed { .. }
        | RunStatus::Stopped { .. } => {
            return RunStep::Rest;
        }
        RunStatus::Preparing | RunStatus::Running => (),
    }
    if state.workplace.is_none() {
        return RunStep::Prepare;
    }
    if state.started.baseline && state.baseline.is_none() {
        return RunStep::Baseline;
    }
    if let Some(why) = &state.baseline_refused {
        // No token is spent on a task whose proofs cannot show anything.
        return RunStep::Finish {
            verdict: RunVerdict::Failed { reason: RunStopReason::Baseline { why: why.clone() } },
        };
    }
    match &state.open {
        Some(open) => next_in_iteration(state, open),
        None => next_between_iterations(state),
    }
}

fn next_in_iteration(state: &RunState, open: &OpenIteration) -> RunStep {
    let n = open.n;
    if state.started.agent.is_some() {
        return next_in_agent_iteration(state, open);
    }
    if open.answer.is_none() {
        if open.invalid.len() >= MAX_INVALID_ANSWERS {
            return RunStep::Close { n };
        }
        if let Some(limit) = state.budget.forbids_call(&state.spent) {
            return fail_on_budget(limit);
        }
        return RunStep::CallModel { n, call: open.calls, reask: open.invalid.last().cloned() };
    }
    if open.actions_done() {
        return RunStep::Close { n };
    }
    match &open.begun {
        Some(begun) => RunStep::Act { n, index: begun.index, again: true },
        None => RunStep::Act { n, index: open.next_action, again: false },
    }
}

/// Returns the next step of an agent iteration, which is one session. Its work is checked even when the session has
/// used up the budget.
fn next_in_agent_iteration(state: &RunState, open: &OpenIteration) -> RunStep {
    if open.next_action > 0 {
        return RunStep::Close { n: open.n };
    }
    match state.budget.forbids_call(&state.spent).or_else(|| spent_limit(state)) {
        Some(_) if open.calls > 0 => RunStep::Close { n: open.n },
        Some(limit) => fail_on_budget(limit),
        None => RunStep::Session { n: open.n, cut: open.cut },
    }
}

/// Returns the budget whose rest does not pay for a single call.
fn spent_limit(state: &RunState) -> Option<BudgetKind> {
    state.warned.iter().find(|(_, percent)| **percent >= SPENT_PERCENT).map(|(limit, _)| *limit)
}

fn next_between_iterations(state: &RunState) -> RunStep {
    if let Some(last) = &state.last {
        if !last.scored {
            return RunStep::Score { n: last.n };
        }
        if let Some(why) = &state.import_stopped {
            return RunStep::Pause { reason: RunStopReason::Findings { why: why.clone() } };
        }
        if let Some(step) = publish_step(state) {
            return step;
        }
        if proof_interrupted(state) {
            return RunStep::Prove;
        }
        if state.all_verified() && state.gate == Some(true) {
            return finish_proved(state);
        }
        match &last.wish {
            Some(FinalAction::Pause { why }) => {
                return RunStep::Pause { reason: RunStopReason::NeedsDecision { why: why.clone() } };
            }
            Some(FinalAction::StopFailure { why }) => {
                return publish_then_finish(
                    state,
                    RunVerdict::Failed { reason: RunStopReason::GaveUp { why: why.clone() } },
                );
            }
            Some(FinalAction::Rotate { .. } | FinalAction::StopSuccess { .. }) | None => (),
        }
        if state.unmitigated {
            return mitigation_step(state, last.n);
        }
    }
    if let Some(number) = state.diagnoses.due.first() {
        return RunStep::Apply { number: *number };
    }
    let spent = state.budget.exhausted(&state.spent).or_else(|| spent_limit(state));
    if spent.is_none()
        && let Some(step) = diagnosis_step(state)
    {
        return step;
    }
    if state.pause_due {
        return RunStep::Pause { reason: RunStopReason::Gutter };
    }
    if let Some(limit) = spent {
        return publish_then_finish(state, RunVerdict::Failed { reason: RunStopReason::Budget { limit } });
    }
    RunStep::StartIteration { n: state.next_iteration(), profile: state.profile.clone() }
}

/// Returns the next step of a diagnosis: one that was requested, or the periodic one.
pub fn diagnosis_step(state: &RunState) -> Option<RunStep> {
    let n = state.last.as_ref().map_or(0, |last| last.n);
    let every = state.started.diagnose.every;
    let due = every > 0 && n > 0 && n.is_multiple_of(every) && state.diagnoses.after.is_none_or(|after| after < n);
    let under = match &state.diagnoses.under {
        Some(under) => under.next_step(),
        None if due => DiagnosisStep::Call { call: 0, reask: None },
        None => return None,
    };
    Some(RunStep::Diagnose { n, doing: under })
}

/// Returns the step that publishes: first as soon as there is a commit, later whenever a milestone is complete.
fn publish_step(state: &RunState) -> Option<RunStep> {
    let imported = state.imported.as_ref()?;
    match &state.pushed {
        None => Some(RunStep::Publish { why: PublishReason::FirstCommits }),
        // Pushed but not recorded in the pull request: the process died in between.
        Some(pushed) if pushed == imported => pull_request_is_stale(state).then_some(RunStep::Publish {
            why: if state.pull_request.is_none() {
                PublishReason::FirstCommits
            } else {
                PublishReason::MilestoneComplete
            },
        }),
        Some(_) => {
            let new = state.complete_milestones().difference(&state.pushed_milestones).next().is_some();
            new.then_some(RunStep::Publish { why: PublishReason::MilestoneComplete })
        }
    }
}

/// Updates the pushed branch before the run ends, whatever the reason.
fn publish_then_finish(state: &RunState, verdict: RunVerdict) -> RunStep {
    if state.imported.is_some() && (state.pushed != state.imported || pull_request_is_stale(state)) {
        return RunStep::Publish { why: PublishReason::RunEnds };
    }
    RunStep::Finish { verdict }
}

fn pull_request_is_stale(state: &RunState) -> bool {
    state.pull_request.as_ref().is_none_or(|pr| pr.sha != state.pushed)
}

fn finish_proved(state: &RunState) -> RunStep {
    if state.imported.is_none() {
        // Every proof already passed on the base: there is no commit to publish, so nothing was done.
        let why = "every proof passes without a commit; there is nothing to publish".to_owned();
        return RunStep::Finish { verdict: RunVerdict::Failed { reason: RunStopReason::VerificationFailed { why } } };
    }
    if state.pushed != state.imported || pull_request_is_stale(state) {
        return RunStep::Publish { why: PublishReason::AllBoxesVerified };
    }
    let due = proof_due(&state.started);
    if due.iter().all(|due| state.proof.get(&due.command).is_some_and(RunCheckResult::passed)) {
        return RunStep::Finish { verdict: RunVerdict::Succeeded };
    }
    RunStep::Prove
}

/// Returns whether a final proof is unfinished. It runs to its end even after a failure, so that every failure is
/// reported.
fn proof_interrupted(state: &RunState) -> bool {
    !state.proof.is_empty() && proof_due(&state.started).iter().any(|due| !state.proof.contains_key(&due.command))
}

fn mitigation_step(state: &RunState, n: u32) -> RunStep {
    let fallback = state.started.profiles.fallback.as_ref().map(|profile| profile.name.as_str());
    let rung = gutter::next_rung(state.climb, &state.started.ladder, fallback, state.budget.consecutive_gutter);
    match rung {
        LadderRung::GiveUp => publish_then_finish(state, RunVerdict::Failed { reason: RunStopReason::Gutter }),
        rung => RunStep::Mitigate { n, rung },
    }
}

fn fail_on_budget(limit: BudgetKind) -> RunStep {
    RunStep::Finish { verdict: RunVerdict::Failed { reason: RunStopReason::Budget { limit } } }
}

/// A command to run and what it proves.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DueCheck {
    pub command: String,
    pub proves: Vec<CheckTarget>,
}

/// Returns the checks that an iteration's changes and claims call for, each command once.
pub fn checks_due(
    started: &RunStart,
    verified: &BTreeSet<String>,
    claimed: &BTreeSet<String>,
    changed: bool,
) -> Vec<DueCheck> {
    let known: BTreeSet<&str> = started.boxes.iter().map(|pinned| pinned.id.as_str()).collect();
    let claimed: BTreeSet<&str> = claimed.iter().map(String::as_str).filter(|id| known.contains(id)).collect();
    // When the claims would complete the task, every check runs again: an old proof may have broken since.
    let candidate = known.iter().all(|id| claimed.contains(id) || verified.contains(*id));
    let test = match started.test_every {
        RunTestSchedule::Iteration => changed || !claimed.is_empty(),
        RunTestSchedule::Claim => !claimed.is_empty(),
    };
    let again = candidate && (changed || !claimed.is_empty());
    // A change may break a box that was verified before: the next prompt must not list it as verified.
    let may_have_broken = |pinned: &PinnedBox| changed && verified.contains(&pinned.id);
    let boxes =
        started.boxes.iter().filter(|pinned| again || claimed.contains(pinned.id.as_str()) || may_have_broken(pinned));
    due_checks(started, test || again, boxes)
}

/// Returns every check of the final proof.
pub fn proof_due(started: &RunStart) -> Vec<DueCheck> {
    due_checks(started, true, started.boxes.iter())
}

fn due_checks<'a>(started: &RunStart, test: bool, boxes: impl Iterator<Item = &'a PinnedBox>) -> Vec<DueCheck> {
    let mut all: Vec<DueCheck> = Vec::new();
    let mut add = |command: &str, target: CheckTarget| match all.iter_mut().find(|due| due.command == command) {
        Some(due) => due.proves.push(target),
        None => all.push(DueCheck { command: command.to_owned(), proves: vec![target] }),
    };
    if test {
        add(&started.test_command, CheckTarget::TestCommand);
        for (number, command) in (1..).zip(&started.gates) {
            add(command, CheckTarget::Gate(number));
        }
    }
    for pinned in boxes {
        for command in &pinned.proofs {
            add(command, CheckTarget::Checkbox(pinned.id.clone()));
        }
    }
    all
}

/// Returns the boxes that are verified after an iteration: those verified before, less those that failed now, plus
/// claims all of whose proofs passed.
pub fn verified_after(
    started: &RunStart,
    before: &BTreeSet<String>,
    claimed: &BTreeSet<String>,
    open: &OpenIteration,
) -> BTreeSet<String> {
    started
        .boxes
        .iter()
        .filter(|pinned| {
            let ran: Vec<bool> = pinned
                .proofs
                .iter()
                .filter_map(|command| open.checks.get(command))
                .map(RunCheckResult::passed)
                .collect();
            if ran.iter().any(|passed| !passed) {
                return false;
            }
            let all = !pinned.proofs.is_empty() && ran.len() == pinned.proofs.len();
            before.contains(&pinned.id) || (claimed.contains(&pinned.id) && all)
        })
        .map(|pinned| pinned.id.clone())
        .collect()
}

/// The claims of a reply, resolved to boxes of the task.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ClaimedBoxes {
    /// The ids of boxes.
    pub boxes: BTreeSet<String>,
    /// Claims that match no box and no milestone, or more than one box, verbatim.
    pub unknown: Vec<String>,
}

/// Turns a reply's claims into checkbox ids: those named, those of named milestones, and all of them when success is
/// claimed as a whole.
pub fn resolve_claims(started: &RunStart, boxes: &[String], milestones: &[String], success: bool) -> ClaimedBoxes {
    let mut claimed = ClaimedBoxes::default();
    for named in boxes.iter().filter(|named| !named.trim().is_empty()) {
        match find_claimed_box(&started.boxes, named) {
            Some(pinned) => _ = claimed.boxes.insert(pinned.id.clone()),
            None => claimed.unknown.push(named.clone()),
        }
    }
    for named in milestones.iter().filter(|named| !named.trim().is_empty()) {
        let of = |pinned: &&PinnedBox| {
            // Without headings, the ids themselves show which boxes belong to a milestone.
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

/// Finds the box that a claim names: by its id, by its text if that is unique, or by its id followed by more words.
/// Every claim is checked in any case, so a lenient match costs no more than a check.
fn find_claimed_box<'a>(boxes: &'a [PinnedBox], named: &str) -> Option<&'a PinnedBox> {
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

/// Returns whether a claim names the milestone, by its first word (`M1`) or in full.
fn same_milestone(milestone: &str, named: &str) -> bool {
    let first = |text: &str| text.split_whitespace().next().map(str::to_owned);
    !named.is_empty() && (milestone == named || first(milestone).as_deref() == Some(named))
}
