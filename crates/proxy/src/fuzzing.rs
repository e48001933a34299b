//! Exposes the parsers of hostile bytes to the fuzz targets, and to nothing else.

use std::io;
use std::pin::Pin;
use std::sync::LazyLock;
use std::task::{Context, Poll};

use rustls::server::Acceptor;
use tokio::io::{AsyncRead, AsyncReadExt as _, ReadBuf};
use tokio::runtime::{Builder, Runtime};

use crate::inspect::client_hello::{self, ClientHello};
use crate::limits::ProxyLimits;
use crate::parse::request_head;
use crate::parse::strict_http1::StrictHttpStream;

pub use crate::dns::answer_any as dns;
pub use crate::listen::socks::parse_handshake as socks;

/// Parses a request head and returns its method, target and host.
pub fn request_head(bytes: &[u8]) -> Option<(String, String, Option<String>)> {
    request_head::parse(bytes).ok().map(|head| (head.method, head.target, head.host))
}

/// What the strict reader let through: the bytes, unless the stream failed, and the number of heads among them.
pub type StrictHttpOutput = (Option<Vec<u8>>, u64);

/// Sends a stream through the strict reader, in pieces of `step` bytes.
pub fn strict_http1(bytes: &[u8], step: usize) -> StrictHttpOutput {
    static RUNTIME: LazyLock<io::Result<Runtime>> =
        LazyLock::new(|| Builder::new_current_thread().enable_time().build());
    let Ok(runtime) = &*RUNTIME else { return (None, 0) };
    runtime.block_on(async {
        let mut strict_stream =
            StrictHttpStream::new(FuzzReader { bytes, step: step.max(1) }, &[], ProxyLimits::default());
        let mut out = Vec::new();
        let end = strict_stream.read_to_end(&mut out).await;
        (end.is_ok().then_some(out), strict_stream.log().heads().0)
    })
}

struct FuzzReader<'a> {
    bytes: &'a [u8],
    step: usize,
}

impl AsyncRead for FuzzReader<'_> {
    fn poll_read(mut self: Pin<&mut Self>, _: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let some = self.step.min(self.bytes.len()).min(buf.remaining());
        let (piece, rest) = self.bytes.split_at(some);
        buf.put_slice(piece);
        self.bytes = rest;
        Poll::Ready(Ok(()))
    }
}

/// The result of reading a TLS hello.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FuzzedHello {
    Incomplete,
    Refused,
    Complete(Option<String>),
}

/// Parses the beginning of a TLS connection.
pub fn client_hello(bytes: &[u8]) -> FuzzedHello {
    match client_hello::read(bytes) {
        ClientHello::Incomplete => FuzzedHello::Incomplete,
        ClientHello::NotTls | ClientHello::Malformed => FuzzedHello::Refused,
        ClientHello::Complete(name) => FuzzedHello::Complete(name),
    }
}

/// Returns the name that rustls, as a real server, reads from the same bytes.
pub fn rustls_server_name(bytes: &[u8]) -> Option<String> {
    let mut acceptor = Acceptor::default();
    let mut rest = bytes;
    while !rest.is_empty() {
        acceptor.read_tls(&mut rest).ok().filter(|read| *read > 0)?;
        if let Some(accepted) = acceptor.accept().ok()? {
            return accepted.client_hello().server_name().map(str::to_owned);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use proptest::prelude::*;
    use rustls::crypto::aws_lc_rs;
    use rustls::{ClientConfig, ClientConnection, RootCertStore};

    use super::*;

    /// Returns the first bytes that a real client sends.
    fn written(name: &'static str) -> Vec<u8> {
        let config = ClientConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(RootCertStore::empty())
            .with_no_client_auth();
        let mut client = ClientConnection::new(Arc::new(config), name.try_into().unwrap()).unwrap();
        let mut bytes = Vec::new();
        client.write_tls(&mut bytes).unwrap();
        bytes
    }

    #[test]
    fn rustls_reads_the_same_name() {
        for name in ["x.io", "a-long.name.example.org"] {
            let bytes = written(name);
            assert_eq!(client_hello(&bytes), FuzzedHello::Complete(Some(name.to_owned())));
            assert_eq!(rustls_server_name(&bytes).as_deref(), Some(name));
        }
        assert_eq!(client_hello(b"GET / "), FuzzedHello::Refused);
        assert_eq!(rustls_server_name(b"GET / HTTP/1.1\r\n\r\n"), None);
    }

    #[test]
    fn splitting_the_input_makes_no_difference() {
        let bytes = b"GET / HTTP/1.1\r\nHost: x\r\n\r\nGET / HT";
        assert_eq!(strict_http1(bytes, 1), strict_http1(bytes, 999));
        assert_eq!(strict_http1(bytes, 1).1, 1);
        assert_eq!(request_head(b"GET /x HTTP/1.1\r\n\r\n"), Some(("GET".to_owned(), "/x".to_owned(), None)));
    }

    proptest! {
        /// However a hello is changed: where a real server reads a name, our parser reads no other.
        #[test]
        fn we_never_read_another_name_than_rustls(
            changes in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..6),
            cut in any::<prop::sample::Index>(),
        ) {
            let mut bytes = written("example.org");
            for (place, byte) in changes {
                let at = place.index(bytes.len());
                bytes[at] = byte;
            }
            let whole = client_hello(&bytes);
            if let (FuzzedHello::Complete(ours), Some(theirs)) = (&whole, rustls_server_name(&bytes)) {
                prop_assert!(ours.as_deref().is_some_and(|ours| ours.eq_ignore_ascii_case(&theirs)), "{ours:?} {theirs}");
            }
            match client_hello(&bytes[..cut.index(bytes.len())]) {
                FuzzedHello::Incomplete => (),
                early => prop_assert_eq!(early, whole),
            }
        }

        #[test]
        fn consumed_bytes_are_within_the_input(bytes in proptest::collection::vec(any::<u8>(), 0..80)) {
            if let Some((greeted, asked, _)) = socks(&[&[5, 1, 0, 5, 1, 0][..], &bytes].concat()) {
                prop_assert!(greeted + asked <= bytes.len() + 6);
            }
            let question = [&[1, 2, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0][..], &bytes].concat();
            if let Some((_, answer)) = dns(&question) {
                prop_assert_eq!(&answer[..2], &[1, 2]);
                prop_assert!(answer.len() <= question.len() + 16);
                prop_assert_eq!(dns(&answer), None);
            }
        }
    }
}
