//! Decides whether, when and how often a failed call is retried.
//!
//! `retry_decision` is pure; `call_with_retry` only waits. Provider errors use up no iteration, but every call may
//! cost money, so calls are bounded: per class of error and in total.

use std::collections::HashMap;
use std::time::Duration;

use tokio_util::sync::CancellationToken;

use super::{CallKey, Error, LanguageModel, LostCallPolicy, ModelErrorClass, ModelReply, ModelRequest};

/// The most calls that one request may cause, whatever mixture of errors it meets.
pub const MAX_CALLS: u32 = 12;

const FIRST_WAIT: Duration = Duration::from_millis(500);
const LONGEST_WAIT: Duration = Duration::from_secs(30);
/// A run does not sleep longer than this: it parks and reports until when.
const LONGEST_RESET: Duration = Duration::from_mins(1);

/// Scales the pauses between calls: 1 in real runs, larger for a rehearsal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RetryPace(u32);

impl Default for RetryPace {
    fn default() -> Self {
        Self(1)
    }
}

impl RetryPace {
    /// Makes every pause this many times shorter.
    pub fn faster(by: u32) -> Self {
        Self(by.max(1))
    }

    /// Returns a pause scaled to this pace.
    pub fn scale(self, pause: Duration) -> Duration {
        pause / self.0
    }
}

/// What follows a failed call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RetryDecision {
    Retry {
        after: Duration,
    },
    /// The provider states when it will answer again, and that is too long to sleep through.
    Park {
        until: Duration,
    },
    GiveUp,
}

impl RetryDecision {
    /// Returns the same decision with its pause scaled.
    fn scaled(self, pace: RetryPace) -> Self {
        match self {
            Self::Retry { after } => Self::Retry { after: pace.scale(after) },
            Self::Park { until } => Self::Park { until: pace.scale(until) },
            Self::GiveUp => Self::GiveUp,
        }
    }

    /// Describes what follows, for the user.
    pub fn describe(&self) -> String {
        match self {
            Self::Retry { after } => format!("retrying in {:.1} s", after.as_secs_f64()),
            Self::Park { until } => format!("the provider answers again in {} s", until.as_secs()),
            Self::GiveUp => "not retried".to_owned(),
        }
    }
}

/// Decides what follows the `attempt`-th failure (counted from 1) of one class; `jitter` is in `0.0..=1.0`.
pub fn retry_decision(class: ModelErrorClass, attempt: u32, jitter: f64) -> RetryDecision {
    let reset = match class {
        ModelErrorClass::RateLimited { reset } | ModelErrorClass::Overloaded { reset } => reset,
        _ => None,
    };
    match reset {
        Some(reset) if reset > LONGEST_RESET => RetryDecision::Park { until: reset },
        // A short limit that does not end is a long one: the run waits instead of failing.
        Some(_) if attempt >= max_attempts(class) => RetryDecision::Park { until: LONGEST_RESET },
        Some(reset) if reset > Duration::ZERO => RetryDecision::Retry { after: reset },
        _ if attempt >= max_attempts(class) => RetryDecision::GiveUp,
        _ => RetryDecision::Retry { after: backoff(attempt, jitter) },
    }
}

/// Returns how long to wait after the `times`-th lost call in a row, before the request is sent again.
pub fn pause_after(class: ModelErrorClass, times: u32, pace: RetryPace) -> Duration {
    match retry_decision(class, times, jitter()) {
        RetryDecision::Retry { after } => pace.scale(after),
        RetryDecision::Park { .. } | RetryDecision::GiveUp => Duration::ZERO,
    }
}

/// Returns how many calls may fail with this class before it is final.
pub fn max_attempts(class: ModelErrorClass) -> u32 {
    match class {
        ModelErrorClass::RateLimited { .. } | ModelErrorClass::Overloaded { .. } => 8,
        ModelErrorClass::Connect => 6,
        ModelErrorClass::ServerError => 5,
        // Each of these may have been charged.
        ModelErrorClass::Timeout | ModelErrorClass::BadAnswer => 3,
        ModelErrorClass::Auth
        | ModelErrorClass::Quota
        | ModelErrorClass::ContextTooLong
        | ModelErrorClass::BadRequest
        | ModelErrorClass::NotFoundModel
        | ModelErrorClass::Untrusted
        | ModelErrorClass::Refused
        | ModelErrorClass::ScriptEnded
        | ModelErrorClass::Stopped => 1,
    }
}

