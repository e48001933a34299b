//! The loop of a run: decide, do, write down.

use std::time::Duration;

use jiff::Timestamp;
use ralph_core::decide::{self, RunStep};
use ralph_core::event::{Event, RESUMED_BY_RESET_TIME, RESUMED_BY_WAIT, RunStopReason};
use ralph_core::gutter::{self, LadderRung, MitigationCause};
use ralph_core::run::{RunState, RunStatus};
use tokio_util::sync::CancellationToken;

use super::context::RunContext;
use super::interrupts::{Interrupts, StopSignals, WaitEnd};
use super::model_account::ModelAccount;
use super::ralph_files::RalphFiles;
use super::work_sandbox::{KeepSandbox, WorkSandbox};
use crate::audit::AuditLog;
use crate::control::ControlSocket;
use crate::error::Error;
use crate::git::BareRepo;
use crate::host::HostContext;
use crate::store::{EventLog, EventObserver, RunFolder};

/// A run that this process holds and drives.
#[derive(Debug)]
pub struct Runner {
    /// Dropped first, while the lock still keeps other processes from binding their own socket at its path.
    _control_socket: ControlSocket,
    pub(super) interrupts: Interrupts,
    pub(super) work: WorkSandbox,
    pub(super) models: ModelAccount,
    /// Holds the event log with the lock, so it must stay the last field: fields are dropped in order of declaration.
    pub(super) run: RunContext,
}

impl Runner {
    /// Opens a run: takes its lock, binds its control socket, folds its state.
    pub(super) async fn open(
        host: HostContext,
        folder: RunFolder,
        announce: Box<dyn EventObserver>,
        stops: StopSignals,
        keep: KeepSandbox,
    ) -> Result<Self, Error> {
        let events = EventLog::open(&folder, announce)?;
        let halt = CancellationToken::new();
        let (control_socket, controls) = ControlSocket::open(&folder, halt.clone())?;
        let redactor = host.redactor();
        let audit_log = AuditLog::open(&folder, redactor.clone())?;
        let bare = BareRepo::open(&host.git, &folder.bare_path()).await?;
        bare.remove_leftovers();
        let mut runner = Self {
            _control_socket: control_socket,
            interrupts: Interrupts::new(stops, halt, controls),
            work: WorkSandbox::new(folder.id(), keep),
            models: ModelAccount::new(),
            run: RunContext {
                host,
                files: RalphFiles::new(folder.clone(), redactor.clone()),
                folder,
                bare,
                redactor,
                audit_log,
                anchored_after: 0,
                events,
            },
        };
        // A run that succeeded recorded all its calls before its last event.
        if runner.run.events.begun() && runner.state().status != RunStatus::Succeeded {
            runner.charge_unsettled()?;
            runner.models.reload_ledger(&runner.run.events);
        }
        Ok(runner)
    }

    pub fn state(&self) -> &RunState {
        self.run.state()
    }

    pub fn folder(&self) -> &RunFolder {
        &self.run.folder
    }

    /// Releases everything this process holds of the run: its egress proxies, what runs in its sandbox, its audit log, its
    /// control socket and its lock. This process or another may take it up again afterwards.
    pub async fn close(mut self) -> Result<(), Error> {
        #[cfg(target_os = "linux")]
        self.run.host.egress().close_run(&self.run.folder.id()).await;
        // Whatever becomes of it, the rest is released.
        if let Some(sandbox) = self.work.sandbox.take() {
            sandbox.release().await?;
        }
        Ok(())
    }

    /// Runs until the run rests: it ended, it is paused, or somebody ended this process's part in it.
    pub async fn drive(&mut self) -> Result<&RunState, Error> {
        self.models.reload_ledger(&self.run.events);
        loop {
            self.handle_controls().await?;
            if self.interrupts.is_stop_asked() && !self.run.state().status.is_ended() {
                self.stop_run().await?;
            }
            if self.run.state().status.is_active() && self.interrupts.is_process_stopping() {
                self.run.pause(RunStopReason::Interrupted)?;
            }
            if self.interrupts.is_pause_asked() && self.run.state().status.is_active() {
                self.interrupts.clear_pause();
                self.run.pause(RunStopReason::Asked)?;
            }
            if let Err(error) = self.record_egress() {
                self.run.pause_on_error(error)?;
            }
            match decide::next(self.run.state()) {
                RunStep::Rest => {
                    if !self.wait_while_paused().await? {
                        self.settle_before_exit().await?;
                        // Whoever goes on with it opens them again.
                        if !self.run.state().status.is_ended() {
                            self.close_egress().await?;
                        }
                        return Ok(self.run.state());
                    }
                }
                step => {
                    if let Err(error) = self.perform(step).await {
                        self.run.pause_on_error(error)?;
                    }
                }
            }
        }
    }

    async fn perform(&mut self, step: RunStep) -> Result<(), Error> {
        tracing::debug!(run = self.run.state().id(), ?step, "next step");
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
            RunStep::Pause { reason } => self.run.pause(reason),
            RunStep::Finish { verdict } => self.finish_run(verdict).await,
            RunStep::Rest => Ok(()),
        }
    }

    /// Waits where waiting makes sense; false when this process has nothing more to do.
    async fn wait_while_paused(&mut self) -> Result<bool, Error> {
        let (until, by) = match &self.run.state().status {
            RunStatus::Paused { reason: RunStopReason::Quota { until }, .. } => (*until, RESUMED_BY_RESET_TIME),
            RunStatus::Paused { reason: RunStopReason::Outage { until, .. }, .. } => (*until, RESUMED_BY_WAIT),
            _ => return Ok(false),
        };
        let wait = u64::try_from(until.as_millisecond() - Timestamp::now().as_millisecond()).unwrap_or(0);
        match self.interrupts.wait_while_paused(Duration::from_millis(wait)).await {
            WaitEnd::Elapsed => self.run.append(Event::Resumed { by: by.to_owned() })?,
            WaitEnd::Stopped => return Ok(false),
            WaitEnd::Control(asked) => self.handle_control(asked).await?,
        }
        Ok(true)
    }

    async fn score(&mut self, n: u32) -> Result<(), Error> {
        let state = self.run.state();
        let window: Vec<gutter::IterationSample> = state.window.iter().cloned().collect();
        let score = gutter::score(&window, state.started.min_changed_lines);
        self.write_metrics(n, &score).await?;
        let line = format!("iteration {n}: loop score {:.2}", score.total);
        self.work.note_activity(&self.run.files, &line).await?;
        self.run.append(Event::GutterScored { n, score })
    }

    async fn mitigate(&mut self, n: u32, rung: LadderRung) -> Result<(), Error> {
        let state = self.run.state();
        let profile = match (rung, &state.started.profiles.fallback) {
            (LadderRung::Fallback, Some(fallback)) => fallback.name.clone(),
            _ => state.profile.clone(),
        };
        let why = gutter::mitigation_reason(state.climb.verdicts, state.last_score.as_ref());
        self.work
            .note_activity(
                &self.run.files,
                &format!("iteration {n}: gutter, {} with profile {profile}: {why}", rung.as_str()),
            )
            .await?;
        self.run.append(Event::MitigationApplied { n, rung, profile, why, cause: MitigationCause::Gutter })
    }
}
