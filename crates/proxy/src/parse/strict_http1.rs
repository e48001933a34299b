//! Guards the HTTP parser: lets only messages through whose head was parsed strictly before.
//!
//! The parser behind it keeps a connection open for further requests and accepts what servers have learnt to accept.
//! A [`StrictHttpStream`] follows the framing of each message (a length, or chunks) and holds the bytes of the next
//! head back until they are complete and well-formed. So every request on a connection is parsed as strictly as the
//! first, and what follows a body is never taken for part of it.

use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, ready};

use bytes::{Buf, BytesMut};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, Sleep, sleep_until};

use super::request_head::{self, BodyFraming, HeadError};
use crate::limits::ProxyLimits;

/// The number of bytes read from the client at once.
const READ_SIZE: usize = 16 * 1024;
/// The longest line before a chunk; chunk extensions are not supported.
const MAX_CHUNK_LINE: usize = 18;

/// What a strict stream has seen so far, for the code that answers its requests.
#[derive(Debug, Clone, Default)]
pub(crate) struct RequestHeadLog(Arc<Mutex<HeadLogState>>);

#[derive(Debug, Default)]
struct HeadLogState {
    heads: u64,
    target: String,
    fault: Option<HeadError>,
}

impl RequestHeadLog {
    /// Returns how many heads were let through, and the target of the last as it was written.
    pub(crate) fn heads(&self) -> (u64, String) {
        let seen = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        (seen.heads, seen.target.clone())
    }

    /// Returns what was wrong with a head, if anything; only the first call returns it.
    pub(crate) fn take_fault(&self) -> Option<HeadError> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).fault.take()
    }

    fn record_head(&self, target: String) {
        let mut seen = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        seen.heads += 1;
        seen.target = target;
    }

    fn record_fault(&self, fault: HeadError) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).fault = Some(fault);
    }
}

/// The position of the stream within a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum FramingState {
    /// In a head, of which this many bytes were examined.
    Head(usize),
    /// In a body of which this many bytes are left.
    Length(u64),
    Chunks(HttpChunkState),
    /// Nothing more is let through.
    Closed,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum HttpChunkState {
    /// In the line with the length of the next chunk: its value so far and its length in bytes.
    Size {
        value: u64,
        digits: usize,
    },
    SizeLf {
        value: u64,
    },
    Data(u64),
    DataCr,
    DataLf,
    /// After the last chunk: trailers are not accepted, so only the empty line may follow.
    EndCr,
    EndLf,
}

/// A client's stream whose messages are checked before they are passed on.
#[derive(Debug)]
pub(crate) struct StrictHttpStream<S> {
    inner: S,
    bytes: BytesMut,
    /// The number of buffered bytes that may be passed on.
    checked: usize,
    place: FramingState,
    limits: ProxyLimits,
    log: RequestHeadLog,
    /// Runs while a head is incomplete.
    head_timer: Option<Pin<Box<Sleep>>>,
}

impl<S> StrictHttpStream<S> {
    /// Wraps a stream of which `bytes` were read already.
    pub(crate) fn new(inner: S, bytes: &[u8], limits: ProxyLimits) -> Self {
        let (log, place) = (RequestHeadLog::default(), FramingState::Head(0));
        Self { inner, bytes: BytesMut::from(bytes), checked: 0, place, limits, log, head_timer: None }
    }

    pub(crate) fn log(&self) -> RequestHeadLog {
        self.log.clone()
    }

    pub(crate) fn into_inner(self) -> S {
        self.inner
    }

    /// Advances as far as the buffered bytes allow; returns true if some may be passed on.
    fn advance(&mut self) -> io::Result<bool> {
        match self.place {
            FramingState::Closed => {}
            FramingState::Head(seen) => match self.parse_head(seen) {
                Ok(Some((end, head))) => {
                    self.log.record_head(head.target);
                    self.head_timer = None;
                    match head.framing {
                        // The part of the body that is already here is released together with its head.
                        BodyFraming::Length(length) => self.release_body(end, length),
                        BodyFraming::Chunked => {
                            self.checked = end;
                            self.place = FramingState::Chunks(HttpChunkState::Size { value: 0, digits: 0 });
                        }
                    }
                }
                Ok(None) => self.place = FramingState::Head(self.bytes.len()),
                Err(fault) => self.close_with(fault),
            },
            FramingState::Length(left) => self.release_body(0, left),
            FramingState::Chunks(chunk) => {
                let (free, next) = advance_chunks(chunk, &self.bytes)?;
                self.checked = free;
                self.place = next.map_or(FramingState::Head(0), FramingState::Chunks);
            }
        }
        Ok(self.checked > 0)
    }

