//! One model session: look around, build the prompt, reserve the money, ask, write the answer down.

use std::path::{Path, PathBuf};
use std::sync::{Arc, LazyLock};
use std::time::{Duration, Instant};

use ralph_core::action::{self, ActionReply};
use ralph_core::backoff::{self, RetryCost};
use ralph_core::budget::BudgetKind;
use ralph_core::event::{Event, EventLogLevel, ModelCallOutcome, PinnedProfile, RunStopReason, RunVerdict};
use ralph_core::gutter::{LadderRung, MitigationCause};
use ralph_core::hash::sha256;
use ralph_core::money::MicroUsd;
use ralph_core::price::{TokenUsage, estimate_tokens};
use ralph_core::profile::ProfileEndpoint;
use ralph_core::prompt::{
    self, IterationPrompt, LastActions, PromptCheckbox, PromptInputs, PromptRequest, RemainingBudget,
};
use ralph_core::redact::{Redactor, SecretShape};
use ralph_core::text;
use ralph_proxy::ledger::Reservation;
use ralph_proxy::observer::ChargeBasis;
use serde::{Deserialize, Serialize};
use tokio_util::sync::CancellationToken;

use super::close_checkpoint::CloseCheckpoint;
use super::conversation;
use super::diagnose::check_profile;
use super::egress_events::record_failed_attempt;
use super::excerpts::PromptExcerpts;
use super::interrupts::{StopSignals, StopTokens};
use super::last_actions::PastActions;
use super::model_account::RejectedCall;
use super::refusals::refusals_text;
use super::runner::Runner;
use crate::audit::{EngineCallResult, EngineCallTarget};
use crate::error::Error;
use crate::git::inside::CloneStatus;
use crate::model::scripted::ScriptedReply;
use crate::model::{
    self, CallKey, ConversationRole, ConversationTurn, LanguageModel, LostCallPolicy, ModelErrorClass,
    ModelFinishReason, ModelRequest,
};
use crate::store::write_atomic;

/// The schema of an answer as a prompt shows it.
static REPLY_SCHEMA: LazyLock<String> = LazyLock::new(|| action::schema().to_string());

/// After so many lost calls in a row the run rests; a person may have it try again.
const MAX_LOST_CALLS: usize = 3;

/// An answer as it came, kept before anything is made of it.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct SavedAnswer {
    pub(super) model: String,
    pub(super) text: String,
    pub(super) usage: TokenUsage,
    pub(super) cost: MicroUsd,
    pub(super) duration_ms: u64,
    /// Missing in older runs.
    #[serde(default)]
    finish: ModelFinishReason,
    /// The name of a credential that stood where taking it out changes the answer, which is therefore not followed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) leaks: Option<String>,
    /// Where the call went, if it left the host; missing in older runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    own: Option<EngineCallTarget>,
    /// Nobody knows what it cost, so it is charged at its worst.
    #[serde(default)]
    worst: bool,
}

/// Where a call leaves its traces.
#[derive(Debug)]
pub(super) struct CallFiles {
    answer: PathBuf,
    pub(super) reserved: PathBuf,
}

impl CallFiles {
    pub(super) fn new(folder: &Path, call: u32) -> Self {
        Self {
            answer: folder.join(format!("call-{call}.json")),
            reserved: folder.join(format!("call-{call}.reserved.json")),
        }
    }
}

/// How a call that was dialled ended.
#[derive(Debug)]
pub(super) enum SentCall {
    Answered(SavedAnswer),
    /// Charged at its worst, which is what the bytes say; and why there is no answer.
    Lost(Vec<u8>, model::ModelCallFailure),
    Failed(model::ModelCallFailure),
}

/// A call that is under way; found after a crash, it was lost and is charged at its worst.
#[derive(Debug, Serialize, Deserialize)]
struct ReservedCall {
    model: String,
    usage: TokenUsage,
    cost: MicroUsd,
    /// Where the call goes; missing in older runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    own: Option<EngineCallTarget>,
}

/// What an answer is charged with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct CallCharge {
    usage: TokenUsage,
    cost: MicroUsd,
}

