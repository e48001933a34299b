//! The end of an iteration: put back what must not change, check claims, tick boxes, take the commits out.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use globset::GlobSet;
use ralph_core::decide::{self, Claimed};
use ralph_core::event::{Ended, Event, Level, Stage};
use ralph_core::gutter::{Sample, Score, Signature, TestCounts};
use ralph_core::hash::sha256;
use ralph_core::run::{Open, SESSION, Wish};
use ralph_core::{task, text};
use serde::Serialize;

use super::act::{Acted, acted};
use super::closing::{ACTIONS, Closing, Judged, Kept, Place, TESTS};
use super::runner::Runner;
use crate::check::{self, Ran};
use crate::error::Error;
use crate::git::inside::{self, Look};
use crate::git::{self, Sha};

/// Protected files are read up to this size; a larger one is judged by git alone.
const PROTECTED_CAP: u64 = 4 << 20;
const PROTECTED_CAP_USIZE: usize = 4 << 20;

/// So many protected files are compared one by one; beyond that, git's own comparison has to do.
const PROTECTED_FILES: usize = 500;

/// How much of a diff is kept as an artefact.
const DIFF_CAP: usize = 4 << 20;

#[derive(Debug, Serialize)]
struct Metrics<'a> {
    format: u32,
    run: &'a str,
    iteration: u32,
    cost_micros: u64,
    tokens: u64,
    wall_ms: u64,
    outcome: Ended,
    verified: &'a BTreeSet<String>,
    score: &'a Score,
    sample: Option<&'a Sample>,
}

impl Runner {
    pub(super) async fn close(&mut self, n: u32) -> Result<(), Error> {
        let Some(open) = self.state().open.clone() else { return Ok(()) };
        let agent = self.state().started.agent.is_some();
        let reply = if open.answer.is_some() || agent { Some(self.reply(n)?) } else { None };
        let mut closing = Closing::load(&self.folder, n)?;
        let judged = match closing.judged.clone() {
            Some(judged) => judged,
            None => self.put_right(n, &open.tree, &mut closing).await?,
        };
        let survey = &judged.look;
        // An iteration that touched what judges it has no say in what is verified.
        let Claimed { boxes, unknown } = self.claims(reply.as_ref(), &open);
        let claimed = if closing.protected.is_empty() { boxes } else { BTreeSet::new() };
        let changed = survey.tree != open.tree || survey.head != open.head;
        let Some(outputs) = self.check_claims(n, survey, &claimed, changed).await? else {
            // Somebody stopped the run: half-done checks say nothing, and closing begins again on resume.
            return Ok(());
        };
        let open = self.state().open.clone().unwrap_or(open);
        let before = self.state().verified.clone();
        let verified = decide::verified_after(&self.state().started, &before, &claimed, &open);
        let newly: Vec<&String> = verified.difference(&before).collect();
        let newly_verified = u32::try_from(newly.len()).unwrap_or(u32::MAX);
        self.tick(n, survey, &verified, &before).await?;
        let survey_after = self.look().await?;
        if verified == before && survey_after.head != survey.head {
            let path = &self.state().started.task_path;
            let told = format!("a commit changed {path}; only ralph changes it, so another one put it back");
            Closing::note(&mut closing.restored, told);
        }
        self.take_out(n, &survey_after).await?;
        let acted = acted(&self.folder, n)?;
        let sample = sample(n, survey, &acted, &open, &outputs, newly_verified);
        let outcome = outcome(&open, &sample, &closing, changed);
        let said = reply.as_ref().map(|reply| self.redactor.redact(&text::plain(&reply.summary)).into_owned());
        let summary = summary(said.as_deref(), &open);
        self.tell_unknown(&unknown)?;
        self.write_down(n, &open, &claimed, &unknown, &verified, &acted, &outputs, &closing, &judged, &survey_after)
            .await?;
        self.events.append(Event::IterationFinished {
            n,
            outcome,
            head: survey_after.head,
            summary,
            sample,
            verified: verified.into_iter().collect(),
        })
    }