    /// Releases the first bytes and what follows them of a body of which `left` bytes are left.
    fn release_body(&mut self, first: usize, left: u64) {
        let some = self.bytes.len().saturating_sub(first).min(usize::try_from(left).unwrap_or(usize::MAX));
        self.checked = first + some;
        let left = left.saturating_sub(some as u64);
        self.place = if left == 0 { FramingState::Head(0) } else { FramingState::Length(left) };
    }

    fn parse_head(&self, seen: usize) -> Result<Option<(usize, request_head::RequestHead)>, HeadError> {
        if self.bytes.first().is_some_and(|byte| !byte.is_ascii_uppercase()) {
            return Err(HeadError::Malformed("it is not HTTP"));
        }
        match request_head::find_head_end(&self.bytes, seen)? {
            Some(end) if end > self.limits.head_bytes => Err(HeadError::TooLong),
            Some(end) => {
                let parsed =
                    request_head::parse(self.bytes.get(..end).unwrap_or_default()).map_err(HeadError::Malformed)?;
                Ok(Some((end, parsed)))
            }
            None if self.bytes.len() > self.limits.head_bytes => Err(HeadError::TooLong),
            None => Ok(None),
        }
    }

    fn close_with(&mut self, fault: HeadError) {
        self.log.record_fault(fault);
        self.place = FramingState::Closed;
        self.head_timer = None;
    }
}

/// Follows the framing of chunks through the bytes. Returns how many bytes belong to the body and the state after
/// them; `None` at its end.
fn advance_chunks(mut at: HttpChunkState, bytes: &[u8]) -> io::Result<(usize, Option<HttpChunkState>)> {
    let wrong = |what: &'static str| io::Error::new(io::ErrorKind::InvalidData, what);
    let mut used = 0;
    while let Some(byte) = bytes.get(used) {
        at = match (at, byte) {
            (HttpChunkState::Size { value, digits }, byte) if byte.is_ascii_hexdigit() && digits < MAX_CHUNK_LINE => {
                let digit = char::from(*byte).to_digit(16).unwrap_or(0);
                let value = value.checked_mul(16).and_then(|value| value.checked_add(u64::from(digit)));
                HttpChunkState::Size { value: value.ok_or_else(|| wrong("a chunk is too long"))?, digits: digits + 1 }
            }
            (HttpChunkState::Size { value, digits: 1.. }, b'\r') => HttpChunkState::SizeLf { value },
            (HttpChunkState::SizeLf { value: 0 }, b'\n') => HttpChunkState::EndCr,
            (HttpChunkState::SizeLf { value }, b'\n') => HttpChunkState::Data(value),
            (HttpChunkState::Data(left), _) => {
                let some = (bytes.len() - used).min(usize::try_from(left).unwrap_or(usize::MAX));
                used += some;
                let left = left.saturating_sub(some as u64);
                at = if left == 0 { HttpChunkState::DataCr } else { HttpChunkState::Data(left) };
                continue;
            }
            (HttpChunkState::DataCr, b'\r') => HttpChunkState::DataLf,
            (HttpChunkState::DataLf, b'\n') => HttpChunkState::Size { value: 0, digits: 0 },
            (HttpChunkState::EndCr, b'\r') => HttpChunkState::EndLf,
            (HttpChunkState::EndLf, b'\n') => return Ok((used + 1, None)),
            _ => return Err(wrong("a chunk is not of good form")),
        };
        used += 1;
    }
    Ok((used, Some(at)))
}

