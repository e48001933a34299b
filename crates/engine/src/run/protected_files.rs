//! Restores what the model must not change before an iteration is checked: protected paths, the task file, the branch
//! and ralph's own files.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;

use ralph_core::hash::sha256;

use super::iteration_close_checkpoint::{CheckedTree, CloneRevision, CloseCheckpoint};
use super::run_context::RunContext;
use super::work_sandbox::WorkSandbox;
use crate::error::Error;
use crate::git::in_sandbox::{self, CloneStatus};
use crate::git::{self, Sha};
use crate::proof_file_restore::{HeldFile, HeldFileRules, HeldFiles, HeldReason};

/// Protected files are read up to this size; for a larger one git's own comparison decides.
const PROTECTED_CAP: u64 = 4 << 20;

/// Finds and restores changes to what the model must not change.
#[derive(Debug)]
pub(super) struct ProtectionCheck<'a> {
    pub(super) run: &'a mut RunContext,
    pub(super) work: &'a mut WorkSandbox,
}

impl ProtectionCheck<'_> {
    /// Restores what must not change, and returns the tree that the checks run on. Findings are saved before anything
    /// is restored, or the next process would not know of them after a crash.
    pub(super) async fn restore_protected(
        &mut self,
        n: u32,
        from: &str,
        closing: &mut CloseCheckpoint,
    ) -> Result<CheckedTree, Error> {
        // Checks that were cut short may have left files of the start commit in the place of the run's.
        self.restore_work(n).await?;
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
            in_sandbox::remove_non_file(&*sandbox, &path).await?;
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

    /// Gives the run its own version of the files back that checks did not use, if any ran since.
    pub(super) async fn restore_work(&mut self, n: u32) -> Result<(), Error> {
        let Some(place) = CloneRevision::load_work(&self.run.folder, n)? else { return Ok(()) };
        let sandbox = self.work.sandbox()?;
        sandbox.stop().await?;
        self.work.forget_tree();
        let look = self.work.tree_status(self.run.state()).await?;
        if CloneRevision::of(&look) != place {
            in_sandbox::restore(&*sandbox, &self.run.snapshot(&place.head, &place.tree, &place.index)?).await?;
            self.work.forget_tree();
        }
        CloneRevision::forget_work(&self.run.folder, n)
    }

    /// Restores protected paths to what they were at the start.
    async fn revert_protected_paths(
        &mut self,
        n: u32,
        from: &str,
        closing: &mut CloseCheckpoint,
    ) -> Result<CloneStatus, Error> {
        let look = self.work.tree_status_since(self.run.state(), from).await?;
        let branch = self.run.state().started.branch.clone();
        if look.branch != format!("refs/heads/{branch}") {
            // A run has one branch: commits made elsewhere are treated as work on it.
            CloseCheckpoint::push_once(
                &mut closing.restored,
                format!("the clone was taken off `{branch}`; it was put back on it"),
            );
            closing.save(&self.run.folder, n)?;
            in_sandbox::attach_to_branch(&*self.work.sandbox()?, &branch).await?;
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
        // The saved paths may be masked: the real ones are known only here.
        let paths: BTreeSet<&str> = closing.protected.iter().chain(&hit).map(String::as_str).collect();
        let paths: Vec<&str> = paths.into_iter().collect();
        in_sandbox::discard_status_index(&*sandbox).await?;
        in_sandbox::revert_paths(&*sandbox, &start, &paths).await?;
        // If the change was committed, another commit reverts it; otherwise there is nothing to commit.
        let message = self.run.commit_message(n, "put back protected paths");
        let stamp = git::stamp(&self.run.state().started.identity);
        in_sandbox::commit_reverted(&*sandbox, &start, &paths, &message, &stamp).await?;
        self.work.forget_tree();
        self.work.tree_status_since(self.run.state(), from).await
    }

    /// Returns the protected paths that changed. Files of the start commit are read and compared one by one: git inside
    /// the sandbox can be configured to overlook changes.
    pub(super) async fn changed_protected_paths(&mut self, look: &CloneStatus) -> Result<Vec<String>, Error> {
        let sandbox = self.work.sandbox()?;
        let protected = self.protected_files().await?;
        let task_path = &self.run.state().started.task_path;
        let mut hit: BTreeSet<String> =
            look.files.keys().filter(|path| *path != task_path && protected.globs.is_match(path)).cloned().collect();
        let whole = |file: &&HeldFile| file.reason == HeldReason::Protected && file.sha256.is_some();
        for file in protected.files.iter().filter(whole) {
            let found = sandbox.read(Path::new(&file.path), PROTECTED_CAP).await.ok();
            if found.as_deref().map(sha256) != file.sha256 {
                hit.insert(file.path.clone());
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

    /// Returns the protected files, read once from the run's repository on the host.
    pub(super) async fn protected_files(&mut self) -> Result<Arc<HeldFiles>, Error> {
        if let Some(known) = &self.work.protected {
            return Ok(known.clone());
        }
        let rules = HeldFileRules::of_run(&self.run.state().started).with_record(&self.run.folder)?;
        let known = Arc::new(HeldFiles::load(&self.run.bare, rules).await?);
        self.work.protected = Some(known.clone());
        Ok(known)
    }
}
