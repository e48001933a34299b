//! Hands the branch over and tells of it: push, pull request, end of the run.

use ralph_core::event::{Event, EventLogLevel, RunStopReason, RunVerdict};
use ralph_core::pr::{self, PullRequestValues};
use ralph_core::proof;
use ralph_core::run::PROVED_UPDATE;

use super::prove::proof_checks;
use super::runner::{KeepSandbox, Runner};
use crate::error::Error;
use crate::git::Sha;
use crate::sandboxes;
use crate::scm::local;

/// So many files are listed; the diff has them all.
const MAX_LISTED_FILES: usize = 200;

impl Runner {
    pub(super) async fn publish(&mut self, why: &'static str) -> Result<(), Error> {
        let state = self.state();
        let Some(sha) = state.imported.clone() else { return Ok(()) };
        if state.pushed.as_ref() != Some(&sha) {
            let started = state.started.clone();
            let last = state.pushed.clone();
            let to = local::push(&self.host, &self.bare, &started, &sha, last.as_deref()).await?;
            let branch = started.branch.clone();
            self.events.append(Event::Pushed { to, branch, sha })?;
        }
        self.write_pull_request(why).await
    }

    /// Writes the pull request for the pushed commit and says so.
    async fn write_pull_request(&mut self, why: &str) -> Result<(), Error> {
        let mut text = self.pull_request_text();
        text.body.push_str(&self.pull_request_appendix().await?);
        let url = local::write_pull_request(&self.folder, &text)?;
        let event = match &self.state().pull_request {
            None => Event::PrOpened { url, number: 1 },
            Some(old) => Event::PrUpdated { url, number: old.number, why: why.to_owned() },
        };
        self.events.append(event)
    }

    /// What every pull request carries whatever its template: the files, what to look at, and the receipt.
    async fn pull_request_appendix(&self) -> Result<String, Error> {
        let state = self.state();
        let mut out = String::new();
        if let Some(sha) = &state.pushed {
            let from = Sha::parse(&state.started.start_commit)?;
            let stat = self.bare.odb().diffstat(&from, &Sha::parse(sha)?).await?;
            let files: Vec<_> = stat
                .files
                .into_iter()
                .take(MAX_LISTED_FILES)
                .map(|file| (file.path, file.added, file.removed))
                .collect();
            out.extend([format!("\n## Changes\n\n{}", pr::changed_files_list(&files))]);
        }
        if !state.findings.is_empty() {
            out.extend([format!("\n## Look at these\n\n{}", pr::findings_list(&state.findings))]);
        }
        if let Some(bytes) = self.folder.read(&self.folder.receipt_path())?
            && let Ok(receipt) = crate::receipt::read(&String::from_utf8_lossy(&bytes))
            && Some(&receipt.body.commit) == state.pushed.as_ref()
        {
            let text = serde_json::to_string_pretty(&receipt).unwrap_or_default();
            out.extend([format!(
                "\n## Receipt\n\nSave it as a file and check it with `ralph verify FILE`.\n\n```json\n{text}\n```\n"
            )]);
        }
        Ok(self.redactor.redact(&out).into_owned())
    }

    fn pull_request_text(&self) -> local::PullRequestText {
        let state = self.state();
        let started = &state.started;
        let proved = proof_checks(state);
        let verification = if proved.is_empty() {
            let boxes = started.boxes.iter().map(|pinned| {
                let mark = if state.verified.contains(&pinned.id) { "x" } else { " " };
                format!("- [{mark}] {} {}\n", pinned.id, pinned.text)
            });
            format!("Not finished: the final proof has not run yet. Verified so far:\n\n{}", boxes.collect::<String>())
        } else {
            let shared = started.boxes.iter().filter(|pinned| !proof::has_own_proof(started, pinned));
            let shared: Vec<&str> = shared.map(|pinned| pinned.id.as_str()).collect();
            format!(
                "Re-run by ralph on the pushed commit, each line in a fresh sandbox; nothing here is the model's word.\n\n{}{}",
                pr::check_table(&proved),
                pr::shared_proofs_note(&shared)
            )
        };
        let summary = state.last.as_ref().map_or("", |last| last.summary.as_str());
        let words = PullRequestValues {
            task_id: &started.task_id,
            title: &started.title,
            branch: &started.branch,
            summary,
            verification: &verification,
            cost: state.spent.cost,
        };
        let title = pr::fill_template(started.pr.title_template.as_deref().unwrap_or(pr::DEFAULT_TITLE), &words);
        let body = pr::fill_template(started.pr.body_template.as_deref().unwrap_or(pr::DEFAULT_BODY), &words);
        local::PullRequestText {
            title: self.redactor.redact(title.lines().next().unwrap_or("")).into_owned(),
            body: self.redactor.redact(&body).into_owned(),
            draft: started.pr.draft,
            labels: started.pr.labels.clone(),
            base: started.base_branch.clone(),
            branch: started.branch.clone(),
            sha: state.pushed.clone().unwrap_or_default(),
        }
    }

    pub(super) async fn finish_run(&mut self, verdict: RunVerdict) -> Result<(), Error> {
        self.close_ledger().await?;
        if verdict == RunVerdict::Succeeded {
            let receipt = self.sign_receipt()?;
            if !self.state().pull_request.as_ref().is_some_and(|pr| pr.proved) {
                self.write_pull_request(PROVED_UPDATE).await?;
            }
            let note = serde_json::to_string(&receipt).unwrap_or_default();
            let started = self.state().started.clone();
            if let Err(error) =
                local::attach_receipt(&self.host, &self.bare, &started, &receipt.body.commit, &note).await
            {
                // The receipt itself is safe in the run folder.
                self.log(EventLogLevel::Warn, format!("the receipt could not be kept as a git note: {error}"))?;
            }
        } else if self.state().imported.is_some()
            && self.state().pushed != self.state().imported
            && self.state().import_stopped.is_none()
        {
            self.publish("the run ends").await?;
        }
        let next = match &verdict {
            RunVerdict::Succeeded => {
                format!("ralph diff {0}, then merge {1}", self.state().id(), self.state().started.branch)
            }
            RunVerdict::Failed { reason } | RunVerdict::Stopped { reason } => self.next_step(reason),
        };
        self.stop_asked = false;
        self.discard_proof_sandboxes().await;
        // Before the last event, because after it nobody comes back to do it; a resume does not need it any more.
        if verdict == RunVerdict::Succeeded
            && self.keep_sandbox == KeepSandbox::Never
            && let Some(sandbox) = self.sandbox.take()
        {
            sandboxes::discard(&*sandbox).await;
        }
        self.close_egress().await?;
        self.events.append(Event::RunFinished { verdict, next })
    }

    fn next_step(&self, reason: &RunStopReason) -> String {
        self.state().next_for(reason)
    }
}
