//! Calls the model of an iteration: builds the prompt, reserves the cost, sends the call and records its answer.

use ralph_core::budget::BudgetKind;
use ralph_core::event::{EventLogLevel, PinnedProfile, RunStopReason, RunVerdict};
use ralph_core::text;

use super::call_failure::{FailedCall, retriable};
use super::call_record::CallRecord;
use super::finish::FinishStep;
use super::interrupts::Interrupts;
use super::iteration_prompt::PromptBuilder;
use super::model_call_files::{CallFiles, SavedAnswer, estimate_request_tokens, mask_answer};
use super::model_clients::{ModelState, RejectedCall};
use super::run_context::RunContext;
use super::send_model_call::{CallSender, SentCall};
use super::work_sandbox::WorkSandbox;
use crate::error::Error;
use crate::model::{self, CallKey, ModelErrorClass, ModelRequest};

/// After this many lost calls in a row the run pauses; the user may resume it to try again.
const MAX_LOST_CALLS: usize = 3;

/// Calls the model of an iteration once.
#[derive(Debug)]
pub(super) struct ModelCallStep<'a> {
    pub(super) run: &'a mut RunContext,
    pub(super) work: &'a mut WorkSandbox,
    pub(super) models: &'a mut ModelState,
    pub(super) interrupts: &'a mut Interrupts,
}

impl ModelCallStep<'_> {
    pub(super) async fn call(&mut self, n: u32, call: u32, reask: Option<String>) -> Result<(), Error> {
        let state = self.run.state();
        let name = state.open.as_ref().map_or_else(|| state.profile.clone(), |open| open.profile.clone());
        let Some(profile) = state.started.profiles.get(&name).cloned() else {
            return Err(Error::Profile { profile: name, why: "it is not one of the run's profiles".to_owned() });
        };
        let files = CallFiles::new(&self.run.folder.iteration(n), call);
        if let Some(kept) = files.saved_answer(&self.run.folder)? {
            return self.take_answer(n, call, &profile, kept).await;
        }
        if let Some(bytes) = self.run.folder.read(&files.reserved)? {
            return CallRecord { run: self.run, n, call, profile: &profile }.lost(&bytes, &files);
        }
        let model = match self.models.open(&self.run.host, &profile).await {
            Ok(model) => model,
            Err(error @ Error::NoKey { .. }) => {
                self.run.log(EventLogLevel::Error, error.to_string())?;
                return self.run.pause(RunStopReason::Auth { profile: profile.name });
            }
            Err(error) => return Err(error),
        };
        let (request, prompt) =
            PromptBuilder { run: self.run, work: self.work }.build_request(n, &profile, reask).await?;
        let (reservation, max_output) =
            match self.models.reserve(&self.run.state().budget, &profile, estimate_request_tokens(&request)) {
                Ok(reserved) => reserved,
                Err(RejectedCall::Limit(limit)) => return self.finish_over_budget(limit).await,
                Err(RejectedCall::Unpriced(error)) => {
                    return self.run.pause(RunStopReason::NeedsDecision { why: error.to_string() });
                }
            };
        let request = ModelRequest { max_output_tokens: max_output, ..request };
        PromptBuilder { run: self.run, work: self.work }.write_prompt(n, &prompt).await?;
        let key = CallKey::new(n, call);
        let sent = CallSender { run: self.run, work: self.work, models: self.models, interrupts: self.interrupts }
            .send(&files, &profile, &*model, &request, key, reservation, mask_answer)
            .await?;
        let failure = match sent {
            SentCall::Answered(kept) => return self.take_answer(n, call, &profile, kept).await,
            SentCall::Lost(worst, failure) => {
                CallRecord { run: self.run, n, call, profile: &profile }.lost(&worst, &files)?;
                let times = self.lost_call_count() % MAX_LOST_CALLS;
                // Each attempt may cost money, so after a wait there is one attempt, then another wait.
                if retriable(failure.class) && times > 0 && self.run.state().waited == 0 {
                    self.wait_after_loss(failure.class, times).await;
                    return Ok(());
                }
                failure
            }
            SentCall::Failed(failure) => failure,
        };
        FailedCall { run: self.run, work: self.work, models: self.models, interrupts: self.interrupts }
            .handle(&profile, &failure)
            .await
    }

    fn lost_call_count(&self) -> usize {
        let open = self.run.state().open.as_ref();
        open.map_or(0, |open| usize::try_from(open.calls).unwrap_or(usize::MAX).saturating_sub(open.invalid.len()))
    }

    async fn finish_over_budget(&mut self, limit: BudgetKind) -> Result<(), Error> {
        self.run
            .log(EventLogLevel::Warn, format!("the next call could pass the {limit} budget, so it was not made"))?;
        FinishStep { run: self.run, work: self.work, models: self.models, interrupts: self.interrupts }
            .finish(RunVerdict::Failed { reason: RunStopReason::Budget { limit } })
            .await
    }

    async fn take_answer(
        &mut self,
        n: u32,
        call: u32,
        profile: &PinnedProfile,
        kept: SavedAnswer,
    ) -> Result<(), Error> {
        let sandbox = self.work.sandbox()?;
        let shown = self.run.redactor.redact(&kept.text).into_owned();
        self.run.files.write_artefact(&*sandbox, n, "response.json", text::head(&shown, 2 << 20).as_bytes()).await?;
        CallRecord { run: self.run, n, call, profile }.answer(self.models, kept)
    }

    /// Waits before a call whose answer was lost is repeated; a stop ends the wait.
    async fn wait_after_loss(&self, class: ModelErrorClass, times: usize) {
        let tokens = self.interrupts.tokens();
        let pause = model::pause_after(class, u32::try_from(times).unwrap_or(u32::MAX), self.run.host.pace);
        tokio::select! {
            () = tokio::time::sleep(pause) => (),
            () = tokens.stopping() => (),
        }
    }
}
