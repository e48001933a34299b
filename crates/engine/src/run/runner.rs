//! The loop of a run: decide, do, write down.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use ralph_core::action::ActionReply;
use ralph_core::decide::{self, RunStep};
use ralph_core::event::{Event, EventLogLevel, RESUMED_BY_RESET_TIME, RESUMED_BY_WAIT, RunStopReason};
use ralph_core::gutter::{self, LadderRung, MitigationCause};
use ralph_core::money::MicroUsd;
use ralph_core::redact::Redactor;
use ralph_core::run::{RunState, RunStatus};
use ralph_core::text;
use ralph_proxy::ledger::{Ledger, LedgerCaps};
use ralph_sandbox::Sandbox;
use tokio_util::sync::CancellationToken;

use super::close_iteration::ProtectedFiles;
use super::interrupts::{Interrupts, StopSignals, WaitEnd};
use super::ralph_files::RalphFiles;
use crate::audit::AuditLog;
use crate::control::ControlSocket;
use crate::egress::{EgressLease, ModelAccess};
use crate::error::Error;
use crate::git::inside::CloneStatus;
use crate::git::{self, BareRepo};
use crate::host::HostContext;
use crate::model::LanguageModel;
use crate::store::{EventLog, EventObserver, RunFolder};

/// What happens to the sandbox of a run that succeeded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KeepSandbox {
    Never,
    Always,
}

/// A run in the hands of this process.
#[derive(Debug)]
pub struct Runner {
    /// Dropped first, while the lock still keeps others from putting their own socket in its place.
    _control_socket: ControlSocket,
    pub(super) host: HostContext,
    pub(super) folder: RunFolder,
    pub(super) bare: BareRepo,
    pub(super) sandbox: Option<Arc<dyn Sandbox>>,
    /// What was agreed on for the way out of the sandbox.
    pub(super) lease: Option<EgressLease>,
    /// The ways to models that its agent is lent.
    pub(super) model_access: Vec<ModelAccess>,
    pub(super) ledger: Ledger,
    pub(super) models: BTreeMap<String, Arc<dyn LanguageModel>>,
    pub(super) redactor: Redactor,
    /// The answer the open iteration works through.
    pub(super) reply: Option<(u32, ActionReply)>,
    /// The tree as it was last looked at, while nothing has touched it since.
    pub(super) tree_status: Option<CloneStatus>,
    /// What the model must not change, once read.
    pub(super) protected: Option<Arc<ProtectedFiles>>,
    pub(super) files: RalphFiles,
    pub(super) interrupts: Interrupts,
    pub(super) keep_sandbox: KeepSandbox,
    /// The sandbox was made anew and nothing has gone well in it since.
    pub(super) recreated: bool,
    /// Where everything is written down that its sandboxes ask of the network.
    pub(super) audit_log: Arc<AuditLog>,
    /// The iteration after which the book was last anchored.
    pub(super) anchored_after: u32,
    /// The lock is in it, and what is declared last is dropped last: whoever gets the lock finds all else released.
    pub(super) events: EventLog,
}

impl Runner {
    /// Takes hold of a run: its lock, its door, its state.
    pub(super) async fn open(
        host: HostContext,
        folder: RunFolder,
        announce: Box<dyn EventObserver>,
        stops: StopSignals,
        keep: KeepSandbox,
    ) -> Result<Self, Error> {
        let events = EventLog::open(&folder, announce)?;
        let halt = CancellationToken::new();
        let (door, controls) = ControlSocket::open(&folder, halt.clone())?;
        let redactor = host.redactor();
        let book = AuditLog::open(&folder, redactor.clone())?;
        let bare = BareRepo::open(&host.git, &folder.bare_path()).await?;
        bare.remove_leftovers();
        // Nothing may be bought until it is known what was bought before.
        let nothing = LedgerCaps { cost: Some(MicroUsd::ZERO), tokens: Some(0) };
        let ledger = Ledger::new(nothing, MicroUsd::ZERO, 0);
        let mut runner = Self {
            host,
            files: RalphFiles::new(folder.clone(), redactor.clone()),
            folder,
            events,
            bare,
            sandbox: None,
            lease: None,
            model_access: Vec::new(),
            ledger,
            models: BTreeMap::new(),
            redactor,
            reply: None,
            tree_status: None,
            protected: None,
            interrupts: Interrupts::new(stops, halt, controls),
            keep_sandbox: keep,
            recreated: false,
            audit_log: book,
            anchored_after: 0,
            _control_socket: door,
        };
        // A run that succeeded has told all before its end.
        if runner.events.begun() && runner.state().status != RunStatus::Succeeded {
            runner.charge_unsettled()?;
            runner.reload_ledger();
        }
        Ok(runner)
    }

