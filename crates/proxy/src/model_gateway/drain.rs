//! Reads answers to their end after their client hung up, for their usage.
//!
//! The provider works on and charges, so its own count is waited for. What had arrived by then is no measure: a model
//! reasons unseen, and an estimate below the charge would let a client that hangs up on purpose exceed the cap. So a
//! call whose usage never comes is charged at its worst case, and one that was not sent costs nothing.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::Bytes;
use http_body_util::Full;
use hyper::body::{Body, Incoming};
use hyper::header::CONTENT_TYPE;
use hyper::{Request, Response};
use tokio::runtime::Handle;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::call_charge::{self, PendingCharge};
use super::endpoint_pool::{ConnectionLease, EndpointError};
use super::response_body::{ExchangeReport, ResponseConnection};
use super::route::RouteUpstream;
use crate::connection_context::ConnectionContext;
use crate::credential::header_filter;
use crate::meter::{self, UsageTee};

/// How long an answer is read after its client hung up, because it is paid for.
const DRAIN_TIMEOUT: Duration = Duration::from_mins(5);

/// The most such answers that are read at the same time; any further call is charged at its worst case at once.
static DRAIN_SLOTS: Semaphore = Semaphore::const_new(64);

/// The answers of one sandbox that are read only for their usage. Its listeners may be closed meanwhile.
#[derive(Debug, Clone, Default)]
pub(crate) struct DrainTasks(Arc<DrainTasksState>);

#[derive(Debug, Default)]
struct DrainTasksState {
    tasks: TaskTracker,
    stop: CancellationToken,
}

impl DrainTasks {
    /// Aborts all of them and waits until that is reported.
    pub(crate) async fn abort_all(&self) {
        self.0.stop.cancel();
        self.0.tasks.close();
        self.0.tasks.wait().await;
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.tasks.is_empty()
    }

    /// Spawns a task that no client waits for. If there is no slot for it, dropping it charges the worst case.
    fn spawn(&self, work: impl Future<Output = ()> + Send + 'static) {
        let (Ok(runtime), Ok(one)) = (Handle::try_current(), DRAIN_SLOTS.try_acquire()) else { return };
        let stop = self.0.stop.clone();
        let work = async move {
            let _one = one;
            // If it is dropped on the way, the charge is decided by what was seen until then.
            stop.run_until_cancelled_owned(work).await;
        };
        self.0.tasks.spawn_on(work, &runtime);
    }
}

/// The response of an endpoint, or its error.
type EndpointResult = Result<(Response<Incoming>, ConnectionLease), EndpointError>;

/// A request on its way to an endpoint, which continues when its client hangs up.
pub(crate) struct InFlightRequest {
    sending: Pin<Box<dyn Future<Output = EndpointResult> + Send>>,
    dialled: Arc<AtomicBool>,
    call: Option<(meter::ModelCallKind, bool)>,
    drains: DrainTasks,
}

impl fmt::Debug for InFlightRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("InFlightRequest")
            .field("dialled", &self.dialled)
            .field("call", &self.call)
            .finish_non_exhaustive()
    }
}

impl InFlightRequest {
    /// Starts sending. `buffer` is the buffer space of the request's body; `call` is the metered call and whether usage
    /// was added.
    pub(crate) fn new(
        context: &Arc<ConnectionContext>,
        upstream: &Arc<RouteUpstream>,
        request: Request<Full<Bytes>>,
        buffer: OwnedSemaphorePermit,
        call: Option<(meter::ModelCallKind, bool)>,
    ) -> Self {
        let dialled = Arc::new(AtomicBool::new(false));
        let drains = context.drains.clone();
        let (context, upstream, mark) = (Arc::clone(context), Arc::clone(upstream), Arc::clone(&dialled));
        let sending = Box::pin(async move {
            let sent = context.endpoints.send(&upstream, request, &mark).await;
            drop(buffer);
            sent
        });
        Self { sending, dialled, call, drains }
    }

    /// Returns whether the endpoint may have seen the request.
    pub(crate) fn is_dialled(&self) -> bool {
        self.dialled.load(Ordering::Relaxed)
    }

    /// Waits for the beginning of the answer.
    pub(crate) async fn response(&mut self) -> EndpointResult {
        self.sending.as_mut().await
    }

    /// Returns the reader of the answer's usage; `None` if nothing is metered.
    pub(crate) fn tee(&self, content_type: Option<&str>) -> Option<UsageTee> {
        let (call, usage_added) = self.call.as_ref()?;
        Some(UsageTee::new(call, content_type, *usage_added))
    }

    /// Waits for the answer in place of the client.
    pub(crate) fn drain_after_hangup(self, mut report: ExchangeReport) {
        if !self.is_dialled() {
            // Dropping the future drops the request before the endpoint saw it.
            report.charge(PendingCharge::charge_nothing);
            return;
        }
        self.drains.clone().spawn(async move {
            // However it ends, the charge is decided by what was seen until then.
            drop(timeout(DRAIN_TIMEOUT, self.read_response(&mut report)).await);
        });
    }

    async fn read_response(mut self, report: &mut ExchangeReport) {
        let (response, _lease) = match self.response().await {
            Ok(answered) => answered,
            Err(EndpointError::Connect(_) | EndpointError::NotPermitted(_)) => {
                return report.charge(PendingCharge::charge_nothing);
            }
            Err(EndpointError::Lost(_)) => return report.charge(PendingCharge::charge_worst_case),
        };
        let (parts, body) = response.into_parts();
        report.record_response_head(parts.status.as_u16(), call_charge::rate_limit_headers(&parts.headers));
        if meter::is_timeout_status(parts.status.as_u16()) {
            return report.charge(PendingCharge::charge_worst_case);
        }
        if header_filter::is_encoded(&parts.headers) {
            return report.charge(PendingCharge::charge_unreadable);
        }
        let kind = parts.headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok());
        if let Some(tee) = self.tee(kind) {
            report.set_tee(tee);
        }
        drain_body(body, report).await;
    }
}

/// Reads the rest of an answer in place of the client.
pub(crate) fn spawn_body_drain(
    drains: &DrainTasks,
    body: Incoming,
    keep: Option<ResponseConnection>,
    mut report: ExchangeReport,
) {
    drains.spawn(async move {
        let _keep = keep;
        drop(timeout(DRAIN_TIMEOUT, drain_body(body, &mut report)).await);
    });
}

async fn drain_body(mut body: Incoming, report: &mut ExchangeReport) {
    while let Some(Ok(frame)) = std::future::poll_fn(|cx| Pin::new(&mut body).poll_frame(cx)).await {
        if let (Ok(data), Some(tee)) = (frame.into_data(), report.tee()) {
            tee.pass(data);
        }
    }
    if let Some(tee) = report.tee() {
        tee.finish();
    }
}
