//! Resolves a target once and dials exactly the addresses that the policy check has seen.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use ralph_core::egress::{DecisionReason, EgressTarget};
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use tokio::net::TcpStream;
use tokio::sync::Semaphore;
use tokio::time::{Instant, timeout, timeout_at};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use crate::limits::ProxyLimits;
use crate::policy::{ConnectionPermit, ConnectionPolicyCheck, TargetRefusal};
use crate::upstream_network::EgressResolver;

/// The most addresses of one name that are tried.
const MAX_ADDRESSES: usize = 8;
const MAX_LOOKUPS: usize = 16;

/// An open connection to a target, and the permit to use it.
#[derive(Debug)]
pub(crate) struct PermittedStream {
    pub(crate) stream: TcpStream,
    pub(crate) permit: ConnectionPermit,
}

/// Opens connections to the targets of one sandbox.
#[derive(Debug)]
pub(crate) struct TargetDialer {
    resolver: Arc<dyn EgressResolver>,
    limits: ProxyLimits,
    /// Limits how many names are looked up at the same time: a look-up that is no longer awaited still holds a
    /// thread.
    lookups: Arc<Semaphore>,
}

impl TargetDialer {
    pub(crate) fn new(resolver: Arc<dyn EgressResolver>, limits: ProxyLimits) -> Self {
        Self { resolver, limits, lookups: Arc::new(Semaphore::new(MAX_LOOKUPS)) }
    }

    /// Decides, resolves once, filters and dials a target. Also returns the reason that allowed it.
    pub(crate) async fn open(
        &self,
        mut check: ConnectionPolicyCheck<'_>,
    ) -> Result<(PermittedStream, DecisionReason), TargetRefusal> {
        check.check_name()?;
        let target = check.target();
        let addresses = self.resolve(target).await?;
        let why = check.check_addresses(&addresses)?;
        let deadline = Instant::now() + self.limits.dial_time;
        let mut last = None;
        for address in addresses.into_iter().take(MAX_ADDRESSES) {
            last = Some(address);
            let dial = self.resolver.dial(SocketAddr::new(address, target.port()));
            if let Ok(Ok(stream)) = timeout_at(deadline, dial).await {
                // Failure costs only speed.
                stream.set_nodelay(true).ok();
                return Ok((PermittedStream { stream, permit: check.into_permit(address) }, why));
            }
        }
        Err(TargetRefusal { why: DecisionReason::Unreachable, address: last })
    }

    async fn resolve(&self, target: &EgressTarget) -> Result<Vec<IpAddr>, TargetRefusal> {
        if let Some(address) = target.ip_address() {
            return Ok(vec![address]);
        }
        let (resolver, host, lookups) =
            (Arc::clone(&self.resolver), target.host().to_owned(), Arc::clone(&self.lookups));
        let look_up = async move {
            let _one = lookups.acquire_owned().await.map_err(io::Error::other)?;
            resolver.resolve(&host).await
        };
        // In a task of its own, so that a look-up is counted until it ends, even if it is no longer awaited.
        match timeout(self.limits.resolve_time, tokio::spawn(look_up)).await {
            // A mapped address is dialled as the one it maps to, so it is checked as that one too.
            Ok(Ok(Ok(found))) if !found.is_empty() => {
                Ok(found.into_iter().map(|address| address.to_canonical()).collect())
            }
            _ => Err(DecisionReason::Unresolved.into()),
        }
    }
}

/// Establishes TLS over a connection, with the requested name and no other.
pub(crate) async fn connect_tls(
    config: Arc<ClientConfig>,
    target: &EgressTarget,
    stream: TcpStream,
) -> io::Result<TlsStream<TcpStream>> {
    let host = target.host().trim_start_matches('[').trim_end_matches(']').to_owned();
    let name = ServerName::try_from(host).map_err(io::Error::other)?;
    TlsConnector::from(config).connect(name, stream).await
}
