//! Writes down how an iteration went: artefacts, logs, and the sample that the loop detection scores.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::time::Duration;

use ralph_core::action::ActionKind;
use ralph_core::event::{ActionOutcome, EventLogLevel, IterationOutcome};
use ralph_core::gate_or_checkbox::CheckTarget;
use ralph_core::gutter::{FailureSignature, IterationSample, TestCounts};
use ralph_core::run::{FinalAction, OpenIteration};
use ralph_core::text;

use super::action_log::{ACTION_LOG_FILE, ActionLogEntry};
use super::iteration_close_checkpoint::{CheckedTree, CloseCheckpoint};
use super::run_context::RunContext;
use super::work_sandbox::WorkSandbox;
use crate::check_execution::CommandResult;
use crate::error::Error;
use crate::git::in_sandbox::{self, CloneStatus};

/// How much of a diff is kept as an artefact.
const DIFF_CAP: usize = 4 << 20;

/// What is known of an iteration once its claims are checked.
#[derive(Debug)]
pub(super) struct IterationReport<'a> {
    pub(super) n: u32,
    pub(super) open: &'a OpenIteration,
    pub(super) claimed: &'a BTreeSet<String>,
    /// Claims that name no box.
    pub(super) unknown: &'a [String],
    pub(super) verified: &'a BTreeSet<String>,
    /// Boxes that were verified before this iteration and are not any more.
    pub(super) broken: &'a [String],
    pub(super) acted: &'a [ActionLogEntry],
    pub(super) outputs: &'a BTreeMap<String, CommandResult>,
    pub(super) closing: &'a CloseCheckpoint,
    pub(super) judged: &'a CheckedTree,
    pub(super) survey: &'a CloneStatus,
}

