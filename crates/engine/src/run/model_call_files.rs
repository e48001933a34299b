//! Reads and writes the files of a model call in the run folder: its worst-case cost before it is made, and its answer
//! before it is used.

use std::path::{Path, PathBuf};

use ralph_core::action;
use ralph_core::event::PinnedProfile;
use ralph_core::money::MicroUsd;
use ralph_core::price::{TokenUsage, estimate_tokens};
use ralph_core::redact::{Redactor, SecretShape};
use serde::{Deserialize, Serialize};

use crate::audit::EngineCallTarget;
use crate::error::Error;
use crate::model::scripted_model::ScriptedReply;
use crate::model::{self, CallKey, ModelFinishReason, ModelRequest};
use crate::store::RunFolder;

/// An answer as it arrived, saved before it is used.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct SavedAnswer {
    pub(super) model: String,
    pub(super) text: String,
    pub(super) usage: TokenUsage,
    pub(super) cost: MicroUsd,
    pub(super) duration_ms: u64,
    /// Missing in older runs.
    #[serde(default)]
    pub(super) finish: ModelFinishReason,
    /// The name of a credential whose masking changed what the answer says; such an answer is not followed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) leaks: Option<String>,
    /// Where the call went, if it left the host; missing in older runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) own: Option<EngineCallTarget>,
    /// The cost is unknown, so the worst case is charged.
    #[serde(default)]
    pub(super) worst: bool,
}

/// The files of one call.
#[derive(Debug)]
pub(super) struct CallFiles {
    pub(super) answer: PathBuf,
    pub(super) reserved: PathBuf,
}

impl CallFiles {
    pub(super) fn new(folder: &Path, call: u32) -> Self {
        Self {
            answer: folder.join(format!("call-{call}.json")),
            reserved: folder.join(format!("call-{call}.reserved.json")),
        }
    }

    /// Returns the answer of a call that was made before, if it was written in full.
    pub(super) fn saved_answer(&self, folder: &RunFolder) -> Result<Option<SavedAnswer>, Error> {
        let bytes = folder.read(&self.answer)?;
        Ok(bytes.and_then(|bytes| serde_json::from_slice(&bytes).ok()))
    }
}

/// A call that is under way. Found after a crash, its answer is lost and its worst case is charged.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct ReservedCall {
    pub(super) model: String,
    pub(super) usage: TokenUsage,
    pub(super) cost: MicroUsd,
    /// Where the call goes; missing in older runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) own: Option<EngineCallTarget>,
}

/// What an answer is charged with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct CallCharge {
    pub(super) usage: TokenUsage,
    pub(super) cost: MicroUsd,
}

impl CallCharge {
    /// Returns the charge for an answer whose token count is missing or cannot be true, with a warning: the worst of
    /// what is known, by the same rule as in the egress proxy.
    pub(super) fn worst_case(self, worst: &ReservedCall) -> (Self, String) {
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

/// Masks known secrets in an answer before it is written to disk. Returns the name of the secret when masking changes
/// what the answer says: such an answer is no longer the model's own and must not be followed.
pub(super) fn mask_answer(redactor: &Redactor, text: String) -> (String, Option<String>) {
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
    // A secret that is escaped letter by letter shows only in the parsed reply.
    let plain = said(&text).and_then(|reply| serde_json::to_string(&reply).ok()).unwrap_or_default();
    match known(&plain) {
        Some(name) => (mask(&plain), Some(name)),
        None => (text, None),
    }
}

/// Estimates the input tokens of a request.
pub(super) fn estimate_request_tokens(request: &ModelRequest) -> u64 {
    request.texts().map(estimate_tokens).sum()
}

pub(super) fn cost(profile: &PinnedProfile, usage: &TokenUsage) -> MicroUsd {
    profile.price.as_ref().map_or(MicroUsd::ZERO, |price| price.cost(usage))
}

pub(super) fn remove_reservation(path: &Path) {
    // If it cannot be removed, a resume charges the worst case of the call, which errs on the safe side.
    let _ = std::fs::remove_file(path);
}

/// Returns an answer in the form in which a replay gives it.
pub(super) fn recorded_reply(key: CallKey, kept: &SavedAnswer) -> ScriptedReply {
    let SavedAnswer { model, text, usage, finish, leaks, .. } = kept;
    let (model, usage, finish) = (model.clone(), *usage, finish.clone());
    let text = match leaks {
        None => text.clone(),
        // The answer was not followed; with the secret masked, a replay would follow it.
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
            // Cheap because of cached input: the worst case stays the minimum.
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
        // Outside the JSON a secret changes nothing.
        let around = |word: &str| format!("The key is {word}.\n```json\n{}\n```", answer("all is well"));
        check(&around("planted-value"), (&around("[redacted:KEY]"), None));
        // A text that is no reply stays invalid, and is asked for again for that reason.
        check("planted-value", ("[redacted:KEY]", None));
        // A text that only looks like a secret may be part of the work, for example in the test of a token parser.
        let shaped = answer(&["gh", "p_q8Wz7Xv6Cu5Tb4Sn3Rm2Pl1Kk0Jj9Ii8Hh7G"].concat());
        check(&shaped, (&shaped, None));
    }
}