    /// Takes the commits of an iteration that does not come to its end out, with everything put right but unchecked.
    pub(super) async fn keep_commits(&mut self, open: &Open) -> Result<(), Error> {
        let mut closing = Closing::default();
        let look = self.put_right(open.n, &open.tree, &mut closing).await?.look;
        // The iteration may be taken up again: what was judged here is judged anew then.
        Closing::default().save(&self.folder, open.n)?;
        let verified = self.state().verified.clone();
        self.tick(open.n, &look, &verified, &verified).await?;
        let look = self.look().await?;
        self.take_out(open.n, &look).await
    }

    fn claims(&self, reply: Option<&ralph_core::action::Reply>, open: &Open) -> Claimed {
        let success = matches!(open.wish, Some(Wish::StopSuccess { .. }));
        let mut claimed = match reply {
            // A list that ended early was not carried out as it was claimed, but what is claimed can still be looked at.
            Some(reply) => decide::claimed(
                &self.state().started,
                &reply.claims.checkboxes_checked,
                &reply.claims.milestones_completed,
                success,
            ),
            None => Claimed::default(),
        };
        claimed.boxes.extend(self.state().reclaim.iter().cloned());
        // They are the model's own words.
        claimed.unknown =
            claimed.unknown.iter().map(|words| self.redactor.redact(&text::plain(words)).into_owned()).collect();
        claimed
    }

    /// Says which claims name nothing: work that is done and claimed in other words would be looked for in vain.
    fn tell_unknown(&mut self, unknown: &[String]) -> Result<(), Error> {
        if unknown.is_empty() {
            return Ok(());
        }
        self.log_once(Level::Warn, format!("claimed what names no box: {}", named(unknown)))
    }

    /// Puts back what must not change; the result is what the iteration is judged by. What was found is written down
    /// before it is put back, or a process that comes after would not know of it.
    async fn put_right(&mut self, n: u32, from: &str, closing: &mut Closing) -> Result<Judged, Error> {
        let sandbox = self.sandbox()?;
        let astray = self.files.astray(&*sandbox).await?;
        let path = self.state().started.task_path.clone();
        let wanted = self.task_text()?;
        let found = sandbox.read(Path::new(&path), 4 << 20).await.ok();
        let rewritten = found.as_deref() != Some(wanted.as_bytes());
        if !astray.is_empty() || rewritten {
            for name in &astray {
                Closing::note(&mut closing.restored, format!(".ralph/{name} was cut or overwritten; it was put back"));
            }
            if rewritten {
                let text = format!("{path} was changed; only ralph changes it, so it was put back");
                Closing::note(&mut closing.restored, text);
            }
            closing.save(&self.folder, n)?;
        }
        for name in astray {
            self.files.put_back(&*sandbox, name).await?;
        }
        if rewritten {
            inside::clear(&*sandbox, &path).await?;
            sandbox.write(Path::new(&path), wanted.as_bytes(), None).await?;
            self.survey = None;
        }
        let look = self.protect(n, from, closing).await?;
        let mut logs = BTreeMap::new();
        for name in ["errors.log", "activity.log"] {
            logs.insert(name.to_owned(), self.files.length(name)?);
        }
        let judged = Judged::new(look, logs, &self.redactor);
        closing.judged = Some(judged.clone());
        closing.save(&self.folder, n)?;
        Ok(judged)
    }

