//! Folds events into the state of a run. Nothing else changes it.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use super::{
    BadHistory, FinalAction, LastIteration, MAX_FINDINGS, MAX_SCORES, OpenIteration, PendingAction,
    REMEMBERED_REQUESTS, RunCheckResult, RunPullRequest, RunSandbox, RunState, RunStatus, SCORE_WINDOW,
};
use crate::action::ActionKind;
use crate::audit::AuditHead;
use crate::budget::BudgetUsage;
use crate::commit_sha::CommitSha;
use crate::control_request::Control;
use crate::diagnosis::DiagnosisProgress;
use crate::event::{
    ActionOutcome, CheckStage, Event, EventLine, IterationOutcome, ModelCallOutcome, RESUMED_BY_RESET_TIME,
    RESUMED_BY_WAIT, ReviewFinding, RunStopReason, RunVerdict,
};
use crate::gate_or_checkbox::CheckTarget;
use crate::gutter::{IterationSample, LadderPosition, LadderRung, LoopScore, MitigationCause};
use crate::money::MicroUsd;
use crate::pull_request::{CiState, PublishReason};
use crate::task::ApplyMode;

impl RunState {
    /// Folds a whole history.
    pub fn from_events(lines: impl IntoIterator<Item = EventLine>) -> Result<Self, BadHistory> {
        let mut lines = lines.into_iter();
        let mut state = Self::begin(lines.next().ok_or(BadHistory::Empty)?)?;
        for line in lines {
            state.apply(&line)?;
        }
        Ok(state)
    }

    /// Starts the state of a run from its first event.
    pub fn begin(line: EventLine) -> Result<Self, BadHistory> {
        let Event::RunStarted(started) = line.event else {
            return Err(BadHistory::NoStart { found: line.event.kind() });
        };
        let carried = started.carried.clone();
        Ok(Self {
            status: RunStatus::Preparing,
            budget: started.budget.clone(),
            spent: BudgetUsage {
                iterations: carried.iterations,
                wall_ms: 0,
                cost: carried.cost,
                tokens: carried.tokens,
            },
            models: BTreeMap::new(),
            profile: started.profiles.default.name.clone(),
            chosen: None,
            workplace: None,
            baseline: None,
            baseline_refused: None,
            open: None,
            last: None,
            window: VecDeque::new(),
            scores: VecDeque::new(),
            verified: BTreeSet::new(),
            reclaim: BTreeSet::new(),
            gate: None,
            climb: LadderPosition::default(),
            last_score: None,
            unmitigated: false,
            pause_due: false,
            rotate_because: None,
            diagnoses: DiagnosisProgress::default(),
            task_revision: 1,
            warned: BTreeMap::new(),
            imported: None,
            import_stopped: None,
            findings: Vec::new(),
            commits: 0,
            broken: BTreeMap::new(),
            imports: BTreeMap::new(),
            pushed: None,
            pushed_milestones: BTreeSet::new(),
            pull_request: None,
            ci: CiState::None,
            proof: BTreeMap::new(),
            policy: started.policy.clone(),
            denied: 0,
            through: 0,
            waited: 0,
            audited: None,
            applied_requests: VecDeque::new(),
            started_at: line.at,
            last_at: line.at,
            last_seq: line.seq,
            started,
        })
    }

    /// Folds one more event.
    pub fn apply(&mut self, line: &EventLine) -> Result<(), BadHistory> {
        if line.seq != self.last_seq + 1 {
            return Err(BadHistory::Gap { last: self.last_seq, found: line.seq });
        }
        // Time counts while the run is active; no work happens in the gap before a resume.
        if self.status.is_active() && !matches!(line.event, Event::Resumed { .. }) {
            self.spent.wall_ms = self.spent.wall_ms.saturating_add(self.elapsed_ms(line));
        }
        self.last_seq = line.seq;
        self.last_at = self.last_at.max(line.at);
        self.fold(line)
    }

    /// Returns the time between the last line and this one, in milliseconds.
    pub fn elapsed_ms(&self, line: &EventLine) -> u64 {
        let wall_clock_ms = line.at.as_millisecond().saturating_sub(self.last_at.as_millisecond());
        line.passed_ms.unwrap_or_else(|| u64::try_from(wall_clock_ms).unwrap_or(0))
    }

