//! Pools connections to the endpoints of model routes.

use std::fmt;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::client::conn::http1;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use ralph_core::egress::{EgressTarget, IpAddressKind, address};
use rustls::ClientConfig;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::time::{Instant, timeout, timeout_at};

use super::route::RouteUpstream;
use crate::dial::connect_tls;
use crate::inspect::host_connection::BUFFER_SIZE;
use crate::limits::ProxyLimits;
use crate::upstream_network::EgressResolver;

/// How long idle connections are kept; providers close theirs after about a minute.
const IDLE_TIMEOUT: Duration = Duration::from_secs(50);
/// The most idle connections to one endpoint.
const MAX_IDLE: usize = 128;
/// A connection whose last answer has just ended is free almost at once; otherwise it is not waited for.
const READY_TIMEOUT: Duration = Duration::from_millis(250);

/// Sends requests to endpoints, over pooled connections.
#[derive(Debug)]
pub(crate) struct EndpointPool {
    resolver: Arc<dyn EgressResolver>,
    limits: ProxyLimits,
    idle: Arc<IdleConnections>,
}

/// The idle connections, the last used at the end.
#[derive(Debug, Default)]
struct IdleConnections(Mutex<Vec<IdleConnection>>);

/// A connection, the endpoint it leads to, and the time since it is idle.
type IdleConnection = (Arc<RouteUpstream>, EndpointSender, Instant);

type EndpointSender = http1::SendRequest<Full<Bytes>>;

/// Why an endpoint gave no answer.
#[derive(Debug)]
pub(crate) enum EndpointError {
    /// No connection could be opened, so nothing was sent.
    Connect(io::Error),
    /// The configuration does not permit a connection, and retrying changes nothing: says why, and what to do next.
    NotPermitted(String),
    /// The request was sent, and its outcome is unknown.
    Lost(hyper::Error),
}

impl fmt::Display for EndpointError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Connect(error) => write!(f, "{error}"),
            Self::NotPermitted(why) => f.write_str(why),
            Self::Lost(error) => write!(f, "{error}"),
        }
    }
}

/// A connection in use. Dropping it closes it; releasing it lets it serve another call.
#[derive(Debug)]
pub(crate) struct ConnectionLease {
    upstream: Arc<RouteUpstream>,
    sender: EndpointSender,
    idle: Arc<IdleConnections>,
}

impl ConnectionLease {
    /// Returns the connection to the pool, after the answer has ended.
    pub(crate) fn release(self) {
        let mut connections = self.idle.lock();
        if connections.len() < MAX_IDLE && !self.sender.is_closed() {
            connections.push((self.upstream, self.sender, Instant::now()));
        }
    }
}

impl IdleConnections {
    fn lock(&self) -> MutexGuard<'_, Vec<IdleConnection>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes the connection that was used last among those that are ready; those that were idle for too long are
    /// closed.
    fn take(&self, upstream: &RouteUpstream) -> Option<EndpointSender> {
        let now = Instant::now();
        let mut connections = self.lock();
        connections.retain(|(_, sender, since)| now.duration_since(*since) < IDLE_TIMEOUT && !sender.is_closed());
        let leads = |(known, ..): &&IdleConnection| known.shares_connections_with(upstream);
        let free = connections.iter().rposition(|kept| leads(&kept) && kept.1.is_ready());
        let at = free.or_else(|| connections.iter().rposition(|kept| leads(&kept)))?;
        Some(connections.remove(at).1)
    }
}

impl EndpointPool {
    pub(crate) fn new(resolver: Arc<dyn EgressResolver>, limits: ProxyLimits) -> Self {
        Self { resolver, limits, idle: Arc::default() }
    }

    /// Closes idle connections to endpoints that `keep` rejects.
    pub(crate) fn retain(&self, keep: impl Fn(&EgressTarget) -> bool) {
        self.idle.lock().retain(|(upstream, ..)| keep(&upstream.target));
    }

    /// Sends a request to an endpoint, over an idle connection if there is one. Once `dialled` is set, the endpoint
    /// may have seen the request.
    pub(crate) async fn send(
        &self,
        upstream: &Arc<RouteUpstream>,
        request: Request<Full<Bytes>>,
        dialled: &AtomicBool,
    ) -> Result<(Response<Incoming>, ConnectionLease), EndpointError> {
        let mut request = request;
        loop {
            let (mut sender, fresh) = match self.idle.take(upstream) {
                Some(sender) => (sender, false),
                // On the heap: few calls open a connection, and otherwise every call's future would carry the space
                // for it.
                None => (Box::pin(self.open(upstream)).await?, true),
            };
            if !fresh && !matches!(timeout(READY_TIMEOUT, sender.ready()).await, Ok(Ok(()))) {
                continue;
            }
            dialled.store(true, Ordering::Relaxed);
            match sender.try_send_request(request).await {
                Ok(response) => {
                    let lease =
                        ConnectionLease { upstream: Arc::clone(upstream), sender, idle: Arc::clone(&self.idle) };
                    return Ok((response, lease));
                }
                Err(mut failed) => match failed.take_message() {
                    // The endpoint closed the connection meanwhile, and nothing was sent.
                    Some(unsent) if !fresh => {
                        dialled.store(false, Ordering::Relaxed);
                        request = unsent;
                    }
                    _ => return Err(EndpointError::Lost(failed.into_error())),
                },
            }
        }
    }

