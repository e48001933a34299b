//! The end of an iteration: put back what must not change, check claims, tick boxes, take the commits out.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use globset::GlobSet;
use ralph_core::action::ActionKind;
use ralph_core::commit_sha::CommitSha;
use ralph_core::decide::{self, ClaimedBoxes};
use ralph_core::event::{CheckStage, Event, EventLogLevel, IterationOutcome};
use ralph_core::gutter::{FailureSignature, IterationSample, LoopScore, TestCounts};
use ralph_core::hash::sha256;
use ralph_core::run::{FinalAction, OpenIteration};
use ralph_core::{task, text};
use serde::Serialize;

use super::action::{ActionLogEntry, read_action_log};
use super::close_checkpoint::{
    ACTION_LOG_FILE, CheckedTree, CloneRevision, CloseCheckpoint, SavedCheck, TEST_OUTPUT_FILE,
};
use super::runner::Runner;
use crate::check::{self, CommandResult};
use crate::error::Error;
use crate::git::inside::{self, CloneStatus};
use crate::git::{self, Sha};

/// Protected files are read up to this size; a larger one is judged by git alone.
const PROTECTED_CAP: u64 = 4 << 20;
const PROTECTED_CAP_USIZE: usize = 4 << 20;

/// So many protected files are compared one by one; beyond that, git's own comparison has to do.
const MAX_PROTECTED_FILES: usize = 500;

/// How much of a diff is kept as an artefact.
const DIFF_CAP: usize = 4 << 20;

#[derive(Debug, Serialize)]
struct IterationMetrics<'a> {
    format: u32,
    run: &'a str,
    iteration: u32,
    cost_micros: u64,
    tokens: u64,
    wall_ms: u64,
    outcome: IterationOutcome,
    verified: &'a BTreeSet<String>,
    score: &'a LoopScore,
    sample: Option<&'a IterationSample>,
}

impl Runner {
    pub(super) async fn close_iteration(&mut self, n: u32) -> Result<(), Error> {
        let Some(open) = self.run.state().open.clone() else { return Ok(()) };
        let agent = self.run.state().started.agent.is_some();
        let reply = if open.answer.is_some() || agent { Some(self.current_reply(n)?) } else { None };
        let mut closing = CloseCheckpoint::load(&self.run.folder, n)?;
        let judged = match closing.judged.clone() {
            Some(judged) => judged,
            None => self.restore_protected(n, &open.tree, &mut closing).await?,
        };
        let survey = &judged.look;
        // An iteration that touched what judges it has no say in what is verified.
        let ClaimedBoxes { boxes, unknown } = self.collect_claims(reply.as_ref(), &open);
        let claimed = if closing.protected.is_empty() { boxes } else { BTreeSet::new() };
        let changed = survey.tree != open.tree || survey.head != open.head;
        let Some(outputs) = self.check_claims(n, survey, &claimed, changed).await? else {
            // Somebody stopped the run: half-done checks say nothing, and closing begins again on resume.
            return Ok(());
        };
        let open = self.run.state().open.clone().unwrap_or(open);
        let before = self.run.state().verified.clone();
        let verified = decide::verified_after(&self.run.state().started, &before, &claimed, &open);
        let newly: Vec<&String> = verified.difference(&before).collect();
        let newly_verified = u32::try_from(newly.len()).unwrap_or(u32::MAX);
        self.tick_boxes(n, survey, &verified, &before).await?;
        let survey_after = self.work.tree_status(self.run.state()).await?;
        if verified == before && survey_after.head != survey.head {
            let path = &self.run.state().started.task_path;
            let told = format!("a commit changed {path}; only ralph changes it, so another one put it back");
            CloseCheckpoint::push_once(&mut closing.restored, told);
        }
        self.import_commits(n, &survey_after).await?;
        let acted = read_action_log(&self.run.folder, n)?;
        let sample = sample(n, survey, &acted, &open, &outputs, newly_verified);
        let outcome = outcome(&open, &sample, &closing, changed);
        let said =
            reply.as_ref().map(|reply| self.run.redactor.redact(&text::strip_control(&reply.summary)).into_owned());
        let summary = summary(said.as_deref(), &open);
        self.warn_unknown_claims(&unknown)?;
        self.write_artefacts(
            n,
            &open,
            &claimed,
            &unknown,
            &verified,
            &acted,
            &outputs,
            &closing,
            &judged,
            &survey_after,
        )
        .await?;
        self.run.append(Event::IterationFinished {
            n,
            outcome,
            head: survey_after.head,
            summary,
            sample,
            verified: verified.into_iter().collect(),
        })
    }