    fn fold(&mut self, line: &EventLine) -> Result<(), BadHistory> {
        match &line.event {
            Event::RunStarted(_) => return Err(BadHistory::SecondStart { seq: line.seq }),
            Event::SandboxReady { sandbox, backend, isolated, start, head, reclaim, verified } => {
                self.status = RunStatus::Running;
                self.apply_sandbox_ready((start, head), reclaim, verified);
                self.workplace = Some(RunSandbox {
                    sandbox: sandbox.clone(),
                    backend: backend.clone(),
                    isolated: *isolated,
                    start: start.clone(),
                });
            }
            Event::BaselineChecked { checks, refused } => {
                self.baseline = Some(checks.clone());
                self.baseline_refused.clone_from(refused);
            }
            Event::IterationStarted { n, profile, because, head, tree } => {
                self.open_iteration(*n, profile, because.as_deref(), (head, tree));
            }
            Event::ModelCalled { answer, usage, cost, model, .. } => {
                self.models.entry(model.clone()).or_default().add(answer.times(), *cost);
                self.spent.cost += *cost;
                self.spent.tokens = self.spent.tokens.saturating_add(usage.total());
                if let ModelCallOutcome::Through { times, .. } = answer {
                    self.through = self.through.saturating_add(*times);
                }
                if !matches!(answer, ModelCallOutcome::Lost | ModelCallOutcome::Through { .. }) {
                    self.waited = 0;
                }
                match &mut self.open {
                    Some(open) => open.record_call(answer, *cost),
                    None => self.diagnoses.record_call(answer),
                }
            }
            Event::ActionStarted { index, kind, brief, before, .. } => {
                if let Some(open) = &mut self.open {
                    open.begun = Some(PendingAction {
                        index: *index,
                        kind: kind.clone(),
                        brief: brief.to_string(),
                        before: before.clone(),
                    });
                }
            }
            Event::ActionFinished { index, outcome, detail, .. } => {
                if *outcome != ActionOutcome::Cut {
                    self.waited = 0;
                }
                if let Some(open) = &mut self.open {
                    open.record_action(*index, *outcome, detail);
                }
            }
            Event::CheckFinished { stage, command, proves, code, timed_out, duration_ms, output, files, .. } => {
                let checked = RunCheckResult {
                    proves: proves.clone(),
                    code: *code,
                    timed_out: *timed_out,
                    duration_ms: *duration_ms,
                    output: output.clone(),
                    files: files.clone(),
                };
                self.record_check(*stage, command, checked);
            }
            Event::IterationFinished { n, outcome, head, summary, sample, verified, broken } => {
                self.close_iteration(*n, *outcome, head, summary, sample, verified);
                self.broken.extend(broken.iter().map(|id| (id.clone(), *n)));
                self.broken.retain(|id, _| !verified.contains(id));
            }
            Event::GutterScored { score, .. } => self.record_score(score),
            Event::MitigationApplied { rung, profile, why, cause, .. } => match (&mut self.open, cause) {
                // The ladder is climbed between iterations: older runs recorded both causes with the same event.
                (Some(open), _) => profile.clone_into(&mut open.profile),
                (None, MitigationCause::Provider) => (),
                (None, MitigationCause::Gutter) => self.apply_mitigation(*rung, profile, why),
            },
            Event::BudgetWarned { limit, percent } => {
                self.warned.insert(*limit, *percent);
            }
            Event::CommitImported { sha, commits, findings, .. } => {
                self.import_stopped =
                    findings.iter().find(|finding| finding.stop).map(|finding| finding.detail.clone());
                if self.import_stopped.is_none() {
                    self.add_findings(findings);
                    self.imported.clone_from(sha);
                    self.commits = *commits;
                    self.imports.extend(sha.clone().map(|sha| (sha, *commits)));
                }
            }
            Event::Pushed { sha, .. } => {
                if self.pushed.as_ref() != Some(sha) {
                    self.proof.clear();
                    self.ci = CiState::None;
                }
                self.pushed = Some(sha.clone());
                self.pushed_milestones = self.complete_milestones();
            }
            Event::PrOpened { url, number } => self.record_pull_request(url, *number, None),
            Event::PrUpdated { url, number, why } => self.record_pull_request(url, *number, Some(why)),
            Event::PolicyDenied { count, .. } => self.denied = self.denied.saturating_add(u32::from(*count == 1)),
            Event::AuditAnchored { lines, head } => {
                self.audited = Some(AuditHead { lines: *lines, hash: head.clone() });
            }
            Event::Paused { reason, next } => {
                self.pause_due = false;
                self.waited = self.waited.saturating_add(u32::from(matches!(reason, RunStopReason::Outage { .. })));
                self.status = RunStatus::Paused { reason: reason.clone(), next: next.clone() };
            }
            Event::Resumed { by } => self.apply_resume(by),
            Event::ControlApplied { control, id, .. } => {
                self.apply_control(control);
                self.remember_request(id.as_deref());
            }
            Event::RunFinished { verdict, next } => {
                let next = next.clone();
                self.status = match verdict {
                    RunVerdict::Succeeded => RunStatus::Succeeded,
                    RunVerdict::Failed { reason } => RunStatus::Failed { reason: reason.clone(), next },
                    RunVerdict::Stopped { reason } => RunStatus::Stopped { reason: reason.clone(), next },
                };
            }
            Event::Log { text, .. } => {
                if let Some(open) = &mut self.open {
                    open.told.insert(text.to_string());
                }
            }
            Event::DiagnosisWritten { n, proposals, guardrails, unasked, .. } => {
                let auto = self.started.diagnose.apply == ApplyMode::Auto;
                self.diagnoses.record_written(*n, *proposals, *guardrails, auto.then_some(unasked));
            }
            Event::CiChanged(state) => self.ci.clone_from(state),
        }
        Ok(())
    }

