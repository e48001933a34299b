//! A body on its way back to the client: counted, metered and looked through while it passes, and told at its end.

use std::fmt;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use hyper::body::{Body, Frame, Incoming};
use ralph_core::policy::Rule;
use tokio_util::task::AbortOnDropHandle;

use crate::charge::Pending;
use crate::late::{self, Drains};
use crate::meter::Tee;
use crate::notice::{Alarm, Call, Entry, Exchanged, Notice, Told, Why, Wrong};
use crate::pipeline::{Asked, Pipeline};
use crate::route::Upstream;
use crate::scan::{Leak, Scan};
use crate::upstream::Lease;

/// What has to be told and charged when an exchange ends, however it ends.
#[derive(Debug)]
pub(crate) struct Ending {
    notice: Arc<dyn Notice>,
    told: Option<Exchanged>,
    charge: Option<Metered>,
}

/// A call under way and the reader of its usage.
#[derive(Debug)]
pub(crate) struct Metered {
    pub(crate) pending: Pending,
    pub(crate) tee: Tee,
    /// Where its answer is read on when the client is gone.
    pub(crate) drains: Drains,
}

impl Ending {
    pub(crate) fn new(notice: Arc<dyn Notice>, told: Option<Exchanged>, charge: Option<Metered>) -> Self {
        Self { notice, told, charge }
    }

    /// Notes what the client is answered with, and how much of its own body went out.
    pub(crate) fn note(&mut self, status: u16, sent: u64) {
        self.status(status);
        if let Some(told) = &mut self.told {
            told.sent = sent;
        }
    }

    pub(crate) fn status(&mut self, status: u16) {
        if let Some(told) = &mut self.told {
            told.status = Some(status);
        }
    }

    /// Notes how an answer began, and what it says of the provider's limits.
    pub(crate) fn heard(&mut self, status: u16, limits: Vec<(String, String)>) {
        self.status(status);
        if let Some(metered) = &mut self.charge {
            metered.pending.limits = limits;
            metered.pending.answered(status);
        }
    }

    /// Has the answer read by another reader than at first.
    pub(crate) fn read_by(&mut self, tee: Tee) {
        if let Some(metered) = &mut self.charge {
            metered.tee = tee;
        }
    }

    pub(crate) fn tee(&mut self) -> Option<&mut Tee> {
        self.charge.as_mut().map(|metered| &mut metered.tee)
    }

    /// Charges the call before its answer was read.
    pub(crate) fn charge(&mut self, how: impl FnOnce(Pending) -> Call) {
        if let (Some(told), Some(metered)) = (&mut self.told, self.charge.take()) {
            told.call = Some(how(metered.pending));
        }
    }

    /// Charges and tells, once.
    fn end(&mut self) {
        let Some(mut told) = self.told.take() else { return };
        if let Some(Metered { pending, tee, .. }) = self.charge.take() {
            told.call = Some(pending.settle(&tee.seen(), tee.begun()));
        }
        self.notice.tell(Told::Exchanged(told));
    }
}

impl Drop for Ending {
    fn drop(&mut self) {
        self.end();
    }
}

/// The connection an answer comes by, which has to stand until its end.
#[derive(Debug)]
pub(crate) enum Keep {
    /// The client's own.
    Line(#[expect(dead_code, reason = "it is kept, and that is all")] Arc<AbortOnDropHandle<()>>),
    /// One that serves others afterwards.
    Lease(Lease),
}

/// The leave to ask an endpoint of a route and to hear its answer, until a rule is against it.
pub(crate) struct Leave {
    denial: Pin<Box<dyn Future<Output = Rule> + Send>>,
    pipeline: Arc<Pipeline>,
    upstream: Arc<Upstream>,
}

impl Leave {
    pub(crate) fn new(pipeline: &Arc<Pipeline>, upstream: &Arc<Upstream>, asked: Asked) -> Self {
        let (pipeline, upstream) = (Arc::clone(pipeline), Arc::clone(upstream));
        Self { denial: Box::pin(asked.denial()), pipeline, upstream }
    }

    /// Waits for its end, and returns the rule that ended it.
    pub(crate) async fn ended(&mut self) -> Rule {
        self.denial.as_mut().await
    }

    /// Says whether an answer under way may no longer pass, and tells of it.
    fn has_ended(&mut self, cx: &mut Context<'_>) -> bool {
        let ended = self.denial.as_mut().poll(cx).is_ready();
        if ended {
            self.pipeline.refused(Entry::Route, &self.upstream.target, &Why::Revoked);
        }
        ended
    }
}

impl fmt::Debug for Leave {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Leave")
    }
}

