//! What people ask of a live run, carried out between two steps and acknowledged by an event.

use ralph_core::control::{Control, TaskEdit};
use ralph_core::event::{Event, Level, Reason, Verdict};
use ralph_core::policy::{self, Policy};
use ralph_core::prompt::templates;
use ralph_core::redact::Redactor;
use ralph_core::run::Status;
use ralph_sandbox::Error as SandboxError;

use super::runner::{Keep, Runner, Stops, chain};
use crate::control::Asked;
use crate::error::Error;
use crate::host::Host;
use crate::store::{Announce, Folder};

/// Carries out a control on a run that no process holds.
pub async fn at_rest(
    host: &Host,
    folder: Folder,
    control: Control,
    by: &str,
    announce: Box<dyn Announce>,
) -> Result<(), Error> {
    let run = folder.id();
    let refused = |why: String| Error::ControlRefused { run: run.clone(), control: control.kind().to_owned(), why };
    // Told before anything is opened: a run that is over may have no sandbox any more.
    over(&folder.state()?.status, &control).map_err(refused)?;
    let mut runner = Runner::take(host.clone(), folder, announce, Stops::default(), Keep::Always).await?;
    if let Some(place) = runner.state().workplace.clone() {
        match host.backend(&place.backend)?.open(&place.sandbox).await {
            Ok(sandbox) => runner.sandbox = Some(sandbox),
            Err(SandboxError::Gone { .. }) if !control.is_words() => (),
            Err(SandboxError::Gone { .. }) => {
                let why = format!("its sandbox `{}` is gone", place.sandbox);
                return Err(Error::CannotResume { hint: format!("ralph resume --recreate {run}"), run, why });
            }
            Err(error) => return Err(error.into()),
        }
    }
    let asked = runner.without_secrets(&control)?;
    let done = runner.carry_out(asked).await?.map_err(refused)?;
    runner.events.append(Event::ControlApplied { control: done.clone(), by: by.to_owned() })?;
    match done {
        Control::Stop => runner.stop().await,
        Control::Pause if runner.state().status.active() => runner.pause(Reason::Asked),
        Control::EditTask(_) => runner.show_task().await,
        // In the middle of an iteration it waits for its end, like in a live run.
        Control::Diagnose if runner.state().open.is_none() => runner.diagnose_at_rest().await,
        _ => Ok(()),
    }
}

/// A run that is over takes no more orders; what counts from its resume on can still be left for one that may be resumed.
fn over(status: &Status, control: &Control) -> Result<(), String> {
    let open = !status.ended() || (control.is_lasting() && *status != Status::Succeeded);
    if open { Ok(()) } else { Err(format!("it has {}", status.past())) }
}

/// Says whether a person can allow this: a rule, and not one that a deny rule would beat anyway.
fn may_allow(policy: &Policy, host: &str) -> Result<(), String> {
    match policy.denial_of(host) {
        Ok(None) => Ok(()),
        Ok(Some((rule, by))) => Err(format!("`{rule}` is denied by the rule `{by}`, and deny beats allow")),
        Err(error) => Err(chain(&error)),
    }
}

/// Masks every word of a control.
fn masked(control: &Control, redactor: &Redactor) -> Control {
    let mask = |text: &String| redactor.redact(text).into_owned();
    match control {
        Control::Rotate { why } => Control::Rotate { why: why.as_ref().map(mask) },
        Control::SetProfile { name } => Control::SetProfile { name: mask(name) },
        Control::Note { text } => Control::Note { text: mask(text) },
        Control::Guardrail { text } => Control::Guardrail { text: mask(text) },
        Control::EditTask(edit) => Control::EditTask(TaskEdit { text: mask(&edit.text), ..edit.clone() }),
        Control::AllowHost { host } => Control::AllowHost { host: mask(host) },
        Control::DenyHost { host } => Control::DenyHost { host: mask(host) },
        Control::Pause
        | Control::Resume
        | Control::Stop
        | Control::Diagnose
        | Control::ApplyProposal { .. }
        | Control::RaiseBudget { .. } => control.clone(),
    }
}

impl Runner {
    /// Ends the run because somebody asked for it. What was committed so far is handed over, unproved as it is.
    pub(super) async fn stop(&mut self) -> Result<(), Error> {
        if let Some(open) = self.state().open.clone()
            && self.sandbox.is_some()
            && let Err(error) = self.keep_commits(&open).await
        {
            self.log(Level::Warn, format!("the commits of iteration {} stay in the sandbox: {error}", open.n))?;
        }
        self.finish(Verdict::Stopped { reason: Reason::Asked }).await
    }

