//! Defines the resolver trait, which connects the egress proxy to the network: it resolves names, dials addresses and
//! decides which certificates are trusted.

use std::fmt;
use std::future::Future;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;
use std::sync::{Arc, OnceLock};

use rustls::ClientConfig;
use rustls::crypto::aws_lc_rs;
use rustls_platform_verifier::BuilderVerifierExt as _;
use tokio::net::{TcpStream, lookup_host};

/// The future that a resolver returns.
pub type ResolverFuture<'a, T> = Pin<Box<dyn Future<Output = io::Result<T>> + Send + 'a>>;

/// Resolves names that were allowed and dials addresses that were checked.
pub trait EgressResolver: fmt::Debug + Send + Sync {
    /// Returns the addresses of a canonical name. It is never called with an address.
    fn resolve<'a>(&'a self, host: &'a str) -> ResolverFuture<'a, Vec<IpAddr>>;

    fn dial(&self, address: SocketAddr) -> ResolverFuture<'_, TcpStream> {
        Box::pin(TcpStream::connect(address))
    }

    /// Returns the TLS configuration, which trusts the certificates that the machine trusts.
    fn tls_config(&self) -> io::Result<Arc<ClientConfig>> {
        // Reading the machine's certificates takes a while, so it is done once.
        static TLS_CONFIG: OnceLock<Arc<ClientConfig>> = OnceLock::new();
        if let Some(config) = TLS_CONFIG.get() {
            return Ok(Arc::clone(config));
        }
        let config = ClientConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
            .with_safe_default_protocol_versions()
            .and_then(rustls::ConfigBuilder::with_platform_verifier)
            .map_err(io::Error::other)?
            .with_no_client_auth();
        Ok(Arc::clone(TLS_CONFIG.get_or_init(|| Arc::new(config))))
    }
}

/// The resolver of the host.
#[derive(Debug, Clone, Copy, Default)]
pub struct SystemResolver;

impl EgressResolver for SystemResolver {
    fn resolve<'a>(&'a self, host: &'a str) -> ResolverFuture<'a, Vec<IpAddr>> {
        Box::pin(async move {
            // The final dot keeps the host's search list out: no name but the one that was checked may be resolved.
            let name = if host.contains('.') { format!("{host}.") } else { host.to_owned() };
            Ok(lookup_host((name, 0)).await?.map(|address| address.ip()).collect())
        })
    }
}
