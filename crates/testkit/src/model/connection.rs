//! A connection whose answer can be cut, stalled or reset by whoever writes it.

use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Waker};

use axum::extract::connect_info::Connected;
use axum::serve::{IncomingStream, Listener};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};

/// What becomes of the bytes written to a connection.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) enum ConnectionFault {
    #[default]
    Whole,
    /// Closes after this many more bytes.
    Cut(usize),
    /// Goes quiet after this many more bytes.
    Stall(usize),
    /// Resets at once.
    Reset,
}

#[derive(Debug, Default)]
struct FaultyConnectionState {
    fault: ConnectionFault,
    /// Whoever waits on a stalled connection; woken when the server ends.
    stalled: Option<Waker>,
}

/// The handler's hold on its connection.
#[derive(Debug, Clone, Default)]
pub(super) struct FaultyConnectionControl(Arc<Mutex<FaultyConnectionState>>);

impl FaultyConnectionControl {
    /// Decides what becomes of everything written from now on.
    pub(super) fn set(&self, fate: ConnectionFault) {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        state.fault = fate;
        if let Some(waker) = state.stalled.take() {
            waker.wake();
        }
    }
}

/// Listens on a port of this host.
#[derive(Debug)]
pub(super) struct FaultyListener(pub(super) TcpListener);

impl Listener for FaultyListener {
    type Io = FaultyConnection;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (FaultyConnection, SocketAddr) {
        let (stream, address) = Listener::accept(&mut self.0).await;
        (FaultyConnection { stream, control: FaultyConnectionControl::default() }, address)
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        self.0.local_addr()
    }
}

impl Connected<IncomingStream<'_, FaultyListener>> for FaultyConnectionControl {
    fn connect_info(incoming: IncomingStream<'_, FaultyListener>) -> Self {
        incoming.io().control.clone()
    }
}

#[derive(Debug)]
pub(super) struct FaultyConnection {
    stream: TcpStream,
    control: FaultyConnectionControl,
}

impl AsyncRead for FaultyConnection {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, buf)
    }
}

impl AsyncWrite for FaultyConnection {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let this = &mut *self;
        let mut state = this.control.0.lock().unwrap_or_else(PoisonError::into_inner);
        let room = match state.fault {
            ConnectionFault::Whole => bytes.len(),
            ConnectionFault::Reset => {
                // Without lingering the kernel sends a reset instead of a goodbye.
                this.stream.set_zero_linger()?;
                return Poll::Ready(Err(io::ErrorKind::ConnectionReset.into()));
            }
            ConnectionFault::Cut(0) => return Poll::Ready(Err(io::ErrorKind::ConnectionAborted.into())),
            ConnectionFault::Stall(0) => {
                state.stalled = Some(cx.waker().clone());
                return Poll::Pending;
            }
            ConnectionFault::Cut(room) | ConnectionFault::Stall(room) => room.min(bytes.len()),
        };
        let written = match Pin::new(&mut this.stream).poll_write(cx, bytes.get(..room).unwrap_or(bytes)) {
            Poll::Ready(Ok(written)) => written,
            other => return other,
        };
        state.fault = match state.fault {
            ConnectionFault::Cut(room) => ConnectionFault::Cut(room.saturating_sub(written)),
            ConnectionFault::Stall(room) => ConnectionFault::Stall(room.saturating_sub(written)),
            fate => fate,
        };
        Poll::Ready(Ok(written))
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}