/// Doubles from half a second to half a minute; the jitter removes up to half, so that runs do not retry in step.
fn backoff(attempt: u32, jitter: f64) -> Duration {
    let doublings = attempt.saturating_sub(1).min(10);
    let whole = FIRST_WAIT.saturating_mul(1 << doublings).min(LONGEST_WAIT);
    let jitter = if jitter.is_nan() { 0.0 } else { jitter.clamp(0.0, 1.0) };
    whole.mul_f64(1.0 - 0.5 * jitter)
}

/// A call that stays without an answer.
#[derive(Debug, thiserror::Error)]
#[error("no answer from the model after {attempts} {}", if *attempts == 1 { "call" } else { "calls" })]
pub struct ModelCallFailure {
    /// The last error.
    #[source]
    pub error: Error,
    pub class: ModelErrorClass,
    /// How many calls were made.
    pub attempts: u32,
    /// Set if it is worth calling again after this time.
    pub park: Option<Duration>,
}

/// Cancels a call before its answer.
#[derive(Debug, Clone, Default)]
pub struct CallCancellation {
    /// Cancels everything, including a call in flight.
    pub now: CancellationToken,
    /// Cancels the wait between two calls, but no call.
    pub wait: CancellationToken,
}

/// Calls the model, and retries while that can help.
///
/// `on_attempt` receives every failed call and the decision that follows, before the wait; it can end the loop through
/// `stop`. Attempts are counted from `key.attempt`. The future may be dropped at any time.
pub async fn call_with_retry(
    model: &dyn LanguageModel,
    request: &ModelRequest,
    key: CallKey,
    pace: RetryPace,
    stop: &CallCancellation,
    on_attempt: &mut (dyn FnMut(&Error, &RetryDecision) + Send),
) -> Result<ModelReply, ModelCallFailure> {
    let mut seen: HashMap<&'static str, u32> = HashMap::new();
    let mut attempts = 0;
    loop {
        if stop.now.is_cancelled() {
            return Err(cancelled_while_waiting(model, attempts));
        }
        let this = key.attempt(key.attempt.saturating_add(attempts));
        attempts += 1;
        let outcome = tokio::select! {
            biased;
            () = stop.now.cancelled() => return Err(stopped(model, attempts)),
            outcome = model.call(request, this) => outcome,
        };
        let error = match outcome {
            Ok(reply) => return Ok(reply),
            Err(error) => error,
        };
        let class = error.class();
        let times = seen.entry(class.name()).or_default();
        *times += 1;
        let next = match retry_decision(class, *times, jitter()).scaled(pace) {
            RetryDecision::Retry { .. } if attempts >= MAX_CALLS => RetryDecision::GiveUp,
            RetryDecision::Retry { .. }
                if request.on_lost == LostCallPolicy::Report && model.is_remote() && error.may_have_cost() =>
            {
                RetryDecision::GiveUp
            }
            next => next,
        };
        tracing::debug!(model = model.name(), class = class.name(), attempts, ?next, "model call failed");
        on_attempt(&error, &next);
        let park = match next {
            RetryDecision::Retry { after } => {
                tokio::select! {
                    biased;
                    () = stop.now.cancelled() => return Err(cancelled_while_waiting(model, attempts)),
                    () = stop.wait.cancelled() => return Err(cancelled_while_waiting(model, attempts)),
                    () = tokio::time::sleep(after) => continue,
                }
            }
            RetryDecision::Park { until } => Some(until),
            RetryDecision::GiveUp => None,
        };
        return Err(ModelCallFailure { error, class, attempts, park });
    }
}

fn stopped(model: &dyn LanguageModel, attempts: u32) -> ModelCallFailure {
    ModelCallFailure {
        error: Error::Stopped { model: model.name().to_owned() },
        class: ModelErrorClass::Stopped,
        attempts,
        park: None,
    }
}

