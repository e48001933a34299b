//! The main loop of a run: decide on the next step, carry it out, record it.

use std::time::Duration;

use jiff::Timestamp;
use ralph_core::decide_next_step::{self, RunStep};
use ralph_core::event::{Event, RESUMED_BY_RESET_TIME, RESUMED_BY_WAIT, RunStopReason};
use ralph_core::run::{RunState, RunStatus};
use tokio_util::sync::CancellationToken;

use super::action::ActionStep;
use super::agent_session::SessionStep;
use super::close_iteration::CloseStep;
use super::controls::ControlHandler;
use super::diagnose::RunDiagnosis;
use super::egress_events::EgressEvents;
use super::finish::FinishStep;
use super::gutter_step::GutterStep;
use super::interrupts::{Interrupts, StopSignals, WaitEnd};
use super::model_call::ModelCallStep;
use super::model_clients::ModelState;
use super::proposals::ProposalStep;
use super::prove::ProofStep;
use super::publish::PublishStep;
use super::ralph_folder_files::RalphFiles;
use super::run_context::RunContext;
use super::sandbox_recovery::SandboxRecovery;
use super::sandbox_setup::{SandboxSetup, check_baseline};
use super::start_iteration::start_iteration;
use super::unsettled_calls::UnsettledCalls;
use super::work_sandbox::{KeepSandbox, WorkSandbox};
use crate::audit::AuditLog;
use crate::control::ControlSocket;
use crate::error::Error;
use crate::git::BareRepo;
use crate::host_environment::HostContext;
use crate::store::{EventLog, EventObserver, RunFolder};

/// A run that this process holds and drives.
#[derive(Debug)]
pub struct Runner {
    /// Dropped first, while the lock still keeps other processes from binding their own socket at its path.
    _control_socket: ControlSocket,
    pub(super) interrupts: Interrupts,
    pub(super) work: WorkSandbox,
    pub(super) models: ModelState,
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
            models: ModelState::new(),
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
            UnsettledCalls { run: &mut runner.run, models: &mut runner.models }.charge_unsettled()?;
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

    /// Releases everything this process holds of the run: its egress proxies, what runs in its sandbox, its audit
    /// log, its control socket and its lock. This process or another may open the run again afterwards.
    pub async fn close(mut self) -> Result<(), Error> {
        self.run.host.egress().close_run(&self.run.folder.id()).await;
        // If this fails, everything else is still released, by dropping it.
        if let Some(sandbox) = self.work.sandbox.take() {
            sandbox.release().await?;
        }
        Ok(())
    }

    /// Drives the run until it ends or pauses, or until this process is asked to stop working on it.
    pub async fn drive(&mut self) -> Result<&RunState, Error> {
        self.models.reload_ledger(&self.run.events);
        loop {
            let Self { run, work, models, interrupts, .. } = &mut *self;
            ControlHandler { run, work, models, interrupts }.handle_waiting().await?;
            if interrupts.is_stop_asked() && !run.state().status.is_ended() {
                FinishStep { run, work, models, interrupts }.stop().await?;
            }
            if run.state().status.is_active() && interrupts.is_process_stopping() {
                run.pause(RunStopReason::Interrupted)?;
            }
            if interrupts.is_pause_asked() && run.state().status.is_active() {
                interrupts.clear_pause();
                run.pause(RunStopReason::Asked)?;
            }
            let recorded = EgressEvents { run }.record_egress();
            if let Err(error) = recorded {
                run.pause_on_error(error)?;
            }
            match decide_next_step::decide(run.state()) {
                RunStep::Rest => {
                    if !self.wait_while_paused().await? {
                        let Self { run, models, interrupts, .. } = &mut *self;
                        UnsettledCalls { run, models }.settle_before_exit(interrupts).await?;
                        // The process that resumes the run opens its listeners again.
                        if !run.state().status.is_ended() {
                            EgressEvents { run }.close_egress().await?;
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
        tracing::debug!(run = self.state().id(), ?step, "next step");
        let works_in_sandbox = matches!(
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
            // A step inside the work sandbox can fail because of what the model did to it.
            Err(error) if works_in_sandbox => {
                let Self { run, work, models, .. } = self;
                SandboxRecovery { run, work, models }.recover(error).await
            }
            other => other,
        }
    }

    async fn execute(&mut self, step: RunStep) -> Result<(), Error> {
        let Self { run, work, models, interrupts, .. } = self;
        match step {
            RunStep::Prepare => SandboxSetup { run, work, models }.prepare().await,
            RunStep::Baseline => check_baseline(run).await,
            RunStep::StartIteration { n, profile } => start_iteration(run, work, models, n, profile).await,
            RunStep::CallModel { n, call, reask } => {
                ModelCallStep { run, work, models, interrupts }.call(n, call, reask).await
            }
            RunStep::Session { n, cut } => SessionStep { run, work, models, interrupts }.run(n, cut).await,
            RunStep::Act { n, index, again } => {
                ActionStep { run, work, models, interrupts }.execute(n, index, again).await
            }
            RunStep::Close { n } => CloseStep { run, work, models, interrupts }.close(n).await,
            RunStep::Score { n } => GutterStep { run, work }.score(n).await,
            RunStep::Mitigate { n, rung } => GutterStep { run, work }.mitigate(n, rung).await,
            RunStep::Diagnose { n, doing } => RunDiagnosis { run, work, models, interrupts }.diagnose(n, doing).await,
            RunStep::Apply { number } => ProposalStep { run, work }.apply_automatic_proposal(number).await,
            RunStep::Publish { why } => PublishStep { run }.publish(why).await,
            RunStep::Prove => ProofStep { run, work, interrupts }.prove().await,
            RunStep::Pause { reason } => run.pause(reason),
            RunStep::Finish { verdict } => FinishStep { run, work, models, interrupts }.finish(verdict).await,
            RunStep::Rest => Ok(()),
        }
    }

    /// Waits while a pause ends by itself; false when this process has nothing more to do.
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
            WaitEnd::Control(asked) => {
                let Self { run, work, models, interrupts, .. } = self;
                ControlHandler { run, work, models, interrupts }.handle(asked).await?;
            }
        }
        Ok(true)
    }
}