impl CallCharge {
    /// Returns what is charged when the provider's count is missing or cannot be true, and says so: the worst of what is
    /// known, as at the doors.
    fn worst_case(self, worst: &ReservedCall) -> (Self, String) {
        let ReservedCall { model, usage, cost, .. } = worst;
        if self.usage.total() > usage.total() {
            let paid = Self { usage: self.usage, cost: self.cost.max(*cost) };
            let tokens = paid.usage.total();
            let why = format!("`{model}` counts {tokens} tokens, more than the call can have used: charged as it says");
            return (paid, why);
        }
        let paid = Self { usage: *usage, cost: self.cost.max(*cost) };
        let why = format!("`{model}` does not say credibly what its answer cost, so it is charged at its worst");
        (paid, why)
    }
}

impl Runner {
    pub(super) async fn start_iteration(&mut self, n: u32, profile: String) -> Result<(), Error> {
        let survey = self.work.tree_status(self.run.state()).await?;
        self.work.recreated = false;
        let because = self.run.state().rotate_because.clone();
        self.models.reply = None;
        CloseCheckpoint::remove_attempt(&self.run.folder, n)?;
        self.run.append(Event::IterationStarted { n, profile, because, head: survey.head, tree: survey.tree })?;
        self.run.warn_of_budgets()
    }

    pub(super) async fn call_model(&mut self, n: u32, call: u32, reask: Option<String>) -> Result<(), Error> {
        let state = self.run.state();
        let name = state.open.as_ref().map_or_else(|| state.profile.clone(), |open| open.profile.clone());
        let Some(profile) = state.started.profiles.get(&name).cloned() else {
            return Err(Error::Profile { profile: name, why: "it is not one of the run's profiles".to_owned() });
        };
        let place = CallFiles::new(&self.run.folder.iteration(n), call);
        if let Some(kept) = self.saved_answer(&place)? {
            return self.take_answer(n, call, &profile, kept).await;
        }
        if let Some(bytes) = self.run.folder.read(&place.reserved)? {
            return self.charge_lost_call(n, call, &profile, &bytes, &place);
        }
        let model = match self.models.open(&self.run.host, &profile).await {
            Ok(model) => model,
            Err(error @ Error::NoKey { .. }) => {
                self.run.log(EventLogLevel::Error, error.to_string())?;
                return self.run.pause(RunStopReason::Auth { profile: profile.name });
            }
            Err(error) => return Err(error),
        };
        let (request, prompt) = self.build_request(n, &profile, reask).await?;
        let (reservation, max_output) =
            match self.models.reserve(&self.run.state().budget, &profile, estimate_request_tokens(&request)) {
                Ok(reserved) => reserved,
                Err(RejectedCall::Limit(limit)) => return self.finish_over_budget(limit).await,
                Err(RejectedCall::Unpriced(error)) => {
                    return self.run.pause(RunStopReason::NeedsDecision { why: error.to_string() });
                }
            };
        let request = ModelRequest { max_output_tokens: max_output, ..request };
        self.write_prompt(n, &prompt).await?;
        let key = CallKey::new(n, call);
        match self.send_call(&place, &profile, &*model, &request, key, reservation, mask_answer).await? {
            SentCall::Answered(kept) => self.take_answer(n, call, &profile, kept).await,
            SentCall::Lost(worst, failure) => {
                self.charge_lost_call(n, call, &profile, &worst, &place)?;
                let times = self.lost_call_count() % MAX_LOST_CALLS;
                // Each may be paid for, so who has waited already tries once and waits again.
                if retriable(failure.class) && times > 0 && self.run.state().waited == 0 {
                    self.wait_after_loss(failure.class, times).await;
                    return Ok(());
                }
                self.handle_failed_call(&profile, &failure).await
            }
            SentCall::Failed(failure) => self.handle_failed_call(&profile, &failure).await,
        }
    }

    /// Returns the answer of a call that was made before, whole.
    pub(super) fn saved_answer(&self, place: &CallFiles) -> Result<Option<SavedAnswer>, Error> {
        let bytes = self.run.folder.read(&place.answer)?;
        Ok(bytes.and_then(|bytes| serde_json::from_slice(&bytes).ok()))
    }

