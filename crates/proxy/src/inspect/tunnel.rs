//! Relays bytes in both directions, after the client's first bytes were checked.
//!
//! Port 443 carries TLS to the requested name and nothing else; port 80 carries plain HTTP, which `http_forward`
//! serves; on any other port a TLS hello must name the target too. What a tunnel carries afterwards is counted but
//! not inspected, unless a credential is granted for the host or it has rules about single requests: then the proxy
//! speaks TLS as the host, and `http_forward` serves the requests as well.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use ralph_core::egress::{AccessRequest, EgressTarget, HTTP_PORT, HTTPS_PORT, printable_host};
use ralph_core::policy::canonical_host;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, BufReader, copy_buf, split};
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;

use super::client_hello::{self, ClientHello};
use super::http_forward::{self, TargetForm};
use super::mitm_ca::MitmCa;
use crate::connection_context::ConnectionContext;
use crate::dial::PermittedStream;
use crate::egress_events::{DecisionReason, EgressEntry, EgressEvent, EgressTunnel};
use crate::policy::TargetRefusal;
use crate::wrapped_streams::{ByteCountReader, ClientStream, PrefixedStream};

/// The number of bytes copied at once; the usual eighth of it costs two thirds of the speed.
const COPY_BUFFER: usize = 64 * 1024;

/// A tunnel that may begin.
#[derive(Debug)]
pub(crate) enum TunnelKind {
    /// Each request is checked, and dialled for, on its own.
    Http,
    /// The same, behind TLS that the proxy speaks as the host.
    Intercepted(Arc<MitmCa>),
    Opaque(PermittedStream),
}

/// Checks a tunnel and opens its connection. Afterwards the client may be told that it is established.
pub(crate) async fn prepare(
    context: &ConnectionContext,
    entry: EgressEntry,
    target: &EgressTarget,
) -> Result<TunnelKind, TargetRefusal> {
    if target.port() == HTTP_PORT {
        context.check_policy(entry, target, &AccessRequest::Connection)?;
        return Ok(TunnelKind::Http);
    }
    if let Some(authority) = context.inspection_ca(target) {
        context.check_policy(entry, target, &AccessRequest::Connection)?;
        return Ok(TunnelKind::Intercepted(Arc::clone(authority)));
    }
    context.open(entry, target, AccessRequest::Tunnel).await.map(TunnelKind::Opaque)
}

/// Serves a tunnel to its end.
pub(crate) async fn serve(
    context: &Arc<ConnectionContext>,
    entry: EgressEntry,
    target: &EgressTarget,
    ready: TunnelKind,
    mut client: impl ClientStream,
) {
    let way = match ready {
        TunnelKind::Http => {
            let form = TargetForm::Bound { target: target.clone(), tls: false };
            return http_forward::serve(context, entry, client, &[], form).await;
        }
        TunnelKind::Intercepted(authority) => return intercept(context, entry, target, &authority, client).await,
        TunnelKind::Opaque(way) => way,
    };
    let first = if target.port() == HTTPS_PORT {
        match read_client_hello(context, &mut client, target).await {
            Ok(first) => Some(first),
            Err(TunnelEnd::Cut(why)) => return context.report_refusal(entry, target, &why),
            Err(TunnelEnd::Disconnected) => return,
        }
    } else {
        None
    };
    relay(context, entry, target, way, client, first).await;
}

/// Speaks TLS as the host and serves the requests inside.
async fn intercept(
    context: &Arc<ConnectionContext>,
    entry: EgressEntry,
    target: &EgressTarget,
    authority: &MitmCa,
    mut client: impl ClientStream,
) {
    let first = match read_client_hello(context, &mut client, target).await {
        Ok(first) => first,
        Err(TunnelEnd::Cut(why)) => return context.report_refusal(entry, target, &why),
        Err(TunnelEnd::Disconnected) => return,
    };
    let config = match authority.server_config(target.host()) {
        Ok(config) => config,
        Err(error) => {
            tracing::warn!(%target, %error, "could not create a certificate for a host");
            return context.report_refusal(entry, target, &DecisionReason::Untrusted);
        }
    };
    let accept = TlsAcceptor::from(config).accept(PrefixedStream::new(first, client));
    // A client that does not trust the CA, or takes too long, reports that itself; nothing more is done here.
    let Ok(Ok(stream)) = timeout(context.limits.head_time, accept).await else { return };
    let form = TargetForm::Bound { target: target.clone(), tls: true };
    http_forward::serve(context, entry, stream, &[], form).await;
}

