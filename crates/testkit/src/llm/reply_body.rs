//! The body of an answer, piece by piece: each is on its way before the next is begun.

use std::collections::VecDeque;
use std::future::Future as _;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use hyper::body::{Body, Frame, SizeHint};
use tokio::time::{Sleep, sleep};

/// How a body ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ReplyBodyEnd {
    Complete,
    /// The connection is given up.
    Cut,
}

#[derive(Debug)]
pub(super) struct ReplyBody {
    remaining: VecDeque<Bytes>,
    between: Duration,
    ending: ReplyBodyEnd,
    /// Told beforehand, whatever is sent of it.
    length: Option<u64>,
    state: ReplyBodyState,
}

#[derive(Debug)]
enum ReplyBodyState {
    Ready,
    /// One turn is left to whoever writes, so that nothing waits for what comes next.
    Yield,
    Delay(Pin<Box<Sleep>>),
}

impl ReplyBody {
    /// One piece, and nothing to be told about it.
    pub(super) fn complete(bytes: impl Into<Bytes>) -> Self {
        let bytes = bytes.into();
        let length = Some(bytes.len() as u64);
        Self {
            remaining: [bytes].into(),
            between: Duration::ZERO,
            ending: ReplyBodyEnd::Complete,
            length,
            state: ReplyBodyState::Ready,
        }
    }

    pub(super) fn new(pieces: Vec<Bytes>, between: Duration, ending: ReplyBodyEnd, length: Option<u64>) -> Self {
        Self { remaining: pieces.into(), between, ending, length, state: ReplyBodyState::Ready }
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