    /// Makes a call that was paid for in advance. What it may cost stands in a file before it is dialled, and its answer
    /// does before anything is made of it; a process that comes after finds one of the two.
    #[expect(clippy::too_many_arguments, reason = "one call with all that is agreed about it")]
    pub(super) async fn send_call(
        &mut self,
        place: &CallFiles,
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
            write_atomic(&place.reserved, &serde_json::to_vec(&worst).unwrap_or_default())?;
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
                write_atomic(&place.answer, &serde_json::to_vec(&kept).unwrap_or_default())?;
                reservation.settle(cost, kept.usage.total());
                remove_reservation(&place.reserved);
                if let Some((_, why)) = doubt {
                    self.run.log_once(EventLogLevel::Warn, why)?;
                }
                Ok(SentCall::Answered(kept))
            }
            Err(failure) if model.is_remote() && failure.error.may_have_cost() => {
                // The provider may charge for it, so we do: at its worst, like a call lost to a crash.
                let worst = reservation.worst_case();
                reservation.settle(worst.cost, worst.tokens);
                let bytes = self.run.folder.read(&place.reserved)?.unwrap_or_default();
                Ok(SentCall::Lost(bytes, failure))
            }
            Err(failure) => {
                // It was never answered, and nobody charges for it.
                reservation.release();
                remove_reservation(&place.reserved);
                Ok(SentCall::Failed(failure))
            }
        }
    }

    fn lost_call_count(&self) -> usize {
        let open = self.run.state().open.as_ref();
        open.map_or(0, |open| usize::try_from(open.calls).unwrap_or(usize::MAX).saturating_sub(open.invalid.len()))
    }

    async fn call_with_controls(
        &mut self,
        model: &dyn LanguageModel,
        request: &ModelRequest,
        key: CallKey,
    ) -> Result<model::ModelReply, model::ModelCallFailure> {
        let StopTokens { halt, stops: StopSignals { soon, now } } = self.interrupts.tokens();
        let stop = model::CallCancellation { now: halt.child_token(), wait: CancellationToken::new() };
        let (tell, mut told) = tokio::sync::mpsc::unbounded_channel();
        let (own, book) = (model.audit_target(), Arc::clone(&self.run.audit_log));
        let mut on_attempt = |error: &model::Error, next: &model::RetryDecision| {
            if let Some(own) = &own {
                record_failed_attempt(&book, own, model.name(), error);
            }
            // Whoever listens does so to the end.
            let _ = tell.send(format!("{error}; {}", next.describe()));
        };
        let asking = model::call_with_retry(model, request, key, self.run.host.pace, &stop, &mut on_attempt);
        tokio::pin!(asking);
        let outcome = loop {
            tokio::select! {
                outcome = &mut asking => break outcome,
                Some(text) = told.recv() => self.log_call_error(&text),
                () = now.cancelled(), if !stop.now.is_cancelled() => stop.now.cancel(),
                // A call that may be paid for is waited for; the time until the next one is not.
                () = soon.cancelled(), if !stop.wait.is_cancelled() => stop.wait.cancel(),
                Some(asked) = self.interrupts.next_control() => {
                    let later = !asked.control.applies_immediately();
                    if let Err(error) = self.handle_control_mid_action(asked).await {
                        self.log_call_error(&format!("what was asked could not be done: {error}"));
                    }
                    if later {
                        stop.wait.cancel();
                    }
                }
            }
        };
        while let Ok(text) = told.try_recv() {
            self.log_call_error(&text);
        }
        outcome
    }

    /// Losing a log line must not lose the answer that was paid for.
    fn log_call_error(&mut self, text: &str) {
        let text = self.run.redactor.redact(text).into_owned();
        let _ = self.run.log(EventLogLevel::Warn, text);
    }

    async fn finish_over_budget(&mut self, limit: BudgetKind) -> Result<(), Error> {
        self.run
            .log(EventLogLevel::Warn, format!("the next call could pass the {limit} budget, so it was not made"))?;
        self.finish_run(RunVerdict::Failed { reason: RunStopReason::Budget { limit } }).await
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
        self.record_answer(n, call, profile, kept)
    }

    /// Takes an answer up and tells of it.
    pub(super) fn record_answer(
        &mut self,
        n: u32,
        call: u32,
        profile: &PinnedProfile,
        kept: SavedAnswer,
    ) -> Result<(), Error> {
        let answers = self.run.state().open.as_ref().map_or(0, |open| open.invalid.len());
        let key = CallKey::new(n, u32::try_from(answers).unwrap_or(u32::MAX));
        conversation::record(&self.run.folder, &recorded_reply(key, &kept))?;
        let answer = match action::parse(&kept.text) {
            _ if kept.leaks.is_some() => {
                let name = kept.leaks.clone().unwrap_or_default();
                self.run.log(
                    EventLogLevel::Warn,
                    format!("the model's answer held the secret `{name}`, so it was not followed"),
                )?;
                ModelCallOutcome::Invalid { error: format!("it holds the credential {name}, which no answer may hold") }
            }
            Ok(parsed) => {
                let count = u32::try_from(parsed.reply.actions.len()).unwrap_or(u32::MAX);
                self.models.reply = Some((n, parsed.reply));
                ModelCallOutcome::Actions { count, response: sha256(kept.text.as_bytes()) }
            }
            Err(invalid) => {
                ModelCallOutcome::Invalid { error: self.run.redactor.redact(&invalid.message).into_owned() }
            }
        };
        self.record_call(n, call, profile, kept, answer)
    }

    /// Tells of a call that was answered.
    pub(super) fn record_call(
        &mut self,
        n: u32,
        call: u32,
        profile: &PinnedProfile,
        kept: SavedAnswer,
        answer: ModelCallOutcome,
    ) -> Result<(), Error> {
        let SavedAnswer { model, usage, cost, duration_ms, own, worst, .. } = kept;
        let (profile, called) = (profile.name.clone(), model.clone());
        self.run.append(Event::ModelCalled { n, call, profile, model, answer, usage, cost, duration_ms })?;
        if let Some(own) = own {
            let charge = if worst { ChargeBasis::Worst } else { ChargeBasis::Reported };
            let (status, why) = (Some(200), None);
            self.run
                .audit_log
                .engine_call_ended(&own, &EngineCallResult { model: &called, status, why, usage, cost, charge });
        }
        self.run.warn_of_budgets()
    }

    /// Charges a call whose answer nobody has at its worst, which is what the bytes say.
    pub(super) fn charge_lost_call(
        &mut self,
        n: u32,
        call: u32,
        profile: &PinnedProfile,
        reserved: &[u8],
        place: &CallFiles,
    ) -> Result<(), Error> {
        let worst: ReservedCall = serde_json::from_slice(reserved).unwrap_or(ReservedCall {
            model: profile.model.clone(),
            usage: TokenUsage::default(),
            cost: MicroUsd::ZERO,
            own: None,
        });
        let told = worst.own.map(|own| (own, worst.model.clone()));
        self.run.append(Event::ModelCalled {
            n,
            call,
            profile: profile.name.clone(),
            model: worst.model,
            answer: ModelCallOutcome::Lost,
            usage: worst.usage,
            cost: worst.cost,
            duration_ms: 0,
        })?;
        if let Some((own, model)) = told {
            let (usage, cost, why) = (worst.usage, worst.cost, Some("its answer was lost"));
            self.run.audit_log.engine_call_ended(
                &own,
                &EngineCallResult { model: &model, status: None, why, usage, cost, charge: ChargeBasis::Worst },
            );
        }
        // It is in the events now. An iteration that begins again would charge it a second time.
        remove_reservation(&place.reserved);
        self.run.warn_of_budgets()
    }

    /// Waits before a question whose answer was lost is asked anew; a wish to stop ends the wait.
    async fn wait_after_loss(&self, class: ModelErrorClass, times: usize) {
        let tokens = self.interrupts.tokens();
        let pause = model::pause_after(class, u32::try_from(times).unwrap_or(u32::MAX), self.run.host.pace);
        tokio::select! {
            () = tokio::time::sleep(pause) => (),
            () = tokens.stopping() => (),
        }
    }

    async fn handle_failed_call(
        &mut self,
        profile: &PinnedProfile,
        failure: &model::ModelCallFailure,
    ) -> Result<(), Error> {
        if self.interrupts.is_action_aborted() || failure.class == ModelErrorClass::Stopped {
            // Somebody ended it, not the provider: it is asked again when the run goes on.
            return Ok(());
        }
        let why = self.run.redactor.redact(&failure.error.to_string()).into_owned();
        if is_endpoint_failure(failure.class)
            && let Some(fallback) = self.usable_fallback(profile).await?
        {
            return self.switch_profile(&fallback, profile, &why).await;
        }
        if let Some(wait) = failure.park {
            let until = jiff::Timestamp::now() + wait.min(Duration::from_hours(24 * 30));
            return self.run.pause(RunStopReason::Quota { until });
        }
        if is_transient(failure) {
            let tries = if failure.error.may_have_cost() { RetryCost::Paid } else { RetryCost::Free };
            return self.pause_for_outage(why, tries);
        }
        self.run.log(EventLogLevel::Error, why.clone())?;
        match failure.class {
            ModelErrorClass::Auth => self.run.pause(RunStopReason::Auth { profile: profile.name.clone() }),
            ModelErrorClass::ScriptEnded => {
                self.finish_run(RunVerdict::Failed { reason: RunStopReason::Script { why } }).await
            }
            ModelErrorClass::Untrusted => {
                let next = failure.error.hint().unwrap_or_default();
                self.run.pause(RunStopReason::Provider { why: format!("{why}; {next}") })
            }
            _ => self.run.pause(RunStopReason::Provider { why }),
        }
    }

    /// Rests until the provider may answer again, a little longer each time; asks for a person when it has waited long
    /// enough.
    pub(super) fn pause_for_outage(&mut self, why: String, tries: RetryCost) -> Result<(), Error> {
        let waited = self.run.state().waited;
        let Some(wait) = backoff::wait(waited, tries, self.run.time_left()) else {
            self.run.log(EventLogLevel::Error, format!("it was waited for {waited} times: {why}"))?;
            return self.run.pause(RunStopReason::Provider { why });
        };
        let until = jiff::Timestamp::now() + self.run.host.pace.scale(wait);
        let until = until.round(jiff::Unit::Millisecond).unwrap_or(until);
        self.run.log(EventLogLevel::Warn, format!("{why}; asked again in {} min", wait.as_secs() / 60))?;
        self.run.pause(RunStopReason::Outage { until, why })
    }

    /// Returns the run's fallback profile when it asks at another endpoint than this one and can be used.
    async fn usable_fallback(&mut self, profile: &PinnedProfile) -> Result<Option<PinnedProfile>, Error> {
        let fallback = self.run.state().started.profiles.fallback.clone();
        let Some(fallback) = fallback.filter(|fallback| fallback.name != profile.name) else { return Ok(None) };
        let same = match (self.run.host.endpoint(profile), self.run.host.endpoint(&fallback)) {
            (Ok(here), Ok(there)) => same_endpoint(&here, &there),
            _ => true,
        };
        if same {
            return Ok(None);
        }
        if let Err(why) = check_profile(self.run.state(), &fallback.name) {
            self.run.log_once(
                EventLogLevel::Warn,
                format!("the fallback profile `{}` cannot take over: {why}", fallback.name),
            )?;
            return Ok(None);
        }
        if let Err(error) = self.models.open(&self.run.host, &fallback).await {
            self.run.log(
                EventLogLevel::Warn,
                format!("the fallback profile `{}` cannot take over: {error}", fallback.name),
            )?;
            return Ok(None);
        }
        Ok(Some(fallback))
    }

    /// Lets the open iteration go on with another profile; the next one asks the first again.
    async fn switch_profile(&mut self, fallback: &PinnedProfile, from: &PinnedProfile, why: &str) -> Result<(), Error> {
        let n = self.run.state().open.as_ref().map_or(0, |open| open.n);
        let text = format!("profile `{}` gets no answer, `{}` goes on: {why}", from.name, fallback.name);
        self.run.log(EventLogLevel::Warn, text.clone())?;
        let line = format!("iteration {n}: provider trouble, {}", text::strip_control(&text).replace('\n', " "));
        self.work.note_activity(&self.run.files, &line).await?;
        let (rung, profile, cause) = (LadderRung::Fallback, fallback.name.clone(), MitigationCause::Provider);
        self.run.append(Event::MitigationApplied { n, rung, profile, why: text, cause })
    }

    /// Returns the answer the open iteration works through, from memory or from its artefact.
    pub(super) fn current_reply(&mut self, n: u32) -> Result<ActionReply, Error> {
        if self.run.state().started.agent.is_some() {
            return self.session_reply(n);
        }
        if let Some((of, reply)) = &self.models.reply
            && *of == n
        {
            return Ok(reply.clone());
        }
        let calls = self.run.state().open.as_ref().map_or(0, |open| open.calls);
        for call in (0..calls).rev() {
            let path = self.run.folder.iteration(n).join(format!("call-{call}.json"));
            if let Some(bytes) = self.run.folder.read(&path)?
                && let Ok(kept) = serde_json::from_slice::<SavedAnswer>(&bytes)
                && kept.leaks.is_none()
                && let Ok(parsed) = action::parse(&kept.text)
            {
                self.models.reply = Some((n, parsed.reply.clone()));
                return Ok(parsed.reply);
            }
        }
        let run = self.run.folder.id();
        let why = format!("the answer of iteration {n} is missing from its folder");
        Err(Error::CannotResume { hint: format!("ralph resume --recreate {run}"), run, why })
    }

    async fn build_request(
        &mut self,
        n: u32,
        profile: &PinnedProfile,
        reask: Option<String>,
    ) -> Result<(ModelRequest, IterationPrompt), Error> {
        let survey = self.work.tree_status(self.run.state()).await?;
        let prompt = self.build_prompt(n, &survey).await?;
        let mut history = Vec::new();
        if let Some(error) = reask {
            let wrong = self.last_answer(n)?;
            history.push(ConversationTurn {
                role: ConversationRole::Assistant,
                text: text::head(&wrong, 32 << 10).to_owned(),
            });
            history.push(ConversationTurn { role: ConversationRole::User, text: prompt::retry_message(&error) });
        }
        let request = ModelRequest {
            system: prompt.system.clone(),
            user: prompt.user.clone(),
            history,
            max_output_tokens: profile.max_output_tokens,
            temperature: profile.temperature,
            json: true,
            on_lost: LostCallPolicy::Report,
            timeout: Duration::from_secs(profile.timeout_s).min(self.run.time_left()),
            extra: profile.extra.clone().into_iter().collect(),
        };
        Ok((request, prompt))
    }

    fn last_answer(&self, n: u32) -> Result<String, Error> {
        let calls = self.run.state().open.as_ref().map_or(0, |open| open.calls);
        for call in (0..calls).rev() {
            let path = self.run.folder.iteration(n).join(format!("call-{call}.json"));
            if let Some(bytes) = self.run.folder.read(&path)?
                && let Ok(kept) = serde_json::from_slice::<SavedAnswer>(&bytes)
            {
                return Ok(kept.text);
            }
        }
        Ok(String::new())
    }

    pub(super) async fn build_prompt(&mut self, n: u32, survey: &CloneStatus) -> Result<IterationPrompt, Error> {
        let sandbox = self.work.sandbox()?;
        let read = PromptExcerpts::read(&self.run.files, &*sandbox, n).await?;
        // An agent sees for itself what its commands print.
        let done = if self.run.state().started.agent.is_some() {
            None
        } else {
            PastActions::load_before(&self.run.folder, n)?
        };
        let actions = done.as_ref().map(PastActions::as_prompt).unwrap_or_default();
        let task = self.run.task_text()?;
        let refused = refusals_text(&self.run.folder, n)?;
        let state = self.run.state();
        let boxes: Vec<PromptCheckbox<'_>> = state
            .started
            .boxes
            .iter()
            .map(|pinned| PromptCheckbox { id: &pinned.id, verified: state.verified.contains(&pinned.id) })
            .collect();
        let scores: Vec<f64> = state.scores.iter().rev().take(5).rev().copied().collect();
        let parts = state.started.pinned_parts.iter().map(ralph_core::proof::PinnedSection::description);
        let whole = state.started.protected_paths.iter().chain(&state.started.proof_files).cloned();
        let protected: Vec<String> = whole.chain(parts).collect();
        let because = state.open.as_ref().and_then(|open| open.because.clone());
        let inputs = PromptInputs {
            nonce: &ralph_core::hash::short_sha256(state.started.run.as_bytes()),
            run: &state.started.run,
            iteration: n,
            task: &task,
            task_file: &state.started.task_path,
            guardrails: &read.guardrails,
            progress: &read.progress,
            notes: &read.notes,
            errors_log: &read.errors,
            git_status: &survey.status,
            diffstat: &survey.diffstat,
            test_output: &read.test_output,
            tested_in: read.tested_in,
            left: RemainingBudget {
                iterations: Some(state.budget.iterations.saturating_sub(n)),
                minutes: Some(self.run.time_left().as_secs() / 60),
                cost: state.budget.cost.map(|cost| cost.saturating_sub(state.spent.cost)),
                tokens: state.budget.tokens.map(|tokens| tokens.saturating_sub(state.spent.tokens)),
            },
            scores: &scores,
            rotated_because: because.as_deref(),
            last_actions: done.as_ref().map(|done| LastActions { iteration: done.iteration, actions: &actions }),
            refused: &refused,
            ask: match &state.started.agent {
                Some(_) => PromptRequest::Agent { notes_file: ".ralph/notes.md" },
                None => PromptRequest::Actions { schema: &REPLY_SCHEMA, examples: action::example() },
            },
            test_command: &state.started.test_command,
            boxes: &boxes,
            protected_paths: &protected,
        };
        Ok(prompt::build_from_ends(&inputs, &read.unread))
    }

    pub(super) async fn write_prompt(&mut self, n: u32, prompt: &IterationPrompt) -> Result<(), Error> {
        let sandbox = self.work.sandbox()?;
        let whole = format!("{}\n\n{}", prompt.system, prompt.user);
        let shown = self.run.redactor.redact(&whole).into_owned();
        self.run.files.write_artefact(&*sandbox, n, "prompt.md", shown.as_bytes()).await
    }
}

