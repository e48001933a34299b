//! A connection to a host outside, used for one request after the other of the same client.

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
use rustls::ClientConfig;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::time::timeout;
use tokio_util::task::AbortOnDropHandle;

use crate::judge::Ask;
use crate::notice::{Entry, Why, Wrong};
use crate::pipeline::{Pipeline, Refused, Way, alarm};
use crate::scan::{Leak, Scan};
use crate::target::Target;
use crate::upstream::secure;

/// The most that waits on one side of an exchange for the other.
pub(crate) const BUFFER: usize = 64 * 1024;

/// An open connection.
#[derive(Debug)]
pub(crate) struct Line {
    target: Target,
    tls: bool,
    sender: http1::SendRequest<Sending>,
    ask: Arc<Mutex<Ask>>,
    running: Arc<AbortOnDropHandle<()>>,
}

impl Line {
    /// Opens a connection for a request, all the way through the pipeline.
    pub(crate) async fn open(
        pipeline: &Arc<Pipeline>,
        entry: Entry,
        target: &Target,
        tls: bool,
        ask: Ask,
    ) -> Result<Self, Refused> {
        let Way { stream, mut permit } = pipeline.open(entry, target, ask).await?;
        let ask = permit.ask();
        let asked = |ask: &Mutex<Ask>| ask.lock().unwrap_or_else(PoisonError::into_inner).request();
        let refused = |why: Why| {
            pipeline.refused_request(entry, target, asked(&ask), &why);
            Refused { why, address: None }
        };
        let stream: Box<dyn Both> = if tls {
            let config = pipeline.resolver.tls().map_err(|_| refused(Why::Untrusted))?;
            let mut config = ClientConfig::clone(&config);
            config.alpn_protocols = vec![b"http/1.1".to_vec()];
            match timeout(pipeline.limits.dial_time, secure(Arc::new(config), target, stream)).await {
                Ok(Ok(stream)) => Box::new(stream),
                Ok(Err(error)) => {
                    tracing::debug!(%target, %error, "TLS to a host failed");
                    return Err(refused(Why::Untrusted));
                }
                Err(_) => return Err(refused(Why::Unreachable)),
            }
        } else {
            Box::new(stream)
        };
        let (sender, connection) = http1::Builder::new()
            .max_buf_size(BUFFER)
            .handshake(TokioIo::new(stream))
            .await
            .map_err(|_| refused(Why::Unreachable))?;
        let (owner, told, last) = (Arc::clone(pipeline), target.clone(), Arc::clone(&ask));
        let running = AbortOnDropHandle::new(tokio::spawn(async move {
            tokio::select! {
                // Both ends of the exchange see a failure themselves.
                _ = connection => (),
                () = permit.revoked() => owner.refused_request(entry, &told, asked(&last), &Why::Revoked),
            }
        }));
        Ok(Self { target: target.clone(), tls, sender, ask, running: Arc::new(running) })
    }

    /// Takes the connection for another request, if it leads there and still stands.
    pub(crate) fn again(mut self, target: &Target, tls: bool, ask: &Ask) -> Option<Self> {
        let fits = self.target == *target && self.tls == tls && !self.sender.is_closed();
        // Without waiting: a connection that is not free at once is one that has to be made.
        let ready = fits && futures_ready(&mut self.sender);
        if ready {
            *self.ask.lock().unwrap_or_else(PoisonError::into_inner) = ask.clone();
        }
        ready.then_some(self)
    }

    /// Sends a request; it comes back whole when the host had closed the connection before any of it was sent.
    pub(crate) async fn send(
        &mut self,
        request: Request<Sending>,
    ) -> Result<Response<Incoming>, Option<Request<Sending>>> {
        self.sender.try_send_request(request).await.map_err(|mut failed| failed.take_message())
    }

    /// Returns what keeps the connection alive.
    pub(crate) fn running(&self) -> Arc<AbortOnDropHandle<()>> {
        Arc::clone(&self.running)
    }
}

fn futures_ready(sender: &mut http1::SendRequest<Sending>) -> bool {
    let mut cx = Context::from_waker(std::task::Waker::noop());
    matches!(sender.poll_ready(&mut cx), Poll::Ready(Ok(())))
}

trait Both: AsyncRead + AsyncWrite + Unpin + Send {}
impl<S: AsyncRead + AsyncWrite + Unpin + Send> Both for S {}

/// A body on its way out: counted, and looked through for stand-ins.
#[derive(Debug)]
pub(crate) struct Sending {
    body: Incoming,
    scan: Option<Scan>,
    count: Arc<AtomicU64>,
    pipeline: Arc<Pipeline>,
    /// Where it goes, for an alarm.
    target: Target,
}

impl Sending {
    pub(crate) fn new(body: Incoming, pipeline: Arc<Pipeline>, target: Target) -> Self {
        let phantoms = &pipeline.phantoms;
        let scan = (!phantoms.is_empty()).then(|| Scan::new(phantoms.clone()));
        Self { body, scan, count: Arc::default(), pipeline, target }
    }

    /// Shares how many bytes were sent.
    pub(crate) fn count(&self) -> Arc<AtomicU64> {
        Arc::clone(&self.count)
    }

    fn look(&mut self, piece: Bytes) -> io::Result<Bytes> {
        self.count.fetch_add(piece.len() as u64, Ordering::Relaxed);
        self.pipeline.leaves(piece.len(), &self.target);
        let Some(scan) = &mut self.scan else { return Ok(piece) };
        // A body that held a stand-in is cut before its end: nothing is held back and lost, since a text that is only
        // begun is passed on as soon as it turns out to be another.
        scan.pass(piece).map_err(|Leak(credential)| {
            alarm(&*self.pipeline.notice, Wrong::PhantomAstray, credential, &self.target);
            io::Error::other("the request held a stand-in for a credential and was cut")
        })
    }
}

impl Body for Sending {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        loop {
            return match std::task::ready!(Pin::new(&mut self.body).poll_frame(cx)) {
                Some(Ok(frame)) => match frame.into_data() {
                    Ok(data) => match self.look(data) {
                        Ok(piece) if piece.is_empty() => continue,
                        Ok(piece) => Poll::Ready(Some(Ok(Frame::data(piece)))),
                        Err(error) => Poll::Ready(Some(Err(error))),
                    },
                    Err(_) => continue,
                },
                Some(Err(error)) => Poll::Ready(Some(Err(io::Error::other(error)))),
                None => {
                    let rest = self.scan.take().map(|mut scan| scan.rest()).unwrap_or_default();
                    if rest.is_empty() { Poll::Ready(None) } else { Poll::Ready(Some(Ok(Frame::data(rest)))) }
                }
            };
        }
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream() && self.scan.as_ref().is_none_or(Scan::is_idle)
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