    /// Puts protected paths back to what they were at the start.
    async fn protect(&mut self, n: u32, from: &str, closing: &mut Closing) -> Result<Look, Error> {
        let look = self.look_from(from).await?;
        let branch = self.state().started.branch.clone();
        if look.branch != format!("refs/heads/{branch}") {
            // One run is one branch: what was committed elsewhere is judged as work on it.
            Closing::note(&mut closing.restored, format!("the clone was taken off `{branch}`; it was put back on it"));
            closing.save(&self.folder, n)?;
            inside::stand_on(&*self.sandbox()?, &branch).await?;
        }
        let hit = self.protected_hit(&look).await?;
        for path in &hit {
            Closing::note(&mut closing.protected, self.redactor.redact(path).into_owned());
        }
        if closing.protected.is_empty() {
            return Ok(look);
        }
        closing.save(&self.folder, n)?;
        let sandbox = self.sandbox()?;
        let start = Sha::parse(&self.state().started.start_commit)?;
        // What is written down may be masked: the path itself is known only here.
        let paths: BTreeSet<&str> = closing.protected.iter().chain(&hit).map(String::as_str).collect();
        let paths: Vec<&str> = paths.into_iter().collect();
        inside::forget_index(&*sandbox).await?;
        inside::revert_paths(&*sandbox, &start, &paths).await?;
        // Where a commit held the change, a commit takes it back; otherwise there is nothing to commit.
        let message = self.commit_message(n, "put back protected paths");
        let stamp = git::stamp(&self.state().started.identity);
        inside::commit_reverted(&*sandbox, &start, &paths, &message, &stamp).await?;
        self.survey = None;
        self.look_from(from).await
    }

    /// Returns the protected paths that are not as they were. Files that were there at the start are read and compared:
    /// git inside the sandbox could have been told to look away.
    async fn protected_hit(&mut self, look: &Look) -> Result<Vec<String>, Error> {
        let sandbox = self.sandbox()?;
        let protected = self.protected().await?;
        let task_path = &self.state().started.task_path;
        let mut hit: BTreeSet<String> =
            look.files.keys().filter(|path| *path != task_path && protected.globs.is_match(path)).cloned().collect();
        for (path, hash) in &protected.files {
            let found = sandbox.read(Path::new(path), PROTECTED_CAP).await.ok();
            if found.as_deref().map(sha256) != *hash {
                hit.insert(path.clone());
            }
        }
        for part in &self.state().started.pinned_parts {
            let found = sandbox.read(Path::new(&part.path), PROTECTED_CAP).await.ok();
            if !part.holds(found.as_deref()) {
                hit.insert(part.path.clone());
            }
        }
        Ok(hit.into_iter().collect())
    }

    /// Returns what is protected, read once from the host's own repository.
    async fn protected(&mut self) -> Result<Arc<Protected>, Error> {
        if let Some(known) = &self.protected {
            return Ok(known.clone());
        }
        let started = self.state().started.clone();
        let globs = git::globs(started.protected_paths.iter().chain(&started.proof_files));
        let start = Sha::parse(&started.start_commit)?;
        let mut files = Vec::new();
        for entry in self.bare.odb().files_at(&start).await? {
            let plain = entry.mode & 0o170_000 == 0o100_000;
            if plain && entry.path != started.task_path && globs.is_match(&entry.path) && files.len() < PROTECTED_FILES
            {
                let bytes = self.bare.odb().file_at(&start, &entry.path, PROTECTED_CAP_USIZE).await.ok();
                files.push((entry.path, bytes.as_deref().map(sha256)));
            }
        }
        let known = Arc::new(Protected { globs, files });
        self.protected = Some(known.clone());
        Ok(known)
    }