impl IterationReport<'_> {
    /// Writes the artefacts of the iteration and appends to its logs.
    pub(super) async fn write(&self, run: &mut RunContext, work: &WorkSandbox) -> Result<(), Error> {
        let Self { n, open, claimed, unknown, verified, acted, closing, judged, survey, .. } = *self;
        let sandbox = work.sandbox()?;
        let actions: String =
            acted.iter().map(|acted| serde_json::to_string(acted).unwrap_or_default() + "\n").collect();
        if run.folder.read(&run.folder.iteration(n).join(ACTION_LOG_FILE))?.as_deref() == Some(actions.as_bytes()) {
            run.files.write_artefact_inside(&*sandbox, n, ACTION_LOG_FILE, actions.as_bytes()).await?;
        } else {
            run.files.write_artefact(&*sandbox, n, ACTION_LOG_FILE, actions.as_bytes()).await?;
        }
        let diff = if survey.tree == open.tree {
            String::new()
        } else {
            in_sandbox::diff(&*sandbox, &open.tree, &survey.tree, DIFF_CAP).await?
        };
        let diff = run.redactor.redact_and_report("the diff of an iteration", &diff).into_owned();
        run.files.write_artefact(&*sandbox, n, "git_diff.patch", diff.as_bytes()).await?;
        let pr = serde_json::to_vec(&run.state().pull_request).unwrap_or_default();
        run.files.write_artefact(&*sandbox, n, "pr_state.json", &pr).await?;
        let mut errors = self.format_errors(run.state().started.check_timeout_s);
        if !unknown.is_empty() {
            let open = run.state().started.boxes.iter().map(|pinned| pinned.id.clone());
            let open: Vec<String> = open.filter(|id| !verified.contains(id)).collect();
            let (claims, ids) = (quoted_list(unknown), quoted_list(&open));
            push_line(
                &mut errors,
                &format!("you claimed {claims}, which names no box: claim boxes by their ids, here {ids}"),
            );
        }
        let activity = activity(n, open, acted, verified);
        let before = |name: &str| judged.logs.get(name).copied().unwrap_or(u64::MAX);
        if !errors.is_empty() {
            let errors = run.redactor.redact(&errors).into_owned();
            let text = format!("== iteration {n} ==\n{errors}");
            run.files.append_at(&*sandbox, "errors.log", before("errors.log"), &text).await?;
        }
        if !self.broken.is_empty() {
            let boxes = self.broken.join(", ");
            run.log_once(EventLogLevel::Warn, format!("{boxes} was verified and its proof fails now: unticked"))?;
        }
        let unproved: Vec<&str> =
            claimed.difference(verified).filter(|id| !self.broken.contains(id)).map(String::as_str).collect();
        if !unproved.is_empty() {
            run.log_once(EventLogLevel::Warn, format!("claimed {} without proof: not ticked", unproved.join(", ")))?;
        }
        for line in &closing.restored {
            run.log_once(EventLogLevel::Warn, line.clone())?;
        }
        if !closing.protected.is_empty() {
            run.log_once(
                EventLogLevel::Warn,
                format!(
                    "protected paths were put back: {}; to let the run change them, name them in `may_change` of the task",
                    closing.protected.join(", ")
                ),
            )?;
        }
        let activity = run.redactor.redact(&activity).into_owned();
        run.files.append_at(&*sandbox, "activity.log", before("activity.log"), &activity).await
    }

    /// Returns what goes into `errors.log`, for the model to read.
    fn format_errors(&self, check_timeout_s: u64) -> String {
        let Self { n, open, claimed, verified, acted, outputs, closing, .. } = *self;
        let mut out = String::new();
        for error in &open.invalid {
            push_line(&mut out, &format!("your answer was not valid: {error}"));
        }
        for acted in acted.iter().filter(|acted| acted.outcome != ActionOutcome::Ok) {
            push_line(&mut out, &format!("action {} `{}`: {}", acted.index, acted.brief, acted.detail));
            if !acted.complaint.is_empty() {
                push_line(&mut out, text::tail(&acted.complaint, 30, 4000));
                push_line(
                    &mut out,
                    &format!("the whole output is in .ralph/iterations/{n}/action-{}.txt", acted.index),
                );
            }
        }
        for (command, ran) in outputs.iter().filter(|(_, ran)| !ran.passed()) {
            let timeout = Duration::from_secs(check_timeout_s);
            push_line(&mut out, &format!("check `{}`: {}", text::first_line(command, 200), ran.summary_line(timeout)));
            push_line(&mut out, text::tail(&ran.text, 30, 4000));
        }
        for path in &closing.protected {
            push_line(&mut out, &format!("{path} is protected: your change was put back and the iteration failed"));
            push_line(&mut out, "only the author of the task can let the run change it, with `may_change` in the task");
        }
        for restored in &closing.restored {
            push_line(&mut out, restored);
        }
        if !self.broken.is_empty() {
            let boxes = self.broken.join(", ");
            let text =
                format!("{boxes} was verified before, and this iteration broke it: its proof fails, it is open again");
            push_line(&mut out, &text);
        }
        let unproved: Vec<&str> = claimed.difference(verified).map(String::as_str).collect();
        if !unproved.is_empty() {
            push_line(
                &mut out,
                &format!("you claimed {}, and the proof did not pass: not verified", unproved.join(", ")),
            );
        }
        if let (Some(FinalAction::StopSuccess { .. }), false) = (&open.wish, unproved.is_empty()) {
            push_line(&mut out, "you said stop_success, but not everything is verified, so the run goes on");
        }
        out
    }
}

/// Lists the first few names on one line.
pub(super) fn quoted_list(names: &[String]) -> String {
    const SHOWN: usize = 10;
    let mut list: Vec<String> =
        names.iter().take(SHOWN).map(|name| format!("`{}`", text::first_line(name, 100))).collect();
    if names.len() > SHOWN {
        list.push(format!("{} more", names.len() - SHOWN));
    }
    list.join(", ")
}

fn push_line(out: &mut String, text: &str) {
    out.push_str(text.trim_end());
    out.push('\n');
}

