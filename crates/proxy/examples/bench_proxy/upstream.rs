//! The upstream that all measurements use: answers a call of Anthropic Messages with a fixed answer or with a stream
//! whose every event says when it was sent, over TLS as providers do (HTTP/1.1 and HTTP/2), and without it.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

use bytes::Bytes;
use http_body_util::{BodyExt as _, Either, Full};
use hyper::body::{Body, Frame, Incoming};
use hyper::header::{CONTENT_TYPE, HeaderValue};
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::{TokioExecutor, TokioIo};
use ralph_testkit::bench::{BenchResult, bench_runtime};
use ralph_testkit::model_server::TestCa;
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Runtime;
use tokio::time::{Interval, MissedTickBehavior, interval};
use tokio_rustls::TlsAcceptor;

use crate::throughput;

/// Its names: for proxies with a resolver of their own, and for those without.
pub(crate) const NAME: &str = "api.test";
pub(crate) const LOCAL: &str = "localhost";
/// The number of events in a stream, and the time between them.
pub(crate) const EVENTS: usize = 300;
const EVENT_INTERVAL: Duration = Duration::from_millis(2);

#[derive(Debug)]
pub(crate) struct BenchUpstream {
    pub(crate) tls: SocketAddr,
    pub(crate) plain: SocketAddr,
    /// Sends bytes as fast as they are read.
    pub(crate) throughput: SocketAddr,
    /// The CA to trust for it.
    pub(crate) ca: String,
    /// The instant from which the times of events are counted.
    pub(crate) epoch: Instant,
    /// Its own threads, which end with it.
    _runtime: Runtime,
}

impl BenchUpstream {
    pub(crate) fn start() -> BenchResult<Self> {
        let runtime = bench_runtime()?;
        let authority = TestCa::new()?;
        let acceptor = TlsAcceptor::from(authority.server_config(&[NAME, LOCAL, "127.0.0.1"], &[b"h2", b"http/1.1"])?);
        let epoch = Instant::now();
        let bind = || runtime.block_on(TcpListener::bind(("127.0.0.1", 0)));
        let (tls, plain, pour) = (bind()?, bind()?, bind()?);
        let addresses = (tls.local_addr()?, plain.local_addr()?, pour.local_addr()?);
        runtime.spawn(listen(tls, move |stream| secure(stream, acceptor.clone(), epoch)));
        runtime.spawn(listen(plain, move |stream| http1(stream, epoch)));
        runtime.spawn(listen(pour, throughput::send_blocks));
        let (tls, plain, hose) = addresses;
        Ok(Self { tls, plain, throughput: hose, ca: authority.pem(), epoch, _runtime: runtime })
    }
}

async fn listen<F: Future<Output = ()> + Send + 'static>(listener: TcpListener, serve: impl Fn(TcpStream) -> F) {
    loop {
        match listener.accept().await {
            Ok((stream, _)) => {
                // Failure costs only speed.
                stream.set_nodelay(true).ok();
                // Ends with its client, or with the runtime.
                tokio::spawn(serve(stream));
            }
            Err(_) => tokio::time::sleep(Duration::from_millis(20)).await,
        }
    }
}

async fn secure(stream: TcpStream, acceptor: TlsAcceptor, epoch: Instant) {
    let Ok(stream) = acceptor.accept(stream).await else { return };
    if stream.get_ref().1.alpn_protocol() == Some(b"h2") {
        let service = service_fn(move |request| answer(request, epoch));
        let serving = hyper::server::conn::http2::Builder::new(TokioExecutor::new());
        // A client that hangs up is not a failure of the upstream.
        serving.serve_connection(TokioIo::new(stream), service).await.ok();
    } else {
        http1(stream, epoch).await;
    }
}

async fn http1(stream: impl tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin + Send, epoch: Instant) {
    let service = service_fn(move |request| answer(request, epoch));
    hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(stream), service).await.ok();
}

type BenchUpstreamBody = Either<Full<Bytes>, TimedEvents>;

