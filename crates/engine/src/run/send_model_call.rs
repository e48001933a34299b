//! Sends one model call that was paid for in advance, and goes on receiving controls while it is under way.

use std::sync::Arc;
use std::time::Instant;

use ralph_core::event::{EventLogLevel, PinnedProfile};
use ralph_core::price::TokenUsage;
use ralph_core::redact::Redactor;
use ralph_proxy::ledger::Reservation;
use tokio_util::sync::CancellationToken;

use super::controls::ControlHandler;
use super::egress_events::record_failed_attempt;
use super::interrupts::{Interrupts, StopSignals, StopTokens};
use super::model_call_files::{
    CallCharge, CallFiles, ReservedCall, SavedAnswer, cost, estimate_request_tokens, remove_reservation,
};
use super::model_clients::ModelState;
use super::run_context::RunContext;
use super::work_sandbox::WorkSandbox;
use crate::error::Error;
use crate::model::{self, CallKey, LanguageModel, ModelRequest};
use crate::store::write_atomic;

/// How a call that was sent ended.
#[derive(Debug)]
pub(super) enum SentCall {
    Answered(SavedAnswer),
    /// The worst case is charged: the saved reservation, and why there is no answer.
    Lost(Vec<u8>, model::ModelCallFailure),
    Failed(model::ModelCallFailure),
}

/// Sends model calls. Controls that arrive meanwhile may touch every part of the run.
#[derive(Debug)]
pub(super) struct CallSender<'a> {
    pub(super) run: &'a mut RunContext,
    pub(super) work: &'a mut WorkSandbox,
    pub(super) models: &'a mut ModelState,
    pub(super) interrupts: &'a mut Interrupts,
}

impl CallSender<'_> {
    /// Sends a call that was paid for in advance. Its reservation is written to a file before it is sent, and its
    /// answer before it is used, so that after a crash the next process finds one of the two.
    #[expect(clippy::too_many_arguments, reason = "one call with all that is agreed about it")]
    pub(super) async fn send(
        &mut self,
        files: &CallFiles,
        profile: &PinnedProfile,
        model: &dyn LanguageModel,
        request: &ModelRequest,
        key: CallKey,
        reservation: Reservation,
        masked: impl FnOnce(&Redactor, String) -> (String, Option<String>),
    ) -> Result<SentCall, Error> {
        let (input, output) = (estimate_request_tokens(request), u64::from(request.max_output_tokens));
        let usage = TokenUsage { input, output, ..TokenUsage::default() };
        let worst_cost = reservation.worst_case().cost.max(cost(profile, &usage));
        let worst = ReservedCall { model: profile.model.clone(), usage, cost: worst_cost, own: model.audit_target() };
        if model.is_remote() {
            write_atomic(&files.reserved, &serde_json::to_vec(&worst).unwrap_or_default())?;
        }
        if let Some(own) = &worst.own {
            self.run.audit_log.engine_call_started(own, &worst.model, usage, worst_cost);
        }
        let began = Instant::now();
        let outcome = self.call_with_controls(model, request, key).await;
        let duration_ms = u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX);
        match outcome {
            Ok(reply) => {
                let paid = CallCharge { usage: reply.usage, cost: cost(profile, &reply.usage) };
                let doubt = (model.is_remote() && !reply.usage_reported).then(|| paid.worst_case(&worst));
                let CallCharge { usage, cost } = doubt.as_ref().map_or(paid, |(paid, _)| *paid);
                let (text, leaks) = masked(&self.run.redactor, reply.text);
                let (model, finish) = (reply.model, reply.finish);
                let (own, worst) = (worst.own, doubt.is_some());
                let kept = SavedAnswer { model, text, usage, cost, duration_ms, finish, leaks, own, worst };
                write_atomic(&files.answer, &serde_json::to_vec(&kept).unwrap_or_default())?;
                reservation.settle(cost, kept.usage.total());
                remove_reservation(&files.reserved);
                if let Some((_, why)) = doubt {
                    self.run.log_once(EventLogLevel::Warn, why)?;
                }
                Ok(SentCall::Answered(kept))
            }
            Err(failure) if model.is_remote() && failure.error.may_have_cost() => {
                // The provider may charge for it, so its worst case is charged, like that of a call lost in a crash.
                let worst = reservation.worst_case();
                reservation.settle(worst.cost, worst.tokens);
                let bytes = self.run.folder.read(&files.reserved)?.unwrap_or_default();
                Ok(SentCall::Lost(bytes, failure))
            }
            Err(failure) => {
                // It was never answered, so the provider charges nothing.
                reservation.release();
                remove_reservation(&files.reserved);
                Ok(SentCall::Failed(failure))
            }
        }
    }

    async fn call_with_controls(
        &mut self,
        model: &dyn LanguageModel,
        request: &ModelRequest,
        key: CallKey,
    ) -> Result<model::ModelReply, model::ModelCallFailure> {
        let StopTokens { halt, stops: StopSignals { soon, now } } = self.interrupts.tokens();
        let stop = model::CallCancellation { now: halt.child_token(), wait: CancellationToken::new() };
        let (report, mut reports) = tokio::sync::mpsc::unbounded_channel();
        let (own, audit_log) = (model.audit_target(), Arc::clone(&self.run.audit_log));
        let mut on_attempt = |error: &model::Error, next: &model::RetryDecision| {
            if let Some(own) = &own {
                record_failed_attempt(&audit_log, own, model.name(), error);
            }
            // The receiver outlives the call, so sending cannot fail.
            let _ = report.send(format!("{error}; {}", next.describe()));
        };
        let asking = model::call_with_retry(model, request, key, self.run.host.pace, &stop, &mut on_attempt);
        tokio::pin!(asking);
        let outcome = loop {
            tokio::select! {
                outcome = &mut asking => break outcome,
                Some(text) = reports.recv() => self.log_call_error(&text),
                () = now.cancelled(), if !stop.now.is_cancelled() => stop.now.cancel(),
                // Wait for a call that may cost money, but not for the time until the next attempt.
                () = soon.cancelled(), if !stop.wait.is_cancelled() => stop.wait.cancel(),
                Some(asked) = self.interrupts.next_control() => {
                    let later = !asked.control.applies_immediately();
                    let (run, work, models) = (&mut *self.run, &mut *self.work, &mut *self.models);
                    let mut handler = ControlHandler { run, work, models, interrupts: self.interrupts };
                    let handled = handler.handle_mid_action(asked).await;
                    if let Err(error) = handled {
                        self.log_call_error(&format!("what was asked could not be done: {error}"));
                    }
                    if later {
                        stop.wait.cancel();
                    }
                }
            }
        };
        while let Ok(text) = reports.try_recv() {
            self.log_call_error(&text);
        }
        outcome
    }

    /// Logs an error of a call. A failure to log is ignored: it must not lose an answer that was paid for.
    fn log_call_error(&mut self, text: &str) {
        let text = self.run.redactor.redact(text).into_owned();
        let _ = self.run.log(EventLogLevel::Warn, text);
    }
}