/// Why a tunnel ended.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum TunnelEnd {
    Cut(DecisionReason),
    /// One side hung up.
    Disconnected,
}

/// Reads the TLS hello with which a connection to port 443 has to begin.
pub(crate) async fn read_client_hello(
    context: &ConnectionContext,
    client: &mut (impl AsyncRead + Unpin),
    target: &EgressTarget,
) -> Result<Vec<u8>, TunnelEnd> {
    match timeout(context.limits.head_time, read_first_bytes(client, target, TlsRequirement::Required)).await {
        Ok(first_bytes) => first_bytes,
        Err(_) => Err(TunnelEnd::Cut(DecisionReason::ClientTimeout)),
    }
}

/// Relays until both sides are done, one hangs up, or a policy change forbids it. Without first bytes the client's
/// are checked as they pass: on such a port the server may speak first.
pub(crate) async fn relay(
    context: &ConnectionContext,
    entry: EgressEntry,
    target: &EgressTarget,
    way: PermittedStream,
    client: impl ClientStream,
    first: Option<Vec<u8>>,
) {
    let PermittedStream { stream, mut permit } = way;
    let tally = TunnelCounter::new(context, entry, target);
    let (mut client_reads, mut client_writes) = split(client);
    let (far_reads, mut far_writes) = stream.into_split();
    let out = async {
        let first = match first {
            Some(first) => first,
            None => read_first_bytes(&mut client_reads, target, TlsRequirement::IfTlsMatchingName).await?,
        };
        tally.count_sent(first.len());
        far_writes.write_all(&first).await.map_err(|_| TunnelEnd::Disconnected)?;
        copy_stream(ByteCountReader::new(client_reads, |bytes| tally.count_sent(bytes)), &mut far_writes).await?;
        far_writes.shutdown().await.map_err(|_| TunnelEnd::Disconnected)
    };
    let back = async {
        copy_stream(ByteCountReader::new(far_reads, |bytes| tally.count_received(bytes)), &mut client_writes).await?;
        client_writes.shutdown().await.map_err(|_| TunnelEnd::Disconnected)
    };
    let end = tokio::select! {
        end = async { tokio::try_join!(out, back) } => end.map(drop),
        () = permit.wait_revoked() => Err(TunnelEnd::Cut(DecisionReason::PolicyChanged)),
    };
    if let Err(TunnelEnd::Cut(why)) = end {
        context.report_refusal(entry, target, &why);
    }
}

async fn copy_stream(from: impl AsyncRead + Unpin, to: &mut (impl AsyncWrite + Unpin)) -> Result<(), TunnelEnd> {
    copy_buf(&mut BufReader::with_capacity(COPY_BUFFER, from), to).await.map(drop).map_err(|_| TunnelEnd::Disconnected)
}

/// Counts what went through a tunnel, and reports it at its end, however it ends.
struct TunnelCounter<'a> {
    context: &'a ConnectionContext,
    entry: EgressEntry,
    target: &'a EgressTarget,
    begun: Instant,
    sent: AtomicU64,
    received: AtomicU64,
}

impl<'a> TunnelCounter<'a> {
    fn new(context: &'a ConnectionContext, entry: EgressEntry, target: &'a EgressTarget) -> Self {
        let (sent, received) = (AtomicU64::new(0), AtomicU64::new(0));
        Self { context, entry, target, begun: Instant::now(), sent, received }
    }

    fn count_sent(&self, bytes: usize) {
        self.sent.fetch_add(bytes as u64, Ordering::Relaxed);
        // As it passes and not at the end: a tunnel can stay open for hours.
        self.context.count_outflow(bytes, self.target);
    }

    fn count_received(&self, bytes: usize) {
        self.received.fetch_add(bytes as u64, Ordering::Relaxed);
    }
}