    /// Carries out whatever was asked since the last step.
    pub(super) async fn take_controls(&mut self) -> Result<(), Error> {
        for asked in std::mem::take(&mut self.waiting) {
            self.control(asked).await?;
        }
        while let Ok(asked) = self.controls.try_recv() {
            self.control(asked).await?;
        }
        Ok(())
    }

    /// Hears what somebody asks while an action is under way: what does not touch it is done at once, all else waits.
    pub(super) async fn meanwhile(&mut self, asked: Asked) -> Result<(), Error> {
        if asked.control.is_prompt() {
            return Box::pin(self.control(asked)).await;
        }
        self.waiting.push(asked);
        Ok(())
    }

    pub(super) async fn control(&mut self, asked: Asked) -> Result<(), Error> {
        let Asked { control, by, answer } = asked;
        let control = self.without_secrets(&control)?;
        let told = match self.carry_out(control).await? {
            Ok(done) => {
                self.events.append(Event::ControlApplied { control: done.clone(), by: by.clone() })?;
                self.afterwards(&done, by).await?;
                Ok(())
            }
            Err(why) => Err(why),
        };
        // Whoever asked may have hung up; the event tells the rest.
        let _ = answer.send(told);
        Ok(())
    }

    /// Takes secrets out of what a person said, which is written down and shown to the model, and says so.
    fn without_secrets(&mut self, control: &Control) -> Result<Control, Error> {
        let asked = masked(control, &self.redactor);
        if asked != *control {
            self.log(Level::Warn, format!("what was said with `{}` held a secret, which was masked", control.kind()))?;
        }
        Ok(asked)
    }

    /// Does what must be done before the acknowledgement, and returns what is to be acknowledged; the inner `Err` is a
    /// refusal in words.
    async fn carry_out(&mut self, control: Control) -> Result<Result<Control, String>, Error> {
        if let Err(why) = over(&self.state().status, &control) {
            return Ok(Err(why));
        }
        match &control {
            Control::Pause => self.pause_asked = true,
            Control::Stop => self.stop_asked = true,
            Control::Note { text } => {
                let sandbox = self.sandbox()?;
                self.files.append(&*sandbox, "notes.md", &format!("\n- {}\n", text.trim())).await?;
            }
            Control::Guardrail { text } => {
                let sandbox = self.sandbox()?;
                let after = self.state().last.as_ref().map_or(0, |last| last.n);
                let sign = templates::sign("from a person", "always", text.trim(), after, "told by a person");
                self.files.append(&*sandbox, "guardrails.md", &sign).await?;
            }
            Control::SetProfile { name } => {
                if let Err(why) = self.knows(name) {
                    return Ok(Err(why));
                }
            }
            Control::Resume | Control::Rotate { .. } | Control::RaiseBudget { .. } => (),
            Control::AllowHost { host } => return Ok(may_allow(self.state().policy(), host).map(|()| control)),
            Control::DenyHost { host } => {
                return Ok(policy::expand(host).map_err(|error| chain(&error)).map(|_| control));
            }
            Control::EditTask(edit) => return Ok(self.new_task(edit).await?.map(Control::EditTask)),
            Control::ApplyProposal { number } => return Ok(self.apply_proposal(*number).await?.map(|()| control)),
            Control::Diagnose => {
                let state = self.state();
                if let Some(limit) = state.budget.forbids_call(&state.spent) {
                    let flag = limit.raise_flag();
                    let run = state.id();
                    return Ok(Err(format!("its {limit} budget is spent; ralph resume {run} {flag} raises it")));
                }
            }
        }
        Ok(Ok(control))
    }

    async fn afterwards(&mut self, control: &Control, by: String) -> Result<(), Error> {
        match control {
            Control::Resume => {
                self.pause_asked = false;
                if !self.state().status.active() {
                    self.events.append(Event::Resumed { by })?;
                }
            }
            Control::RaiseBudget { .. } => self.raise_caps(),
            Control::AllowHost { .. } | Control::DenyHost { .. } => self.policy_changed(),
            Control::EditTask(_) => self.show_task().await?,
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
    fn what_is_asked_holds_no_secret() {
        let redactor = Redactor::new([("KEY".to_owned(), Secret::new("planted-value"))]);
        let words = |word: &str| {
            let text = || format!("use {word}");
            [
                Control::Note { text: text() },
                Control::Guardrail { text: text() },
                Control::EditTask(TaskEdit { text: text(), ..TaskEdit::default() }),
                Control::Rotate { why: Some(text()) },
                Control::SetProfile { name: text() },
                Control::AllowHost { host: text() },
                Control::DenyHost { host: text() },
            ]
        };
        for (asked, want) in words("planted-value").iter().zip(words("[redacted:KEY]")) {
            assert_eq!(masked(asked, &redactor), want);
            assert_eq!(masked(&want, &redactor), want);
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
            assert_eq!(masked(&control, &redactor), control);
        }
    }
}
