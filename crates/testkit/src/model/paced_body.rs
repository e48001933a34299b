//! A body that is sent piece by piece and tells when the last piece was taken.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::Bytes;
use hyper::body::{Body, Frame, SizeHint};
use tokio::time::{Sleep, sleep};

/// The pieces of an answer and the pause before each but the first.
pub(super) struct PacedBody {
    pieces: VecDeque<Bytes>,
    pause: Duration,
    waiting: Option<Pin<Box<Sleep>>>,
    begun: bool,
    /// Called once, when all has been taken.
    on_complete: Option<Box<dyn FnOnce() + Send>>,
}

impl fmt::Debug for PacedBody {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PacedBody")
            .field("pieces", &self.pieces.len())
            .field("pause", &self.pause)
            .finish_non_exhaustive()
    }
}

impl PacedBody {
    pub(super) fn new(text: String, pieces: usize, pause: Duration, whole: impl FnOnce() + Send + 'static) -> Self {
        let bytes = Bytes::from(text);
        let size = bytes.len().div_ceil(pieces.max(1)).max(1);
        let pieces = (0..bytes.len()).step_by(size).map(|at| bytes.slice(at..bytes.len().min(at + size))).collect();
        Self { pieces, pause, waiting: None, begun: false, on_complete: Some(Box::new(whole)) }
    }
}

impl Body for PacedBody {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let this = &mut *self;
        if this.begun && !this.pause.is_zero() && !this.pieces.is_empty() {
            let pause = this.pause;
            let waiting = this.waiting.get_or_insert_with(|| Box::pin(sleep(pause)));
            if waiting.as_mut().poll(cx).is_pending() {
                return Poll::Pending;
            }
            this.waiting = None;
        }
        this.begun = true;
        let piece = this.pieces.pop_front();
        if this.pieces.is_empty()
            && let Some(whole) = this.on_complete.take()
        {
            whole();
        }
        Poll::Ready(piece.map(|piece| Ok(Frame::data(piece))))
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.pieces.iter().map(|piece| piece.len() as u64).sum())
    }
}
