//! Passes a response body to the client: counts, meters and scans it on the way, and reports the exchange at its end.

use std::fmt;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use hyper::body::{Body, Frame, Incoming};
use ralph_core::policy::PolicyRule;
use tokio_util::task::AbortOnDropHandle;

use super::call_charge::PendingCharge;
use super::drain::{self, DrainTasks};
use super::endpoint_pool::ConnectionLease;
use super::route::RouteUpstream;
use crate::connection_context::ConnectionContext;
use crate::credential::leak_scan::{ForbiddenMatch, LeakScanner};
use crate::egress_events::{
    AlarmKind, ChargedCall, DecisionReason, EgressAlarm, EgressEntry, EgressEvent, EgressExchange, EgressObserver,
};
use crate::meter::UsageTee;
use crate::policy::RoutePolicyCheck;

/// What has to be reported and charged when an exchange ends, however it ends.
#[derive(Debug)]
pub(crate) struct ExchangeReport {
    observer: Arc<dyn EgressObserver>,
    exchange: Option<EgressExchange>,
    meter: Option<CallMeter>,
}

/// A call under way and the reader of its usage.
#[derive(Debug)]
pub(crate) struct CallMeter {
    pub(crate) pending: PendingCharge,
    pub(crate) tee: UsageTee,
    /// Where its answer is read to the end after the client hung up.
    pub(crate) drains: DrainTasks,
}

impl ExchangeReport {
    pub(crate) fn new(
        observer: Arc<dyn EgressObserver>,
        exchange: Option<EgressExchange>,
        meter: Option<CallMeter>,
    ) -> Self {
        Self { observer, exchange, meter }
    }

    /// Records the status that the client is answered with, and how much of its own body was sent.
    pub(crate) fn record_answer(&mut self, status: u16, sent: u64) {
        self.set_status(status);
        if let Some(exchange) = &mut self.exchange {
            exchange.sent = sent;
        }
    }

    pub(crate) fn set_status(&mut self, status: u16) {
        if let Some(exchange) = &mut self.exchange {
            exchange.status = Some(status);
        }
    }

    /// Records the status of an answer, and what it reports about the provider's limits.
    pub(crate) fn record_response_head(&mut self, status: u16, limits: Vec<(String, String)>) {
        self.set_status(status);
        if let Some(metered) = &mut self.meter {
            metered.pending.limits = limits;
            metered.pending.record_status(status);
        }
    }

    /// Replaces the reader of the answer.
    pub(crate) fn set_tee(&mut self, tee: UsageTee) {
        if let Some(metered) = &mut self.meter {
            metered.tee = tee;
        }
    }

    pub(crate) fn tee(&mut self) -> Option<&mut UsageTee> {
        self.meter.as_mut().map(|metered| &mut metered.tee)
    }

    /// Charges the call before its answer was read.
    pub(crate) fn charge(&mut self, how: impl FnOnce(PendingCharge) -> ChargedCall) {
        if let (Some(exchange), Some(metered)) = (&mut self.exchange, self.meter.take()) {
            exchange.call = Some(how(metered.pending));
        }
    }

    /// Charges and reports, once.
    fn report(&mut self) {
        let Some(mut exchange) = self.exchange.take() else { return };
        if let Some(CallMeter { pending, tee, .. }) = self.meter.take() {
            exchange.call = Some(pending.settle(&tee.snapshot(), tee.has_begun()));
        }
        self.observer.observe(EgressEvent::Exchange(exchange));
    }
}

impl Drop for ExchangeReport {
    fn drop(&mut self) {
        self.report();
    }
}

/// The connection by which an answer comes, which has to stay open until its end.
#[derive(Debug)]
pub(crate) enum ResponseConnection {
    /// The client's own connection to the host.
    HostConnection(#[expect(dead_code, reason = "it is kept, and that is all")] Arc<AbortOnDropHandle<()>>),
    /// A pooled connection, which serves other calls afterwards.
    Lease(ConnectionLease),
}

/// The permission to call an endpoint of a route and to receive its answer, until a rule denies it.
pub(crate) struct RoutePermit {
    denial: Pin<Box<dyn Future<Output = PolicyRule> + Send>>,
    context: Arc<ConnectionContext>,
    upstream: Arc<RouteUpstream>,
}

impl RoutePermit {
    pub(crate) fn new(
        context: &Arc<ConnectionContext>,
        upstream: &Arc<RouteUpstream>,
        check: RoutePolicyCheck,
    ) -> Self {
        let (context, upstream) = (Arc::clone(context), Arc::clone(upstream));
        Self { denial: Box::pin(check.wait_denied()), context, upstream }
    }

    /// Waits until it is revoked, and returns the rule that revoked it.
    pub(crate) async fn wait_revoked(&mut self) -> PolicyRule {
        self.denial.as_mut().await
    }

