//! Connections to the endpoints of reverse routes, kept open for the next call.

use std::future::Future;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::rt::{Read, ReadBufCursor, Write};
use hyper::{Request, Response, Uri};
use hyper_util::client::legacy::connect::{Connected, Connection};
use hyper_util::client::legacy::{Client, Error};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use tokio::net::TcpStream;
use tokio::time::{timeout, timeout_at};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tower_service::Service;

use crate::address::{self, Kind};
use crate::limits::Limits;
use crate::resolve::Resolve;
use crate::target::Target;

/// Idle connections are kept for so long; providers close theirs after about a minute.
const KEPT: Duration = Duration::from_secs(50);
/// And no more than this many to one endpoint.
const MOST_KEPT: usize = 128;

/// Speaks to endpoints, over connections it keeps.
#[derive(Debug, Clone)]
pub(crate) struct Endpoints {
    client: Client<Dial, Full<Bytes>>,
}

impl Endpoints {
    pub(crate) fn new(resolver: Arc<dyn Resolve>, limits: Limits) -> Self {
        let client = Client::builder(TokioExecutor::new())
            .pool_timer(TokioTimer::new())
            .timer(TokioTimer::new())
            .pool_idle_timeout(KEPT)
            .pool_max_idle_per_host(MOST_KEPT)
            .http2_keep_alive_interval(Duration::from_secs(30))
            .http2_adaptive_window(true)
            .build(Dial { resolver, limits });
        Self { client }
    }

    pub(crate) async fn send(&self, request: Request<Full<Bytes>>) -> Result<Response<Incoming>, Error> {
        self.client.request(request).await
    }
}

/// Opens connections to endpoints: resolved once, filtered, dialled at exactly that address, verified.
#[derive(Debug, Clone)]
struct Dial {
    resolver: Arc<dyn Resolve>,
    limits: Limits,
}

type Opening = Pin<Box<dyn Future<Output = io::Result<Link>> + Send>>;

impl Service<Uri> for Dial {
    type Response = Link;
    type Error = io::Error;
    type Future = Opening;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, uri: Uri) -> Opening {
        let dial = self.clone();
        Box::pin(async move { dial.open(&uri).await })
    }
}

impl Dial {
    async fn open(&self, uri: &Uri) -> io::Result<Link> {
        let https = uri.scheme_str() == Some("https");
        let usual = if https { crate::target::HTTPS } else { crate::target::HTTP };
        let target =
            Target::authority(uri.authority().map_or("", |a| a.as_str()), Some(usual)).map_err(io::Error::other)?;
        let stream = self.reach(&target, https).await?;
        if !https {
            return Ok(Link::Plain(TokioIo::new(stream)));
        }
        let mut config = ClientConfig::clone(&*self.resolver.tls()?);
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        let stream = timeout(self.limits.dial_time, secure(Arc::new(config), &target, stream)).await??;
        Ok(Link::Tls(Box::new(TokioIo::new(stream))))
    }

    async fn reach(&self, target: &Target, https: bool) -> io::Result<TcpStream> {
        let addresses = match target.literal() {
            Some(address) => vec![address],
            None => timeout(self.limits.resolve_time, self.resolver.resolve(target.host())).await??,
        };
        let deadline = tokio::time::Instant::now() + self.limits.dial_time;
        let mut last = io::Error::new(io::ErrorKind::NotFound, "the name has no address");
        for address in addresses.into_iter().map(|address| address.to_canonical()).take(8) {
            if !may_be_endpoint(address, https) {
                let why = match address::kind(address) {
                    Some(kind) if https => format!("its address is {kind}"),
                    _ => "a key does not travel in the clear, and its base URL is not `https://`".to_owned(),
                };
                return Err(io::Error::new(io::ErrorKind::PermissionDenied, why));
            }
            match timeout_at(deadline, self.resolver.dial(SocketAddr::new(address, target.port()))).await {
                Ok(Ok(stream)) => {
                    // Only speed is lost without it.
                    stream.set_nodelay(true).ok();
                    return Ok(stream);
                }
                Ok(Err(error)) => last = error,
                Err(_) => last = io::ErrorKind::TimedOut.into(),
            }
        }
        Err(last)
    }
}

/// The person who configured an endpoint may have it at home. A key never travels in the clear but on this machine,
/// and never to where clouds keep theirs.
fn may_be_endpoint(address: IpAddr, https: bool) -> bool {
    match address::kind(address) {
        Some(Kind::Loopback) => true,
        Some(kind) => https && kind.may_be_listed(),
        None => https,
    }
}

/// Speaks TLS over a connection, to the name that was asked for and no other.
pub(crate) async fn secure(
    config: Arc<ClientConfig>,
    target: &Target,
    stream: TcpStream,
) -> io::Result<TlsStream<TcpStream>> {
    let host = target.host().trim_start_matches('[').trim_end_matches(']').to_owned();
    let name = ServerName::try_from(host).map_err(io::Error::other)?;
    TlsConnector::from(config).connect(name, stream).await
}

/// An open connection to an endpoint.
#[derive(Debug)]
enum Link {
    Plain(TokioIo<TcpStream>),
    Tls(Box<TokioIo<TlsStream<TcpStream>>>),
}

impl Connection for Link {
    fn connected(&self) -> Connected {
        match self {
            Self::Tls(stream) if stream.inner().get_ref().1.alpn_protocol() == Some(b"h2") => {
                Connected::new().negotiated_h2()
            }
            _ => Connected::new(),
        }
    }
}

impl Read for Link {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: ReadBufCursor<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_read(cx, buf),
            Self::Tls(stream) => Pin::new(stream).poll_read(cx, buf),
        }
    }
}

impl Write for Link {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_write(cx, buf),
            Self::Tls(stream) => Pin::new(stream).poll_write(cx, buf),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_flush(cx),
            Self::Tls(stream) => Pin::new(stream).poll_flush(cx),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_shutdown(cx),
            Self::Tls(stream) => Pin::new(stream).poll_shutdown(cx),
        }
    }

    fn is_write_vectored(&self) -> bool {
        match self {
            Self::Plain(stream) => stream.is_write_vectored(),
            Self::Tls(stream) => stream.is_write_vectored(),
        }
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_write_vectored(cx, bufs),
            Self::Tls(stream) => Pin::new(stream).poll_write_vectored(cx, bufs),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn where_an_endpoint_may_be() {
        for (address, plain, tls) in [
            ("127.0.0.1", true, true),
            ("::1", true, true),
            ("10.0.0.1", false, true),
            ("93.184.215.14", false, true),
            ("169.254.169.254", false, false),
            ("fd00:ec2::254", false, false),
            ("224.0.0.1", false, false),
            ("0.0.0.0", false, false),
        ] {
            let address = address.parse().unwrap();
            assert_eq!((may_be_endpoint(address, false), may_be_endpoint(address, true)), (plain, tls), "{address}");
        }
    }
}