/// A body on its way back.
#[derive(Debug)]
pub(crate) struct Passing {
    body: Option<Incoming>,
    keep: Option<Keep>,
    scan: Scan,
    ending: Option<Ending>,
    leave: Option<Leave>,
}

impl Passing {
    pub(crate) fn new(body: Incoming, keep: Keep, scan: Scan, ending: Ending) -> Self {
        Self { body: Some(body), keep: Some(keep), scan, ending: Some(ending), leave: None }
    }

    /// Lets it pass only until the leave for it ends; then it is cut on both sides.
    #[must_use]
    pub(crate) fn within(mut self, leave: Leave) -> Self {
        self.leave = Some(leave);
        self
    }

    /// The answer has come to its end: its connection is free for another.
    fn whole(&mut self) {
        self.body = None;
        self.ending = None;
        if let Some(Keep::Lease(lease)) = self.keep.take() {
            lease.give_back();
        }
    }

    fn note(&mut self, bytes: usize) {
        if let Some(told) = self.ending.as_mut().and_then(|ending| ending.told.as_mut()) {
            told.received = told.received.saturating_add(bytes as u64);
        }
    }

    fn metered(&mut self) -> Option<&mut Metered> {
        self.ending.as_mut()?.charge.as_mut()
    }

    /// Takes a piece and returns what passes on; an error cuts the answer.
    fn pass(&mut self, piece: Bytes) -> io::Result<Bytes> {
        self.note(piece.len());
        let piece = match self.metered() {
            Some(metered) => metered.tee.pass(piece),
            None => piece,
        };
        self.scan.pass(piece).map_err(|leak| self.cut(leak))
    }

    /// Adds what was held back to the last piece, and ends.
    fn end_with(&mut self, piece: Bytes) -> io::Result<Bytes> {
        let held = self.metered().map_or_else(Bytes::new, |metered| metered.tee.rest());
        let passed = self.scan.pass(held).map_err(|leak| self.cut(leak))?;
        let rest = self.scan.rest();
        self.whole();
        if passed.is_empty() && rest.is_empty() { Ok(piece) } else { Ok([piece, passed, rest].concat().into()) }
    }

    fn cut(&mut self, Leak(credential): Leak) -> io::Error {
        if let Some(ending) = &self.ending {
            let (host, port) = ending.told.as_ref().map_or((String::new(), 0), |told| (told.host.clone(), told.port));
            ending.notice.tell(Told::Alarm(Alarm { what: Wrong::SecretReturned, credential, host, port }));
        }
        io::Error::other("the answer held a real credential and was cut")
    }
}

impl Body for Passing {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        loop {
            if self.body.is_some() && self.leave.as_mut().is_some_and(|leave| leave.has_ended(cx)) {
                (self.body, self.ending, self.keep, self.leave) = (None, None, None, None);
                return Poll::Ready(Some(Err(io::Error::other("the network policy changed"))));
            }
            let Some(body) = self.body.as_mut() else { return Poll::Ready(None) };
            let piece = match std::task::ready!(Pin::new(body).poll_frame(cx)) {
                // Trailers are about the connection that the answer came by.
                Some(Ok(frame)) => match frame.into_data() {
                    Ok(data) => {
                        // Whoever knows how long an answer is does not ask for its end, so it is told with the last piece.
                        let last = self.body.as_ref().is_some_and(Body::is_end_stream);
                        self.pass(data).and_then(|piece| if last { self.end_with(piece) } else { Ok(piece) })
                    }
                    Err(_) => continue,
                },
                Some(Err(error)) => {
                    self.body = None;
                    self.ending = None;
                    return Poll::Ready(Some(Err(io::Error::other(error))));
                }
                None => self.end_with(Bytes::new()),
            };
            match piece {
                Ok(piece) if piece.is_empty() => (),
                Ok(piece) => return Poll::Ready(Some(Ok(Frame::data(piece)))),
                Err(error) => {
                    self.ending = None;
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

impl Drop for Passing {
    fn drop(&mut self) {
        let (Some(body), Some(ending)) = (self.body.take(), self.ending.take()) else { return };
        let Some(drains) = ending.charge.as_ref().map(|metered| metered.drains.clone()) else { return };
        // The client hung up. The provider goes on and charges for all of it, so its count is waited for; when it does
        // not come, dropping the ending charges the worst case.
        late::hung_up(&drains, body, self.keep.take(), ending);
    }
}
