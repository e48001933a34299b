//! Reserves the worst case of a call in the ledger, and rewrites the request so that it cannot cost more.

use std::sync::Arc;

use bytes::Bytes;
use ralph_core::price::CacheLifetime;

use super::call_charge::PendingCharge;
use super::gateway_request::{GatewayRequest, printable};
use super::route::RouteModel;
use crate::egress_events::EgressEvent;
use crate::ledger::LedgerRate;
use crate::meter::{self, GatewayRefusal};

/// A call that was reserved.
pub(super) struct PreparedCall {
    pub(super) body: Bytes,
    /// The provider was asked to report usage that the client did not ask for.
    pub(super) usage_added: bool,
    /// The event that is persisted before the call is dialled.
    pub(super) calling: EgressEvent,
}

impl GatewayRequest<'_> {
    /// Rewrites a request that only counts tokens. It costs nothing, but is held to the same models and fields.
    pub(super) fn rewrite_count_request(
        &self,
        call: &meter::ModelCallKind,
        body: &[u8],
    ) -> Result<Bytes, GatewayRefusal> {
        let request =
            meter::MeteredRequest::parse(call, body).map_err(|bad| GatewayRefusal::BadRequest(bad.to_string()))?;
        self.allowed_model(request.model())?;
        Ok(request.write_for_count().into())
    }

    /// Returns what is known about a model that may be called.
    fn allowed_model(&self, name: &str) -> Result<RouteModel, GatewayRefusal> {
        self.route.model(name).ok_or_else(|| {
            let known: Vec<&str> = self.route.models().keys().map(String::as_str).collect();
            GatewayRefusal::Model(format!(
                "model `{}` may not be called here, only {}",
                printable(name),
                known.join(", ")
            ))
        })
    }

    /// Reserves the worst case of a call and rewrites the request so that it cannot cost more.
    pub(super) fn reserve(&mut self, call: &meter::ModelCallKind, body: &[u8]) -> Result<PreparedCall, GatewayRefusal> {
        let request =
            meter::MeteredRequest::parse(call, body).map_err(|bad| GatewayRefusal::BadRequest(bad.to_string()))?;
        let request = if self.route.legacy_limit { request.with_legacy_limit() } else { request };
        let name = request.model().to_owned();
        let model = self.allowed_model(&name)?;
        let balance = self.context.ledger.balance();
        if model.price.is_none() && balance.tokens.is_none() {
            return Err(GatewayRefusal::Model(format!(
                "the price of `{}` is unknown, and the run has no token cap",
                printable(&name)
            )));
        }
        let input = request.input();
        let choices = request.choices();
        // The limits of a model and of a profile are those of one answer.
        let each = request.wanted_output().map_or(model.default_output, |all| all / choices).min(model.max_output);
        let wanted = each.saturating_mul(choices).max(choices);
        let writes = if request.long_cache() { CacheLifetime::Long } else { CacheLifetime::Short };
        let rate = model.price.map_or(LedgerRate::default(), |price| LedgerRate::worst_case(&price, input, writes));
        let spent = |why: String| {
            let (route, model) = (self.route.name().to_owned(), name.clone());
            self.context.observer.observe(EgressEvent::BudgetSpent { route, model, why: why.clone() });
            GatewayRefusal::Budget(why)
        };
        let reserved = self.context.ledger.reserve_call(rate, input, wanted);
        let (reservation, output) = reserved.map_err(|refused| spent(refused.to_string()))?;
        if output < choices {
            // A limit of zero for each would be no limit at all.
            reservation.release();
            return Err(spent(format!("budget spent: {output} tokens are left for {choices} answers")));
        }
        let written = request.write(output);
        for change in &written.changed {
            tracing::debug!(route = self.route.name(), change, "a request was changed");
        }
        let worst = reservation.worst_case();
        let route = self.route.name().to_owned();
        let (cost, tokens) = (worst.cost, worst.tokens);
        let id = reservation.id();
        let calling = EgressEvent::CallReserved { id, route: route.clone(), model: name.clone(), cost, tokens };
        self.pending = Some(PendingCharge {
            id,
            reservation,
            price: model.price,
            route,
            model: name,
            models: Arc::clone(self.route.models()),
            answered_by: None,
            input,
            output,
            writes,
            limits: Vec::new(),
            refused: false,
        });
        Ok(PreparedCall { body: written.body.into(), usage_added: written.usage_added, calling })
    }

    /// Has the call persisted before it is dialled: a call that a crash would leave unknown is not made.
    pub(super) async fn persist_call(&mut self, calling: EgressEvent) -> Result<(), GatewayRefusal> {
        let observer = Arc::clone(&self.context.observer);
        let persisted = observer.persist_call(calling).await;
        persisted.map_err(|why| {
            self.charge(PendingCharge::charge_nothing);
            tracing::warn!(route = self.route.name(), %why, "a call could not be recorded");
            GatewayRefusal::Unavailable(format!("the call could not be recorded, so it was not made: {why}"))
        })
    }
}