pub(super) fn sample(
    n: u32,
    survey: &CloneStatus,
    acted: &[ActionLogEntry],
    open: &OpenIteration,
    outputs: &BTreeMap<String, CommandResult>,
    newly_verified: u32,
) -> IterationSample {
    let commands = acted.iter().filter(|acted| acted.kind == ActionKind::Run && acted.outcome == ActionOutcome::Failed);
    let mut failures: Vec<FailureSignature> =
        commands.map(|acted| FailureSignature::of(&acted.brief, acted.code.unwrap_or(-1), &acted.complaint)).collect();
    failures.extend(
        outputs
            .iter()
            .filter(|(_, ran)| !ran.passed())
            .map(|(command, ran)| FailureSignature::of(command, ran.code, &ran.complaint)),
    );
    failures.extend(open.invalid.iter().map(|error| FailureSignature::of("answer", 1, error)));
    let edits = acted.iter().filter(|acted| acted.kind != ActionKind::Run && acted.outcome != ActionOutcome::Ok);
    failures.extend(edits.map(|acted| FailureSignature::of(acted.kind.as_str(), 1, &acted.detail)));
    let idle = |acted: &ActionLogEntry| acted.kind == ActionKind::Session && survey.changed_lines == 0;
    if open.answer.is_some() && acted.iter().all(|acted| acted.kind.is_final() || idle(acted)) && outputs.is_empty() {
        // A reply or a session that does nothing counts as a failure.
        failures.push(FailureSignature::of("answer", 1, "no action"));
    }
    let tests = test_counts(open, outputs);
    IterationSample {
        n,
        failures,
        changed_lines: survey.changed_lines,
        files: survey.files.clone(),
        newly_verified,
        tests,
        waiting: matches!(acted, [only] if only.timed_out),
    }
}

/// Reads the counts of the test command where it ran, else of the first check that prints some.
fn test_counts(open: &OpenIteration, outputs: &BTreeMap<String, CommandResult>) -> Option<TestCounts> {
    let proves_test = |command: &str| {
        open.checks.get(command).is_some_and(|checked| checked.proves.contains(&CheckTarget::TestCommand))
    };
    let counts = |ran: &CommandResult| TestCounts::parse(&ran.text);
    let test = outputs.iter().find(|(command, _)| proves_test(command)).and_then(|(_, ran)| counts(ran));
    test.or_else(|| outputs.values().find_map(counts))
}

pub(super) fn outcome(
    open: &OpenIteration,
    sample: &IterationSample,
    closing: &CloseCheckpoint,
    changed: bool,
    broken: &[String],
) -> IterationOutcome {
    if !closing.protected.is_empty() {
        IterationOutcome::Protected
    } else if !broken.is_empty() {
        IterationOutcome::Regression
    } else if open.answer.is_none() {
        IterationOutcome::BadOutput
    } else if open.failed.is_some() {
        IterationOutcome::ActionFailed
    } else if matches!(open.wish, Some(FinalAction::Rotate { .. })) {
        IterationOutcome::Rotated
    } else if changed || sample.newly_verified > 0 {
        IterationOutcome::Progress
    } else {
        IterationOutcome::NoProgress
    }
}

pub(super) fn summary(said: Option<&str>, open: &OpenIteration) -> String {
    match (said, &open.failed) {
        (Some(said), Some(failed)) => {
            format!("{} — then failed: {}", text::first_line(said, 400), text::first_line(failed, 200))
        }
        (Some(said), None) => text::first_line(said, 600).to_owned(),
        (None, _) => "no valid answer from the model".to_owned(),
    }
}

fn activity(n: u32, open: &OpenIteration, acted: &[ActionLogEntry], verified: &BTreeSet<String>) -> String {
    let mut out = String::new();
    let boxes: Vec<&str> = verified.iter().map(String::as_str).collect();
    writeln!(
        out,
        "iteration {n}: profile {}, {} actions, cost {}, verified [{}]",
        open.profile,
        acted.len(),
        open.cost,
        boxes.join(" ")
    )
    .expect("writing to a String cannot fail");
    for acted in acted {
        writeln!(
            out,
            "  {} {} {:?} {} ms",
            acted.kind,
            text::first_line(&acted.brief, 120),
            acted.outcome,
            acted.duration_ms
        )
        .expect("writing to a String cannot fail");
    }
    out
}