/// Takes known secrets out of an answer before it is written down. Where that changes what the answer says, the name of
/// the secret comes along: an answer that is not the model's own is not to be followed.
fn mask_answer(redactor: &Redactor, text: String) -> (String, Option<String>) {
    let known = |text: &str| {
        let found = redactor.find(text).into_iter().find(|found| matches!(found.shape, SecretShape::Known(_)));
        found.map(|found| found.shape.to_string())
    };
    let said = |text: &str| action::parse(text).ok().map(|parsed| parsed.reply);
    let mask = |text: &str| redactor.redact_and_report("an answer of the model", text).into_owned();
    if let Some(name) = known(&text) {
        let masked = mask(&text);
        let same = said(&masked) == said(&text);
        return (masked, (!same).then_some(name));
    }
    // Escaped letter by letter it is not to be seen in the text, and yet said.
    let plain = said(&text).and_then(|reply| serde_json::to_string(&reply).ok()).unwrap_or_default();
    match known(&plain) {
        Some(name) => (mask(&plain), Some(name)),
        None => (text, None),
    }
}

/// Tells whether asking once more can help.
fn retriable(class: ModelErrorClass) -> bool {
    matches!(
        class,
        ModelErrorClass::Timeout | ModelErrorClass::Connect | ModelErrorClass::ServerError | ModelErrorClass::BadAnswer
    )
}