impl Drop for TunnelCounter<'_> {
    fn drop(&mut self) {
        self.context.observer.observe(EgressEvent::Tunnel(EgressTunnel {
            entry: self.entry,
            host: self.target.host().to_owned(),
            port: self.target.port(),
            sent: self.sent.load(Ordering::Relaxed),
            received: self.received.load(Ordering::Relaxed),
            took: self.begun.elapsed(),
        }));
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum TlsRequirement {
    Required,
    /// Any protocol, but if it is TLS, with the right name.
    IfTlsMatchingName,
}

/// Reads until it is clear how a client begins, and returns what it sent.
async fn read_first_bytes(
    client: &mut (impl AsyncRead + Unpin),
    target: &EgressTarget,
    must: TlsRequirement,
) -> Result<Vec<u8>, TunnelEnd> {
    let mut first_bytes = Vec::new();
    loop {
        match (client_hello::read(&first_bytes), must) {
            (ClientHello::Complete(name), _) => {
                return if sni_matches(target, name.as_deref()) { Ok(first_bytes) } else { Err(sni_mismatch(name)) };
            }
            (ClientHello::NotTls, TlsRequirement::IfTlsMatchingName) => return Ok(first_bytes),
            (ClientHello::NotTls | ClientHello::Malformed, _) => return Err(TunnelEnd::Cut(DecisionReason::NotTls)),
            (ClientHello::Incomplete, _) => (),
        }
        match client.read_buf(&mut first_bytes).await {
            Ok(0) if must == TlsRequirement::IfTlsMatchingName => return Ok(first_bytes),
            Ok(0) | Err(_) => return Err(TunnelEnd::Disconnected),
            Ok(_) => (),
        }
    }
}

/// Says whether a server name fits the target. An address has no name to send; every other target has to send its
/// own.
fn sni_matches(target: &EgressTarget, name: Option<&str>) -> bool {
    match name {
        Some(name) => canonical_host(name).is_ok_and(|name| name == target.host()),
        None => target.ip_address().is_some(),
    }
}

fn sni_mismatch(name: Option<String>) -> TunnelEnd {
    TunnelEnd::Cut(DecisionReason::SniMismatch(name.map(|name| printable_host(&name))))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::inspect::client_hello::tests::hello;

    #[track_caller]
    fn check(target: &str, must: TlsRequirement, sent_bytes: &[u8], want: Result<(), TunnelEnd>) {
        let target = EgressTarget::parse_authority(target, None).unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let got = runtime.block_on(read_first_bytes(&mut &sent_bytes[..], &target, must));
        assert_eq!(got, want.map(|()| sent_bytes.to_vec()));
    }

    #[test]
    fn the_first_bytes_must_fit_the_target() {
        let sni = |name: Option<&str>| Err(TunnelEnd::Cut(DecisionReason::SniMismatch(name.map(str::to_owned))));
        for must in [TlsRequirement::Required, TlsRequirement::IfTlsMatchingName] {
            check("x.io:443", must, &hello(Some("x.io")), Ok(()));
            check("x.io:443", must, &hello(Some("X.io")), Ok(()));
            check("x.io:443", must, &hello(Some("y.io")), sni(Some("y.io")));
            check("x.io:443", must, &hello(Some("x.io.y.io")), sni(Some("x.io.y.io")));
            check("x.io:443", must, &hello(None), sni(None));
            check("1.1.1.1:443", must, &hello(None), Ok(()));
            check("1.1.1.1:443", must, &hello(Some("1.1.1.1")), Ok(()));
            check("1.1.1.1:443", must, &hello(Some("x.io")), sni(Some("x.io")));
            check("x.io:443", must, &[22, 3, 1, 0, 0], Err(TunnelEnd::Cut(DecisionReason::NotTls)));
        }
        check("x.io:443", TlsRequirement::Required, b"SSH-2.0", Err(TunnelEnd::Cut(DecisionReason::NotTls)));
        check("x.io:22", TlsRequirement::IfTlsMatchingName, b"SSH-2.0", Ok(()));
        check("x.io:443", TlsRequirement::Required, b"", Err(TunnelEnd::Disconnected));
        check("x.io:22", TlsRequirement::IfTlsMatchingName, b"", Ok(()));
    }
}
