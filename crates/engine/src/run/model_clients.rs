//! Holds the model state of a run: open clients, the ledger that caps their cost, and the reply being processed.

use std::collections::BTreeMap;
use std::sync::Arc;

use ralph_core::action::{self, ActionReply};
use ralph_core::budget::{Budget, BudgetKind};
use ralph_core::event::PinnedProfile;
use ralph_core::money::MicroUsd;
use ralph_core::price::CacheLifetime;
use ralph_proxy::ledger::{Ledger, LedgerCapKind, LedgerCaps, LedgerRate, Reservation};

use super::model_call_files::SavedAnswer;
use super::run_context::RunContext;
use super::session_record::session_reply;
use crate::audit::AuditLog;
use crate::error::Error;
use crate::host_environment::HostContext;
use crate::model::LanguageModel;
use crate::store::EventLog;

/// Why a call cannot be paid for, and so is not made.
#[derive(Debug)]
pub(super) enum RejectedCall {
    /// Too little of this budget is left.
    Limit(BudgetKind),
    /// The price is unknown, and no other cap would limit the call.
    Unpriced(Error),
}

/// The models of a run and what they may still cost.
#[derive(Debug)]
pub(super) struct ModelState {
    /// Shared with the egress proxy, which charges the calls of an agent to it.
    pub(super) ledger: Ledger,
    models: BTreeMap<String, Arc<dyn LanguageModel>>,
    /// The reply that the open iteration works through, with the iteration's number.
    pub(super) reply: Option<(u32, ActionReply)>,
}

impl ModelState {
    /// Makes an account that pays for nothing until [`Self::reload_ledger`]: what was spent before must be known first.
    pub(super) fn new() -> Self {
        let nothing = LedgerCaps { cost: Some(MicroUsd::ZERO), tokens: Some(0) };
        Self { ledger: Ledger::new(nothing, MicroUsd::ZERO, 0), models: BTreeMap::new(), reply: None }
    }

    /// Sets the ledger to what the events say was spent and may be spent.
    pub(super) fn reload_ledger(&self, events: &EventLog) {
        if events.begun() {
            let state = events.state();
            let caps = LedgerCaps { cost: state.budget.cost, tokens: state.budget.tokens };
            // Reset in place, since the egress proxy holds the same ledger.
            self.ledger.reset_spend(caps, state.spent.cost, state.spent.tokens);
        }
    }

    /// Raises the caps of the ledger. What it has charged meanwhile stays as it is: calls may be under way.
    pub(super) fn raise_caps(&self, budget: &Budget) {
        self.ledger.raise_caps(LedgerCaps { cost: budget.cost, tokens: budget.tokens });
    }

    /// Returns the client of a profile's model, opened once.
    pub(super) async fn open(
        &mut self,
        host: &HostContext,
        profile: &PinnedProfile,
    ) -> Result<Arc<dyn LanguageModel>, Error> {
        if let Some(model) = self.models.get(&profile.name) {
            return Ok(model.clone());
        }
        let model = host.model(profile).await?;
        self.models.insert(profile.name.clone(), model.clone());
        Ok(model)
    }

    /// Reserves the worst case of a call, with its output clamped to what the budget has left.
    pub(super) fn reserve(
        &self,
        budget: &Budget,
        profile: &PinnedProfile,
        input: u64,
    ) -> Result<(Reservation, u32), RejectedCall> {
        if !budget.can_enforce(profile.price.as_ref()) {
            return Err(RejectedCall::Unpriced(Error::Unpriced { profile: profile.name.clone() }));
        }
        let rate = profile
            .price
            .as_ref()
            .map_or(LedgerRate::default(), |price| LedgerRate::worst_case(price, input, CacheLifetime::Short));
        match self.ledger.reserve_call(rate, input, u64::from(profile.max_output_tokens)) {
            Ok((reservation, output)) => Ok((reservation, u32::try_from(output).unwrap_or(u32::MAX))),
            Err(refused) => Err(RejectedCall::Limit(match refused.kind() {
                LedgerCapKind::Cost => BudgetKind::Cost,
                LedgerCapKind::Tokens => BudgetKind::Tokens,
            })),
        }
    }

    /// Charges the calls that an agent has under way with their worst case, in the ledger too.
    pub(super) fn charge_in_flight(&self, audit_log: &AuditLog) {
        for id in audit_log.calls().charge_in_flight() {
            self.ledger.forfeit(id);
        }
    }

    /// Returns the answer the open iteration works through, from memory or from its artefact.
    pub(super) fn current_reply(&mut self, run: &RunContext, n: u32) -> Result<ActionReply, Error> {
        if run.state().started.agent.is_some() {
            return session_reply(&run.folder, n);
        }
        if let Some((of, reply)) = &self.reply
            && *of == n
        {
            return Ok(reply.clone());
        }
        let calls = run.state().open.as_ref().map_or(0, |open| open.calls);
        for call in (0..calls).rev() {
            let path = run.folder.iteration(n).join(format!("call-{call}.json"));
            if let Some(bytes) = run.folder.read(&path)?
                && let Ok(kept) = serde_json::from_slice::<SavedAnswer>(&bytes)
                && kept.leaks.is_none()
                && let Ok(parsed) = action::parse(&kept.text)
            {
                self.reply = Some((n, parsed.reply.clone()));
                return Ok(parsed.reply);
            }
        }
        let run = run.folder.id();
        let why = format!("the answer of iteration {n} is missing from its folder");
        Err(Error::CannotResume { hint: format!("ralph resume --recreate {run}"), run, why })
    }
}
