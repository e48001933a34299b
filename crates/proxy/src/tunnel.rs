//! Bytes both ways, after the client's first words were checked.
//!
//! Port 443 carries TLS to the name that was asked for and nothing else; port 80 carries plain HTTP and is handed to
//! that room; on any other port a TLS hello must name the target too. What a tunnel says afterwards is counted and not
//! looked at, unless the host is lent a credential or has rules about single requests: then we speak TLS as the host, and the
//! requests go to that room as well.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use ralph_core::policy::canonical;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, BufReader, copy_buf, split};
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;

use crate::authority::Authority;
use crate::hello::{self, Hello};
use crate::http::{self, Form};
use crate::judge::Ask;
use crate::notice::{Entry, Told, Tunnelled, Why};
use crate::pipeline::{Pipeline, Refused, Way};
use crate::stream::{Client, Counted, Rewound};
use crate::target::{HTTP, HTTPS, Target, shown};

/// So much is carried at once; the usual eighth of it costs two thirds of the speed.
const AT_ONCE: usize = 64 * 1024;

/// A tunnel that may begin.
#[derive(Debug)]
pub(crate) enum Ready {
    /// Each request is judged, and dialled for, on its own.
    Http,
    /// The same, behind TLS that we speak as the host.
    Inside(Arc<Authority>),
    Opaque(Way),
}

/// Asks for a tunnel. After this the client may be told yes.
pub(crate) async fn ask(pipeline: &Pipeline, entry: Entry, target: &Target) -> Result<Ready, Refused> {
    if target.port() == HTTP {
        pipeline.judge(entry, target, &Ask::Connection)?;
        return Ok(Ready::Http);
    }
    if let Some(authority) = pipeline.looks_into(target) {
        pipeline.judge(entry, target, &Ask::Connection)?;
        return Ok(Ready::Inside(Arc::clone(authority)));
    }
    pipeline.open(entry, target, Ask::Tunnel).await.map(Ready::Opaque)
}

/// Carries a tunnel to its end.
pub(crate) async fn carry(
    pipeline: &Arc<Pipeline>,
    entry: Entry,
    target: &Target,
    ready: Ready,
    mut client: impl Client,
) {
    let way = match ready {
        Ready::Http => {
            let form = Form::Bound { target: target.clone(), tls: false };
            return http::serve(pipeline, entry, client, &[], form).await;
        }
        Ready::Inside(authority) => return inside(pipeline, entry, target, &authority, client).await,
        Ready::Opaque(way) => way,
    };
    let first = if target.port() == HTTPS {
        match first_words(pipeline, &mut client, target).await {
            Ok(first) => Some(first),
            Err(End::Cut(why)) => return pipeline.refused(entry, target, &why),
            Err(End::Gone) => return,
        }
    } else {
        None
    };
    relay(pipeline, entry, target, way, client, first).await;
}

/// Speaks TLS as the host and carries the requests that come by it.
async fn inside(
    pipeline: &Arc<Pipeline>,
    entry: Entry,
    target: &Target,
    authority: &Authority,
    mut client: impl Client,
) {
    let first = match first_words(pipeline, &mut client, target).await {
        Ok(first) => first,
        Err(End::Cut(why)) => return pipeline.refused(entry, target, &why),
        Err(End::Gone) => return,
    };
    let config = match authority.server(target.host()) {
        Ok(config) => config,
        Err(error) => {
            tracing::warn!(%target, %error, "a host cannot be spoken for");
            return pipeline.refused(entry, target, &Why::Untrusted);
        }
    };
    let accept = TlsAcceptor::from(config).accept(Rewound::new(first, client));
    // A client that does not trust us, or takes too long to, says so itself and is not heard of again.
    let Ok(Ok(stream)) = timeout(pipeline.limits.head_time, accept).await else { return };
    let form = Form::Bound { target: target.clone(), tls: true };
    http::serve(pipeline, entry, stream, &[], form).await;
}

/// Why a tunnel ended.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum End {
    Cut(Why),
    /// One side hung up.
    Gone,
}

/// Reads the TLS hello with which a connection to port 443 has to begin.
pub(crate) async fn first_words(
    pipeline: &Pipeline,
    client: &mut (impl AsyncRead + Unpin),
    target: &Target,
) -> Result<Vec<u8>, End> {
    match timeout(pipeline.limits.head_time, listen(client, target, Must::SpeakTls)).await {
        Ok(heard) => heard,
        Err(_) => Err(End::Cut(Why::Slow)),
    }
}

