//! A connection to a host, used for consecutive requests of the same client.

use std::io;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};

use bytes::Bytes;
use hyper::body::{Body, Frame, Incoming, SizeHint};
use hyper::client::conn::http1;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use ralph_core::egress::{AccessRequest, EgressTarget};
use rustls::ClientConfig;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::time::timeout;
use tokio_util::task::AbortOnDropHandle;

use crate::connection_context::ConnectionContext;
use crate::credential::leak_scan::{ForbiddenMatch, LeakScanner};
use crate::dial::{PermittedStream, connect_tls};
use crate::egress_events::{AlarmKind, DecisionReason, EgressEntry};
use crate::policy::TargetRefusal;

/// The most bytes that are buffered on one side of an exchange for the other.
pub(crate) const BUFFER_SIZE: usize = 64 * 1024;

/// An open connection.
#[derive(Debug)]
pub(crate) struct HostConnection {
    target: EgressTarget,
    tls: bool,
    sender: http1::SendRequest<OutboundBody>,
    ask: Arc<Mutex<AccessRequest>>,
    running: Arc<AbortOnDropHandle<()>>,
}

impl HostConnection {
    /// Opens a connection for a request, through all the checks.
    pub(crate) async fn open(
        context: &Arc<ConnectionContext>,
        entry: EgressEntry,
        target: &EgressTarget,
        tls: bool,
        ask: AccessRequest,
    ) -> Result<Self, TargetRefusal> {
        let PermittedStream { stream, mut permit } = context.open(entry, target, ask).await?;
        let ask = permit.access();
        let asked = |ask: &Mutex<AccessRequest>| ask.lock().unwrap_or_else(PoisonError::into_inner).request_summary();
        let refused = |why: DecisionReason| {
            context.report_refused_request(entry, target, asked(&ask), &why);
            TargetRefusal { why, address: None }
        };
        let stream: Box<dyn DuplexIo> = if tls {
            let config = context.resolver.tls_config().map_err(|_| refused(DecisionReason::Untrusted))?;
            let mut config = ClientConfig::clone(&config);
            config.alpn_protocols = vec![b"http/1.1".to_vec()];
            match timeout(context.limits.dial_time, connect_tls(Arc::new(config), target, stream)).await {
                Ok(Ok(stream)) => Box::new(stream),
                Ok(Err(error)) => {
                    tracing::debug!(%target, %error, "TLS to a host failed");
                    return Err(refused(DecisionReason::Untrusted));
                }
                Err(_) => return Err(refused(DecisionReason::Unreachable)),
            }
        } else {
            Box::new(stream)
        };
        let (sender, connection) = http1::Builder::new()
            .max_buf_size(BUFFER_SIZE)
            .handshake(TokioIo::new(stream))
            .await
            .map_err(|_| refused(DecisionReason::Unreachable))?;
        let (owner, reported_target, last) = (Arc::clone(context), target.clone(), Arc::clone(&ask));
        let running = AbortOnDropHandle::new(tokio::spawn(async move {
            tokio::select! {
                // Both ends of the exchange see a failure themselves.
                _ = connection => (),
                () = permit.wait_revoked() => owner.report_refused_request(entry, &reported_target, asked(&last), &DecisionReason::PolicyChanged),
            }
        }));
        Ok(Self { target: target.clone(), tls, sender, ask, running: Arc::new(running) })
    }

    /// Takes the connection for another request, if it leads to the same target and is still open.
    pub(crate) fn reuse_for(mut self, target: &EgressTarget, tls: bool, ask: &AccessRequest) -> Option<Self> {
        let fits = self.target == *target && self.tls == tls && !self.sender.is_closed();
        // Without waiting: if the connection is not free at once, a new one is opened.
        let ready = fits && is_ready_now(&mut self.sender);
        if ready {
            *self.ask.lock().unwrap_or_else(PoisonError::into_inner) = ask.clone();
        }
        ready.then_some(self)
    }

    /// Sends a request; returns it whole if the host had closed the connection before any of it was sent.
    pub(crate) async fn send(
        &mut self,
        request: Request<OutboundBody>,
    ) -> Result<Response<Incoming>, Option<Request<OutboundBody>>> {
        self.sender.try_send_request(request).await.map_err(|mut failed| failed.take_message())
    }

    /// Returns the task that keeps the connection alive.
    pub(crate) fn connection_task(&self) -> Arc<AbortOnDropHandle<()>> {
        Arc::clone(&self.running)
    }
}

fn is_ready_now(sender: &mut http1::SendRequest<OutboundBody>) -> bool {
    let mut cx = Context::from_waker(std::task::Waker::noop());
    matches!(sender.poll_ready(&mut cx), Poll::Ready(Ok(())))
}

trait DuplexIo: AsyncRead + AsyncWrite + Unpin + Send {}
impl<S: AsyncRead + AsyncWrite + Unpin + Send> DuplexIo for S {}

/// A request body that is counted, and scanned for phantoms.
#[derive(Debug)]
pub(crate) struct OutboundBody {
    body: Incoming,
    scan: Option<LeakScanner>,
    count: Arc<AtomicU64>,
    context: Arc<ConnectionContext>,
    /// The host it is sent to, for an alarm.
    target: EgressTarget,
}

impl OutboundBody {
    pub(crate) fn new(body: Incoming, context: Arc<ConnectionContext>, target: EgressTarget) -> Self {
        let phantoms = &context.credentials.phantoms;
        let scan = (!phantoms.is_empty()).then(|| LeakScanner::new(phantoms.clone()));
        Self { body, scan, count: Arc::default(), context, target }
    }

    /// Returns the shared count of bytes sent.
    pub(crate) fn sent_bytes(&self) -> Arc<AtomicU64> {
        Arc::clone(&self.count)
    }

    fn scan_piece(&mut self, piece: Bytes) -> io::Result<Bytes> {
        self.count.fetch_add(piece.len() as u64, Ordering::Relaxed);
        self.context.count_outflow(piece.len(), &self.target);
        let Some(scan) = &mut self.scan else { return Ok(piece) };
        // A body that contains a phantom is cut before its end. No held-back bytes are lost: what could be the
        // beginning of one is passed on as soon as it turns out to be something else.
        scan.pass(piece).map_err(|ForbiddenMatch(credential)| {
            self.context.raise_alarm(AlarmKind::PhantomMisdirected, credential, &self.target);
            io::Error::other("the request contained a phantom credential and was cut off")
        })
    }
}

impl Body for OutboundBody {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        loop {
            return match std::task::ready!(Pin::new(&mut self.body).poll_frame(cx)) {
                Some(Ok(frame)) => match frame.into_data() {
                    Ok(data) => match self.scan_piece(data) {
                        Ok(piece) if piece.is_empty() => continue,
                        Ok(piece) => Poll::Ready(Some(Ok(Frame::data(piece)))),
                        Err(error) => Poll::Ready(Some(Err(error))),
                    },
                    Err(_) => continue,
                },
                Some(Err(error)) => Poll::Ready(Some(Err(io::Error::other(error)))),
                None => {
                    let rest = self.scan.take().map(|mut scan| scan.finish()).unwrap_or_default();
                    if rest.is_empty() { Poll::Ready(None) } else { Poll::Ready(Some(Ok(Frame::data(rest)))) }
                }
            };
        }
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream() && self.scan.as_ref().is_none_or(LeakScanner::is_idle)
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
