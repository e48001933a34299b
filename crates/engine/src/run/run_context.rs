//! Holds what every step of a run needs: its folder, its events and state, the host, and the redactor.

use std::sync::Arc;
use std::time::Duration;

use ralph_core::event::{Event, EventLogLevel, RunStopReason};
use ralph_core::redact::Redactor;
use ralph_core::run::RunState;
use ralph_core::{task, text};

use super::ralph_folder_files::RalphFiles;
use crate::audit::AuditLog;
use crate::error::Error;
use crate::git::in_sandbox::CloneSnapshot;
use crate::git::{self, BareRepo, Sha};
use crate::host_environment::HostContext;
use crate::store::{EventLog, RunFolder};

/// The part of a run that every step may read and append to.
#[derive(Debug)]
pub(super) struct RunContext {
    pub(super) host: HostContext,
    pub(super) folder: RunFolder,
    pub(super) bare: BareRepo,
    pub(super) files: RalphFiles,
    pub(super) redactor: Redactor,
    /// The record of every request that the run's sandboxes send to the network.
    pub(super) audit_log: Arc<AuditLog>,
    /// The iteration after which the audit log was last anchored.
    pub(super) anchored_after: u32,
    /// Holds the run's lock. Fields are dropped in order of declaration, so it must stay the last one: a process that
    /// gets the lock finds everything else released.
    pub(super) events: EventLog,
}

impl RunContext {
    pub(super) fn state(&self) -> &RunState {
        self.events.state()
    }

    pub(super) fn append(&mut self, event: Event) -> Result<(), Error> {
        self.events.append(event)
    }

    pub(super) fn log(&mut self, level: EventLogLevel, text: impl Into<String>) -> Result<(), Error> {
        let text = self.redactor.mask(&text::strip_control(&text.into()));
        self.append(Event::Log { level, text })
    }

    /// Logs a line about the open iteration, unless it was logged before, possibly by an earlier process.
    pub(super) fn log_once(&mut self, level: EventLogLevel, text: impl Into<String>) -> Result<(), Error> {
        let text = self.redactor.mask(&text::strip_control(&text.into()));
        let logged = self.state().open.as_ref().is_some_and(|open| open.told.contains(text.as_str()));
        if logged { Ok(()) } else { self.append(Event::Log { level, text }) }
    }

    pub(super) fn pause(&mut self, reason: RunStopReason) -> Result<(), Error> {
        let mut next = self.state().next_for(&reason);
        if let RunStopReason::Auth { profile } = &reason
            && let Some(key) = self.key_name(profile)
        {
            next = format!("ralph secret set {key}, then ralph resume {}", self.state().id());
        }
        self.append(Event::Paused { reason, next })
    }

    /// Returns the name of the key that a profile's provider takes.
    fn key_name(&self, profile: &str) -> Option<String> {
        let profile = self.state().started.profiles.get(profile)?;
        self.host.endpoint(profile).ok()?.key_envs.first().cloned()
    }

    /// Pauses the run after an error of its environment. Returns the error when it cannot be recorded as a pause.
    pub(super) fn pause_on_error(&mut self, error: Error) -> Result<(), Error> {
        let why = self.redactor.redact(&error_chain(&error)).into_owned();
        let reason = match &error {
            Error::BadEvent { .. } | Error::BadHistory { .. } | Error::Locked { .. } | Error::CannotResume { .. } => {
                return Err(error);
            }
            Error::NoKey { profile, .. } => RunStopReason::Auth { profile: profile.clone() },
            Error::Sandbox(ralph_sandbox::Error::Gone { .. }) => RunStopReason::SandboxLost,
            Error::Git(git::Error::SandboxScript { .. } | git::Error::UnexpectedOutput { .. }) => {
                RunStopReason::SandboxBroken { why }
            }
            _ => RunStopReason::Host { why },
        };
        if !self.state().status.is_active() {
            return Err(error);
        }
        self.pause(reason)
    }

    /// Warns once for each share of a budget that was passed.
    pub(super) fn warn_of_budgets(&mut self) -> Result<(), Error> {
        let state = self.state();
        let due: Vec<_> = state
            .budget
            .warnings(&state.spent)
            .into_iter()
            .filter(|(limit, percent)| state.warned.get(limit).is_none_or(|warned| warned < percent))
            .collect();
        for (limit, percent) in due {
            self.append(Event::BudgetWarned { limit, percent })?;
        }
        Ok(())
    }

    /// Returns how much longer the run may take, now.
    pub(super) fn time_left(&self) -> Duration {
        let state = self.state();
        let since = u64::try_from(self.events.since_last().as_millis()).unwrap_or(u64::MAX);
        let used = state.spent.wall_ms.saturating_add(since);
        // One second at least, so that what is started can still end properly.
        Duration::from_millis(state.budget.wall_ms.saturating_sub(used)).max(Duration::from_secs(1))
    }

    /// Returns the task as it was pinned at the start, or as its last accepted edit left it.
    pub(super) fn pinned_task(&self) -> Result<String, Error> {
        let path = self.folder.task_revision(self.state().task_revision);
        let bytes = self.folder.read(&path)?.unwrap_or_default();
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    }

    /// Returns the task with exactly the verified boxes ticked.
    pub(super) fn task_text(&self) -> Result<String, Error> {
        Ok(task::tick(&self.pinned_task()?, &self.state().verified))
    }

    /// Returns the commit message in its final form, trailers included.
    pub(super) fn commit_message(&self, n: u32, message: &str) -> String {
        let message = self.redactor.redact(message);
        let message = if message.trim().is_empty() { format!("iteration {n}").into() } else { message };
        git::compose_message(&message, &git::trailers(self.state().id(), n))
    }

    pub(super) fn snapshot(&self, head: &str, tree: &str, index: &str) -> Result<CloneSnapshot, Error> {
        let branch = Some(format!("refs/heads/{}", self.state().started.branch));
        Ok(CloneSnapshot { head: Sha::parse(head)?, branch, index: Sha::parse(index)?, tree: Sha::parse(tree)? })
    }
}

/// Writes an error and all its causes on one line.
pub(super) fn error_chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        text.push_str(": ");
        text.push_str(&cause.to_string());
        source = cause.source();
    }
    text
}
