//! A host that answers whatever a test scripts, byte for byte, with or without TLS.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair, date_time_ymd};
use rustls::ServerConfig;
use rustls::crypto::aws_lc_rs;
use rustls::pki_types::PrivatePkcs8KeyDer;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::time::sleep;
use tokio_rustls::TlsAcceptor;
use tokio_util::task::AbortOnDropHandle;

use crate::http_client::next_chunk;

/// A request as it arrived.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct HostRequest {
    pub(crate) head: String,
    pub(crate) body: Vec<u8>,
}

impl HostRequest {
    /// Returns the method and the target.
    pub(crate) fn line(&self) -> &str {
        self.head.lines().next().unwrap_or_default().trim_end_matches(" HTTP/1.1")
    }

    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        let mut pairs = self.head.lines().skip(1).filter_map(|line| line.split_once(':'));
        pairs.find(|(own, _)| own.eq_ignore_ascii_case(name)).map(|(_, value)| value.trim())
    }

    pub(crate) fn text(&self) -> String {
        format!("{}{}", self.head, String::from_utf8_lossy(&self.body))
    }
}

/// The pieces of an answer; each is sent some time after the previous one.
type HostScript = dyn Fn(&HostRequest) -> Vec<Vec<u8>> + Send + Sync;

/// A host that runs as long as this value lives.
#[derive(Debug)]
pub(crate) struct ScriptedHost {
    pub(crate) address: SocketAddr,
    received: Arc<Mutex<Vec<HostRequest>>>,
    connections: Arc<AtomicUsize>,
    _running: AbortOnDropHandle<()>,
}

impl ScriptedHost {
    pub(crate) async fn start(
        tls: Option<Arc<ServerConfig>>,
        script: impl Fn(&HostRequest) -> Vec<Vec<u8>> + Send + Sync + 'static,
    ) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (received, connections) = (Arc::<Mutex<Vec<HostRequest>>>::default(), Arc::<AtomicUsize>::default());
        let (recorder, count, script) = (Arc::clone(&received), Arc::clone(&connections), Arc::new(script));
        let running = AbortOnDropHandle::new(tokio::spawn(async move {
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                count.fetch_add(1, Ordering::SeqCst);
                let (tls, recorder, script) = (tls.clone(), Arc::clone(&recorder), Arc::clone(&script));
                // The task ends with its client.
                tokio::spawn(async move {
                    match tls.map(TlsAcceptor::from) {
                        None => serve(stream, &recorder, &*script).await,
                        Some(tls) => {
                            if let Ok(stream) = tls.accept(stream).await {
                                serve(stream, &recorder, &*script).await;
                            }
                        }
                    }
                });
            }
        }));
        Self { address, received, connections, _running: running }
    }

    /// Answers every request with one text.
    pub(crate) async fn answering(tls: Option<Arc<ServerConfig>>, answer: impl Into<Vec<u8>>) -> Self {
        let answer = answer.into();
        Self::start(tls, move |_| vec![answer.clone()]).await
    }

    pub(crate) fn requests(&self) -> Vec<HostRequest> {
        self.received.lock().unwrap().clone()
    }

    pub(crate) fn connections(&self) -> usize {
        self.connections.load(Ordering::SeqCst)
    }
}

/// Returns an answer with a body of known length.
pub(crate) fn ok(headers: &[&str], body: &str) -> Vec<u8> {
    answer("200 OK", headers, body)
}

pub(crate) fn answer(status: &str, headers: &[&str], body: &str) -> Vec<u8> {
    let length = format!("Content-Length: {}", body.len());
    let lines = headers.iter().copied().chain([length.as_str()]).collect::<Vec<_>>().join("\r\n");
    format!("HTTP/1.1 {status}\r\n{lines}\r\n\r\n{body}").into_bytes()
}

/// Returns an expired certificate, and the CA that signed it.
pub(crate) fn expired(name: &str) -> (Arc<ServerConfig>, String) {
    let (root_key, key) = (KeyPair::generate().unwrap(), KeyPair::generate().unwrap());
    let mut params = CertificateParams::default();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let root = params.self_signed(&root_key).unwrap().pem();
    let mut leaf = CertificateParams::new(vec![name.to_owned()]).unwrap();
    (leaf.not_before, leaf.not_after) = (date_time_ymd(2020, 1, 1), date_time_ymd(2021, 1, 1));
    let leaf = leaf.signed_by(&key, &Issuer::new(params, root_key)).unwrap();
    let config = ServerConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![leaf.der().clone()], PrivatePkcs8KeyDer::from(key.serialize_der()).into())
        .unwrap();
    (Arc::new(config), root)
}

async fn serve(
    mut stream: impl AsyncRead + AsyncWrite + Unpin,
    received: &Mutex<Vec<HostRequest>>,
    script: &HostScript,
) {
    while let Some(request) = read(&mut stream).await {
        let pieces = script(&request);
        let close = pieces.iter().any(|piece| piece.windows(17).any(|some| some == b"Connection: close"));
        received.lock().unwrap().push(request);
        for piece in pieces {
            if stream.write_all(&piece).await.is_err() || stream.flush().await.is_err() {
                return;
            }
            sleep(Duration::from_millis(5)).await;
        }
        if close {
            stream.shutdown().await.ok();
            return;
        }
    }
}

async fn read(stream: &mut (impl AsyncRead + Unpin)) -> Option<HostRequest> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(stream.read_u8().await.ok()?);
    }
    let mut received = HostRequest { head: String::from_utf8_lossy(&head).into_owned(), body: Vec::new() };
    if received.header("transfer-encoding").is_some() {
        loop {
            let chunk = next_chunk(stream).await?;
            if chunk.is_empty() {
                break;
            }
            received.body.extend_from_slice(&chunk);
        }
    } else if let Some(length) = received.header("content-length").and_then(|length| length.parse().ok()) {
        received.body = vec![0; length];
        stream.read_exact(&mut received.body).await.ok()?;
    }
    Some(received)
}
