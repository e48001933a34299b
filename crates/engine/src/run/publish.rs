//! Publishes a run's branch: push, pull request, receipt. Which provider takes them is the host's [`crate::scm::Scm`].

use ralph_core::commit_sha::CommitSha;
use ralph_core::event::{Event, EventLogLevel, RunVerdict};
use ralph_core::proof_files;
use ralph_core::pull_request::{self, PublishReason, PullRequest, PullRequestValues};
use ralph_core::text;

use super::prove::{proof_checks, sign_receipt};
use super::run_context::RunContext;
use crate::error::Error;
use crate::git::Sha;
use crate::scm::PublishedRun;

/// How many changed files the pull request lists; its diff shows all of them.
const MAX_LISTED_FILES: usize = 200;

/// Publishes the run's branch.
#[derive(Debug)]
pub(super) struct PublishStep<'a> {
    pub(super) run: &'a mut RunContext,
}

impl PublishStep<'_> {
    pub(super) async fn publish(&mut self, why: PublishReason) -> Result<(), Error> {
        let state = self.run.state();
        let Some(sha) = state.imported.clone() else { return Ok(()) };
        if state.pushed.as_ref() != Some(&sha) {
            let replaces = state.pushed.as_ref().map(Sha::from);
            let to = self.run.host.scm().push(self.published_run(), &Sha::from(&sha), replaces.as_ref()).await?;
            let branch = self.run.state().started.branch.clone();
            self.run.append(Event::Pushed { to, branch, sha })?;
        }
        self.update_pull_request(why).await?;
        self.record_ci_state().await
    }

    /// Publishes the outcome of the run before it ends: the signed receipt of a success, otherwise unpushed commits.
    pub(super) async fn publish_verdict(&mut self, verdict: &RunVerdict) -> Result<(), Error> {
        if *verdict == RunVerdict::Succeeded {
            return self.publish_receipt().await;
        }
        let state = self.run.state();
        if state.imported.is_some() && state.pushed != state.imported && state.import_stopped.is_none() {
            self.publish(PublishReason::RunEnds).await?;
        }
        Ok(())
    }

    async fn publish_receipt(&mut self) -> Result<(), Error> {
        let receipt = sign_receipt(self.run)?;
        if !self.run.state().pull_request.as_ref().is_some_and(|pr| pr.proved) {
            self.update_pull_request(PublishReason::Proved).await?;
        }
        let note = serde_json::to_string(&receipt).unwrap_or_default();
        let sha = Sha::parse(&receipt.body.commit)?;
        if let Err(error) = self.run.host.scm().attach_receipt(self.published_run(), &sha, &note).await {
            // The receipt itself is safe in the run folder.
            self.run.log(EventLogLevel::Warn, format!("the receipt could not be kept as a git note: {error}"))?;
        }
        Ok(())
    }

    fn published_run(&self) -> PublishedRun<'_> {
        PublishedRun { started: &self.run.state().started, folder: &self.run.folder, bare: &self.run.bare }
    }

    /// Opens or updates the pull request for the pushed commit and records it.
    async fn update_pull_request(&mut self, why: PublishReason) -> Result<(), Error> {
        let Some(sha) = self.run.state().pushed.clone() else { return Ok(()) };
        let mut request = self.pull_request(sha);
        request.body.push_str(&self.pull_request_appendix().await?);
        let existing = self.run.state().pull_request.as_ref().map(|old| old.number);
        let link = self.run.host.scm().open_or_update(self.published_run(), &request, existing).await?;
        let event = match existing {
            None => Event::PrOpened { url: link.url, number: link.number },
            Some(_) => Event::PrUpdated { url: link.url, number: link.number, why },
        };
        self.run.append(event)
    }

    /// Records the CI state of the pushed commit when it changed. A run does not fail if the state cannot be read.
    async fn record_ci_state(&mut self) -> Result<(), Error> {
        let Some(sha) = &self.run.state().pushed else { return Ok(()) };
        match self.run.host.scm().checks(self.published_run(), &Sha::from(sha)).await {
            Ok(ci) if ci == self.run.state().ci => Ok(()),
            Ok(ci) => self.run.append(Event::CiChanged(ci)),
            Err(error) => {
                self.run.log(EventLogLevel::Warn, format!("the state of the CI checks could not be read: {error}"))
            }
        }
    }

    /// Returns what every pull request contains whatever its template: the changed files, the findings and the receipt.
    async fn pull_request_appendix(&self) -> Result<String, Error> {
        let state = self.run.state();
        let mut out = String::new();
        if let Some(sha) = &state.pushed {
            let from = Sha::from(&state.started.start_commit);
            let stat = self.run.bare.odb().diffstat(&from, &Sha::from(sha)).await?;
            let files: Vec<_> = stat
                .files
                .into_iter()
                .take(MAX_LISTED_FILES)
                .map(|file| (file.path, file.added, file.removed))
                .collect();
            out.extend([format!("\n## Changes\n\n{}", pull_request::changed_files_list(&files))]);
        }
        if !state.findings.is_empty() {
            out.extend([format!("\n## Look at these\n\n{}", pull_request::findings_list(&state.findings))]);
        }
        if let Some(bytes) = self.run.folder.read(&self.run.folder.receipt_path())?
            && let Ok(receipt) = crate::receipt::read(&String::from_utf8_lossy(&bytes))
            && Some(receipt.body.commit.as_str()) == state.pushed.as_deref()
        {
            let text = serde_json::to_string_pretty(&receipt).unwrap_or_default();
            out.extend([format!(
                "\n## Receipt\n\nSave it as a file and check it with `ralph verify FILE`.\n\n```json\n{text}\n```\n"
            )]);
        }
        Ok(self.run.redactor.redact(&out).into_owned())
    }

    fn pull_request(&self, sha: CommitSha) -> PullRequest {
        let state = self.run.state();
        let started = &state.started;
        let proved = proof_checks(state);
        let verification = if proved.is_empty() {
            let boxes = started.boxes.iter().map(|pinned| {
                let mark = if state.verified.contains(&pinned.id) { "x" } else { " " };
                let broken = state.broken.get(&pinned.id);
                let note = broken.map_or_else(String::new, |n| format!(" (was verified, broken in iteration {n})"));
                format!("- [{mark}] {} {}{note}\n", pinned.id, pinned.text)
            });
            format!("Not finished: the final proof has not run yet. Verified so far:\n\n{}", boxes.collect::<String>())
        } else {
            let shared = started.boxes.iter().filter(|pinned| !proof_files::has_own_proof(started, pinned));
            let shared: Vec<&str> = shared.map(|pinned| pinned.id.as_str()).collect();
            format!(
                "{}\n\n{}{}{}",
                pull_request::check_table_heading(&proved),
                pull_request::check_table(&proved),
                pull_request::shared_proofs_note(&shared),
                pull_request::changed_proof_files(&proved)
            )
        };
        let said = state.last.as_ref().map_or("", |last| last.summary.as_str());
        let (said, summary) = (text::strip_control(text::first_line(said, 200)), pull_request::quoted_summary(said));
        let words = PullRequestValues {
            task_id: &started.task_id,
            title: &started.title,
            branch: &started.branch,
            summary: &summary,
            verification: &verification,
            cost: state.spent.cost,
        };
        let title = pull_request::fill_template(
            started.pr.title_template.as_deref().unwrap_or(pull_request::DEFAULT_TITLE),
            &PullRequestValues { summary: &said, ..words.clone() },
        );
        let body = pull_request::fill_template(
            started.pr.body_template.as_deref().unwrap_or(pull_request::DEFAULT_BODY),
            &words,
        );
        PullRequest {
            title: self.run.redactor.redact(title.lines().next().unwrap_or("")).into_owned(),
            body: self.run.redactor.redact(&body).into_owned(),
            draft: started.pr.draft,
            labels: started.pr.labels.clone(),
            base: started.base_branch.clone(),
            branch: started.branch.clone(),
            sha,
        }
    }
}