    pub fn state(&self) -> &RunState {
        self.events.state()
    }

    pub fn folder(&self) -> &RunFolder {
        &self.folder
    }

    /// Releases everything this process holds of the run: its egress proxies, what runs in its sandbox, its audit log, its
    /// control socket and its lock. This process or another may take it up again afterwards.
    pub async fn close(mut self) -> Result<(), Error> {
        #[cfg(target_os = "linux")]
        self.host.egress().close_run(&self.folder.id()).await;
        // Whatever becomes of it, the rest is released.
        if let Some(sandbox) = self.sandbox.take() {
            sandbox.release().await?;
        }
        Ok(())
    }

    /// Runs until the run rests: it ended, it is paused, or somebody ended this process's part in it.
    pub async fn drive(&mut self) -> Result<&RunState, Error> {
        self.reload_ledger();
        loop {
            self.handle_controls().await?;
            if self.interrupts.is_stop_asked() && !self.state().status.is_ended() {
                self.stop_run().await?;
            }
            if self.state().status.is_active() && self.interrupts.is_process_stopping() {
                self.pause(RunStopReason::Interrupted)?;
            }
            if self.interrupts.is_pause_asked() && self.state().status.is_active() {
                self.interrupts.clear_pause();
                self.pause(RunStopReason::Asked)?;
            }
            if let Err(error) = self.record_egress() {
                self.pause_on_error(error)?;
            }
            match decide::next(self.state()) {
                RunStep::Rest => {
                    if !self.wait_while_paused().await? {
                        self.settle_before_exit().await?;
                        // Whoever goes on with it opens them again.
                        if !self.state().status.is_ended() {
                            self.close_egress().await?;
                        }
                        return Ok(self.state());
                    }
                }
                step => {
                    if let Err(error) = self.perform(step).await {
                        self.pause_on_error(error)?;
                    }
                }
            }
        }
    }

    async fn perform(&mut self, step: RunStep) -> Result<(), Error> {
        tracing::debug!(run = self.state().id(), ?step, "next step");
        let at_work = matches!(
            step,
            RunStep::StartIteration { .. }
                | RunStep::CallModel { .. }
                | RunStep::Session { .. }
                | RunStep::Act { .. }
                | RunStep::Close { .. }
                | RunStep::Score { .. }
                | RunStep::Mitigate { .. }
                | RunStep::Diagnose { .. }
                | RunStep::Apply { .. }
        );
        match self.execute(step).await {
            // What is done inside the work sandbox can fail by what the model did to it.
            Err(error) if at_work => self.recover_sandbox(error).await,
            other => other,
        }
    }

    async fn execute(&mut self, step: RunStep) -> Result<(), Error> {
        match step {
            RunStep::Prepare => self.prepare_sandbox().await,
            RunStep::Baseline => self.check_baseline().await,
            RunStep::StartIteration { n, profile } => self.start_iteration(n, profile).await,
            RunStep::CallModel { n, call, reask } => self.call_model(n, call, reask).await,
            RunStep::Session { n, cut } => self.run_session(n, cut).await,
            RunStep::Act { n, index, again } => self.execute_action(n, index, again).await,
            RunStep::Close { n } => self.close_iteration(n).await,
            RunStep::Score { n } => self.score(n).await,
            RunStep::Mitigate { n, rung } => self.mitigate(n, rung).await,
            RunStep::Diagnose { n, doing } => self.diagnose(n, doing).await,
            RunStep::Apply { number } => self.apply_automatic_proposal(number).await,
            RunStep::Publish { why } => self.publish(why).await,
            RunStep::Prove => self.prove().await,
            RunStep::Pause { reason } => self.pause(reason),
            RunStep::Finish { verdict } => self.finish_run(verdict).await,
            RunStep::Rest => Ok(()),
        }
    }

