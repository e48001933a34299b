//! Answers that nobody waits for any more.
//!
//! The provider works on and charges, so its own count is waited for. What came of an answer by then is no measure: a
//! model thinks unseen, and a guess below the bill would let whoever hangs up on purpose pass the cap. So a call whose
//! count never comes is charged at its worst, and one that was not sent costs nothing.

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
use crate::context::ConnectionContext;
use crate::credential::header_filter;
use crate::meter::{self, UsageTee};

/// How long an answer that its client no longer wants is read to its end, because it is paid for.
const DRAIN_TIMEOUT: Duration = Duration::from_mins(5);

/// How many such answers are read on at the same time; the worst case of any more is charged at once.
static DRAIN_SLOTS: Semaphore = Semaphore::const_new(64);

/// The answers of one sandbox that are read on for their count alone. Its doors may be closed meanwhile.
#[derive(Debug, Clone, Default)]
pub(crate) struct DrainTasks(Arc<DrainTasksState>);

#[derive(Debug, Default)]
struct DrainTasksState {
    tasks: TaskTracker,
    stop: CancellationToken,
}

impl DrainTasks {
    /// Gives up on all of them and waits until that is told.
    pub(crate) async fn abort_all(&self) {
        self.0.stop.cancel();
        self.0.tasks.close();
        self.0.tasks.wait().await;
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.tasks.is_empty()
    }

    /// Goes on where no client waits. Where there is no room for it, what is dropped charges the worst case.
    fn spawn(&self, work: impl Future<Output = ()> + Send + 'static) {
        let (Ok(runtime), Ok(one)) = (Handle::try_current(), DRAIN_SLOTS.try_acquire()) else { return };
        let stop = self.0.stop.clone();
        let work = async move {
            let _one = one;
            // Dropped where it is, what was seen by then decides.
            stop.run_until_cancelled_owned(work).await;
        };
        self.0.tasks.spawn_on(work, &runtime);
    }
}

/// What an endpoint came back with.
type EndpointResult = Result<(Response<Incoming>, ConnectionLease), EndpointError>;

/// A request on its way to an endpoint, which goes on when its client does not wait for it.
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
    /// Begins to ask. The room is that of the request's body, `call` what is metered and whether usage was asked for.
    pub(crate) fn new(
        context: &Arc<ConnectionContext>,
        upstream: &Arc<RouteUpstream>,
        request: Request<Full<Bytes>>,
        room: OwnedSemaphorePermit,
        call: Option<(meter::ModelCallKind, bool)>,
    ) -> Self {
        let dialled = Arc::new(AtomicBool::new(false));
        let drains = context.drains.clone();
        let (context, upstream, mark) = (Arc::clone(context), Arc::clone(upstream), Arc::clone(&dialled));
        let sending = Box::pin(async move {
            let sent = context.endpoints.send(&upstream, request, &mark).await;
            drop(room);
            sent
        });
        Self { sending, dialled, call, drains }
    }

    /// Returns whether anybody may have seen it.
    pub(crate) fn is_dialled(&self) -> bool {
        self.dialled.load(Ordering::Relaxed)
    }

    /// Waits for the beginning of the answer.
    pub(crate) async fn response(&mut self) -> EndpointResult {
        self.sending.as_mut().await
    }

    /// Returns the reader of the answer's usage; none where nothing is metered.
    pub(crate) fn tee(&self, content_type: Option<&str>) -> Option<UsageTee> {
        let (call, usage_added) = self.call.as_ref()?;
        Some(UsageTee::new(call, content_type, *usage_added))
    }

    /// Waits for the answer in the client's place.
    pub(crate) fn drain_after_hangup(self, mut ending: ExchangeReport) {
        if !self.is_dialled() {
            // With the future goes the request, before anybody saw it.
            ending.charge(PendingCharge::charge_nothing);
            return;
        }
        self.drains.clone().spawn(async move {
            // However it ends, what was seen by then decides.
            drop(timeout(DRAIN_TIMEOUT, self.read_response(&mut ending)).await);
        });
    }

    async fn read_response(mut self, ending: &mut ExchangeReport) {
        let (response, _lease) = match self.response().await {
            Ok(answered) => answered,
            Err(EndpointError::Connect(_) | EndpointError::NotPermitted(_)) => {
                return ending.charge(PendingCharge::charge_nothing);
            }
            Err(EndpointError::Lost(_)) => return ending.charge(PendingCharge::charge_worst_case),
        };
        let (parts, body) = response.into_parts();
        ending.record_response_head(parts.status.as_u16(), call_charge::rate_limit_headers(&parts.headers));
        if meter::is_timeout_status(parts.status.as_u16()) {
            return ending.charge(PendingCharge::charge_worst_case);
        }
        if header_filter::is_encoded(&parts.headers) {
            return ending.charge(PendingCharge::charge_unreadable);
        }
        let kind = parts.headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok());
        if let Some(tee) = self.tee(kind) {
            ending.set_tee(tee);
        }
        drain_body(body, ending).await;
    }
}

/// Reads the rest of an answer in the client's place.
pub(crate) fn spawn_body_drain(
    drains: &DrainTasks,
    body: Incoming,
    keep: Option<ResponseConnection>,
    mut ending: ExchangeReport,
) {
    drains.spawn(async move {
        let _keep = keep;
        drop(timeout(DRAIN_TIMEOUT, drain_body(body, &mut ending)).await);
    });
}

async fn drain_body(mut body: Incoming, ending: &mut ExchangeReport) {
    while let Some(Ok(frame)) = std::future::poll_fn(|cx| Pin::new(&mut body).poll_frame(cx)).await {
        if let (Ok(data), Some(tee)) = (frame.into_data(), ending.tee()) {
            tee.pass(data);
        }
    }
    if let Some(tee) = ending.tee() {
        tee.finish();
    }
}
