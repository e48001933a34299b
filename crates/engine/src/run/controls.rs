//! Carries out the controls that users send to a run, and acknowledges each with an event.

use ralph_core::control_request::{Control, TaskEdit};
use ralph_core::event::{Event, EventLogLevel, RunStopReason};
use ralph_core::policy::{self, Policy};
use ralph_core::prompt::templates;
use ralph_core::redact::Redactor;
use ralph_core::run::RunStatus;
use ralph_sandbox::Error as SandboxError;

use super::diagnose::RunDiagnosis;
use super::finish::FinishStep;
use super::interrupts::{Interrupts, StopSignals};
use super::model_clients::ModelState;
use super::proposals::{ProposalStep, check_profile};
use super::run_context::{RunContext, error_chain};
use super::runner::Runner;
use super::work_sandbox::{KeepSandbox, WorkSandbox};
use crate::control::{ControlRequest, IncomingControl};
use crate::error::Error;
use crate::host_environment::HostContext;
use crate::store::{RunFolder, SilentObserver};

/// Carries out a control on a run that no process holds, and releases the run afterwards.
pub(crate) async fn apply_at_rest(
    host: &HostContext,
    folder: RunFolder,
    request: &ControlRequest,
) -> Result<(), Error> {
    // Refuse before anything is opened: a run that ended may have no sandbox any more.
    let state = folder.state()?;
    if state.has_applied(&request.id) {
        return Ok(());
    }
    refuse_if_ended(&state.status, &request.control).map_err(|why| refused(&folder.id(), &request.control, why))?;
    let (quiet, stops) = (Box::new(SilentObserver), StopSignals::default());
    let mut runner = Runner::open(host.clone(), folder, quiet, stops, KeepSandbox::Always).await?;
    let Runner { run, work, models, interrupts, .. } = &mut runner;
    let applied = ControlHandler { run, work, models, interrupts }.apply_resting(request).await;
    let closed = runner.close().await;
    applied.and(closed)
}

fn refused(run: &str, control: &Control, why: String) -> Error {
    Error::ControlRefused { run: run.to_owned(), control: control.kind().to_owned(), why }
}

/// Refuses controls of a run that ended. Those that survive a resume are still taken if the run can be resumed.
fn refuse_if_ended(status: &RunStatus, control: &Control) -> Result<(), String> {
    let open = !status.is_ended() || (control.survives_resume() && *status != RunStatus::Succeeded);
    if open { Ok(()) } else { Err(format!("it has {}", status.past_tense())) }
}

/// Checks that the user can allow a host: it must parse as a rule, and no deny rule may override it.
fn may_allow(policy: &Policy, host: &str) -> Result<(), String> {
    match policy.overriding_deny(host) {
        Ok(None) => Ok(()),
        Ok(Some((rule, by))) => Err(format!("`{rule}` is denied by the rule `{by}`, and deny beats allow")),
        Err(error) => Err(error_chain(&error)),
    }
}

/// Masks secrets in every text of a control.
fn mask_control(control: &Control, redactor: &Redactor) -> Control {
    let mask = |text: &String| redactor.redact(text).into_owned();
    match control {
        Control::Rotate { why } => Control::Rotate { why: why.as_ref().map(mask) },
        Control::SetProfile { name } => Control::SetProfile { name: mask(name) },
        Control::Note { text } => Control::Note { text: mask(text) },
        Control::Guardrail { text } => Control::Guardrail { text: mask(text) },
        Control::EditTask(edit) => Control::EditTask(TaskEdit { text: mask(&edit.text), ..edit.clone() }),
        Control::AllowHost(hosts) => Control::AllowHost(hosts.map(mask)),
        Control::DenyHost(hosts) => Control::DenyHost(hosts.map(mask)),
        Control::Pause
        | Control::Resume
        | Control::Stop
        | Control::Diagnose
        | Control::ApplyProposal { .. }
        | Control::RaiseBudget { .. } => control.clone(),
    }
}

/// Carries out controls.
#[derive(Debug)]
pub(super) struct ControlHandler<'a> {
    pub(super) run: &'a mut RunContext,
    pub(super) work: &'a mut WorkSandbox,
    pub(super) models: &'a mut ModelState,
    pub(super) interrupts: &'a mut Interrupts,
}