    /// Waits where waiting makes sense; false when this process has nothing more to do.
    async fn wait_while_paused(&mut self) -> Result<bool, Error> {
        let (until, by) = match &self.state().status {
            RunStatus::Paused { reason: RunStopReason::Quota { until }, .. } => (*until, RESUMED_BY_RESET_TIME),
            RunStatus::Paused { reason: RunStopReason::Outage { until, .. }, .. } => (*until, RESUMED_BY_WAIT),
            _ => return Ok(false),
        };
        let wait = u64::try_from(until.as_millisecond() - Timestamp::now().as_millisecond()).unwrap_or(0);
        match self.interrupts.wait_while_paused(Duration::from_millis(wait)).await {
            WaitEnd::Elapsed => self.events.append(Event::Resumed { by: by.to_owned() })?,
            WaitEnd::Stopped => return Ok(false),
            WaitEnd::Control(asked) => self.handle_control(asked).await?,
        }
        Ok(true)
    }

    /// Rests the run when something around it failed; what cannot even be written down is passed on.
    fn pause_on_error(&mut self, error: Error) -> Result<(), Error> {
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

    pub(super) fn pause(&mut self, reason: RunStopReason) -> Result<(), Error> {
        let mut next = self.state().next_for(&reason);
        if let RunStopReason::Auth { profile } = &reason
            && let Some(key) = self.key_name(profile)
        {
            next = format!("ralph secret set {key}, then ralph resume {}", self.state().id());
        }
        self.events.append(Event::Paused { reason, next })
    }

    /// Returns the name of the key that a profile's provider takes.
    fn key_name(&self, profile: &str) -> Option<String> {
        let profile = self.state().started.profiles.get(profile)?;
        self.host.endpoint(profile).ok()?.key_envs.first().cloned()
    }

    pub(super) fn log(&mut self, level: EventLogLevel, text: impl Into<String>) -> Result<(), Error> {
        let text = self.redactor.redact(&text::strip_control(&text.into())).into_owned();
        self.events.append(Event::Log { level, text })
    }

    /// Logs what belongs to the open iteration, unless a process before this one did.
    pub(super) fn log_once(&mut self, level: EventLogLevel, text: impl Into<String>) -> Result<(), Error> {
        let text = self.redactor.redact(&text::strip_control(&text.into())).into_owned();
        let told = self.state().open.as_ref().is_some_and(|open| open.told.contains(&text));
        if told { Ok(()) } else { self.events.append(Event::Log { level, text }) }
    }

    async fn score(&mut self, n: u32) -> Result<(), Error> {
        let state = self.state();
        let window: Vec<gutter::IterationSample> = state.window.iter().cloned().collect();
        let score = gutter::score(&window, state.started.min_changed_lines);
        self.write_metrics(n, &score).await?;
        let line = format!("iteration {n}: loop score {:.2}", score.total);
        self.note_activity(&line).await?;
        self.events.append(Event::GutterScored { n, score })
    }

    async fn mitigate(&mut self, n: u32, rung: LadderRung) -> Result<(), Error> {
        let state = self.state();
        let profile = match (rung, &state.started.profiles.fallback) {
            (LadderRung::Fallback, Some(fallback)) => fallback.name.clone(),
            _ => state.profile.clone(),
        };
        let why = gutter::mitigation_reason(state.climb.verdicts, state.last_score.as_ref());
        self.note_activity(&format!("iteration {n}: gutter, {} with profile {profile}: {why}", rung.as_str())).await?;
        self.events.append(Event::MitigationApplied { n, rung, profile, why, cause: MitigationCause::Gutter })
    }

    /// Opens the account book with what the events say was spent and may be spent.
    pub(super) fn reload_ledger(&mut self) {
        if self.events.begun() {
            let state = self.state();
            let caps = LedgerCaps { cost: state.budget.cost, tokens: state.budget.tokens };
            let spent = state.spent;
            // The same book, since whoever serves the way out holds it too.
            self.ledger.reset_spend(caps, spent.cost, spent.tokens);
        }
    }

    /// Tells the ledger of a larger budget. What it has charged meanwhile stays as it is: calls may be under way.
    pub(super) fn raise_ledger_caps(&mut self) {
        let budget = &self.state().budget;
        self.ledger.raise_caps(LedgerCaps { cost: budget.cost, tokens: budget.tokens });
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
            self.events.append(Event::BudgetWarned { limit, percent })?;
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

    pub(super) fn sandbox(&self) -> Result<Arc<dyn Sandbox>, Error> {
        self.sandbox.clone().ok_or_else(|| Error::CannotResume {
            run: self.folder.id(),
            why: "its sandbox is not open".to_owned(),
            hint: format!("ralph resume {}", self.folder.id()),
        })
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