    /// Says whether an answer under way may no longer pass, and reports that.
    fn poll_revoked(&mut self, cx: &mut Context<'_>) -> bool {
        let ended = self.denial.as_mut().poll(cx).is_ready();
        if ended {
            self.context.report_refusal(EgressEntry::Route, &self.upstream.target, &DecisionReason::PolicyChanged);
        }
        ended
    }
}

impl fmt::Debug for RoutePermit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("RoutePermit")
    }
}

/// A response body on its way to the client.
#[derive(Debug)]
pub(crate) struct MeteredBody {
    body: Option<Incoming>,
    connection: Option<ResponseConnection>,
    scan: LeakScanner,
    report: Option<ExchangeReport>,
    permit: Option<RoutePermit>,
}

impl MeteredBody {
    pub(crate) fn new(body: Incoming, keep: ResponseConnection, scan: LeakScanner, report: ExchangeReport) -> Self {
        Self { body: Some(body), connection: Some(keep), scan, report: Some(report), permit: None }
    }

    /// Lets the body pass only until the permit is revoked; then it is cut on both sides.
    #[must_use]
    pub(crate) fn with_permit(mut self, permit: RoutePermit) -> Self {
        self.permit = Some(permit);
        self
    }

    /// Ends the answer: its connection is free for another call.
    fn finish(&mut self) {
        self.body = None;
        self.report = None;
        if let Some(ResponseConnection::Lease(lease)) = self.connection.take() {
            lease.release();
        }
    }

    fn count_received(&mut self, bytes: usize) {
        if let Some(exchange) = self.report.as_mut().and_then(|report| report.exchange.as_mut()) {
            exchange.received = exchange.received.saturating_add(bytes as u64);
        }
    }

    fn meter(&mut self) -> Option<&mut CallMeter> {
        self.report.as_mut()?.meter.as_mut()
    }

    /// Takes a piece and returns what is passed on; an error cuts the answer off.
    fn pass(&mut self, piece: Bytes) -> io::Result<Bytes> {
        self.count_received(piece.len());
        let piece = match self.meter() {
            Some(metered) => metered.tee.pass(piece),
            None => piece,
        };
        self.scan.pass(piece).map_err(|leak| self.leak_error(leak))
    }

    /// Adds what was held back to the last piece, and ends.
    fn finish_with(&mut self, piece: Bytes) -> io::Result<Bytes> {
        let held = self.meter().map_or_else(Bytes::new, |metered| metered.tee.finish());
        let passed = self.scan.pass(held).map_err(|leak| self.leak_error(leak))?;
        let rest = self.scan.finish();
        self.finish();
        if passed.is_empty() && rest.is_empty() { Ok(piece) } else { Ok([piece, passed, rest].concat().into()) }
    }

    fn leak_error(&mut self, ForbiddenMatch(credential): ForbiddenMatch) -> io::Error {
        if let Some(report) = &self.report {
            let (host, port) =
                report.exchange.as_ref().map_or((String::new(), 0), |exchange| (exchange.host.clone(), exchange.port));
            report.observer.observe(EgressEvent::Alarm(EgressAlarm {
                what: AlarmKind::SecretReturned,
                credential,
                host,
                port,
            }));
        }
        io::Error::other("the answer contained a real credential and was cut off")
    }
}

impl Body for MeteredBody {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        loop {
            if self.body.is_some() && self.permit.as_mut().is_some_and(|permit| permit.poll_revoked(cx)) {
                (self.body, self.report, self.connection, self.permit) = (None, None, None, None);
                return Poll::Ready(Some(Err(io::Error::other("the network policy changed"))));
            }
            let Some(body) = self.body.as_mut() else { return Poll::Ready(None) };
            let piece = match std::task::ready!(Pin::new(body).poll_frame(cx)) {
                // Trailers belong to the connection by which the answer came.
                Some(Ok(frame)) => match frame.into_data() {
                    Ok(data) => {
                        // A client that knows the length of an answer does not poll for its end, so it is reported
                        // with the last piece.
                        let last = self.body.as_ref().is_some_and(Body::is_end_stream);
                        self.pass(data).and_then(|piece| if last { self.finish_with(piece) } else { Ok(piece) })
                    }
                    Err(_) => continue,
                },
                Some(Err(error)) => {
                    self.body = None;
                    self.report = None;
                    return Poll::Ready(Some(Err(io::Error::other(error))));
                }
                None => self.finish_with(Bytes::new()),
            };
            match piece {
                Ok(piece) if piece.is_empty() => (),
                Ok(piece) => return Poll::Ready(Some(Ok(Frame::data(piece)))),
                Err(error) => {
                    self.report = None;
                    self.body = None;
                    return Poll::Ready(Some(Err(error)));
                }
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_none()
    }
}

impl Drop for MeteredBody {
    fn drop(&mut self) {
        let (Some(body), Some(report)) = (self.body.take(), self.report.take()) else { return };
        let Some(drains) = report.meter.as_ref().map(|metered| metered.drains.clone()) else { return };
        // The client hung up. The provider continues and charges for all of it, so its usage is waited for; if it
        // does not come, dropping `report` charges the worst case.
        drain::spawn_body_drain(&drains, body, self.connection.take(), report);
    }
}
