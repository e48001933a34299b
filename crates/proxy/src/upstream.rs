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
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::time::{Instant, timeout, timeout_at};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use crate::address::{self, Kind};
use crate::limits::Limits;
use crate::line::BUFFER;
use crate::resolve::Resolve;
use crate::route::Upstream;
use crate::target::Target;

/// Idle connections are kept for so long; providers close theirs after about a minute.
const KEPT: Duration = Duration::from_secs(50);
/// And no more than this many to one endpoint.
const MOST_KEPT: usize = 128;
/// A connection whose last answer has just ended is free in no time, or it is not waited for.
const SOON: Duration = Duration::from_millis(250);

/// Speaks to endpoints, over connections it keeps.
#[derive(Debug)]
pub(crate) struct Endpoints {
    resolver: Arc<dyn Resolve>,
    limits: Limits,
    shelf: Arc<Shelf>,
}

/// Connections that nobody uses at the moment, the last used at the end.
#[derive(Debug, Default)]
struct Shelf(Mutex<Vec<Kept>>);

/// A connection, where it leads, and since when nobody uses it.
type Kept = (Arc<Upstream>, Sender, Instant);

type Sender = http1::SendRequest<Full<Bytes>>;

/// Why an endpoint gave no answer.
#[derive(Debug)]
pub(crate) enum Failed {
    /// There was no connection, so nothing was asked.
    Connect(io::Error),
    /// There may be none as things are set, and asking again changes nothing: says why, and what to do next.
    Barred(String),
    /// It was asked, and nobody knows what came of it.
    Lost(hyper::Error),
}

impl fmt::Display for Failed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Connect(error) => write!(f, "{error}"),
            Self::Barred(why) => f.write_str(why),
            Self::Lost(error) => write!(f, "{error}"),
        }
    }
}

/// A connection that is in use. Dropped, it is closed; given back, it serves another call.
#[derive(Debug)]
pub(crate) struct Lease {
    upstream: Arc<Upstream>,
    sender: Sender,
    shelf: Arc<Shelf>,
}

impl Lease {
    /// Gives the connection back, after the answer has come to its end.
    pub(crate) fn give_back(self) {
        let mut shelf = self.shelf.lock();
        if shelf.len() < MOST_KEPT && !self.sender.is_closed() {
            shelf.push((self.upstream, self.sender, Instant::now()));
        }
    }
}

impl Shelf {
    fn lock(&self) -> MutexGuard<'_, Vec<Kept>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes the connection that was used last, of those that are free already; those that were left for too long are
    /// closed.
    fn take(&self, upstream: &Upstream) -> Option<Sender> {
        let now = Instant::now();
        let mut shelf = self.lock();
        shelf.retain(|(_, sender, since)| now.duration_since(*since) < KEPT && !sender.is_closed());
        let leads = |(known, ..): &&Kept| known.is_at(upstream);
        let free = shelf.iter().rposition(|kept| leads(&kept) && kept.1.is_ready());
        let at = free.or_else(|| shelf.iter().rposition(|kept| leads(&kept)))?;
        Some(shelf.remove(at).1)
    }
}

impl Endpoints {
    pub(crate) fn new(resolver: Arc<dyn Resolve>, limits: Limits) -> Self {
        Self { resolver, limits, shelf: Arc::default() }
    }

    /// Closes the connections that nobody uses at the moment to endpoints that are not to be kept.
    pub(crate) fn retain(&self, keep: impl Fn(&Target) -> bool) {
        self.shelf.lock().retain(|(upstream, ..)| keep(&upstream.target));
    }

    /// Asks an endpoint, over a connection that is kept if there is one. Once `dialled` is set, the request may have been
    /// seen there.
    pub(crate) async fn send(
        &self,
        upstream: &Arc<Upstream>,
        request: Request<Full<Bytes>>,
        dialled: &AtomicBool,
    ) -> Result<(Response<Incoming>, Lease), Failed> {
        let mut request = request;
        loop {
            let (mut sender, fresh) = match self.shelf.take(upstream) {
                Some(sender) => (sender, false),
                // On the heap: few calls open a connection, and every call would carry the room for it about.
                None => (Box::pin(self.open(upstream)).await?, true),
            };
            if !fresh && !matches!(timeout(SOON, sender.ready()).await, Ok(Ok(()))) {
                continue;
            }
            dialled.store(true, Ordering::Relaxed);
            match sender.try_send_request(request).await {
                Ok(response) => {
                    let lease = Lease { upstream: Arc::clone(upstream), sender, shelf: Arc::clone(&self.shelf) };
                    return Ok((response, lease));
                }
                Err(mut failed) => match failed.take_message() {
                    // The endpoint closed it meanwhile, and nothing was sent.
                    Some(unsent) if !fresh => {
                        dialled.store(false, Ordering::Relaxed);
                        request = unsent;
                    }
                    _ => return Err(Failed::Lost(failed.into_error())),
                },
            }
        }
    }