    /// Handles a rebuilt sandbox, which holds only imported work: the open iteration starts again, boxes are
    /// re-proved.
    fn apply_sandbox_ready(
        &mut self,
        (start, head): (&CommitSha, &CommitSha),
        reclaim: &[String],
        verified: &[String],
    ) {
        self.open = None;
        if let Some(last) = &mut self.last {
            last.wish = None;
        }
        self.reclaim = reclaim.iter().cloned().collect();
        self.verified = verified.iter().cloned().collect();
        // What broke was verified in another state of the files.
        self.broken.clear();
        self.gate = None;
        self.commits = self.imports.get(head).copied().unwrap_or(0);
        if head != start {
            self.imported = Some(head.clone());
        } else if self.imported.is_some() {
            self.imported = None;
        }
    }

    fn open_iteration(&mut self, n: u32, profile: &str, because: Option<&str>, (head, tree): (&str, &str)) {
        self.spent.iterations = n;
        self.rotate_because = None;
        self.open = Some(OpenIteration {
            n,
            profile: profile.to_owned(),
            because: because.map(str::to_owned),
            head: head.to_owned(),
            tree: tree.to_owned(),
            calls: 0,
            invalid: Vec::new(),
            cut: 0,
            answer: None,
            next_action: 0,
            begun: None,
            failed: None,
            wish: None,
            checks: BTreeMap::new(),
            cost: MicroUsd::ZERO,
            told: BTreeSet::new(),
        });
    }

    fn record_check(&mut self, stage: CheckStage, command: &str, checked: RunCheckResult) {
        match stage {
            CheckStage::Iteration => {
                if let Some(open) = &mut self.open {
                    open.checks.insert(command.to_owned(), checked);
                }
            }
            CheckStage::Proof => {
                if !checked.passed() {
                    // What passes only in the work sandbox was never proved.
                    for target in &checked.proves {
                        match target.checkbox() {
                            Some(id) => _ = self.verified.remove(id),
                            None => self.gate = Some(false),
                        }
                    }
                }
                self.proof.insert(command.to_owned(), checked);
            }
        }
    }