async fn answer(request: Request<Incoming>, epoch: Instant) -> Result<Response<BenchUpstreamBody>, Infallible> {
    let body = request.into_body().collect().await.map(http_body_util::Collected::to_bytes).unwrap_or_default();
    let streams = body.windows(STREAMS.len()).any(|part| part == STREAMS)
        || body.windows(STREAMS_WIDE.len()).any(|part| part == STREAMS_WIDE);
    let (kind, body) = if streams {
        ("text/event-stream; charset=utf-8", Either::Right(TimedEvents::new(epoch)))
    } else {
        ("application/json", Either::Left(Full::new(Bytes::from_static(ANSWER))))
    };
    let mut response = Response::new(body);
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    response.headers_mut().insert("request-id", HeaderValue::from_static("req_bench"));
    Ok(response)
}

/// In the two spellings that clients use.
const STREAMS: &[u8] = br#""stream":true"#;
const STREAMS_WIDE: &[u8] = br#""stream": true"#;

/// About a kilobyte.
const ANSWER: &[u8] = concat!(
    r#"{"id":"msg_bench","type":"message","role":"assistant","model":"claude-sonnet-4-5","content":[{"type":"text","text":""#,
    "The function reads the whole file before it looks at the first line, so a large log costs as much memory as it ",
    "is long. Reading line by line through a buffered reader keeps the cost at one line, and the loop can stop as ",
    "soon as the marker is found. The test below fails without the change and passes with it; I ran the whole suite ",
    "afterwards and nothing else moved. Two callers relied on the trailing newline being kept, so the new function ",
    "keeps it too. The error for a file that is not there names the path now, which it did not before.",
    r#""}],"stop_reason":"end_turn","stop_sequence":null,"usage":{"input_tokens":211,"cache_creation_input_tokens":0,"#,
    r#""cache_read_input_tokens":0,"output_tokens":112,"cache_creation":{"ephemeral_5m_input_tokens":0,"#,
    r#""ephemeral_1h_input_tokens":0},"service_tier":"standard"}}"#
)
.as_bytes();

/// A stream of events, each with the time at which it was sent.
#[derive(Debug)]
struct TimedEvents {
    epoch: Instant,
    sent: usize,
    ticks: Interval,
}

impl TimedEvents {
    fn new(epoch: Instant) -> Self {
        let mut ticks = interval(EVENT_INTERVAL);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        Self { epoch, sent: 0, ticks }
    }
}

const FIRST: &str = concat!(
    r#"event: message_start"#,
    "\n",
    r#"data: {"type":"message_start","message":{"id":"msg_bench","type":"message","role":"assistant","#,
    r#""model":"claude-sonnet-4-5","content":[],"stop_reason":null,"stop_sequence":null,"#,
    r#""usage":{"input_tokens":211,"cache_creation_input_tokens":0,"cache_read_input_tokens":0,"output_tokens":1}}}"#,
    "\n\n",
    "event: content_block_start\n",
    r#"data: {"type":"content_block_start","index":0,"content_block":{"type":"text","text":""}}"#,
    "\n\n"
);
const LAST: &str = concat!(
    "event: content_block_stop\n",
    r#"data: {"type":"content_block_stop","index":0}"#,
    "\n\n",
    "event: message_delta\n",
    r#"data: {"type":"message_delta","delta":{"stop_reason":"end_turn","stop_sequence":null},"usage":{"output_tokens":300}}"#,
    "\n\n",
    "event: message_stop\n",
    r#"data: {"type":"message_stop"}"#,
    "\n\n"
);

impl Body for TimedEvents {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        if self.sent > EVENTS + 1 {
            return Poll::Ready(None);
        }
        ready!(self.ticks.poll_tick(cx));
        let piece = match self.sent {
            0 => FIRST.to_owned(),
            n if n > EVENTS => LAST.to_owned(),
            _ => {
                let at = self.epoch.elapsed().as_nanos();
                format!(
                    "event: content_block_delta\ndata: {{\"type\":\"content_block_delta\",\"index\":0,\
                     \"delta\":{{\"type\":\"text_delta\",\"text\":\"@{at}@\"}}}}\n\n"
                )
            }
        };
        self.sent += 1;
        Poll::Ready(Some(Ok(Frame::data(piece.into()))))
    }
}
