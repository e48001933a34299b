//! Recovers from a work sandbox that was damaged or removed: the iteration fails, the run goes on.

use std::collections::BTreeMap;

use ralph_core::event::{Event, EventLogLevel, IterationOutcome, RunStopReason};
use ralph_core::gutter::{FailureSignature, IterationSample};
use ralph_core::text;
use ralph_sandbox::Error as SandboxError;

use super::model_clients::ModelState;
use super::run_context::RunContext;
use super::sandbox_setup::SandboxSetup;
use super::unsettled_calls::UnsettledCalls;
use super::work_sandbox::WorkSandbox;
use crate::error::Error;
use crate::git;

/// What the error of a step says about its sandbox.
enum SandboxDamage {
    /// Its clone or its files are unusable.
    Unusable {
        why: String,
    },
    Gone,
}

fn classify_damage(error: &Error) -> Option<SandboxDamage> {
    let inside = |error: &SandboxError, why: String| match error {
        SandboxError::Gone { .. } => Some(SandboxDamage::Gone),
        SandboxError::File { .. }
        | SandboxError::Refused { .. }
        | SandboxError::TooLarge { .. }
        | SandboxError::TooMany { .. } => Some(SandboxDamage::Unusable { why }),
        _ => None,
    };
    match error {
        Error::CloneUnusable { why } => Some(SandboxDamage::Unusable { why: why.clone() }),
        Error::Sandbox(error) => inside(error, error.to_string()),
        Error::Git(git::Error::Sandbox { source, .. }) => inside(source, source.to_string()),
        Error::Git(error @ (git::Error::SandboxScript { .. } | git::Error::UnexpectedOutput { .. })) => {
            Some(SandboxDamage::Unusable { why: error.to_string() })
        }
        _ => None,
    }
}

/// Recovers from damage to the work sandbox.
#[derive(Debug)]
pub(super) struct SandboxRecovery<'a> {
    pub(super) run: &'a mut RunContext,
    pub(super) work: &'a mut WorkSandbox,
    pub(super) models: &'a mut ModelState,
}

impl SandboxRecovery<'_> {
    /// Recovers from a step that failed because of the state of the work sandbox; returns any other error.
    pub(super) async fn recover(&mut self, error: Error) -> Result<(), Error> {
        match classify_damage(&error) {
            // Recreated and damaged again before an iteration started in it: the model did not cause that.
            Some(SandboxDamage::Unusable { .. }) if self.work.recreated => Err(error),
            Some(SandboxDamage::Unusable { why }) => self.restart_in_new_sandbox(&why).await,
            Some(SandboxDamage::Gone) => {
                self.fail_iteration("the sandbox is gone; it was removed during this iteration")?;
                self.run.pause(RunStopReason::SandboxLost)
            }
            None => Err(error),
        }
    }

    /// Ends the iteration as failed and recreates the sandbox from the last imported commit.
    async fn restart_in_new_sandbox(&mut self, why: &str) -> Result<(), Error> {
        // Mask before cutting, or half a secret could be left.
        let why = self.run.redactor.mask(&text::strip_control(why)).first_line(300);
        let message = format!("the sandbox was recreated from the last imported commit: {why}");
        // Read before the iteration ends, because its end clears the boxes to prove again.
        let reclaim = self.run.state().boxes_to_reprove();
        self.fail_iteration(&message)?;
        let state = self.run.state();
        let started = state.started.clone();
        let start = state.workplace.as_ref().map_or_else(|| started.start_commit.clone(), |place| place.start.clone());
        let head = state.imported.clone().unwrap_or_else(|| start.clone());
        self.work.recreated = true;
        SandboxSetup { run: self.run, work: self.work, models: self.models }
            .create(&started, &start, &head, reclaim)
            .await?;
        self.run.log(EventLogLevel::Warn, message)
    }

    /// Ends the open iteration as failed, without reading the sandbox again.
    fn fail_iteration(&mut self, why: &str) -> Result<(), Error> {
        self.work.forget_tree();
        UnsettledCalls { run: self.run, models: self.models }.record_unread_answer()?;
        let state = self.run.state();
        let Some(open) = state.open.clone() else { return Ok(()) };
        let n = open.n;
        let head = state.imported.as_ref().unwrap_or(&state.started.start_commit).to_string();
        let verified = state.verified.iter().cloned().collect();
        let why = self.run.redactor.mask(why);
        self.run.files.append_to_mirror("errors.log", &format!("== iteration {n} ==\n{why}\n"))?;
        self.run
            .files
            .append_to_mirror("activity.log", &format!("iteration {n}: profile {}, given up: {why}\n", open.profile))?;
        let sample = IterationSample {
            n,
            failures: vec![FailureSignature::of("sandbox", 1, &why)],
            changed_lines: 0,
            files: BTreeMap::new(),
            newly_verified: 0,
            tests: None,
            waiting: false,
        };
        self.run.append(Event::IterationFinished {
            n,
            outcome: IterationOutcome::ActionFailed,
            head,
            summary: why,
            sample,
            verified,
            broken: Vec::new(),
        })
    }
}