/// No call was in flight when it ended, so nothing is charged.
fn cancelled_while_waiting(model: &dyn LanguageModel, attempts: u32) -> ModelCallFailure {
    ModelCallFailure {
        error: Error::CancelledWhileWaiting { model: model.name().to_owned() },
        ..stopped(model, attempts)
    }
}

fn jitter() -> f64 {
    // Without randomness, the middle is as good as any value.
    getrandom::u32().map_or(0.5, |random| f64::from(random) / f64::from(u32::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn retry(ms: u64) -> RetryDecision {
        RetryDecision::Retry { after: Duration::from_millis(ms) }
    }

    const fn park(seconds: u64) -> RetryDecision {
        RetryDecision::Park { until: Duration::from_secs(seconds) }
    }

    const fn rate(ms: u64) -> ModelErrorClass {
        ModelErrorClass::RateLimited { reset: Some(Duration::from_millis(ms)) }
    }

    #[test]
    fn policies() {
        let unstated = ModelErrorClass::RateLimited { reset: None };
        let busy = ModelErrorClass::Overloaded { reset: None };
        for (class, attempt, jitter, want) in [
            (unstated, 1, 0.0, retry(500)),
            (unstated, 1, 1.0, retry(250)),
            (unstated, 2, 0.5, retry(750)),
            (unstated, 4, 0.0, retry(4_000)),
            (unstated, 7, 0.0, retry(30_000)),
            (unstated, 8, 0.0, RetryDecision::GiveUp),
            (rate(10), 1, 0.0, retry(10)),
            (rate(0), 1, 0.0, retry(500)),
            (rate(60_000), 3, 0.9, retry(60_000)),
            (rate(61_000), 1, 0.0, park(61)),
            (rate(5_000), 8, 0.0, park(60)),
            (rate(0), 8, 0.0, park(60)),
            (ModelErrorClass::Overloaded { reset: Some(Duration::from_secs(3)) }, 1, 0.0, retry(3_000)),
            (busy, 7, 1.0, retry(15_000)),
            (busy, 8, 0.0, RetryDecision::GiveUp),
            (ModelErrorClass::ServerError, 4, 0.0, retry(4_000)),
            (ModelErrorClass::ServerError, 5, 0.0, RetryDecision::GiveUp),
            (ModelErrorClass::Connect, 6, 0.0, RetryDecision::GiveUp),
            (ModelErrorClass::Timeout, 2, 0.0, retry(1_000)),
            (ModelErrorClass::Timeout, 3, 0.0, RetryDecision::GiveUp),
            (ModelErrorClass::BadAnswer, 3, 0.0, RetryDecision::GiveUp),
            (ModelErrorClass::Auth, 1, 0.0, RetryDecision::GiveUp),
            (ModelErrorClass::Quota, 1, 0.0, RetryDecision::GiveUp),
            (ModelErrorClass::ContextTooLong, 1, 0.0, RetryDecision::GiveUp),
            (ModelErrorClass::BadRequest, 1, 0.0, RetryDecision::GiveUp),
            (ModelErrorClass::NotFoundModel, 1, 0.0, RetryDecision::GiveUp),
            (ModelErrorClass::Refused, 1, 0.0, RetryDecision::GiveUp),
            (ModelErrorClass::ScriptEnded, 1, 0.0, RetryDecision::GiveUp),
            (ModelErrorClass::Stopped, 1, 0.0, RetryDecision::GiveUp),
            (unstated, 1, f64::NAN, retry(500)),
            (unstated, 1, 9.0, retry(250)),
            (unstated, 0, 0.0, retry(500)),
            (unstated, u32::MAX, 0.0, RetryDecision::GiveUp),
        ] {
            assert_eq!(retry_decision(class, attempt, jitter), want, "{class:?} {attempt} {jitter}");
        }
    }

    #[test]
    fn random_jitter_is_in_range() {
        assert!((0..100).map(|_| jitter()).all(|jitter| (0.0..=1.0).contains(&jitter)));
    }
}