/// Relays until both sides are done, one is gone, or the policy changes its mind. Without first words the client's are
/// checked on their way: on such a port the server may speak first.
pub(crate) async fn relay(
    pipeline: &Pipeline,
    entry: Entry,
    target: &Target,
    way: Way,
    client: impl Client,
    first: Option<Vec<u8>>,
) {
    let Way { stream, mut permit } = way;
    let tally = Tally::new(pipeline, entry, target);
    let (mut client_reads, mut client_writes) = split(client);
    let (far_reads, mut far_writes) = stream.into_split();
    let out = async {
        let first = match first {
            Some(first) => first,
            None => listen(&mut client_reads, target, Must::NotLie).await?,
        };
        tally.out(first.len());
        far_writes.write_all(&first).await.map_err(|_| End::Gone)?;
        pour(Counted::new(client_reads, |bytes| tally.out(bytes)), &mut far_writes).await?;
        far_writes.shutdown().await.map_err(|_| End::Gone)
    };
    let back = async {
        pour(Counted::new(far_reads, |bytes| tally.back(bytes)), &mut client_writes).await?;
        client_writes.shutdown().await.map_err(|_| End::Gone)
    };
    let end = tokio::select! {
        end = async { tokio::try_join!(out, back) } => end.map(drop),
        () = permit.revoked() => Err(End::Cut(Why::Revoked)),
    };
    if let Err(End::Cut(why)) = end {
        pipeline.refused(entry, target, &why);
    }
}

async fn pour(from: impl AsyncRead + Unpin, to: &mut (impl AsyncWrite + Unpin)) -> Result<(), End> {
    copy_buf(&mut BufReader::with_capacity(AT_ONCE, from), to).await.map(drop).map_err(|_| End::Gone)
}

/// What went through a tunnel, told at its end, however it ends.
struct Tally<'a> {
    pipeline: &'a Pipeline,
    entry: Entry,
    target: &'a Target,
    begun: Instant,
    sent: AtomicU64,
    received: AtomicU64,
}

impl<'a> Tally<'a> {
    fn new(pipeline: &'a Pipeline, entry: Entry, target: &'a Target) -> Self {
        let (sent, received) = (AtomicU64::new(0), AtomicU64::new(0));
        Self { pipeline, entry, target, begun: Instant::now(), sent, received }
    }

    fn out(&self, bytes: usize) {
        self.sent.fetch_add(bytes as u64, Ordering::Relaxed);
        // While it goes and not at the end: a tunnel can stand for hours.
        self.pipeline.leaves(bytes, self.target);
    }

    fn back(&self, bytes: usize) {
        self.received.fetch_add(bytes as u64, Ordering::Relaxed);
    }
}

impl Drop for Tally<'_> {
    fn drop(&mut self) {
        self.pipeline.notice.tell(Told::Tunnelled(Tunnelled {
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
enum Must {
    SpeakTls,
    /// Speak anything, but if it is TLS, to the right name.
    NotLie,
}

/// Listens until it is clear how a client begins, and returns what it said.
async fn listen(client: &mut (impl AsyncRead + Unpin), target: &Target, must: Must) -> Result<Vec<u8>, End> {
    let mut heard = Vec::new();
    loop {
        match (hello::read(&heard), must) {
            (Hello::Whole(name), _) => {
                return if names(target, name.as_deref()) { Ok(heard) } else { Err(wrong(name)) };
            }
            (Hello::Other, Must::NotLie) => return Ok(heard),
            (Hello::Other | Hello::Bad, _) => return Err(End::Cut(Why::NotTls)),
            (Hello::More, _) => (),
        }
        match client.read_buf(&mut heard).await {
            Ok(0) if must == Must::NotLie => return Ok(heard),
            Ok(0) | Err(_) => return Err(End::Gone),
            Ok(_) => (),
        }
    }
}

/// An address has no name to send; everything else has to send its own.
fn names(target: &Target, name: Option<&str>) -> bool {
    match name {
        Some(name) => canonical(name).is_ok_and(|name| name == target.host()),
        None => target.literal().is_some(),
    }
}

fn wrong(name: Option<String>) -> End {
    End::Cut(Why::Sni(name.map(|name| shown(&name))))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hello::tests::hello;

    #[track_caller]
    fn check(target: &str, must: Must, said: &[u8], want: Result<(), End>) {
        let target = Target::authority(target, None).unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let got = runtime.block_on(listen(&mut &said[..], &target, must));
        assert_eq!(got, want.map(|()| said.to_vec()));
    }

    #[test]
    fn first_words_must_fit_the_target() {
        let sni = |name: Option<&str>| Err(End::Cut(Why::Sni(name.map(str::to_owned))));
        for must in [Must::SpeakTls, Must::NotLie] {
            check("x.io:443", must, &hello(Some("x.io")), Ok(()));
            check("x.io:443", must, &hello(Some("X.io")), Ok(()));
            check("x.io:443", must, &hello(Some("y.io")), sni(Some("y.io")));
            check("x.io:443", must, &hello(Some("x.io.y.io")), sni(Some("x.io.y.io")));
            check("x.io:443", must, &hello(None), sni(None));
            check("1.1.1.1:443", must, &hello(None), Ok(()));
            check("1.1.1.1:443", must, &hello(Some("1.1.1.1")), Ok(()));
            check("1.1.1.1:443", must, &hello(Some("x.io")), sni(Some("x.io")));
            check("x.io:443", must, &[22, 3, 1, 0, 0], Err(End::Cut(Why::NotTls)));
        }
        check("x.io:443", Must::SpeakTls, b"SSH-2.0", Err(End::Cut(Why::NotTls)));
        check("x.io:22", Must::NotLie, b"SSH-2.0", Ok(()));
        check("x.io:443", Must::SpeakTls, b"", Err(End::Gone));
        check("x.io:22", Must::NotLie, b"", Ok(()));
    }
}