    fn close_iteration(
        &mut self,
        n: u32,
        outcome: IterationOutcome,
        head: &str,
        summary: &str,
        sample: &IterationSample,
        verified: &[String],
    ) {
        let open = self.open.take();
        let gate = open.as_ref().and_then(|open| {
            let mut gates = open.checks.values().filter(|checked| checked.proves.iter().any(CheckTarget::is_gate));
            let first = gates.next()?.passed();
            Some(first && gates.all(RunCheckResult::passed))
        });
        if gate.is_some() || sample.changed_lines > 0 {
            self.gate = gate;
        }
        self.verified = verified.iter().cloned().collect();
        self.reclaim.clear();
        self.window.push_back(sample.clone());
        if self.window.len() > SCORE_WINDOW {
            self.window.pop_front();
        }
        self.last = Some(LastIteration {
            n,
            outcome,
            head: head.to_owned(),
            summary: summary.to_owned(),
            wish: open.and_then(|open| open.wish),
            scored: false,
            newly_verified: sample.newly_verified,
        });
    }

    fn add_findings(&mut self, findings: &[ReviewFinding]) {
        for finding in findings {
            if self.findings.len() < MAX_FINDINGS && !self.findings.contains(finding) {
                self.findings.push(finding.clone());
            }
        }
    }

    fn record_pull_request(&mut self, url: &str, number: u64, why: Option<&PublishReason>) {
        let (url, sha, proved) = (url.to_owned(), self.pushed.clone(), why == Some(&PublishReason::Proved));
        self.pull_request = Some(RunPullRequest { url, number, sha, proved });
    }

    fn record_score(&mut self, score: &LoopScore) {
        self.scores.push_back(score.total);
        if self.scores.len() > MAX_SCORES {
            self.scores.pop_front();
        }
        let mut progress = score.veto.is_some();
        if let Some(last) = &mut self.last {
            last.scored = true;
            progress |= last.newly_verified > 0;
        }
        self.unmitigated = score.is_gutter();
        self.last_score = Some(score.clone());
        if score.is_gutter() {
            self.climb.count_verdict();
        } else if progress {
            self.climb = LadderPosition::default();
            let own = self.chosen.as_ref().unwrap_or(&self.started.profiles.default.name);
            self.profile.clone_from(own);
        }
    }

    fn apply_mitigation(&mut self, rung: LadderRung, profile: &str, why: &str) {
        self.unmitigated = false;
        self.waited = 0;
        self.pause_due = rung == LadderRung::Pause;
        profile.clone_into(&mut self.profile);
        if rung == LadderRung::Diagnose {
            self.diagnoses.request();
        }
        if matches!(rung, LadderRung::Rotate | LadderRung::Fallback | LadderRung::Diagnose) {
            self.rotate_because = Some(why.to_owned());
        }
    }

    /// Clears what made the run pause: the user has seen it and wants the run to continue. Nothing else is cleared,
    /// because a run whose process was killed was not paused, and its next steps are still to be done.
    fn apply_resume(&mut self, by: &str) {
        let reason = match &self.status {
            RunStatus::Paused { reason, .. } | RunStatus::Failed { reason, .. } | RunStatus::Stopped { reason, .. } => {
                Some(reason)
            }
            RunStatus::Queued | RunStatus::Preparing | RunStatus::Running | RunStatus::Succeeded => None,
        };
        match reason {
            Some(RunStopReason::Gutter) => {
                // The earlier iterations no longer count against the next attempts, but the number of such pauses
                // does, until the run ends because of it.
                if self.status.is_ended() {
                    self.climb = LadderPosition::default();
                } else {
                    let fallback = self.started.profiles.fallback.as_ref().map(|profile| profile.name.as_str());
                    self.climb.reset_on_resume(&self.started.ladder, fallback, self.budget.consecutive_gutter);
                }
                self.window.clear();
                self.unmitigated = false;
            }
            Some(RunStopReason::NeedsDecision { .. } | RunStopReason::GaveUp { .. } | RunStopReason::Asked) => {
                if let Some(last) = &mut self.last {
                    last.wish = None;
                }
            }
            Some(RunStopReason::Findings { .. }) => {
                // What was verified has not been imported: it is proved again, together with the next iteration's
                // changes.
                self.import_stopped = None;
                self.gate = None;
                self.reclaim.append(&mut self.verified);
            }
            Some(RunStopReason::Baseline { .. }) => self.recheck_after_resume(),
            _ => (),
        }
        // Automatic resumes keep the count, so that a run whose provider never answers pauses for a person in the end.
        if by != RESUMED_BY_RESET_TIME && by != RESUMED_BY_WAIT {
            self.waited = 0;
            if let Some(open) = &mut self.open {
                open.cut = 0;
            }
        }
        self.status = if self.workplace.is_some() { RunStatus::Running } else { RunStatus::Preparing };
    }