    /// Runs what the claims call for, each check once and from the same tree, so that none can prepare the ground for the
    /// next; `None` when somebody stopped it.
    async fn check_claims(
        &mut self,
        n: u32,
        survey: &Look,
        claimed: &BTreeSet<String>,
        changed: bool,
    ) -> Result<Option<BTreeMap<String, Ran>>, Error> {
        let state = self.state();
        let due = decide::checks_due(&state.started, &state.verified, claimed, changed);
        let timeout = Duration::from_secs(state.started.check_timeout_s);
        let told: BTreeSet<String> =
            state.open.as_ref().map(|open| open.checks.keys().cloned().collect()).unwrap_or_default();
        let sandbox = self.sandbox()?;
        let place = Place::of(survey);
        let mut outputs = BTreeMap::new();
        for (index, due) in due.into_iter().enumerate() {
            let known = Kept::load(&self.folder, n, index, &due.command)?;
            let told = known.is_some() && told.contains(&due.command);
            let mut retried = false;
            let kept = match known {
                Some(kept) => kept,
                None => loop {
                    // What the check before it left behind goes first, or half a check of a process that died.
                    let look = self.look().await?;
                    let hit = self.protected_hit(&look).await?;
                    if Place::of(&look) != place || !hit.is_empty() {
                        inside::restore(&*sandbox, &self.snapshot(&place.head, &place.tree, &place.index)?).await?;
                        let start = Sha::parse(&self.state().started.start_commit)?;
                        let hit: Vec<&str> = hit.iter().map(String::as_str).collect();
                        inside::revert_paths(&*sandbox, &start, &hit).await?;
                    }
                    self.survey = None;
                    let restarts = self.restarts();
                    let (halt, now) = (self.halt.clone(), self.stops.now.clone());
                    let ran = tokio::select! {
                        ran = check::run(&*sandbox, &due.command, ".", timeout, &self.redactor) => ran?,
                        () = halt.cancelled() => return Ok(None),
                        () = now.cancelled() => return Ok(None),
                    };
                    // As with a command of the model: once more, if its way out was cut meanwhile.
                    if !retried && !ran.passed() && self.restarts() != restarts {
                        retried = true;
                        let what = text::first_line(&due.command, 200).to_owned();
                        self.log(Level::Warn, format!("the way out was served anew meanwhile: `{what}` is run again"))?;
                        continue;
                    }
                    let kept = Kept { command: due.command.clone(), ran };
                    kept.save(&self.folder, n, index)?;
                    break kept;
                },
            };
            let ran = kept.ran;
            if !told {
                let name = if due.proves.iter().any(|id| id == "test") {
                    TESTS.to_owned()
                } else {
                    format!("check-{index}.txt")
                };
                self.files.artefact(&*sandbox, n, &name, ran.text.as_bytes()).await?;
                self.events.append(Event::CheckFinished {
                    n,
                    stage: Stage::Iteration,
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
    pub(super) async fn tick(
        &mut self,
        n: u32,
        survey: &Look,
        verified: &BTreeSet<String>,
        before: &BTreeSet<String>,
    ) -> Result<(), Error> {
        let path = self.state().started.task_path.clone();
        let wanted = task::tick(&self.pinned_task()?, verified);
        let sandbox = self.sandbox()?;
        let found = sandbox.read(Path::new(&path), 4 << 20).await.ok();
        if found.as_deref() != Some(wanted.as_bytes()) {
            sandbox.write(Path::new(&path), wanted.as_bytes(), None).await?;
            self.survey = None;
        }
        let new: Vec<&str> = verified.difference(before).map(String::as_str).collect();
        let gone: Vec<&str> = before.difference(verified).map(String::as_str).collect();
        let title = match (new.is_empty(), gone.is_empty()) {
            // What the model committed may hold a task file of its own making; when it does not, nothing is committed.
            (true, true) if self.state().open.as_ref().is_some_and(|open| open.head != survey.head) => {
                format!("put {path} back")
            }
            (true, true) => return Ok(()),
            (false, _) => format!("verified {}", new.join(", ")),
            (true, false) => format!("no longer verified: {}", gone.join(", ")),
        };
        let message = self.commit_message(n, &title);
        let stamp = git::stamp(&self.state().started.identity);
        let tree = if new.is_empty() { None } else { Some(survey.tree.as_str()) };
        inside::commit_verified(&*sandbox, tree, (&path, wanted.as_bytes()), &message, &stamp).await?;
        self.survey = None;
        Ok(())
    }

    /// Takes new commits out of the sandbox into the host's own repository.
    pub(super) async fn take_out(&mut self, n: u32, survey: &Look) -> Result<(), Error> {
        let state = self.state();
        let start = state.started.start_commit.clone();
        if survey.head == start || state.imported.as_ref() == Some(&survey.head) {
            return Ok(());
        }
        let started = state.started.clone();
        let known = state.imported.clone();
        let sandbox = self.sandbox()?;
        let imported = git::take_out(
            &*sandbox,
            &self.bare,
            self.folder.path(),
            &started,
            n,
            &start,
            known.as_deref(),
            &self.redactor,
        )
        .await?;
        if imported.astray {
            return Err(Error::Spoilt {
                why: "its branch no longer contains the commit the run started from".to_owned(),
            });
        }
        if !imported.protected.is_empty() {
            // Nothing of it stays: the branch and this iteration's shadow go back to what was handed over before.
            let before = Sha::parse(known.as_deref().unwrap_or(&start))?;
            self.bare.start(&git::Branch::parse(&started.branch)?, &before).await?;
            self.bare.shadow(&git::RunName::parse(&started.run)?, n, &before).await?;
            let paths = imported.protected.join(", ");
            return Err(Error::Spoilt {
                why: format!("its commits change protected paths behind ralph's back: {paths}"),
            });
        }
        self.events.append(Event::CommitImported {
            n,
            sha: imported.sha,
            commits: imported.commits,
            findings: imported.findings,
        })
    }

    #[expect(clippy::too_many_arguments, reason = "all that is known of the iteration, written down once")]
    async fn write_down(
        &mut self,
        n: u32,
        open: &Open,
        claimed: &BTreeSet<String>,
        unknown: &[String],
        verified: &BTreeSet<String>,
        acted: &[Acted],
        outputs: &BTreeMap<String, Ran>,
        closing: &Closing,
        judged: &Judged,
        survey: &Look,
    ) -> Result<(), Error> {
        let sandbox = self.sandbox()?;
        let actions: String =
            acted.iter().map(|acted| serde_json::to_string(acted).unwrap_or_default() + "\n").collect();
        if self.folder.read(&self.folder.iteration(n).join(ACTIONS))?.as_deref() == Some(actions.as_bytes()) {
            self.files.show(&*sandbox, n, ACTIONS, actions.as_bytes()).await?;
        } else {
            self.files.artefact(&*sandbox, n, ACTIONS, actions.as_bytes()).await?;
        }
        let diff = if survey.tree == open.tree {
            String::new()
        } else {
            inside::diff(&*sandbox, &open.tree, &survey.tree, DIFF_CAP).await?
        };
        let diff = self.redactor.redact_in("the diff of an iteration", &diff).into_owned();
        self.files.artefact(&*sandbox, n, "git_diff.patch", diff.as_bytes()).await?;
        let pr = serde_json::to_vec(&self.state().pull_request).unwrap_or_default();
        self.files.artefact(&*sandbox, n, "pr_state.json", &pr).await?;
        let mut errors = self.errors(n, open, claimed, verified, acted, outputs, closing);
        if !unknown.is_empty() {
            let open = self.state().started.boxes.iter().map(|pinned| pinned.id.clone());
            let open: Vec<String> = open.filter(|id| !verified.contains(id)).collect();
            let (claims, ids) = (named(unknown), named(&open));
            line(
                &mut errors,
                &format!("you claimed {claims}, which names no box: claim boxes by their ids, here {ids}"),
            );
        }
        let activity = activity(n, open, acted, verified);
        let before = |name: &str| judged.logs.get(name).copied().unwrap_or(u64::MAX);
        if !errors.is_empty() {
            let errors = self.redactor.redact(&errors).into_owned();
            let text = format!("== iteration {n} ==\n{errors}");
            self.files.append_at(&*sandbox, "errors.log", before("errors.log"), &text).await?;
        }
        let unproved: Vec<&str> = claimed.difference(verified).map(String::as_str).collect();
        if !unproved.is_empty() {
            self.log_once(Level::Warn, format!("claimed {} without proof: not ticked", unproved.join(", ")))?;
        }
        for line in &closing.restored {
            self.log_once(Level::Warn, line.clone())?;
        }
        if !closing.protected.is_empty() {
            self.log_once(Level::Warn, format!("protected paths were put back: {}", closing.protected.join(", ")))?;
        }
        let activity = self.redactor.redact(&activity).into_owned();
        self.files.append_at(&*sandbox, "activity.log", before("activity.log"), &activity).await
    }

    #[expect(clippy::too_many_arguments, reason = "all that can go wrong in an iteration, told once")]
    fn errors(
        &self,
        n: u32,
        open: &Open,
        claimed: &BTreeSet<String>,
        verified: &BTreeSet<String>,
        acted: &[Acted],
        outputs: &BTreeMap<String, Ran>,
        closing: &Closing,
    ) -> String {
        let mut out = String::new();
        for error in &open.invalid {
            line(&mut out, &format!("your answer was not valid: {error}"));
        }
        for acted in acted.iter().filter(|acted| acted.outcome != ralph_core::event::Outcome::Ok) {
            line(&mut out, &format!("action {} `{}`: {}", acted.index, acted.brief, acted.detail));
            if !acted.complaint.is_empty() {
                line(&mut out, text::tail(&acted.complaint, 30, 4000));
                line(&mut out, &format!("the whole output is in .ralph/iterations/{n}/action-{}.txt", acted.index));
            }
        }
        for (command, ran) in outputs.iter().filter(|(_, ran)| !ran.passed()) {
            let timeout = Duration::from_secs(self.state().started.check_timeout_s);
            line(&mut out, &format!("check `{}`: {}", text::first_line(command, 200), ran.verdict(timeout)));
            line(&mut out, text::tail(&ran.text, 30, 4000));
        }
        for path in &closing.protected {
            line(&mut out, &format!("{path} is protected: your change was put back and the iteration failed"));
        }
        for restored in &closing.restored {
            line(&mut out, restored);
        }
        let unproved: Vec<&str> = claimed.difference(verified).map(String::as_str).collect();
        if !unproved.is_empty() {
            line(&mut out, &format!("you claimed {}, and the proof did not pass: not verified", unproved.join(", ")));
        }
        if let (Some(Wish::StopSuccess { .. }), false) = (&open.wish, unproved.is_empty()) {
            line(&mut out, "you said stop_success, but not everything is verified, so the run goes on");
        }
        out
    }

    pub(super) async fn write_metrics(&mut self, n: u32, score: &Score) -> Result<(), Error> {
        let sandbox = self.sandbox()?;
        let state = self.state();
        let outcome = state.last.as_ref().map_or(Ended::NoProgress, |last| last.outcome);
        let metrics = Metrics {
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
        self.files.artefact(&*sandbox, n, "metrics.json", &bytes).await
    }

    pub(super) async fn note_activity(&mut self, text: &str) -> Result<(), Error> {
        let sandbox = self.sandbox()?;
        self.files.append_last(&*sandbox, "activity.log", &format!("{text}\n")).await
    }

    /// The task as it was read at the start, or as somebody who may has changed it since.
    pub(super) fn pinned_task(&self) -> Result<String, Error> {
        let path = self.folder.task_revision(self.state().task_revision);
        let bytes = self.folder.read(&path)?.unwrap_or_default();
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    }

    /// The task with the boxes ticked that are verified now.
    pub(super) fn task_text(&self) -> Result<String, Error> {
        Ok(task::tick(&self.pinned_task()?, &self.state().verified))
    }

    /// Looks at the tree, unless nothing has touched it since the last look.
    pub(super) async fn look(&mut self) -> Result<Look, Error> {
        let from = self.state().open.as_ref().map(|open| open.tree.clone());
        match from {
            Some(from) => self.look_from(&from).await,
            None => self.look_from("").await,
        }
    }

    pub(super) async fn look_from(&mut self, from: &str) -> Result<Look, Error> {
        if let Some(survey) = self.survey.as_ref().and_then(|survey| survey.since(from)) {
            return Ok(survey);
        }
        let start = self.state().started.start_commit.clone();
        let sandbox = self.sandbox()?;
        let survey = inside::watch(&*sandbox, &start, from).await?;
        self.survey = Some(survey.clone());
        Ok(survey)
    }
}

/// What the model must not change.
#[derive(Debug)]
pub(super) struct Protected {
    globs: GlobSet,
    /// Files of the start commit with the hashes of their contents.
    files: Vec<(String, Option<String>)>,
}

/// Lists a few names for a line.
fn named(names: &[String]) -> String {
    const SHOWN: usize = 10;
    let mut list: Vec<String> =
        names.iter().take(SHOWN).map(|name| format!("`{}`", text::first_line(name, 100))).collect();
    if names.len() > SHOWN {
        list.push(format!("{} more", names.len() - SHOWN));
    }
    list.join(", ")
}

fn line(out: &mut String, text: &str) {
    out.push_str(text.trim_end());
    out.push('\n');
}

fn sample(
    n: u32,
    survey: &Look,
    acted: &[Acted],
    open: &Open,
    outputs: &BTreeMap<String, Ran>,
    newly_verified: u32,
) -> Sample {
    let commands =
        acted.iter().filter(|acted| acted.kind == "run" && acted.outcome == ralph_core::event::Outcome::Failed);
    let mut failures: Vec<Signature> =
        commands.map(|acted| Signature::of(&acted.brief, acted.code.unwrap_or(-1), &acted.complaint)).collect();
    failures.extend(
        outputs
            .iter()
            .filter(|(_, ran)| !ran.passed())
            .map(|(command, ran)| Signature::of(command, ran.code, &ran.complaint)),
    );
    failures.extend(open.invalid.iter().map(|error| Signature::of("answer", 1, error)));
    let edits = acted.iter().filter(|acted| acted.kind != "run" && acted.outcome != ralph_core::event::Outcome::Ok);
    failures.extend(edits.map(|acted| Signature::of(&acted.kind, 1, &acted.detail)));
    let wish = |acted: &&Acted| matches!(acted.kind.as_str(), "rotate" | "pause" | "stop_success" | "stop_failure");
    let idle = |acted: &Acted| acted.kind == SESSION && survey.changed_lines == 0;
    if open.answer.is_some() && acted.iter().all(|acted| wish(&acted) || idle(acted)) && outputs.is_empty() {
        // An answer, or a session, that does nothing is a failure like any other.
        failures.push(Signature::of("answer", 1, "no action"));
    }
    let tests = test_counts(open, outputs);
    Sample {
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
fn test_counts(open: &Open, outputs: &BTreeMap<String, Ran>) -> Option<TestCounts> {
    let proves_test =
        |command: &str| open.checks.get(command).is_some_and(|checked| checked.proves.iter().any(|id| id == "test"));
    let counts = |ran: &Ran| TestCounts::parse(&ran.text);
    let test = outputs.iter().find(|(command, _)| proves_test(command)).and_then(|(_, ran)| counts(ran));
    test.or_else(|| outputs.values().find_map(counts))
}

fn outcome(open: &Open, sample: &Sample, closing: &Closing, changed: bool) -> Ended {
    if !closing.protected.is_empty() {
        Ended::Protected
    } else if open.answer.is_none() {
        Ended::BadOutput
    } else if open.failed.is_some() {
        Ended::ActionFailed
    } else if matches!(open.wish, Some(Wish::Rotate { .. })) {
        Ended::Rotated
    } else if changed || sample.newly_verified > 0 {
        Ended::Progress
    } else {
        Ended::NoProgress
    }
}

fn summary(said: Option<&str>, open: &Open) -> String {
    match (said, &open.failed) {
        (Some(said), Some(failed)) => {
            format!("{} — then failed: {}", text::first_line(said, 400), text::first_line(failed, 200))
        }
        (Some(said), None) => text::first_line(said, 600).to_owned(),
        (None, _) => "no valid answer from the model".to_owned(),
    }
}

fn activity(n: u32, open: &Open, acted: &[Acted], verified: &BTreeSet<String>) -> String {
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
