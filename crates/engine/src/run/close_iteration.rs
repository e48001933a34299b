//! Closes an iteration: restores what must not change, checks claims, ticks boxes, imports commits.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use ralph_core::decide_next_step::{self, ClaimedBoxes, DueCheck};
use ralph_core::event::{CheckStage, Event, EventLogLevel};
use ralph_core::gate_or_checkbox::CheckTarget;
use ralph_core::proof_files::{ChangedPath, PathChangeKind, ProofFileChanges};
use ralph_core::run::{FinalAction, OpenIteration};
use ralph_core::text;

use super::action_log::read_action_log;
use super::branch_update::{BranchUpdate, ImportEnd};
use super::interrupts::Interrupts;
use super::iteration_close_checkpoint::{CloneRevision, CloseCheckpoint, SavedCheck, TEST_OUTPUT_FILE};
use super::iteration_report::{IterationReport, outcome, quoted_list, sample, summary};
use super::model_clients::ModelState;
use super::protected_files::ProtectionCheck;
use super::run_context::RunContext;
use super::work_sandbox::WorkSandbox;
use crate::check_execution::{self, CommandResult};
use crate::error::Error;
use crate::git::Sha;
use crate::git::in_sandbox::{self, CloneStatus};
use crate::proof_file_restore::HeldFiles;

/// Closes an iteration.
#[derive(Debug)]
pub(super) struct CloseStep<'a> {
    pub(super) run: &'a mut RunContext,
    pub(super) work: &'a mut WorkSandbox,
    pub(super) models: &'a mut ModelState,
    pub(super) interrupts: &'a Interrupts,
}

