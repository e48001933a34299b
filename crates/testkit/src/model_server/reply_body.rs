//! Sends the body of an answer piece by piece: each is sent before the next begins.

use std::collections::VecDeque;
use std::future::Future as _;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use hyper::body::{Body, Frame, SizeHint};
use tokio::time::{Sleep, sleep};

/// How a body ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ReplyBodyEnd {
    Complete,
    /// The connection is aborted.
    Cut,
}

#[derive(Debug)]
pub(super) struct ReplyBody {
    remaining: VecDeque<Bytes>,
    between: Duration,
    ending: ReplyBodyEnd,
    /// The announced length, regardless of how much is sent.
    length: Option<u64>,
    /// Counts this answer when its last byte was sent.
    taken: Option<Arc<AtomicUsize>>,
    state: ReplyBodyState,
}

#[derive(Debug)]
enum ReplyBodyState {
    Ready,
    /// Yields once to the writer, so that a piece is sent without waiting for the next.
    Yield,
    Delay(Pin<Box<Sleep>>),
}

impl ReplyBody {
    /// Creates a body of one piece.
    pub(super) fn complete(bytes: impl Into<Bytes>) -> Self {
        let bytes = bytes.into();
        let length = Some(bytes.len() as u64);
        Self {
            remaining: [bytes].into(),
            between: Duration::ZERO,
            ending: ReplyBodyEnd::Complete,
            length,
            taken: None,
            state: ReplyBodyState::Ready,
        }
    }

    pub(super) fn new(pieces: Vec<Bytes>, between: Duration, ending: ReplyBodyEnd, length: Option<u64>) -> Self {
        Self { remaining: pieces.into(), between, ending, length, taken: None, state: ReplyBodyState::Ready }
    }

    /// Creates a body that sends a text in several pieces, with a pause before each but the first; `taken` counts it
    /// when all was sent.
    pub(super) fn paced(text: String, pieces: usize, pause: Duration, taken: Arc<AtomicUsize>) -> Self {
        let bytes = Bytes::from(text);
        let size = bytes.len().div_ceil(pieces.max(1)).max(1);
        let pieces = (0..bytes.len()).step_by(size).map(|at| bytes.slice(at..bytes.len().min(at + size))).collect();
        let length = Some(bytes.len() as u64);
        Self { taken: Some(taken), ..Self::new(pieces, pause, ReplyBodyEnd::Complete, length) }
    }
}

impl Body for ReplyBody {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, io::Error>>> {
        match &mut self.state {
            ReplyBodyState::Ready => (),
            ReplyBodyState::Yield => {
                self.state = ReplyBodyState::Ready;
                cx.waker().wake_by_ref();
                return Poll::Pending;
            }
            ReplyBodyState::Delay(sleep) => {
                std::task::ready!(sleep.as_mut().poll(cx));
                self.state = ReplyBodyState::Ready;
            }
        }
        match (self.remaining.pop_front(), self.ending) {
            (Some(piece), ending) => {
                let more = !self.remaining.is_empty();
                if !more && let Some(taken) = self.taken.take() {
                    taken.fetch_add(1, Ordering::SeqCst);
                }
                if more && self.between > Duration::ZERO {
                    self.state = ReplyBodyState::Delay(Box::pin(sleep(self.between)));
                } else if more || ending == ReplyBodyEnd::Cut {
                    self.state = ReplyBodyState::Yield;
                }
                Poll::Ready(Some(Ok(Frame::data(piece))))
            }
            (None, ReplyBodyEnd::Complete) => Poll::Ready(None),
            (None, ReplyBodyEnd::Cut) => Poll::Ready(Some(Err(io::ErrorKind::ConnectionAborted.into()))),
        }
    }

    fn is_end_stream(&self) -> bool {
        self.remaining.is_empty() && self.ending == ReplyBodyEnd::Complete
    }

    fn size_hint(&self) -> SizeHint {
        self.length.map_or_else(SizeHint::default, SizeHint::with_exact)
    }
}