    async fn open(&self, upstream: &Upstream) -> Result<Sender, Failed> {
        let stream = self.reach(upstream).await?;
        if !upstream.https {
            return Ok(speak(stream).await?);
        }
        let mut config = ClientConfig::clone(&*self.resolver.tls()?);
        // Measured: a call over HTTP/2 takes half a millisecond longer than over a connection of its own that is kept
        // open, and an agent makes few calls at the same time. So it is not offered.
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        let secured = timeout(self.limits.dial_time, secure(Arc::new(config), &upstream.target, stream));
        let stream = secured.await.map_err(io::Error::from)?.map_err(|error| match distrust(&error) {
            Some(why) => Failed::Barred(why),
            None => Failed::Connect(error),
        })?;
        Ok(speak(stream).await?)
    }

    async fn reach(&self, upstream: &Upstream) -> Result<TcpStream, Failed> {
        let target = &upstream.target;
        let addresses = match target.literal() {
            Some(address) => vec![address],
            None => timeout(self.limits.resolve_time, self.resolver.resolve(target.host()))
                .await
                .map_err(io::Error::from)??,
        };
        let deadline = Instant::now() + self.limits.dial_time;
        let mut last = io::Error::new(io::ErrorKind::NotFound, "the name has no address");
        for address in addresses.into_iter().map(|address| address.to_canonical()).take(8) {
            if let Some(why) = bar(address, upstream.https, upstream.lends) {
                return Err(Failed::Barred(why));
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
        Err(Failed::Connect(last))
    }
}

impl From<io::Error> for Failed {
    fn from(error: io::Error) -> Self {
        Self::Connect(error)
    }
}

/// Says why an endpoint must not be at an address. The person who configured it may have it at home. A key never travels
/// in the clear but on this machine, nothing does to strangers, and nothing goes to where clouds keep their keys.
fn bar(address: IpAddr, https: bool, lends: bool) -> Option<String> {
    match address::kind(address) {
        Some(Kind::Loopback) => None,
        Some(kind) if !kind.may_be_listed() => {
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
fn distrust(error: &io::Error) -> Option<String> {
    let inner = error.get_ref()?.downcast_ref::<rustls::Error>()?;
    matches!(inner, rustls::Error::InvalidCertificate(_)).then(|| {
        let why = ralph_core::text::plain(ralph_core::text::first_line(&inner.to_string(), 120));
        format!("its certificate is not trusted ({why}); add the authority that signed it to those of this machine")
    })
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

async fn speak(stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static) -> io::Result<Sender> {
    let (sender, connection) =
        http1::Builder::new().max_buf_size(BUFFER).handshake(TokioIo::new(stream)).await.map_err(io::Error::other)?;
    // It ends with the last of whoever holds the sender or an answer, and both see a failure themselves.
    tokio::spawn(connection);
    Ok(sender)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::credential::{Credential, Place};
    use crate::meter::Wire;
    use crate::route::Route;

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
                .map(|(https, lends)| bar(address, https, lends).is_none());
            assert_eq!(may, want, "{address}");
        }
    }

    /// A connection that was opened where no key travels must not carry one.
    #[test]
    fn connections_are_kept_apart() {
        let bare = Route::new("a", Wire::OpenAi, "http://box:11434/v1").unwrap();
        let secret = ralph_core::secret::Secret::new("sk-0123456789");
        let credential = Arc::new(Credential::new("K", &secret, Place::Bearer).unwrap());
        let lending = bare.clone().with_credential(credential);
        assert!(bare.leads_where(&lending));
        assert!(bare.upstream.is_at(&bare.upstream));
        assert!(!bare.upstream.is_at(&lending.upstream));
    }
}