    async fn open(&self, upstream: &RouteUpstream) -> Result<EndpointSender, EndpointError> {
        let stream = self.dial(upstream).await?;
        if !upstream.https {
            return Ok(http1_handshake(stream).await?);
        }
        let mut config = ClientConfig::clone(&*self.resolver.tls_config()?);
        // Measured: a call over HTTP/2 takes half a millisecond longer than over a connection of its own that is kept
        // open, and an agent makes few calls at the same time. So it is not offered.
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        let secured = timeout(self.limits.dial_time, connect_tls(Arc::new(config), &upstream.target, stream));
        let stream = secured.await.map_err(io::Error::from)?.map_err(|error| match certificate_refusal(&error) {
            Some(why) => EndpointError::NotPermitted(why),
            None => EndpointError::Connect(error),
        })?;
        Ok(http1_handshake(stream).await?)
    }

    async fn dial(&self, upstream: &RouteUpstream) -> Result<TcpStream, EndpointError> {
        let target = &upstream.target;
        let addresses = match target.ip_address() {
            Some(address) => vec![address],
            None => timeout(self.limits.resolve_time, self.resolver.resolve(target.host()))
                .await
                .map_err(io::Error::from)??,
        };
        let deadline = Instant::now() + self.limits.dial_time;
        let mut last = io::Error::new(io::ErrorKind::NotFound, "the name has no address");
        for address in addresses.into_iter().map(|address| address.to_canonical()).take(8) {
            if let Some(why) = address_refusal(address, upstream.https, upstream.sends_credential) {
                return Err(EndpointError::NotPermitted(why));
            }
            match timeout_at(deadline, self.resolver.dial(SocketAddr::new(address, target.port()))).await {
                Ok(Ok(stream)) => {
                    // Failure costs only speed.
                    stream.set_nodelay(true).ok();
                    return Ok(stream);
                }
                Ok(Err(error)) => last = error,
                Err(_) => last = io::ErrorKind::TimedOut.into(),
            }
        }
        Err(EndpointError::Connect(last))
    }
}

impl From<io::Error> for EndpointError {
    fn from(error: io::Error) -> Self {
        Self::Connect(error)
    }
}

/// Says why an endpoint must not be at an address. A user may configure an endpoint in a private network. A key is
/// sent without TLS only within this machine, nothing is sent without TLS to a public address, and nothing is sent to
/// the metadata services of clouds.
fn address_refusal(address: IpAddr, https: bool, sends_key: bool) -> Option<String> {
    match address::kind(address) {
        Some(IpAddressKind::Loopback) => None,
        Some(kind) if !kind.can_be_allowed() => {
            Some(format!("its address is {kind}, which is not allowed for an endpoint; correct its base URL"))
        }
        _ if https => None,
        _ if sends_key => Some(
            "a key is not sent without TLS; write `https://` in its base URL, or reach it through a tunnel that \
             begins at `http://localhost`"
                .to_owned(),
        ),
        Some(_) => None,
        None => Some("it is a public address, reached without TLS; write `https://` in its base URL".to_owned()),
    }
}

/// Says why a server must not be called after it showed its certificate; `None` if something else went wrong.
fn certificate_refusal(error: &io::Error) -> Option<String> {
    let inner = error.get_ref()?.downcast_ref::<rustls::Error>()?;
    matches!(inner, rustls::Error::InvalidCertificate(_)).then(|| {
        let why = ralph_core::text::strip_control(ralph_core::text::first_line(&inner.to_string(), 120));
        format!("its certificate is not trusted ({why}); add the authority that signed it to those of this machine")
    })
}

async fn http1_handshake(stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static) -> io::Result<EndpointSender> {
    let (sender, connection) = http1::Builder::new()
        .max_buf_size(BUFFER_SIZE)
        .handshake(TokioIo::new(stream))
        .await
        .map_err(io::Error::other)?;
    // It ends when the sender and all answers are dropped, and both see a failure themselves.
    tokio::spawn(connection);
    Ok(sender)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::credential::{CredentialPlacement, ProxyCredential};
    use crate::meter::RouteApi;
    use crate::model_gateway::ModelRoute;

    #[test]
    fn endpoint_addresses_are_checked() {
        // Without TLS with a key and without one, over TLS with and without.
        for (address, want) in [
            ("127.0.0.1", [true, true, true, true]),
            ("::1", [true, true, true, true]),
            ("10.0.0.1", [false, true, true, true]),
            ("fd12::1", [false, true, true, true]),
            ("::ffff:192.168.1.5", [false, true, true, true]),
            ("93.184.215.14", [false, false, true, true]),
            ("169.254.169.254", [false; 4]),
            ("fd00:ec2::254", [false; 4]),
            ("224.0.0.1", [false; 4]),
            ("0.0.0.0", [false; 4]),
        ] {
            let address = address.parse().unwrap();
            let may = [(false, true), (false, false), (true, true), (true, false)]
                .map(|(https, sends_key)| address_refusal(address, https, sends_key).is_none());
            assert_eq!(may, want, "{address}");
        }
    }

    /// A connection that was opened without a key must not be reused for a call with one.
    #[test]
    fn connections_with_and_without_a_key_are_separate() {
        let bare = ModelRoute::new("a", RouteApi::OpenAi, "http://box:11434/v1").unwrap();
        let secret = ralph_core::secret::Secret::new("sk-0123456789");
        let credential = Arc::new(ProxyCredential::new("K", &secret, CredentialPlacement::Bearer).unwrap());
        let lending = bare.clone().with_credential(credential);
        assert!(bare.has_same_upstream(&lending));
        assert!(bare.upstream.shares_connections_with(&bare.upstream));
        assert!(!bare.upstream.shares_connections_with(&lending.upstream));
    }
}
