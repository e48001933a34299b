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
pub(super) enum Ending {
    Whole,
    /// The connection is given up.
    Cut,
}

#[derive(Debug)]
pub(super) struct Pieces {
    left: VecDeque<Bytes>,
    between: Duration,
    ending: Ending,
    /// Told beforehand, whatever is sent of it.
    length: Option<u64>,
    state: State,
}

#[derive(Debug)]
enum State {
    Ready,
    /// One turn is left to whoever writes, so that nothing waits for what comes next.
    Yields,
    Waits(Pin<Box<Sleep>>),
}

impl Pieces {
    /// One piece, and nothing to be told about it.
    pub(super) fn whole(bytes: impl Into<Bytes>) -> Self {
        let bytes = bytes.into();
        let length = Some(bytes.len() as u64);
        Self { left: [bytes].into(), between: Duration::ZERO, ending: Ending::Whole, length, state: State::Ready }
    }

    pub(super) fn new(pieces: Vec<Bytes>, between: Duration, ending: Ending, length: Option<u64>) -> Self {
        Self { left: pieces.into(), between, ending, length, state: State::Ready }
    }
}

impl Body for Pieces {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, io::Error>>> {
        match &mut self.state {
            State::Ready => (),
            State::Yields => {
                self.state = State::Ready;
                cx.waker().wake_by_ref();
                return Poll::Pending;
            }
            State::Waits(sleep) => {
                std::task::ready!(sleep.as_mut().poll(cx));
                self.state = State::Ready;
            }
        }
        match (self.left.pop_front(), self.ending) {
            (Some(piece), ending) => {
                let more = !self.left.is_empty();
                if more && self.between > Duration::ZERO {
                    self.state = State::Waits(Box::pin(sleep(self.between)));
                } else if more || ending == Ending::Cut {
                    self.state = State::Yields;
                }
                Poll::Ready(Some(Ok(Frame::data(piece))))
            }
            (None, Ending::Whole) => Poll::Ready(None),
            (None, Ending::Cut) => Poll::Ready(Some(Err(io::ErrorKind::ConnectionAborted.into()))),
        }
    }

    fn is_end_stream(&self) -> bool {
        self.left.is_empty() && self.ending == Ending::Whole
    }

    fn size_hint(&self) -> SizeHint {
        self.length.map_or_else(SizeHint::default, SizeHint::with_exact)
    }
}