impl ControlHandler<'_> {
    /// Carries out a control on a run that is not being driven.
    async fn apply_resting(&mut self, request: &ControlRequest) -> Result<(), Error> {
        // Checked again under the lock: another process may have carried it out meanwhile.
        if self.run.state().has_applied(&request.id) {
            return Ok(());
        }
        let (run, control) = (self.run.folder.id(), &request.control);
        if let Some(place) = self.run.state().workplace.clone() {
            match self.run.host.backend(&place.backend)?.open(&place.sandbox).await {
                Ok(sandbox) => self.work.sandbox = Some(sandbox),
                Err(SandboxError::Gone { .. }) if !control.is_message() => (),
                Err(SandboxError::Gone { .. }) => {
                    let why = format!("its sandbox `{}` is gone", place.sandbox);
                    return Err(Error::CannotResume { hint: format!("ralph resume --recreate {run}"), run, why });
                }
                Err(error) => return Err(error.into()),
            }
        }
        let asked = self.mask_and_warn(control)?;
        let done = self.apply_control(asked).await?.map_err(|why| refused(&run, control, why))?;
        let (by, id) = (request.by.clone(), Some(request.id.clone()));
        self.run.append(Event::ControlApplied { control: done.clone(), by, id })?;
        match done {
            Control::Stop => {
                FinishStep { run: self.run, work: self.work, models: self.models, interrupts: self.interrupts }
                    .stop()
                    .await
            }
            Control::Pause if self.run.state().status.is_active() => self.run.pause(RunStopReason::Asked),
            Control::EditTask(_) => ProposalStep { run: self.run, work: self.work }.write_task_to_sandbox().await,
            // In the middle of an iteration it is done after its end, as in a live run.
            Control::Diagnose if self.run.state().open.is_none() => {
                RunDiagnosis { run: self.run, work: self.work, models: self.models, interrupts: self.interrupts }
                    .diagnose_at_rest()
                    .await
            }
            _ => Ok(()),
        }
    }

    /// Carries out the controls that arrived since the last step.
    pub(super) async fn handle_waiting(&mut self) -> Result<(), Error> {
        while let Some(asked) = self.interrupts.take_waiting_control() {
            self.handle(asked).await?;
        }
        Ok(())
    }

    /// Takes a control that arrives during an action: one that does not affect the action is carried out at once, any
    /// other after it.
    pub(super) async fn handle_mid_action(&mut self, asked: IncomingControl) -> Result<(), Error> {
        if asked.control.applies_immediately() {
            return Box::pin(self.handle(asked)).await;
        }
        self.interrupts.defer(asked);
        Ok(())
    }

    pub(super) async fn handle(&mut self, asked: IncomingControl) -> Result<(), Error> {
        let IncomingControl { control, by, id, answer } = asked;
        if id.as_ref().is_some_and(|id| self.run.state().has_applied(id)) {
            // The client missed the answer and sent the control again. It may have disconnected, so errors are ignored.
            let _ = answer.send(Ok(()));
            return Ok(());
        }
        let applied = self.apply_and_record(&control, by, id).await;
        // A failure is an answer too: without one the client would send the control again. The client may have
        // disconnected; the event records the control anyway.
        let _ = answer.send(match &applied {
            Ok(reply) => reply.clone(),
            Err(error) => Err(error_chain(error)),
        });
        applied.map(|_| ())
    }

    /// Applies a control to a live run and records it; the inner `Err` says why it is refused.
    async fn apply_and_record(
        &mut self,
        control: &Control,
        by: String,
        id: Option<String>,
    ) -> Result<Result<(), String>, Error> {
        let control = self.mask_and_warn(control)?;
        let done = match self.apply_control(control).await? {
            Ok(done) => done,
            Err(why) => return Ok(Err(why)),
        };
        self.run.append(Event::ControlApplied { control: done.clone(), by: by.clone(), id })?;
        self.finish_control(&done, by).await?;
        Ok(Ok(()))
    }

    /// Masks secrets in the texts of a control, which are written to disk and shown to the model, and warns of them.
    fn mask_and_warn(&mut self, control: &Control) -> Result<Control, Error> {
        let asked = mask_control(control, &self.run.redactor);
        if asked != *control {
            self.run.log(
                EventLogLevel::Warn,
                format!("what was said with `{}` held a secret, which was masked", control.kind()),
            )?;
        }
        Ok(asked)
    }

    /// Does what must happen before the acknowledgement, and returns the control to acknowledge; the inner `Err` says
    /// why it is refused.
    async fn apply_control(&mut self, control: Control) -> Result<Result<Control, String>, Error> {
        if let Err(why) = refuse_if_ended(&self.run.state().status, &control) {
            return Ok(Err(why));
        }
        match &control {
            Control::Pause => self.interrupts.ask_pause(),
            Control::Stop => self.interrupts.ask_stop(),
            Control::Note { text } => {
                let sandbox = self.work.sandbox()?;
                self.run.files.append(&*sandbox, "notes.md", &format!("\n- {}\n", text.trim())).await?;
            }
            Control::Guardrail { text } => {
                let sandbox = self.work.sandbox()?;
                let after = self.run.state().last.as_ref().map_or(0, |last| last.n);
                let sign =
                    templates::guardrail_sign("from a person", "always", text.trim(), after, "added by the user");
                self.run.files.append(&*sandbox, "guardrails.md", &sign).await?;
            }
            Control::SetProfile { name } => {
                if let Err(why) = check_profile(self.run.state(), name) {
                    return Ok(Err(why));
                }
            }
            Control::Resume | Control::Rotate { .. } | Control::RaiseBudget { .. } => (),
            // Every host is checked before any of them counts.
            Control::AllowHost(hosts) => {
                let policy = self.run.state().policy();
                return Ok(hosts.iter().try_for_each(|host| may_allow(policy, host)).map(|()| control));
            }
            Control::DenyHost(hosts) => {
                let is_rule = |host: &String| policy::expand(host).map(drop).map_err(|error| error_chain(&error));
                return Ok(hosts.iter().try_for_each(is_rule).map(|()| control));
            }
            Control::EditTask(edit) => {
                return Ok(ProposalStep { run: self.run, work: self.work }
                    .revise_task(edit)
                    .await?
                    .map(Control::EditTask));
            }
            Control::ApplyProposal { number } => {
                return Ok(ProposalStep { run: self.run, work: self.work }
                    .apply_proposal(*number)
                    .await?
                    .map(|()| control));
            }
            Control::Diagnose => {
                let state = self.run.state();
                if let Some(limit) = state.budget.forbids_call(&state.spent) {
                    let flag = limit.raise_flag();
                    let run = state.id();
                    return Ok(Err(format!("its {limit} budget is spent; ralph resume {run} {flag} raises it")));
                }
            }
        }
        Ok(Ok(control))
    }

    async fn finish_control(&mut self, control: &Control, by: String) -> Result<(), Error> {
        match control {
            Control::Resume => {
                self.interrupts.clear_pause();
                if !self.run.state().status.is_active() {
                    self.run.append(Event::Resumed { by })?;
                }
            }
            Control::RaiseBudget { .. } => self.models.raise_caps(&self.run.state().budget),
            Control::AllowHost { .. } | Control::DenyHost { .. } => self.work.apply_policy(self.run.state().policy()),
            Control::EditTask(_) => ProposalStep { run: self.run, work: self.work }.write_task_to_sandbox().await?,
            _ => (),
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use ralph_core::secret::Secret;

    use super::*;

    #[test]
    fn secrets_in_controls_are_masked() {
        let redactor = Redactor::new([("KEY".to_owned(), Secret::new("planted-value"))]);
        let words = |word: &str| {
            let text = || format!("use {word}");
            [
                Control::Note { text: text() },
                Control::Guardrail { text: text() },
                Control::EditTask(TaskEdit { text: text(), ..TaskEdit::default() }),
                Control::Rotate { why: Some(text()) },
                Control::SetProfile { name: text() },
                Control::AllowHost(text().as_str().into()),
                Control::DenyHost(text().as_str().into()),
            ]
        };
        for (asked, want) in words("planted-value").iter().zip(words("[redacted:KEY]")) {
            assert_eq!(mask_control(asked, &redactor), want);
            assert_eq!(mask_control(&want, &redactor), want);
        }
        let rest = [
            Control::Pause,
            Control::Resume,
            Control::Stop,
            Control::Diagnose,
            Control::Rotate { why: None },
            Control::ApplyProposal { number: 3 },
            Control::RaiseBudget { iterations: 1, minutes: 2, cost_usd: 0.5, tokens: 3 },
        ];
        for control in rest {
            assert_eq!(mask_control(&control, &redactor), control);
        }
    }
}
