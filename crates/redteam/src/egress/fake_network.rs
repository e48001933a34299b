//! Fakes the network outside: names that resolve to recorders on this machine's loopback, and nothing else. Every
//! query and dial of the proxy is recorded before it is answered.

use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ralph_proxy::upstream_network::{EgressResolver, ResolverFuture};
use rustls::ClientConfig;
use tokio::net::{TcpListener, TcpStream, UdpSocket};
use tokio_rustls::TlsAcceptor;
use tokio_util::task::AbortOnDropHandle;

use super::certificates::{CertificateFault, TestCertificates};
use super::recorder;

/// The address of every name that has no other one. It is a real address, but nothing is ever sent to it.
pub(super) const PUBLIC_ADDRESS: Ipv4Addr = Ipv4Addr::new(93, 184, 215, 14);

/// Names whose servers have untrusted certificates, each at its own address.
const BAD_CERTIFICATE_HOSTS: [(&str, Ipv4Addr, CertificateFault); 3] = [
    ("expired.test", Ipv4Addr::new(93, 184, 215, 21), CertificateFault::Expired),
    ("stranger.test", Ipv4Addr::new(93, 184, 215, 22), CertificateFault::UnknownAuthority),
    ("misnamed.test", Ipv4Addr::new(93, 184, 215, 23), CertificateFault::WrongName),
];

/// Names that resolve to internal addresses.
const INTERNAL_HOSTS: [(&str, &str); 14] = [
    ("private.test", "10.0.0.5"),
    ("home.test", "192.168.1.1"),
    ("docker.test", "172.17.0.1"),
    ("host.docker.internal", "172.17.0.1"),
    ("gateway.docker.internal", "192.168.65.1"),
    ("loop.test", "127.0.0.1"),
    ("loop6.test", "::1"),
    ("mapped.test", "::ffff:127.0.0.1"),
    ("nat64.test", "64:ff9b::7f00:1"),
    ("metadata.google.internal", "169.254.169.254"),
    ("aws.test", "fd00:ec2::254"),
    ("alibaba.test", "100.100.100.200"),
    ("azure.test", "168.63.129.16"),
    ("nobody.test", "0.0.0.0"),
];

/// The fake network, and what happened in it.
#[derive(Debug)]
pub(super) struct FakeNetwork {
    tls: Arc<ClientConfig>,
    /// The recorders for plain text and for TLS, and those with untrusted certificates.
    plain: SocketAddr,
    secure: SocketAddr,
    datagrams: SocketAddr,
    faulty: HashMap<IpAddr, SocketAddr>,
    /// Names with answers set by a case: each query takes the next one, and the last one stays.
    dns_answers: Mutex<HashMap<String, Vec<Vec<IpAddr>>>>,
    trace: Arc<Mutex<NetworkTrace>>,
    _running: Vec<AbortOnDropHandle<()>>,
}

/// What happened in the fake network.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct NetworkTrace {
    /// Names that were resolved.
    pub(super) queries: Vec<String>,
    pub(super) dials: Vec<SocketAddr>,
    /// The messages that the recorders received, each with the SNI of its client.
    pub(super) messages: Vec<RecordedMessage>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct RecordedMessage {
    pub(super) name: Option<String>,
    pub(super) text: String,
}

impl NetworkTrace {
    pub(super) fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Summarises what happened in one line for a person.
    pub(super) fn summary(&self) -> String {
        let messages: Vec<&str> =
            self.messages.iter().map(|message| message.text.lines().next().unwrap_or("")).collect();
        format!("resolved {:?}, dialled {:?}, received {messages:?}", self.queries, self.dials)
    }

    pub(super) fn received(&self, text: &str) -> bool {
        self.messages.iter().any(|message| message.text.contains(text))
    }
}

impl FakeNetwork {
    pub(super) async fn new() -> io::Result<Arc<Self>> {
        let certificates = TestCertificates::new()?;
        let happened: Arc<Mutex<NetworkTrace>> = Arc::default();
        let mut running = Vec::new();
        let mut serve = async |tls: Option<TlsAcceptor>| {
            let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
            let at = listener.local_addr()?;
            running.push(AbortOnDropHandle::new(tokio::spawn(recorder::serve(listener, tls, Arc::clone(&happened)))));
            Ok::<_, io::Error>(at)
        };
        let plain = serve(None).await?;
        let secure = serve(Some(certificates.server(None)?)).await?;
        let mut faulty = HashMap::new();
        for (name, address, fault) in BAD_CERTIFICATE_HOSTS {
            faulty.insert(address.into(), serve(Some(certificates.server(Some((name, fault)))?)).await?);
        }
        let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let datagrams = socket.local_addr()?;
        running.push(AbortOnDropHandle::new(tokio::spawn(recorder::record_datagrams(socket, Arc::clone(&happened)))));
        let (tls, dns_answers) = (certificates.client()?, Mutex::default());
        Ok(Arc::new(Self { tls, plain, secure, datagrams, faulty, dns_answers, trace: happened, _running: running }))
    }

    /// Returns the address of the recorder for plain text on the host.
    pub(super) fn plain(&self) -> SocketAddr {
        self.plain
    }

    /// Returns the address of the recorder for datagrams on the host.
    pub(super) fn datagrams(&self) -> SocketAddr {
        self.datagrams
    }

    /// Returns what happened since the last call.
    pub(super) fn take_trace(&self) -> NetworkTrace {
        std::mem::take(&mut *lock(&self.trace))
    }

    /// Sets the answers for a name, one for each query; the last one stays.
    pub(super) fn set_dns_answers(&self, name: &str, answers: &[&[&str]]) {
        let read = |answer: &&[&str]| answer.iter().filter_map(|address| address.parse().ok()).collect();
        // The next answer is taken from the end.
        let answers = answers.iter().rev().map(read).collect();
        lock(&self.dns_answers).insert(name.to_owned(), answers);
    }

    fn addresses(&self, host: &str) -> Vec<IpAddr> {
        if let Some(answers) = lock(&self.dns_answers).get_mut(host) {
            return if answers.len() > 1 { answers.pop() } else { answers.last().cloned() }.unwrap_or_default();
        }
        if let Some((_, address, _)) = BAD_CERTIFICATE_HOSTS.iter().find(|(name, ..)| *name == host) {
            return vec![(*address).into()];
        }
        let inner = INTERNAL_HOSTS.iter().find(|(name, _)| *name == host).and_then(|(_, address)| address.parse().ok());
        vec![inner.unwrap_or(PUBLIC_ADDRESS.into())]
    }
}

impl EgressResolver for FakeNetwork {
    fn resolve<'a>(&'a self, host: &'a str) -> ResolverFuture<'a, Vec<IpAddr>> {
        lock(&self.trace).queries.push(host.to_owned());
        Box::pin(std::future::ready(Ok(self.addresses(host))))
    }

    fn dial(&self, address: SocketAddr) -> ResolverFuture<'_, TcpStream> {
        lock(&self.trace).dials.push(address);
        let secure = self.faulty.get(&address.ip()).copied().unwrap_or(self.secure);
        Box::pin(TcpStream::connect(if address.port() == 443 { secure } else { self.plain }))
    }

    fn tls_config(&self) -> io::Result<Arc<ClientConfig>> {
        Ok(Arc::clone(&self.tls))
    }
}

/// Locks a mutex. No code under these locks can panic.
pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
