//! Records a model call as an event and in the audit log, once its outcome is known.

use ralph_core::action;
use ralph_core::diagnosis;
use ralph_core::event::{Event, EventLogLevel, ModelCallOutcome, PinnedProfile};
use ralph_core::hash::sha256;
use ralph_core::money::MicroUsd;
use ralph_core::price::TokenUsage;
use ralph_proxy::egress_events::ChargeBasis;

use super::conversation;
use super::diagnose::{diagnosis_number, parse_diagnosis, saturating_u32};
use super::model_call_files::{CallFiles, ReservedCall, SavedAnswer, recorded_reply, remove_reservation};
use super::model_clients::ModelState;
use super::run_context::RunContext;
use crate::audit::EngineCallResult;
use crate::error::Error;
use crate::model::CallKey;

/// The call of an iteration or of a diagnosis that is to be recorded.
#[derive(Debug)]
pub(super) struct CallRecord<'a> {
    pub(super) run: &'a mut RunContext,
    /// The iteration that the call belongs to.
    pub(super) n: u32,
    /// The number of the call in its iteration or diagnosis.
    pub(super) call: u32,
    pub(super) profile: &'a PinnedProfile,
}

impl CallRecord<'_> {
    /// Takes an answer up as the reply of its iteration, and records it.
    pub(super) fn answer(self, models: &mut ModelState, kept: SavedAnswer) -> Result<(), Error> {
        let answers = self.run.state().open.as_ref().map_or(0, |open| open.invalid.len());
        let key = CallKey::new(self.n, u32::try_from(answers).unwrap_or(u32::MAX));
        conversation::record(&self.run.folder, &recorded_reply(key, &kept))?;
        let answer = match action::parse(&kept.text) {
            _ if kept.leaks.is_some() => {
                let name = kept.leaks.clone().unwrap_or_default();
                self.run.log(
                    EventLogLevel::Warn,
                    format!("the model's answer held the secret `{name}`, so it was not followed"),
                )?;
                let why = format!("it holds the credential {name}, which no answer may hold");
                ModelCallOutcome::Invalid { error: self.run.redactor.mask(&why) }
            }
            Ok(parsed) => {
                let count = u32::try_from(parsed.reply.actions.len()).unwrap_or(u32::MAX);
                models.reply = Some((self.n, parsed.reply));
                ModelCallOutcome::Actions { count, response: sha256(kept.text.as_bytes()) }
            }
            Err(invalid) => ModelCallOutcome::Invalid { error: self.run.redactor.mask(&invalid.message) },
        };
        self.called(kept, answer)
    }

    /// Records the answer of a diagnosis.
    pub(super) fn diagnosis(self, kept: SavedAnswer) -> Result<(), Error> {
        // A replay has no lost calls, so an answer is identified by its position among the answers.
        let answers = self.run.state().diagnoses.under.as_ref().map_or(0, |under| under.invalid.len());
        let key = CallKey::of_diagnosis(diagnosis_number(self.run.state()), self.n, saturating_u32(answers));
        conversation::record(&self.run.folder, &recorded_reply(key, &kept))?;
        let answer = match parse_diagnosis(&self.run.redactor, &kept.text) {
            Ok(diagnosis) => ModelCallOutcome::Diagnosis {
                proposals: saturating_u32(
                    diagnosis::proposals(&diagnosis, &self.run.state().started.profiles.names()).len(),
                ),
                response: sha256(kept.text.as_bytes()),
            },
            Err(invalid) => ModelCallOutcome::Invalid { error: self.run.redactor.mask(&invalid.message) },
        };
        self.called(kept, answer)
    }

    /// Records a call that was answered.
    fn called(self, kept: SavedAnswer, answer: ModelCallOutcome) -> Result<(), Error> {
        let SavedAnswer { model, usage, cost, duration_ms, own, worst, .. } = kept;
        let Self { run, n, call, profile } = self;
        let (profile, called) = (profile.name.clone(), model.clone());
        run.append(Event::ModelCalled { n, call, profile, model, answer, usage, cost, duration_ms })?;
        if let Some(own) = own {
            let charge = if worst { ChargeBasis::Worst } else { ChargeBasis::Reported };
            let (status, why) = (Some(200), None);
            run.audit_log
                .engine_call_ended(&own, &EngineCallResult { model: &called, status, why, usage, cost, charge });
        }
        run.warn_of_budgets()
    }

    /// Charges a call whose answer is lost with its worst case, which `reserved` holds.
    pub(super) fn lost(self, reserved: &[u8], files: &CallFiles) -> Result<(), Error> {
        let Self { run, n, call, profile } = self;
        let worst: ReservedCall = serde_json::from_slice(reserved).unwrap_or(ReservedCall {
            model: profile.model.clone(),
            usage: TokenUsage::default(),
            cost: MicroUsd::ZERO,
            own: None,
        });
        let audited = worst.own.map(|own| (own, worst.model.clone()));
        run.append(Event::ModelCalled {
            n,
            call,
            profile: profile.name.clone(),
            model: worst.model,
            answer: ModelCallOutcome::Lost,
            usage: worst.usage,
            cost: worst.cost,
            duration_ms: 0,
        })?;
        if let Some((own, model)) = audited {
            let (usage, cost, why) = (worst.usage, worst.cost, Some("its answer was lost"));
            run.audit_log.engine_call_ended(
                &own,
                &EngineCallResult { model: &model, status: None, why, usage, cost, charge: ChargeBasis::Worst },
            );
        }
        // The charge is in the events now; an iteration that starts over must not charge it a second time.
        remove_reservation(&files.reserved);
        run.warn_of_budgets()
    }
}
