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
pub(super) enum Fate {
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
struct State {
    fate: Fate,
    /// Whoever waits on a stalled connection; woken when the server ends.
    stalled: Option<Waker>,
}

/// The handler's hold on its connection.
#[derive(Debug, Clone, Default)]
pub(super) struct Control(Arc<Mutex<State>>);

impl Control {
    /// Decides what becomes of everything written from now on.
    pub(super) fn set(&self, fate: Fate) {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        state.fate = fate;
        if let Some(waker) = state.stalled.take() {
            waker.wake();
        }
    }
}

/// Listens on a port of this host.
#[derive(Debug)]
pub(super) struct Port(pub(super) TcpListener);

impl Listener for Port {
    type Io = Connection;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (Connection, SocketAddr) {
        let (stream, address) = Listener::accept(&mut self.0).await;
        (Connection { stream, control: Control::default() }, address)
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        self.0.local_addr()
    }
}

impl Connected<IncomingStream<'_, Port>> for Control {
    fn connect_info(incoming: IncomingStream<'_, Port>) -> Self {
        incoming.io().control.clone()
    }
}

#[derive(Debug)]
pub(super) struct Connection {
    stream: TcpStream,
    control: Control,
}

impl AsyncRead for Connection {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, buf)
    }
}

impl AsyncWrite for Connection {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let this = &mut *self;
        let mut state = this.control.0.lock().unwrap_or_else(PoisonError::into_inner);
        let room = match state.fate {
            Fate::Whole => bytes.len(),
            Fate::Reset => {
                // Without lingering the kernel sends a reset instead of a goodbye.
                this.stream.set_zero_linger()?;
                return Poll::Ready(Err(io::ErrorKind::ConnectionReset.into()));
            }
            Fate::Cut(0) => return Poll::Ready(Err(io::ErrorKind::ConnectionAborted.into())),
            Fate::Stall(0) => {
                state.stalled = Some(cx.waker().clone());
                return Poll::Pending;
            }
            Fate::Cut(room) | Fate::Stall(room) => room.min(bytes.len()),
        };
        let written = match Pin::new(&mut this.stream).poll_write(cx, bytes.get(..room).unwrap_or(bytes)) {
            Poll::Ready(Ok(written)) => written,
            other => return other,
        };
        state.fate = match state.fate {
            Fate::Cut(room) => Fate::Cut(room.saturating_sub(written)),
            Fate::Stall(room) => Fate::Stall(room.saturating_sub(written)),
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
