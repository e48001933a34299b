//! The world outside, as far as the way out needs it: names become addresses, addresses become connections, and
//! certificates are believed or not.

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

/// An answer that takes a while.
pub type ResolverFuture<'a, T> = Pin<Box<dyn Future<Output = io::Result<T>> + Send + 'a>>;

/// Resolves names that were allowed and dials addresses that were checked.
pub trait EgressResolver: fmt::Debug + Send + Sync {
    /// Returns the addresses of a canonical name. It is never asked about an address.
    fn resolve<'a>(&'a self, host: &'a str) -> ResolverFuture<'a, Vec<IpAddr>>;

    fn dial(&self, address: SocketAddr) -> ResolverFuture<'_, TcpStream> {
        Box::pin(TcpStream::connect(address))
    }

    /// Returns whose certificates are believed: those the machine believes.
    fn tls_config(&self) -> io::Result<Arc<ClientConfig>> {
        // Reading the machine's certificates takes a while and needs doing once.
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
            // The last dot keeps the host's search list out: another name than the judged one must not answer for it.
            let name = if host.contains('.') { format!("{host}.") } else { host.to_owned() };
            Ok(lookup_host((name, 0)).await?.map(|address| address.ip()).collect())
        })
    }
}
