//! Updates the run's branch: commits verified boxes inside the sandbox and imports commits to the host.

use std::collections::BTreeSet;
use std::path::Path;

use ralph_core::commit_sha::CommitSha;
use ralph_core::event::Event;
use ralph_core::task;

use super::run_context::RunContext;
use super::work_sandbox::WorkSandbox;
use crate::error::Error;
use crate::git::in_sandbox::{self, CloneStatus};
use crate::git::{self, Sha};

/// Commits on the run's branch that ralph makes or takes over.
#[derive(Debug)]
pub(super) struct BranchUpdate<'a> {
    pub(super) run: &'a mut RunContext,
    pub(super) work: &'a mut WorkSandbox,
}

/// How an import ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ImportEnd {
    /// The commits were imported or refused.
    Recorded,
    /// Nothing was imported or recorded.
    Aborted,
}

impl BranchUpdate<'_> {
    /// Ticks exactly the verified boxes. The verified tree is committed with the ticks, because a proof is about a
    /// commit.
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
            // A commit of the model may contain a task file that it changed; if none does, there is nothing to commit.
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
        in_sandbox::commit_verified(&*sandbox, tree, (&path, wanted.as_bytes()), &message, &stamp).await?;
        self.work.forget_tree();
        Ok(())
    }

    /// Imports new commits from the sandbox into the run's repository on the host, unless `aborted` is ready before they
    /// are checked.
    pub(super) async fn import_commits(
        &mut self,
        n: u32,
        survey: &CloneStatus,
        aborted: impl Future<Output = ()>,
    ) -> Result<ImportEnd, Error> {
        let state = self.run.state();
        let start = state.started.start_commit.clone();
        if survey.head == *start || state.imported.as_deref() == Some(survey.head.as_str()) {
            return Ok(ImportEnd::Recorded);
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
            aborted,
        )
        .await?;
        let Some(imported) = imported else { return Ok(ImportEnd::Aborted) };
        if imported.base_missing {
            return Err(Error::CloneUnusable {
                why: "its branch no longer contains the commit the run started from".to_owned(),
            });
        }
        if !imported.protected.is_empty() {
            // Undo the import: the branch and this iteration's ref go back to the commit imported before.
            let before = Sha::from(known.as_ref().unwrap_or(&start));
            self.run.bare.set_branch(&started.branch, &before).await?;
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
        })?;
        Ok(ImportEnd::Recorded)
    }
}