/// Tells whether the trouble may pass by itself, as an outage does. What has the wrong shape keeps it.
fn is_transient(failure: &model::ModelCallFailure) -> bool {
    match failure.class {
        ModelErrorClass::RateLimited { .. }
        | ModelErrorClass::Overloaded { .. }
        | ModelErrorClass::ServerError
        | ModelErrorClass::Timeout
        | ModelErrorClass::Connect => true,
        ModelErrorClass::BadAnswer => matches!(failure.error, model::Error::Cut { .. }),
        ModelErrorClass::Auth
        | ModelErrorClass::Quota
        | ModelErrorClass::ContextTooLong
        | ModelErrorClass::BadRequest
        | ModelErrorClass::NotFoundModel
        | ModelErrorClass::Untrusted
        | ModelErrorClass::Refused
        | ModelErrorClass::ScriptEnded
        | ModelErrorClass::Stopped => false,
    }
}

/// Tells whether the trouble is one of the endpoint's, which another endpoint does not have.
fn is_endpoint_failure(class: ModelErrorClass) -> bool {
    matches!(
        class,
        ModelErrorClass::Overloaded { .. }
            | ModelErrorClass::ServerError
            | ModelErrorClass::Connect
            | ModelErrorClass::Timeout
    )
}

/// Tells whether two profiles ask the same server, or play the same script.
fn same_endpoint(one: &ProfileEndpoint, other: &ProfileEndpoint) -> bool {
    match (one.host(), other.host()) {
        (None, None) => one.model == other.model,
        (one, other) => one == other,
    }
}

