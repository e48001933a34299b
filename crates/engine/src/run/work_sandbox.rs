//! The sandbox that a run works in: its handle, what the egress proxy granted it, and what is known of its clone.

use std::sync::Arc;

use ralph_core::policy::Policy;
use ralph_core::run::RunState;
use ralph_sandbox::Sandbox;

use super::ralph_folder_files::RalphFiles;
use crate::egress::{EgressLease, ModelAccess};
use crate::error::Error;
use crate::git::in_sandbox::{self, CloneStatus};
use crate::proof_file_restore::HeldFiles;
use crate::sandbox_lifecycle::GrantedSandbox;

/// Whether the sandbox of a run that succeeded is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KeepSandbox {
    Never,
    Always,
}

/// The work sandbox of a run, as long as this process holds the run.
#[derive(Debug)]
pub(super) struct WorkSandbox {
    /// The run's id, for errors.
    run: String,
    pub(super) sandbox: Option<Arc<dyn Sandbox>>,
    lease: Option<EgressLease>,
    /// The models that the agent inside may reach through the egress proxy.
    pub(super) model_access: Vec<ModelAccess>,
    /// The last known status of the clone; `None` once something may have changed it.
    tree_status: Option<CloneStatus>,
    /// The files that the model must not change, once read.
    pub(super) protected: Option<Arc<HeldFiles>>,
    /// The sandbox was recreated and no iteration has started in it since.
    pub(super) recreated: bool,
    pub(super) keep: KeepSandbox,
}

impl WorkSandbox {
    pub(super) fn new(run: String, keep: KeepSandbox) -> Self {
        Self {
            run,
            sandbox: None,
            lease: None,
            model_access: Vec::new(),
            tree_status: None,
            protected: None,
            recreated: false,
            keep,
        }
    }

    /// Returns the open sandbox.
    pub(super) fn sandbox(&self) -> Result<Arc<dyn Sandbox>, Error> {
        self.sandbox.clone().ok_or_else(|| Error::CannotResume {
            run: self.run.clone(),
            why: "its sandbox is not open".to_owned(),
            hint: format!("ralph resume {}", self.run),
        })
    }

    /// Keeps what was granted to the sandbox, and returns the sandbox.
    pub(super) fn hold_grant(&mut self, granted: GrantedSandbox) -> Arc<dyn Sandbox> {
        self.lease = granted.lease;
        self.model_access = granted.model_access;
        granted.sandbox
    }

    /// Makes the egress proxy enforce this policy. A resumed run needs no such call: the policy in force is part of the
    /// state that its events fold to.
    pub(super) fn apply_policy(&self, policy: &Policy) {
        if let Some(lease) = &self.lease {
            lease.set_policy(policy.clone());
        }
    }

    /// Returns how often the egress proxy was restarted so far.
    pub(super) fn egress_restarts(&self) -> u64 {
        self.lease.as_ref().map_or(0, EgressLease::restarts)
    }

    /// Returns the status of the clone compared with the start of the open iteration; reads it only when something may
    /// have changed since the last read.
    pub(super) async fn tree_status(&mut self, state: &RunState) -> Result<CloneStatus, Error> {
        let from = state.open.as_ref().map_or("", |open| open.tree.as_str());
        self.tree_status_since(state, from).await
    }

    /// As [`Self::tree_status`], compared with the tree `from`.
    pub(super) async fn tree_status_since(&mut self, state: &RunState, from: &str) -> Result<CloneStatus, Error> {
        if let Some(status) = self.tree_status.as_ref().and_then(|status| status.compared_with(from)) {
            return Ok(status);
        }
        let sandbox = self.sandbox()?;
        let status = in_sandbox::read_status(&*sandbox, &state.started.start_commit, from).await?;
        self.tree_status = Some(status.clone());
        Ok(status)
    }

    /// Forgets the status of the clone, because something may change it.
    pub(super) fn forget_tree(&mut self) {
        self.tree_status = None;
    }

    /// Appends a line to the activity log.
    pub(super) async fn note_activity(&self, files: &RalphFiles, text: &str) -> Result<(), Error> {
        let sandbox = self.sandbox()?;
        files.append_last(&*sandbox, "activity.log", &format!("{text}\n")).await
    }

    /// Appends to a `.ralph` file unless it contains this text already; without a sandbox, to the mirror that a new
    /// sandbox is filled from.
    pub(super) async fn append_once(&self, files: &RalphFiles, name: &str, text: &str) -> Result<(), Error> {
        match &self.sandbox {
            Some(sandbox) => files.append_once(&**sandbox, name, text).await,
            None => files.append_to_mirror(name, text),
        }
    }
}