impl<S: AsyncRead + Unpin> AsyncRead for StrictHttpStream<S> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let strict_stream = &mut *self;
        loop {
            if strict_stream.checked > 0 {
                let some = strict_stream.checked.min(buf.remaining());
                buf.put_slice(strict_stream.bytes.get(..some).unwrap_or_default());
                strict_stream.bytes.advance(some);
                strict_stream.checked -= some;
                return Poll::Ready(Ok(()));
            }
            if strict_stream.place == FramingState::Closed {
                return Poll::Ready(Ok(()));
            }
            if !strict_stream.bytes.is_empty() && strict_stream.advance()? {
                continue;
            }
            if strict_stream.place == FramingState::Closed {
                return Poll::Ready(Ok(()));
            }
            // Only a head that has begun is timed: between messages a client may be idle.
            if matches!(strict_stream.place, FramingState::Head(_)) && !strict_stream.bytes.is_empty() {
                let until = Instant::now() + strict_stream.limits.head_time;
                let clock = strict_stream.head_timer.get_or_insert_with(|| Box::pin(sleep_until(until)));
                if clock.as_mut().poll(cx).is_ready() {
                    strict_stream.close_with(HeadError::TimedOut);
                    return Poll::Ready(Ok(()));
                }
            }
            let mut fresh = [std::mem::MaybeUninit::uninit(); READ_SIZE];
            let mut fresh = ReadBuf::uninit(&mut fresh);
            ready!(Pin::new(&mut strict_stream.inner).poll_read(cx, &mut fresh))?;
            if fresh.filled().is_empty() {
                if !strict_stream.bytes.is_empty() {
                    strict_stream.log.record_fault(HeadError::Disconnected);
                }
                strict_stream.place = FramingState::Closed;
                return Poll::Ready(Ok(()));
            }
            strict_stream.bytes.extend_from_slice(fresh.filled());
        }
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for StrictHttpStream<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.inner).poll_write(cx, buf)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.inner).poll_write_vectored(cx, bufs)
    }

    fn is_write_vectored(&self) -> bool {
        self.inner.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use tokio::io::AsyncReadExt as _;

    use super::*;

    /// Reads everything that the strict stream lets through, from a stream that arrives in pieces of `step` bytes.
    fn read_through(bytes: &[u8], step: usize) -> (Result<Vec<u8>, io::ErrorKind>, u64, Option<HeadError>) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        runtime.block_on(async {
            let mut stream = split_reader(bytes, step);
            let strict_stream = &mut StrictHttpStream::new(&mut stream, &[], ProxyLimits::default());
            let mut out = Vec::new();
            let read = strict_stream.read_to_end(&mut out).await.map(|_| ()).map_err(|error| error.kind());
            (read.map(|()| out), strict_stream.log().heads().0, strict_stream.log().take_fault())
        })
    }

    fn split_reader(bytes: &[u8], step: usize) -> impl AsyncRead + Unpin {
        SplitReader { bytes: bytes.into(), step }
    }

    struct SplitReader {
        bytes: BytesMut,
        step: usize,
    }

    impl AsyncRead for SplitReader {
        fn poll_read(mut self: Pin<&mut Self>, _: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
            let some = self.step.min(self.bytes.len()).min(buf.remaining());
            let piece = self.bytes.split_to(some);
            buf.put_slice(&piece);
            Poll::Ready(Ok(()))
        }
    }

    const GET: &str = "GET /r/a HTTP/1.1\r\nHost: x\r\n\r\n";

    #[test]
    fn consecutive_valid_messages_pass() {
        let post = "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\nhello";
        let chunked = "POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0a\r\n0123456789\r\n0\r\n\r\n";
        for (text, heads) in
            [(GET.to_owned(), 1), ([GET, post, chunked, GET].concat(), 4), ([chunked, post].concat(), 2)]
        {
            for step in [1, 2, 7, 4096] {
                assert_eq!(read_through(text.as_bytes(), step), (Ok(text.clone().into_bytes()), heads, None), "{step}");
            }
        }
    }

    #[test]
    fn the_next_message_is_parsed_as_strictly() {
        for (after, fault) in [
            ("GET / HTTP/1.1\nHost: x\r\n\r\n", HeadError::Malformed("a line does not end in CR LF")),
            ("\r\nGET / HTTP/1.1\r\n\r\n", HeadError::Malformed("it is not HTTP")),
            ("get / HTTP/1.1\r\n\r\n", HeadError::Malformed("it is not HTTP")),
            (
                "POST / HTTP/1.1\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n",
                HeadError::Malformed("`Transfer-Encoding` is not just `chunked`, or not alone"),
            ),
            ("GET / HT", HeadError::Disconnected),
        ] {
            for step in [1, 4096] {
                let text = [GET, after].concat();
                assert_eq!(read_through(text.as_bytes(), step), (Ok(GET.into()), 1, Some(fault)), "{after}");
            }
        }
    }

    #[test]
    fn malformed_chunks_are_refused() {
        for body in [
            "5;x=y\r\nhello\r\n0\r\n\r\n",
            "+5\r\nhello\r\n0\r\n\r\n",
            "5\nhello\r\n0\r\n\r\n",
            "5\r\nhello0\r\n\r\n",
            "\r\nhello\r\n",
            "0\r\nX-Trailer: 1\r\n\r\n",
            "ffffffffffffffffff\r\n",
            "0000000000000000000\r\n",
        ] {
            let text = format!("POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n{body}");
            assert_eq!(read_through(text.as_bytes(), 3).0, Err(io::ErrorKind::InvalidData), "{body}");
        }
    }

    proptest! {
        #[test]
        fn only_complete_messages_pass(
            bytes in "(GET / HTTP/1.1\r\n|POST / HTTP/1.1\r\n|Content-Length: [0-9]{1,2}\r\n|Transfer-Encoding: chunked\r\n|[0-9a-f]\r\n|\r\n|\n|.){0,12}",
            step in 1usize..9,
        ) {
            let (one, heads, _) = read_through(bytes.as_bytes(), step);
            let (other, same, _) = read_through(bytes.as_bytes(), 4096);
            prop_assert_eq!(one.is_ok(), other.is_ok());
            prop_assert_eq!(heads, same);
            if let (Ok(one), Ok(other)) = (one, other) {
                prop_assert_eq!(&one, &other);
                prop_assert!(bytes.as_bytes().starts_with(&one));
            }
        }
    }
}