    fn apply_control(&mut self, control: &Control) {
        match control {
            Control::SetProfile { name } => {
                self.profile.clone_from(name);
                self.chosen = Some(name.clone());
            }
            Control::Rotate { why } => {
                self.rotate_because =
                    Some(why.clone().unwrap_or_else(|| "a person asked for a fresh session".to_owned()));
            }
            Control::RaiseBudget { iterations, minutes, cost_usd, tokens } => {
                self.budget.raise(*iterations, *minutes, MicroUsd::from_usd(*cost_usd), *tokens);
                self.warned.clear();
            }
            // Only rules are ever applied; any other text changes nothing.
            Control::AllowHost(hosts) => hosts.iter().for_each(|host| drop(self.policy.add_allow(host))),
            Control::DenyHost(hosts) => hosts.iter().for_each(|host| drop(self.policy.add_deny(host))),
            Control::EditTask(edit) => self.apply_task_edit(edit),
            Control::Diagnose => self.diagnoses.request(),
            Control::ApplyProposal { number } => self.diagnoses.record_applied(*number),
            // Their effect is a file or another event.
            Control::Pause | Control::Resume | Control::Stop | Control::Note { .. } | Control::Guardrail { .. } => (),
        }
    }

    fn remember_request(&mut self, id: Option<&str>) {
        self.applied_requests.extend(id.map(str::to_owned));
        while self.applied_requests.len() > REMEMBERED_REQUESTS {
            self.applied_requests.pop_front();
        }
    }
}

impl OpenIteration {
    fn record_call(&mut self, answer: &ModelCallOutcome, cost: MicroUsd) {
        self.calls = self.calls.saturating_add(1);
        self.cost += cost;
        match answer {
            ModelCallOutcome::Actions { count, response } => self.answer = Some((*count, response.clone())),
            ModelCallOutcome::Invalid { error } => self.invalid.push(error.to_string()),
            ModelCallOutcome::Lost | ModelCallOutcome::Through { .. } | ModelCallOutcome::Diagnosis { .. } => (),
        }
    }

    fn record_action(&mut self, index: u32, outcome: ActionOutcome, detail: &str) {
        let begun = self.begun.take();
        if outcome == ActionOutcome::Cut {
            self.cut = self.cut.saturating_add(1);
            return;
        }
        self.next_action = index.saturating_add(1);
        let kind = begun.map(|begun| begun.kind);
        if kind == Some(ActionKind::Session) {
            self.answer = Some((1, String::new()));
        }
        if outcome != ActionOutcome::Ok {
            self.failed = Some(detail.to_owned());
            return;
        }
        let why = detail.to_owned();
        self.wish = match kind {
            Some(ActionKind::Rotate) => Some(FinalAction::Rotate { why }),
            Some(ActionKind::Pause) => Some(FinalAction::Pause { why }),
            Some(ActionKind::StopSuccess) => Some(FinalAction::StopSuccess { why }),
            Some(ActionKind::StopFailure) => Some(FinalAction::StopFailure { why }),
            Some(
                ActionKind::Run
                | ActionKind::Patch
                | ActionKind::Write
                | ActionKind::Commit
                | ActionKind::Session
                | ActionKind::Other(_),
            )
            | None => self.wish.take(),
        };
    }

    /// Returns whether all actions of the model's answer were executed, or the list ended early.
    pub fn actions_done(&self) -> bool {
        match &self.answer {
            Some((count, _)) => self.failed.is_some() || self.wish.is_some() || self.next_action >= *count,
            None => false,
        }
    }
}