/// Estimates what a question weighs.
pub(super) fn estimate_request_tokens(request: &ModelRequest) -> u64 {
    request.texts().map(estimate_tokens).sum()
}

fn cost(profile: &PinnedProfile, usage: &TokenUsage) -> MicroUsd {
    profile.price.as_ref().map_or(MicroUsd::ZERO, |price| price.cost(usage))
}

fn remove_reservation(path: &Path) {
    // When it stays, a resume charges the call at its worst: the safe side.
    let _ = std::fs::remove_file(path);
}

/// Returns an answer as a replay gives it.
pub(super) fn recorded_reply(key: CallKey, kept: &SavedAnswer) -> ScriptedReply {
    let SavedAnswer { model, text, usage, finish, leaks, .. } = kept;
    let (model, usage, finish) = (model.clone(), *usage, finish.clone());
    let text = match leaks {
        None => text.clone(),
        // It was not followed, and with the secret masked it would be.
        Some(name) => format!("[an answer that held the secret `{name}`]"),
    };
    ScriptedReply::of(key, &model::ModelReply { text, usage, usage_reported: true, model, finish, raw_bytes: 0 })
}

#[cfg(test)]
mod tests {
    use ralph_core::secret::Secret;

    use super::*;

    #[test]
    fn a_count_that_cannot_be_true_is_charged_at_the_worst_of_what_is_known() {
        let paid = |input, output, cost| CallCharge {
            usage: TokenUsage { input, output, ..TokenUsage::default() },
            cost: MicroUsd(cost),
        };
        let CallCharge { usage, cost } = paid(1000, 4000, 90);
        let worst = ReservedCall { model: "m".to_owned(), usage, cost, own: None };
        for (said, want) in [
            (paid(10, 20, 1), paid(1000, 4000, 90)),
            (paid(120_000, 2000, 700), paid(120_000, 2000, 700)),
            // Cheap by the price of a cache: the worst case stays the least.
            (paid(6000, 20, 30), paid(6000, 20, 90)),
        ] {
            assert_eq!(said.worst_case(&worst).0, want);
        }
    }