    /// Takes the commits of an iteration that does not come to its end out, with everything put right but unchecked.
    pub(super) async fn import_unfinished(&mut self, open: &OpenIteration) -> Result<(), Error> {
        let mut closing = CloseCheckpoint::default();
        let look = self.restore_protected(open.n, &open.tree, &mut closing).await?.look;
        // The iteration may be taken up again: what was judged here is judged anew then.
        CloseCheckpoint::default().save(&self.run.folder, open.n)?;
        let verified = self.run.state().verified.clone();
        self.tick_boxes(open.n, &look, &verified, &verified).await?;
        let look = self.work.tree_status(self.run.state()).await?;
        self.import_commits(open.n, &look).await
    }

    fn collect_claims(&self, reply: Option<&ralph_core::action::ActionReply>, open: &OpenIteration) -> ClaimedBoxes {
        let success = matches!(open.wish, Some(FinalAction::StopSuccess { .. }));
        let mut claimed = match reply {
            // A list that ended early was not carried out as it was claimed, but what is claimed can still be looked at.
            Some(reply) => decide::resolve_claims(
                &self.run.state().started,
                &reply.claims.checkboxes_checked,
                &reply.claims.milestones_completed,
                success,
            ),
            None => ClaimedBoxes::default(),
        };
        claimed.boxes.extend(self.run.state().reclaim.iter().cloned());
        // They are the model's own words.
        claimed.unknown = claimed
            .unknown
            .iter()
            .map(|words| self.run.redactor.redact(&text::strip_control(words)).into_owned())
            .collect();
        claimed
    }

    /// Says which claims name nothing: work that is done and claimed in other words would be looked for in vain.
    fn warn_unknown_claims(&mut self, unknown: &[String]) -> Result<(), Error> {
        if unknown.is_empty() {
            return Ok(());
        }
        self.run.log_once(EventLogLevel::Warn, format!("claimed what names no box: {}", quoted_list(unknown)))
    }

    /// Puts back what must not change; the result is what the iteration is judged by. What was found is written down
    /// before it is put back, or a process that comes after would not know of it.
    async fn restore_protected(
        &mut self,
        n: u32,
        from: &str,
        closing: &mut CloseCheckpoint,
    ) -> Result<CheckedTree, Error> {
        let sandbox = self.work.sandbox()?;
        let astray = self.run.files.sync_and_find_overwritten(&*sandbox).await?;
        let path = self.run.state().started.task_path.clone();
        let wanted = self.run.task_text()?;
        let found = sandbox.read(Path::new(&path), 4 << 20).await.ok();
        let rewritten = found.as_deref() != Some(wanted.as_bytes());
        if !astray.is_empty() || rewritten {
            for name in &astray {
                CloseCheckpoint::push_once(
                    &mut closing.restored,
                    format!(".ralph/{name} was cut or overwritten; it was put back"),
                );
            }
            if rewritten {
                let text = format!("{path} was changed; only ralph changes it, so it was put back");
                CloseCheckpoint::push_once(&mut closing.restored, text);
            }
            closing.save(&self.run.folder, n)?;
        }
        for name in astray {
            self.run.files.restore_file(&*sandbox, name).await?;
        }
        if rewritten {
            inside::remove_non_file(&*sandbox, &path).await?;
            sandbox.write(Path::new(&path), wanted.as_bytes(), None).await?;
            self.work.forget_tree();
        }
        let look = self.revert_protected_paths(n, from, closing).await?;
        let mut logs = BTreeMap::new();
        for name in ["errors.log", "activity.log"] {
            logs.insert(name.to_owned(), self.run.files.mirror_length(name)?);
        }
        let judged = CheckedTree::new(look, logs, &self.run.redactor);
        closing.judged = Some(judged.clone());
        closing.save(&self.run.folder, n)?;
        Ok(judged)
    }

