//! Wraps streams: replays bytes that were already read, and records when data last moved.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::{Buf, Bytes};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, ReadBuf};
use tokio::time::{Instant, sleep, timeout};

/// What listeners need of a client's stream.
pub(crate) trait ClientStream: AsyncRead + AsyncWrite + Unpin + Send + 'static {}
impl<S: AsyncRead + AsyncWrite + Unpin + Send + 'static> ClientStream for S {}

/// Records when data last moved on a connection. Clones share it.
#[derive(Debug, Clone)]
pub(crate) struct ActivityClock {
    start: Instant,
    last: Arc<AtomicU64>,
}

impl ActivityClock {
    pub(crate) fn new() -> Self {
        Self { start: Instant::now(), last: Arc::default() }
    }

    fn touch(&self) {
        self.last.store(self.millis(), Ordering::Relaxed);
    }

    fn millis(&self) -> u64 {
        u64::try_from(self.start.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    /// Waits until no data has moved for this long.
    pub(crate) async fn wait_idle(&self, limit: Duration) {
        loop {
            let quiet = Duration::from_millis(self.millis().saturating_sub(self.last.load(Ordering::Relaxed)));
            if quiet >= limit {
                return;
            }
            sleep(limit.saturating_sub(quiet)).await;
        }
    }
}

/// A stream that records when data moved.
#[derive(Debug)]
pub(crate) struct ActivityStream<S> {
    inner: S,
    activity: ActivityClock,
}

impl<S> ActivityStream<S> {
    pub(crate) fn new(inner: S, activity: ActivityClock) -> Self {
        Self { inner, activity }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for ActivityStream<S> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        ready!(Pin::new(&mut self.inner).poll_read(cx, buf))?;
        self.activity.touch();
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for ActivityStream<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        let written = ready!(Pin::new(&mut self.inner).poll_write(cx, buf))?;
        self.activity.touch();
        Poll::Ready(Ok(written))
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_shutdown(cx)
    }
}

/// A stream that reports how much was read from it.
#[derive(Debug)]
pub(crate) struct ByteCountReader<S, F> {
    inner: S,
    count: F,
}

impl<S, F: Fn(usize)> ByteCountReader<S, F> {
    pub(crate) fn new(inner: S, count: F) -> Self {
        Self { inner, count }
    }
}

impl<S: AsyncRead + Unpin, F: Fn(usize) + Unpin> AsyncRead for ByteCountReader<S, F> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let before = buf.filled().len();
        ready!(Pin::new(&mut self.inner).poll_read(cx, buf))?;
        (self.count)(buf.filled().len().saturating_sub(before));
        Poll::Ready(Ok(()))
    }
}

/// A stream that replays its first bytes, which were read already.
#[derive(Debug)]
pub(crate) struct PrefixedStream<S> {
    first: Bytes,
    inner: S,
}

impl<S> PrefixedStream<S> {
    pub(crate) fn new(first: impl Into<Bytes>, inner: S) -> Self {
        Self { first: first.into(), inner }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for PrefixedStream<S> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        if self.first.is_empty() {
            return Pin::new(&mut self.inner).poll_read(cx, buf);
        }
        let n = self.first.len().min(buf.remaining());
        buf.put_slice(self.first.get(..n).unwrap_or_default());
        self.first.advance(n);
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for PrefixedStream<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.inner).poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_shutdown(cx)
    }
}

const LINGER_TIME: Duration = Duration::from_secs(1);
const LINGER_BYTES: usize = 64 * 1024;

/// Writes the last bytes and closes so that they arrive: closing with unread input resets the connection, and a reset
/// discards what the client has not read yet.
pub(crate) async fn write_and_close(mut client: impl ClientStream, last_bytes: &[u8]) {
    let closing = async {
        client.write_all(last_bytes).await?;
        client.shutdown().await?;
        let mut waste = [0; 4096];
        let mut seen = 0;
        while seen < LINGER_BYTES {
            match client.read(&mut waste).await? {
                0 => break,
                n => seen += n,
            }
        }
        io::Result::Ok(())
    };
    // A client that does not wait for the answer has lost it; nothing else depends on it.
    drop(timeout(LINGER_TIME, closing).await);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn first_bytes_are_read_again() {
        let (mut far, near) = tokio::io::duplex(64);
        far.write_all(b" and the rest").await.unwrap();
        drop(far);
        let mut text = String::new();
        PrefixedStream::new(&b"the start"[..], near).read_to_string(&mut text).await.unwrap();
        assert_eq!(text, "the start and the rest");
    }

    #[tokio::test]
    async fn an_idle_connection_is_detected() {
        let (mut far, near) = tokio::io::duplex(64);
        let activity = ActivityClock::new();
        let mut near = ActivityStream::new(near, activity.clone());
        far.write_all(b"x").await.unwrap();
        let busy = async {
            assert_eq!(near.read_u8().await.unwrap(), b'x');
            near.read_u8().await
        };
        tokio::select! {
            _ = busy => panic!("no second byte is written"),
            () = activity.wait_idle(Duration::from_millis(20)) => (),
        }
        assert!(activity.millis() >= 20);
    }
}