impl CloseStep<'_> {
    pub(super) async fn close(&mut self, n: u32) -> Result<(), Error> {
        let Some(open) = self.run.state().open.clone() else { return Ok(()) };
        let agent = self.run.state().started.agent.is_some();
        let reply = if open.answer.is_some() || agent { Some(self.models.current_reply(self.run, n)?) } else { None };
        let mut closing = CloseCheckpoint::load(&self.run.folder, n)?;
        let judged = match closing.judged.clone() {
            Some(judged) => judged,
            None => {
                // What the model's commands left running could change files while they are compared.
                self.work.sandbox()?.stop().await?;
                ProtectionCheck { run: self.run, work: self.work }
                    .restore_protected(n, &open.tree, &mut closing)
                    .await?
            }
        };
        let survey = &judged.look;
        // An iteration that changed protected files cannot verify anything.
        let ClaimedBoxes { boxes, unknown } = self.collect_claims(reply.as_ref(), &open);
        let claimed = if closing.protected.is_empty() { boxes } else { BTreeSet::new() };
        let changed = survey.tree != open.tree || survey.head != open.head;
        let Some(outputs) = self.check_claims(n, survey, &claimed, changed).await? else {
            // The run was stopped: unfinished checks prove nothing, and closing starts over on resume.
            return Ok(());
        };
        let open = self.run.state().open.clone().unwrap_or(open);
        let before = self.run.state().verified.clone();
        let verified = decide_next_step::verified_after(&self.run.state().started, &before, &claimed, &open);
        let newly: Vec<&String> = verified.difference(&before).collect();
        let newly_verified = u32::try_from(newly.len()).unwrap_or(u32::MAX);
        BranchUpdate { run: self.run, work: self.work }.tick_boxes(n, survey, &verified, &before).await?;
        let survey_after = self.work.tree_status(self.run.state()).await?;
        if verified == before && survey_after.head != survey.head {
            let path = &self.run.state().started.task_path;
            let message = format!("a commit changed {path}; only ralph changes it, so another one put it back");
            CloseCheckpoint::push_once(&mut closing.restored, message);
        }
        let tokens = self.interrupts.tokens();
        let update = &mut BranchUpdate { run: self.run, work: self.work };
        if update.import_commits(n, &survey_after, tokens.aborted()).await? == ImportEnd::Aborted {
            // As with the checks: closing starts over on resume, or what is there is imported when the run stops.
            return Ok(());
        }
        let acted = read_action_log(&self.run.folder, n)?;
        let sample = sample(n, survey, &acted, &open, &outputs, newly_verified);
        // A box that is only proved again, in a new sandbox, was not broken by this iteration.
        let reclaimed = self.run.state().reclaim.clone();
        let broken: Vec<String> = before.difference(&verified).filter(|id| !reclaimed.contains(*id)).cloned().collect();
        let outcome = outcome(&open, &sample, &closing, changed, &broken);
        let said = reply.as_ref().map(|reply| self.run.redactor.mask(&text::strip_control(&reply.summary)));
        let summary = self.run.redactor.mask(&summary(said.as_deref(), &open));
        self.warn_unknown_claims(&unknown)?;
        let report = IterationReport {
            n,
            open: &open,
            claimed: &claimed,
            unknown: &unknown,
            verified: &verified,
            broken: &broken,
            acted: &acted,
            outputs: &outputs,
            closing: &closing,
            judged: &judged,
            survey: &survey_after,
        };
        report.write(self.run, self.work).await?;
        self.run.append(Event::IterationFinished {
            n,
            outcome,
            head: survey_after.head,
            summary,
            sample,
            verified: verified.into_iter().collect(),
            broken,
        })
    }

    /// Imports the commits of an iteration that will not be finished, with protected files restored but claims
    /// unchecked. Only the end of this process aborts it: a `stop` has been heard already.
    pub(super) async fn import_unfinished(&mut self, open: &OpenIteration) -> Result<ImportEnd, Error> {
        let mut closing = CloseCheckpoint::default();
        let look = ProtectionCheck { run: self.run, work: self.work }
            .restore_protected(open.n, &open.tree, &mut closing)
            .await?
            .look;
        // The iteration may be continued later, and must be checked from the start then.
        CloseCheckpoint::default().save(&self.run.folder, open.n)?;
        let verified = self.run.state().verified.clone();
        BranchUpdate { run: self.run, work: self.work }.tick_boxes(open.n, &look, &verified, &verified).await?;
        let look = self.work.tree_status(self.run.state()).await?;
        let now = self.interrupts.tokens().stops.now;
        BranchUpdate { run: self.run, work: self.work }.import_commits(open.n, &look, now.cancelled()).await
    }

    fn collect_claims(&self, reply: Option<&ralph_core::action::ActionReply>, open: &OpenIteration) -> ClaimedBoxes {
        let success = matches!(open.wish, Some(FinalAction::StopSuccess { .. }));
        let mut claimed = match reply {
            // If an action failed, the rest of the list was not carried out, but its claims can still be checked.
            Some(reply) => decide_next_step::resolve_claims(
                &self.run.state().started,
                &reply.claims.checkboxes_checked,
                &reply.claims.milestones_completed,
                success,
            ),
            None => ClaimedBoxes::default(),
        };
        claimed.boxes.extend(self.run.state().reclaim.iter().cloned());
        // These are the model's own words, which may contain a secret.
        claimed.unknown = claimed
            .unknown
            .iter()
            .map(|words| self.run.redactor.redact(&text::strip_control(words)).into_owned())
            .collect();
        claimed
    }

    /// Warns of claims that name no box; otherwise the user could not see why finished work is not ticked.
    fn warn_unknown_claims(&mut self, unknown: &[String]) -> Result<(), Error> {
        if unknown.is_empty() {
            return Ok(());
        }
        self.run.log_once(EventLogLevel::Warn, format!("claimed what names no box: {}", quoted_list(unknown)))
    }

    /// Runs the checks that the claims need, each once and from the same tree, so that none can influence the next;
    /// `None` when the run was stopped.
    async fn check_claims(
        &mut self,
        n: u32,
        survey: &CloneStatus,
        claimed: &BTreeSet<String>,
        changed: bool,
    ) -> Result<Option<BTreeMap<String, CommandResult>>, Error> {
        let state = self.run.state();
        let due = decide_next_step::checks_due(&state.started, &state.verified, claimed, changed);
        let timeout = Duration::from_secs(state.started.check_timeout_s);
        let recorded: BTreeSet<String> =
            state.open.as_ref().map(|open| open.checks.keys().cloned().collect()).unwrap_or_default();
        let held = ProtectionCheck { run: self.run, work: self.work }.protected_files().await?;
        let changes = held.classify(&changes_since_start(survey));
        let place = CloneRevision::of(survey);
        // A status that was cut, or is of an older version, does not say what the run changed.
        let unknown = survey.since_start.is_empty() && !survey.diffstat.is_empty();
        if !due.is_empty() && (unknown || !changes.put_back.is_empty() || !changes.left_out.is_empty()) {
            place.save_work(&self.run.folder, n)?;
        }
        let ran = self.run_due_checks(n, due, &recorded, &held, &changes, &place, timeout).await;
        // Also after an error: the run's own version of what the checks did not use would be lost.
        let restored = ProtectionCheck { run: self.run, work: self.work }.restore_work(n).await;
        let ran = ran?;
        restored?;
        Ok(ran)
    }

    /// Runs each check once; `None` when the run was stopped.
    #[expect(clippy::too_many_arguments, reason = "what the checks of one iteration share")]
    async fn run_due_checks(
        &mut self,
        n: u32,
        due: Vec<DueCheck>,
        recorded: &BTreeSet<String>,
        held: &HeldFiles,
        changes: &ProofFileChanges,
        place: &CloneRevision,
        timeout: Duration,
    ) -> Result<Option<BTreeMap<String, CommandResult>>, Error> {
        let sandbox = self.work.sandbox()?;
        let mut outputs = BTreeMap::new();
        for (index, due) in due.into_iter().enumerate() {
            let known = SavedCheck::load(&self.run.folder, n, index, &due.command)?;
            let recorded = known.is_some() && recorded.contains(&due.command);
            let mut retried = false;
            let kept = match known {
                Some(kept) => kept,
                None => loop {
                    // First end what earlier commands left running, and remove what the previous check left behind, or
                    // an unfinished check of a process that died.
                    sandbox.stop().await?;
                    let look = self.work.tree_status(self.run.state()).await?;
                    let hit = ProtectionCheck { run: self.run, work: self.work }.changed_protected_paths(&look).await?;
                    if CloneRevision::of(&look) != *place || !hit.is_empty() {
                        in_sandbox::restore(&*sandbox, &self.run.snapshot(&place.head, &place.tree, &place.index)?)
                            .await?;
                        let start = Sha::from(&self.run.state().started.start_commit);
                        let hit: Vec<&str> = hit.iter().map(String::as_str).collect();
                        in_sandbox::revert_paths(&*sandbox, &start, &hit).await?;
                    }
                    self.work.forget_tree();
                    let restarts = self.work.egress_restarts();
                    let tokens = self.interrupts.tokens();
                    let ran = tokio::select! {
                        ran = check_execution::run_check(&*sandbox, held, changes, &due.command, timeout, &self.run.redactor) => ran?,
                        () = tokens.aborted() => return Ok(None),
                    };
                    // As with a command of the model: run it once more if the egress proxy restarted meanwhile.
                    if !retried && !ran.passed() && self.work.egress_restarts() != restarts {
                        retried = true;
                        let what = text::first_line(&due.command, 200).to_owned();
                        self.run.log(
                            EventLogLevel::Warn,
                            format!("the egress proxy restarted meanwhile: `{what}` is run again"),
                        )?;
                        continue;
                    }
                    let kept = SavedCheck { command: due.command.clone(), ran };
                    kept.save(&self.run.folder, n, index)?;
                    break kept;
                },
            };
            let ran = kept.ran;
            if !recorded {
                let name = if due.proves.contains(&CheckTarget::TestCommand) {
                    TEST_OUTPUT_FILE.to_owned()
                } else {
                    format!("check-{index}.txt")
                };
                self.run.files.write_artefact(&*sandbox, n, &name, ran.text.as_bytes()).await?;
                self.run.append(Event::CheckFinished {
                    n,
                    stage: CheckStage::Iteration,
                    command: due.command.clone(),
                    proves: due.proves,
                    code: ran.code,
                    timed_out: ran.timed_out,
                    duration_ms: ran.duration_ms,
                    output: ran.output_sha256.clone(),
                    files: ran.files.clone(),
                })?;
            }
            outputs.insert(due.command, ran);
        }
        Ok(Some(outputs))
    }
}

fn changes_since_start(survey: &CloneStatus) -> Vec<ChangedPath> {
    let kind = |letter: char| match letter {
        'A' => PathChangeKind::Created,
        'D' => PathChangeKind::Removed,
        _ => PathChangeKind::Modified,
    };
    survey.since_start.iter().map(|(path, letter)| ChangedPath { path: path.clone(), kind: kind(*letter) }).collect()
}
