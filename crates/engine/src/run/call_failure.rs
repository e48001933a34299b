//! Decides how a run goes on after a model call failed: fallback profile, wait, pause or end.

use std::time::Duration;

use ralph_core::backoff::{self, RetryCost};
use ralph_core::event::{Event, EventLogLevel, PinnedProfile, RunStopReason, RunVerdict};
use ralph_core::gutter::{LadderRung, MitigationCause};
use ralph_core::profile::ProfileEndpoint;
use ralph_core::text;

use super::finish::FinishStep;
use super::interrupts::Interrupts;
use super::model_clients::ModelState;
use super::proposals::check_profile;
use super::run_context::RunContext;
use super::work_sandbox::WorkSandbox;
use crate::error::Error;
use crate::model::{self, ModelErrorClass};

/// Handles a model call that failed.
#[derive(Debug)]
pub(super) struct FailedCall<'a> {
    pub(super) run: &'a mut RunContext,
    pub(super) work: &'a mut WorkSandbox,
    pub(super) models: &'a mut ModelState,
    pub(super) interrupts: &'a mut Interrupts,
}

impl FailedCall<'_> {
    pub(super) async fn handle(
        &mut self,
        profile: &PinnedProfile,
        failure: &model::ModelCallFailure,
    ) -> Result<(), Error> {
        if self.interrupts.is_action_aborted() || failure.class == ModelErrorClass::Stopped {
            // The user ended the call, not the provider: it is repeated when the run goes on.
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
            return pause_for_outage(self.run, why, tries);
        }
        self.run.log(EventLogLevel::Error, why.clone())?;
        match failure.class {
            ModelErrorClass::Auth => self.run.pause(RunStopReason::Auth { profile: profile.name.clone() }),
            ModelErrorClass::ScriptEnded => {
                FinishStep { run: self.run, work: self.work, models: self.models, interrupts: self.interrupts }
                    .finish(RunVerdict::Failed { reason: RunStopReason::Script { why } })
                    .await
            }
            ModelErrorClass::Untrusted => {
                let next = failure.error.hint().unwrap_or_default();
                self.run.pause(RunStopReason::Provider { why: format!("{why}; {next}") })
            }
            _ => self.run.pause(RunStopReason::Provider { why }),
        }
    }

    /// Returns the run's fallback profile if it uses another endpoint than `profile` and can be used.
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

    /// Continues the open iteration with another profile; the next iteration tries the first one again.
    async fn switch_profile(&mut self, fallback: &PinnedProfile, from: &PinnedProfile, why: &str) -> Result<(), Error> {
        let n = self.run.state().open.as_ref().map_or(0, |open| open.n);
        let text = format!("profile `{}` gets no answer, `{}` goes on: {why}", from.name, fallback.name);
        self.run.log(EventLogLevel::Warn, text.clone())?;
        let line = format!("iteration {n}: provider trouble, {}", text::strip_control(&text).replace('\n', " "));
        self.work.note_activity(&self.run.files, &line).await?;
        let (rung, profile, cause) = (LadderRung::Fallback, fallback.name.clone(), MitigationCause::Provider);
        let why = self.run.redactor.mask(&text);
        self.run.append(Event::MitigationApplied { n, rung, profile, why, cause })
    }
}

/// Pauses until the provider may answer again, a little longer each time. After too many waits it pauses for the user.
pub(super) fn pause_for_outage(run: &mut RunContext, why: String, tries: RetryCost) -> Result<(), Error> {
    let waited = run.state().waited;
    let Some(wait) = backoff::wait(waited, tries, run.time_left()) else {
        run.log(EventLogLevel::Error, format!("it was waited for {waited} times: {why}"))?;
        return run.pause(RunStopReason::Provider { why });
    };
    let until = jiff::Timestamp::now() + run.host.pace.scale(wait);
    let until = until.round(jiff::Unit::Millisecond).unwrap_or(until);
    run.log(EventLogLevel::Warn, format!("{why}; asked again in {} min", wait.as_secs() / 60))?;
    run.pause(RunStopReason::Outage { until, why })
}

/// Says whether calling once more can help.
pub(super) fn retriable(class: ModelErrorClass) -> bool {
    matches!(
        class,
        ModelErrorClass::Timeout | ModelErrorClass::Connect | ModelErrorClass::ServerError | ModelErrorClass::BadAnswer
    )
}

/// Says whether the failure may pass by itself, as an outage does. A malformed answer does not improve by waiting.
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

/// Says whether the failure is the endpoint's, so that another endpoint may not have it.
fn is_endpoint_failure(class: ModelErrorClass) -> bool {
    matches!(
        class,
        ModelErrorClass::Overloaded { .. }
            | ModelErrorClass::ServerError
            | ModelErrorClass::Connect
            | ModelErrorClass::Timeout
    )
}

/// Says whether two profiles call the same server, or play the same script.
fn same_endpoint(one: &ProfileEndpoint, other: &ProfileEndpoint) -> bool {
    match (one.host(), other.host()) {
        (None, None) => one.model == other.model,
        (one, other) => one == other,
    }
}