    /// Puts protected paths back to what they were at the start.
    async fn revert_protected_paths(
        &mut self,
        n: u32,
        from: &str,
        closing: &mut CloseCheckpoint,
    ) -> Result<CloneStatus, Error> {
        let look = self.work.tree_status_since(self.run.state(), from).await?;
        let branch = self.run.state().started.branch.clone();
        if look.branch != format!("refs/heads/{branch}") {
            // One run is one branch: what was committed elsewhere is judged as work on it.
            CloseCheckpoint::push_once(
                &mut closing.restored,
                format!("the clone was taken off `{branch}`; it was put back on it"),
            );
            closing.save(&self.run.folder, n)?;
            inside::attach_to_branch(&*self.work.sandbox()?, &branch).await?;
        }
        let hit = self.changed_protected_paths(&look).await?;
        for path in &hit {
            CloseCheckpoint::push_once(&mut closing.protected, self.run.redactor.redact(path).into_owned());
        }
        if closing.protected.is_empty() {
            return Ok(look);
        }
        closing.save(&self.run.folder, n)?;
        let sandbox = self.work.sandbox()?;
        let start = Sha::from(&self.run.state().started.start_commit);
        // What is written down may be masked: the path itself is known only here.
        let paths: BTreeSet<&str> = closing.protected.iter().chain(&hit).map(String::as_str).collect();
        let paths: Vec<&str> = paths.into_iter().collect();
        inside::discard_status_index(&*sandbox).await?;
        inside::revert_paths(&*sandbox, &start, &paths).await?;
        // Where a commit held the change, a commit takes it back; otherwise there is nothing to commit.
        let message = self.run.commit_message(n, "put back protected paths");
        let stamp = git::stamp(&self.run.state().started.identity);
        inside::commit_reverted(&*sandbox, &start, &paths, &message, &stamp).await?;
        self.work.forget_tree();
        self.work.tree_status_since(self.run.state(), from).await
    }

    /// Returns the protected paths that are not as they were. Files that were there at the start are read and compared:
    /// git inside the sandbox could have been told to look away.
    async fn changed_protected_paths(&mut self, look: &CloneStatus) -> Result<Vec<String>, Error> {
        let sandbox = self.work.sandbox()?;
        let protected = self.protected_files().await?;
        let task_path = &self.run.state().started.task_path;
        let mut hit: BTreeSet<String> =
            look.files.keys().filter(|path| *path != task_path && protected.globs.is_match(path)).cloned().collect();
        for (path, hash) in &protected.files {
            let found = sandbox.read(Path::new(path), PROTECTED_CAP).await.ok();
            if found.as_deref().map(sha256) != *hash {
                hit.insert(path.clone());
            }
        }
        for part in &self.run.state().started.pinned_parts {
            let found = sandbox.read(Path::new(&part.path), PROTECTED_CAP).await.ok();
            if !part.is_unchanged(found.as_deref()) {
                hit.insert(part.path.clone());
            }
        }
        Ok(hit.into_iter().collect())
    }

    /// Returns what is protected, read once from the host's own repository.
    async fn protected_files(&mut self) -> Result<Arc<ProtectedFiles>, Error> {
        if let Some(known) = &self.work.protected {
            return Ok(known.clone());
        }
        let started = self.run.state().started.clone();
        let globs = git::globs(started.protected_paths.iter().chain(&started.proof_files));
        let start = Sha::from(&started.start_commit);
        let mut files = Vec::new();
        for entry in self.run.bare.odb().files_at(&start).await? {
            let plain = entry.mode & 0o170_000 == 0o100_000;
            if plain
                && entry.path != started.task_path
                && globs.is_match(&entry.path)
                && files.len() < MAX_PROTECTED_FILES
            {
                let bytes = self.run.bare.odb().file_at(&start, &entry.path, PROTECTED_CAP_USIZE).await.ok();
                files.push((entry.path, bytes.as_deref().map(sha256)));
            }
        }
        let known = Arc::new(ProtectedFiles { globs, files });
        self.work.protected = Some(known.clone());
        Ok(known)
    }

