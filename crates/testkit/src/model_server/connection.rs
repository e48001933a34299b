//! Wraps a connection so that its handler can cut, stall or reset the answer.

use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;

/// What happens to the bytes written to a connection.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) enum ConnectionFault {
    #[default]
    Whole,
    /// Closes after this many more bytes.
    Cut(usize),
    /// Stalls after this many more bytes, until the server ends.
    Stall(usize),
    /// Resets at once.
    Reset,
}

/// The handler's control over its connection.
#[derive(Debug, Clone, Default)]
pub(super) struct FaultControl(Arc<Mutex<ConnectionFault>>);

impl FaultControl {
    /// Sets what happens to everything written from now on.
    pub(super) fn set(&self, fault: ConnectionFault) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = fault;
    }
}

#[derive(Debug)]
pub(super) struct FaultyConnection {
    pub(super) stream: TcpStream,
    pub(super) control: FaultControl,
}

impl AsyncRead for FaultyConnection {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, buf)
    }
}

impl AsyncWrite for FaultyConnection {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let this = &mut *self;
        let mut fault = this.control.0.lock().unwrap_or_else(PoisonError::into_inner);
        let room = match *fault {
            ConnectionFault::Whole => bytes.len(),
            ConnectionFault::Reset => {
                // Without lingering the kernel sends a reset instead of an orderly close.
                this.stream.set_zero_linger()?;
                return Poll::Ready(Err(io::ErrorKind::ConnectionReset.into()));
            }
            ConnectionFault::Cut(0) => return Poll::Ready(Err(io::ErrorKind::ConnectionAborted.into())),
            // Never woken: the connection is dropped with the server.
            ConnectionFault::Stall(0) => return Poll::Pending,
            ConnectionFault::Cut(room) | ConnectionFault::Stall(room) => room.min(bytes.len()),
        };
        let written = match Pin::new(&mut this.stream).poll_write(cx, bytes.get(..room).unwrap_or(bytes)) {
            Poll::Ready(Ok(written)) => written,
            other => return other,
        };
        match &mut *fault {
            ConnectionFault::Cut(room) | ConnectionFault::Stall(room) => *room = room.saturating_sub(written),
            ConnectionFault::Whole | ConnectionFault::Reset => (),
        }
        Poll::Ready(Ok(written))
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}
