//! The world outside, as far as the way out needs it: names become addresses, addresses become connections.

use std::fmt;
use std::future::Future;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;

use tokio::net::{TcpStream, lookup_host};

/// An answer that takes a while.
pub type Answer<'a, T> = Pin<Box<dyn Future<Output = io::Result<T>> + Send + 'a>>;

/// Resolves names that were allowed and dials addresses that were checked.
pub trait Resolve: fmt::Debug + Send + Sync {
    /// Returns the addresses of a canonical name. It is never asked about an address.
    fn resolve<'a>(&'a self, host: &'a str) -> Answer<'a, Vec<IpAddr>>;

    fn dial(&self, address: SocketAddr) -> Answer<'_, TcpStream> {
        Box::pin(TcpStream::connect(address))
    }
}

/// The resolver of the host.
#[derive(Debug, Clone, Copy, Default)]
pub struct System;

impl Resolve for System {
    fn resolve<'a>(&'a self, host: &'a str) -> Answer<'a, Vec<IpAddr>> {
        Box::pin(async move {
            // The last dot keeps the host's search list out: another name than the judged one must not answer for it.
            let name = if host.contains('.') { format!("{host}.") } else { host.to_owned() };
            Ok(lookup_host((name, 0)).await?.map(|address| address.ip()).collect())
        })
    }
}
