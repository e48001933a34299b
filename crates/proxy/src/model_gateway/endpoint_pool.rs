//! Connections to the endpoints of reverse routes, kept open for the next call.

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
use crate::resolver::EgressResolver;

/// Idle connections are kept for so long; providers close theirs after about a minute.
const IDLE_TIMEOUT: Duration = Duration::from_secs(50);
/// And no more than this many to one endpoint.
const MAX_IDLE: usize = 128;
/// A connection whose last answer has just ended is free in no time, or it is not waited for.
const READY_TIMEOUT: Duration = Duration::from_millis(250);

/// Speaks to endpoints, over connections it keeps.
#[derive(Debug)]
pub(crate) struct EndpointPool {
    resolver: Arc<dyn EgressResolver>,
    limits: ProxyLimits,
    idle: Arc<IdleConnections>,
}

/// Connections that nobody uses at the moment, the last used at the end.
#[derive(Debug, Default)]
struct IdleConnections(Mutex<Vec<IdleConnection>>);

/// A connection, where it leads, and since when nobody uses it.
type IdleConnection = (Arc<RouteUpstream>, EndpointSender, Instant);

type EndpointSender = http1::SendRequest<Full<Bytes>>;

/// Why an endpoint gave no answer.
#[derive(Debug)]
pub(crate) enum EndpointError {
    /// There was no connection, so nothing was asked.
    Connect(io::Error),
    /// There may be none as things are set, and asking again changes nothing: says why, and what to do next.
    NotPermitted(String),
    /// It was asked, and nobody knows what came of it.
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

/// A connection that is in use. Dropped, it is closed; given back, it serves another call.
#[derive(Debug)]
pub(crate) struct ConnectionLease {
    upstream: Arc<RouteUpstream>,
    sender: EndpointSender,
    idle: Arc<IdleConnections>,
}

impl ConnectionLease {
    /// Gives the connection back, after the answer has come to its end.
    pub(crate) fn release(self) {
        let mut shelf = self.idle.lock();
        if shelf.len() < MAX_IDLE && !self.sender.is_closed() {
            shelf.push((self.upstream, self.sender, Instant::now()));
        }
    }
}

impl IdleConnections {
    fn lock(&self) -> MutexGuard<'_, Vec<IdleConnection>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes the connection that was used last, of those that are free already; those that were left for too long are
    /// closed.
    fn take(&self, upstream: &RouteUpstream) -> Option<EndpointSender> {
        let now = Instant::now();
        let mut shelf = self.lock();
        shelf.retain(|(_, sender, since)| now.duration_since(*since) < IDLE_TIMEOUT && !sender.is_closed());
        let leads = |(known, ..): &&IdleConnection| known.shares_connections_with(upstream);
        let free = shelf.iter().rposition(|kept| leads(&kept) && kept.1.is_ready());
        let at = free.or_else(|| shelf.iter().rposition(|kept| leads(&kept)))?;
        Some(shelf.remove(at).1)
    }
}

impl EndpointPool {
    pub(crate) fn new(resolver: Arc<dyn EgressResolver>, limits: ProxyLimits) -> Self {
        Self { resolver, limits, idle: Arc::default() }
    }

    /// Closes the connections that nobody uses at the moment to endpoints that are not to be kept.
    pub(crate) fn retain(&self, keep: impl Fn(&EgressTarget) -> bool) {
        self.idle.lock().retain(|(upstream, ..)| keep(&upstream.target));
    }

    /// Asks an endpoint, over a connection that is kept if there is one. Once `dialled` is set, the request may have been
    /// seen there.
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
                // On the heap: few calls open a connection, and every call would carry the room for it about.
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
                    // The endpoint closed it meanwhile, and nothing was sent.
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
                    // Only speed is lost without it.
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

/// Says why an endpoint must not be at an address. The person who configured it may have it at home. A key never travels
/// in the clear but on this machine, nothing does to strangers, and nothing goes to where clouds keep their keys.
fn address_refusal(address: IpAddr, https: bool, lends: bool) -> Option<String> {
    match address::kind(address) {
        Some(IpAddressKind::Loopback) => None,
        Some(kind) if !kind.can_be_allowed() => {
            Some(format!("its address is {kind}, where no endpoint may be; correct its base URL"))
        }
        _ if https => None,
        _ if lends => Some(
            "a key does not travel in the clear; write `https://` in its base URL, or lead to it through a tunnel that \
             begins at `http://localhost`"
                .to_owned(),
        ),
        Some(_) => None,
        None => Some("it is a stranger's machine, asked in the clear; write `https://` in its base URL".to_owned()),
    }
}

/// Says why nobody may speak to a server that has shown its certificate; `None` where something else went wrong.
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
    // It ends with the last of whoever holds the sender or an answer, and both see a failure themselves.
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
    fn where_an_endpoint_may_be() {
        // In the clear with a key and without one, over TLS with and without.
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
                .map(|(https, lends)| address_refusal(address, https, lends).is_none());
            assert_eq!(may, want, "{address}");
        }
    }

    /// A connection that was opened where no key travels must not carry one.
    #[test]
    fn connections_are_kept_apart() {
        let bare = ModelRoute::new("a", RouteApi::OpenAi, "http://box:11434/v1").unwrap();
        let secret = ralph_core::secret::Secret::new("sk-0123456789");
        let credential = Arc::new(ProxyCredential::new("K", &secret, CredentialPlacement::Bearer).unwrap());
        let lending = bare.clone().with_credential(credential);
        assert!(bare.has_same_upstream(&lending));
        assert!(bare.upstream.shares_connections_with(&bare.upstream));
        assert!(!bare.upstream.shares_connections_with(&lending.upstream));
    }
}