    /// Runs what the claims call for, each check once and from the same tree, so that none can prepare the ground for the
    /// next; `None` when somebody stopped it.
    async fn check_claims(
        &mut self,
        n: u32,
        survey: &CloneStatus,
        claimed: &BTreeSet<String>,
        changed: bool,
    ) -> Result<Option<BTreeMap<String, CommandResult>>, Error> {
        let state = self.run.state();
        let due = decide::checks_due(&state.started, &state.verified, claimed, changed);
        let timeout = Duration::from_secs(state.started.check_timeout_s);
        let told: BTreeSet<String> =
            state.open.as_ref().map(|open| open.checks.keys().cloned().collect()).unwrap_or_default();
        let sandbox = self.work.sandbox()?;
        let place = CloneRevision::of(survey);
        let mut outputs = BTreeMap::new();
        for (index, due) in due.into_iter().enumerate() {
            let known = SavedCheck::load(&self.run.folder, n, index, &due.command)?;
            let told = known.is_some() && told.contains(&due.command);
            let mut retried = false;
            let kept = match known {
                Some(kept) => kept,
                None => loop {
                    // What the check before it left behind goes first, or half a check of a process that died.
                    let look = self.work.tree_status(self.run.state()).await?;
                    let hit = self.changed_protected_paths(&look).await?;
                    if CloneRevision::of(&look) != place || !hit.is_empty() {
                        inside::restore(&*sandbox, &self.run.snapshot(&place.head, &place.tree, &place.index)?).await?;
                        let start = Sha::from(&self.run.state().started.start_commit);
                        let hit: Vec<&str> = hit.iter().map(String::as_str).collect();
                        inside::revert_paths(&*sandbox, &start, &hit).await?;
                    }
                    self.work.forget_tree();
                    let restarts = self.work.egress_restarts();
                    let tokens = self.interrupts.tokens();
                    let ran = tokio::select! {
                        ran = check::run(&*sandbox, &due.command, ".", timeout, &self.run.redactor) => ran?,
                        () = tokens.aborted() => return Ok(None),
                    };
                    // As with a command of the model: once more, if its way out was cut meanwhile.
                    if !retried && !ran.passed() && self.work.egress_restarts() != restarts {
                        retried = true;
                        let what = text::first_line(&due.command, 200).to_owned();
                        self.run.log(
                            EventLogLevel::Warn,
                            format!("the way out was served anew meanwhile: `{what}` is run again"),
                        )?;
                        continue;
                    }
                    let kept = SavedCheck { command: due.command.clone(), ran };
                    kept.save(&self.run.folder, n, index)?;
                    break kept;
                },
            };
            let ran = kept.ran;
            if !told {
                let name = if due.proves.iter().any(|id| id == "test") {
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
                })?;
            }
            outputs.insert(due.command, ran);
        }
        Ok(Some(outputs))
    }

    /// Ticks exactly the verified boxes. What was verified is committed with the tick: a proof speaks of a commit.
    pub(super) async fn tick_boxes(
        &mut self,
        n: u32,
        survey: &CloneStatus,
        verified: &BTreeSet<String>,
        before: &BTreeSet<String>,
    ) -> Result<(), Error> {
        let path = self.run.state().started.task_path.clone();
        let wanted = task::tick(&self.run.pinned_task()?, verified);
        let sandbox = self.work.sandbox()?;
        let found = sandbox.read(Path::new(&path), 4 << 20).await.ok();
        if found.as_deref() != Some(wanted.as_bytes()) {
            sandbox.write(Path::new(&path), wanted.as_bytes(), None).await?;
            self.work.forget_tree();
        }
        let new: Vec<&str> = verified.difference(before).map(String::as_str).collect();
        let gone: Vec<&str> = before.difference(verified).map(String::as_str).collect();
        let title = match (new.is_empty(), gone.is_empty()) {
            // What the model committed may hold a task file of its own making; when it does not, nothing is committed.
            (true, true) if self.run.state().open.as_ref().is_some_and(|open| open.head != survey.head) => {
                format!("put {path} back")
            }
            (true, true) => return Ok(()),
            (false, _) => format!("verified {}", new.join(", ")),
            (true, false) => format!("no longer verified: {}", gone.join(", ")),
        };
        let message = self.run.commit_message(n, &title);
        let stamp = git::stamp(&self.run.state().started.identity);
        let tree = if new.is_empty() { None } else { Some(survey.tree.as_str()) };
        inside::commit_verified(&*sandbox, tree, (&path, wanted.as_bytes()), &message, &stamp).await?;
        self.work.forget_tree();
        Ok(())
    }

    /// Takes new commits out of the sandbox into the host's own repository.
    pub(super) async fn import_commits(&mut self, n: u32, survey: &CloneStatus) -> Result<(), Error> {
        let state = self.run.state();
        let start = state.started.start_commit.clone();
        if survey.head == *start || state.imported.as_deref() == Some(survey.head.as_str()) {
            return Ok(());
        }
        let started = state.started.clone();
        let known = state.imported.clone();
        let sandbox = self.work.sandbox()?;
        let imported = git::import_from_sandbox(
            &*sandbox,
            &self.run.bare,
            self.run.folder.path(),
            &started,
            n,
            &Sha::from(&start),
            known.as_ref().map(Sha::from),
            &self.run.redactor,
        )
        .await?;
        if imported.base_missing {
            return Err(Error::CloneUnusable {
                why: "its branch no longer contains the commit the run started from".to_owned(),
            });
        }
        if !imported.protected.is_empty() {
            // Nothing of it stays: the branch and this iteration's shadow go back to what was handed over before.
            let before = Sha::from(known.as_ref().unwrap_or(&start));
            self.run.bare.set_branch(&git::RunBranch::parse(&started.branch)?, &before).await?;
            self.run.bare.set_iteration_ref(&git::RunName::parse(&started.run)?, n, &before).await?;
            let paths = imported.protected.join(", ");
            return Err(Error::CloneUnusable {
                why: format!("its commits change protected paths behind ralph's back: {paths}"),
            });
        }
        self.run.append(Event::CommitImported {
            n,
            sha: imported.sha.as_ref().map(CommitSha::from),
            commits: imported.commits,
            findings: imported.findings,
        })
    }

    #[expect(clippy::too_many_arguments, reason = "all that is known of the iteration, written down once")]
    async fn write_artefacts(
        &mut self,
        n: u32,
        open: &OpenIteration,
        claimed: &BTreeSet<String>,
        unknown: &[String],
        verified: &BTreeSet<String>,
        acted: &[ActionLogEntry],
        outputs: &BTreeMap<String, CommandResult>,
        closing: &CloseCheckpoint,
        judged: &CheckedTree,
        survey: &CloneStatus,
    ) -> Result<(), Error> {
        let sandbox = self.work.sandbox()?;
        let actions: String =
            acted.iter().map(|acted| serde_json::to_string(acted).unwrap_or_default() + "\n").collect();
        if self.run.folder.read(&self.run.folder.iteration(n).join(ACTION_LOG_FILE))?.as_deref()
            == Some(actions.as_bytes())
        {
            self.run.files.write_artefact_inside(&*sandbox, n, ACTION_LOG_FILE, actions.as_bytes()).await?;
        } else {
            self.run.files.write_artefact(&*sandbox, n, ACTION_LOG_FILE, actions.as_bytes()).await?;
        }
        let diff = if survey.tree == open.tree {
            String::new()
        } else {
            inside::diff(&*sandbox, &open.tree, &survey.tree, DIFF_CAP).await?
        };
        let diff = self.run.redactor.redact_and_report("the diff of an iteration", &diff).into_owned();
        self.run.files.write_artefact(&*sandbox, n, "git_diff.patch", diff.as_bytes()).await?;
        let pr = serde_json::to_vec(&self.run.state().pull_request).unwrap_or_default();
        self.run.files.write_artefact(&*sandbox, n, "pr_state.json", &pr).await?;
        let mut errors = self.format_errors(n, open, claimed, verified, acted, outputs, closing);
        if !unknown.is_empty() {
            let open = self.run.state().started.boxes.iter().map(|pinned| pinned.id.clone());
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
            let errors = self.run.redactor.redact(&errors).into_owned();
            let text = format!("== iteration {n} ==\n{errors}");
            self.run.files.append_at(&*sandbox, "errors.log", before("errors.log"), &text).await?;
        }
        let unproved: Vec<&str> = claimed.difference(verified).map(String::as_str).collect();
        if !unproved.is_empty() {
            self.run
                .log_once(EventLogLevel::Warn, format!("claimed {} without proof: not ticked", unproved.join(", ")))?;
        }
        for line in &closing.restored {
            self.run.log_once(EventLogLevel::Warn, line.clone())?;
        }
        if !closing.protected.is_empty() {
            self.run.log_once(
                EventLogLevel::Warn,
                format!("protected paths were put back: {}", closing.protected.join(", ")),
            )?;
        }
        let activity = self.run.redactor.redact(&activity).into_owned();
        self.run.files.append_at(&*sandbox, "activity.log", before("activity.log"), &activity).await
    }

    #[expect(clippy::too_many_arguments, reason = "all that can go wrong in an iteration, told once")]
    fn format_errors(
        &self,
        n: u32,
        open: &OpenIteration,
        claimed: &BTreeSet<String>,
        verified: &BTreeSet<String>,
        acted: &[ActionLogEntry],
        outputs: &BTreeMap<String, CommandResult>,
        closing: &CloseCheckpoint,
    ) -> String {
        let mut out = String::new();
        for error in &open.invalid {
            push_line(&mut out, &format!("your answer was not valid: {error}"));
        }
        for acted in acted.iter().filter(|acted| acted.outcome != ralph_core::event::ActionOutcome::Ok) {
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
            let timeout = Duration::from_secs(self.run.state().started.check_timeout_s);
            push_line(&mut out, &format!("check `{}`: {}", text::first_line(command, 200), ran.summary_line(timeout)));
            push_line(&mut out, text::tail(&ran.text, 30, 4000));
        }
        for path in &closing.protected {
            push_line(&mut out, &format!("{path} is protected: your change was put back and the iteration failed"));
        }
        for restored in &closing.restored {
            push_line(&mut out, restored);
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

    pub(super) async fn write_metrics(&mut self, n: u32, score: &LoopScore) -> Result<(), Error> {
        let sandbox = self.work.sandbox()?;
        let state = self.run.state();
        let outcome = state.last.as_ref().map_or(IterationOutcome::NoProgress, |last| last.outcome);
        let metrics = IterationMetrics {
            format: 1,
            run: state.id(),
            iteration: n,
            cost_micros: state.spent.cost.0,
            tokens: state.spent.tokens,
            wall_ms: state.spent.wall_ms,
            outcome,
            verified: &state.verified,
            score,
            sample: state.window.back(),
        };
        let bytes = serde_json::to_vec_pretty(&metrics).unwrap_or_default();
        self.run.files.write_artefact(&*sandbox, n, "metrics.json", &bytes).await
    }
}

/// What the model must not change.
#[derive(Debug)]
pub(super) struct ProtectedFiles {
    globs: GlobSet,
    /// Files of the start commit with the hashes of their contents.
    files: Vec<(String, Option<String>)>,
}

/// Lists a few names for a line.
fn quoted_list(names: &[String]) -> String {
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

fn sample(
    n: u32,
    survey: &CloneStatus,
    acted: &[ActionLogEntry],
    open: &OpenIteration,
    outputs: &BTreeMap<String, CommandResult>,
    newly_verified: u32,
) -> IterationSample {
    let commands = acted
        .iter()
        .filter(|acted| acted.kind == ActionKind::Run && acted.outcome == ralph_core::event::ActionOutcome::Failed);
    let mut failures: Vec<FailureSignature> =
        commands.map(|acted| FailureSignature::of(&acted.brief, acted.code.unwrap_or(-1), &acted.complaint)).collect();
    failures.extend(
        outputs
            .iter()
            .filter(|(_, ran)| !ran.passed())
            .map(|(command, ran)| FailureSignature::of(command, ran.code, &ran.complaint)),
    );
    failures.extend(open.invalid.iter().map(|error| FailureSignature::of("answer", 1, error)));
    let edits = acted
        .iter()
        .filter(|acted| acted.kind != ActionKind::Run && acted.outcome != ralph_core::event::ActionOutcome::Ok);
    failures.extend(edits.map(|acted| FailureSignature::of(acted.kind.as_str(), 1, &acted.detail)));
    let idle = |acted: &ActionLogEntry| acted.kind == ActionKind::Session && survey.changed_lines == 0;
    if open.answer.is_some() && acted.iter().all(|acted| acted.kind.is_final() || idle(acted)) && outputs.is_empty() {
        // An answer, or a session, that does nothing is a failure like any other.
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
    let proves_test =
        |command: &str| open.checks.get(command).is_some_and(|checked| checked.proves.iter().any(|id| id == "test"));
    let counts = |ran: &CommandResult| TestCounts::parse(&ran.text);
    let test = outputs.iter().find(|(command, _)| proves_test(command)).and_then(|(_, ran)| counts(ran));
    test.or_else(|| outputs.values().find_map(counts))
}

fn outcome(
    open: &OpenIteration,
    sample: &IterationSample,
    closing: &CloseCheckpoint,
    changed: bool,
) -> IterationOutcome {
    if !closing.protected.is_empty() {
        IterationOutcome::Protected
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

fn summary(said: Option<&str>, open: &OpenIteration) -> String {
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