    fn leak(text: &str) -> (String, Option<String>) {
        let redactor = Redactor::new([("KEY".to_owned(), Secret::new("planted-value"))]);
        mask_answer(&redactor, text.to_owned())
    }

    #[track_caller]
    fn check(text: &str, want: (&str, Option<&str>)) {
        let (masked, leaks) = leak(text);
        assert_eq!((masked.as_str(), leaks.as_deref()), want);
    }

    #[test]
    fn answers_that_hold_a_secret() {
        let answer =
            |message: &str| format!(r#"{{"summary":"x","actions":[{{"type":"commit","message":"{message}"}}]}}"#);
        check(&answer("all is well"), (&answer("all is well"), None));
        check(&answer("it is planted-value"), (&answer("it is [redacted:KEY]"), Some("KEY")));
        let (masked, leaks) = leak(&answer("it is \\u0070lanted-value"));
        assert!(masked.contains("it is [redacted:KEY]") && !masked.contains("lanted-value"), "{masked}");
        assert_eq!(leaks.as_deref(), Some("KEY"));
        // Around an answer it changes nothing.
        let around = |word: &str| format!("The key is {word}.\n```json\n{}\n```", answer("all is well"));
        check(&around("planted-value"), (&around("[redacted:KEY]"), None));
        // What is no answer stays none, and is asked for again for that.
        check("planted-value", ("[redacted:KEY]", None));
        // What only looks like a secret may be the work itself: a test of a parser for tokens.
        let shaped = answer(&["gh", "p_q8Wz7Xv6Cu5Tb4Sn3Rm2Pl1Kk0Jj9Ii8Hh7G"].concat());
        check(&shaped, (&shaped, None));
    }
}
