//! The client that all measurements use: HTTP/1.1 over a reused connection, direct, with TLS, or through a tunnel.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::client::conn::http1;
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use ralph_testkit::bench::BenchResult;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use tokio_util::task::AbortOnDropHandle;

/// Nothing worth measuring takes longer.
const TIMEOUT: Duration = Duration::from_secs(30);
const MAX_HEAD: usize = 8 << 10;

/// How the client connects.
#[derive(Debug, Clone)]
pub(crate) enum ClientPath {
    Direct(SocketAddr),
    /// Through a proxy, by `CONNECT` to this name and port.
    Tunnel {
        proxy: SocketAddr,
        target: String,
    },
}

impl ClientPath {
    pub(crate) async fn connect(&self) -> BenchResult<TcpStream> {
        match self {
            Self::Direct(address) => connect(*address).await,
            Self::Tunnel { proxy, target } => {
                let mut stream = connect(*proxy).await?;
                stream.write_all(format!("CONNECT {target} HTTP/1.1\r\nHost: {target}\r\n\r\n").as_bytes()).await?;
                let mut head = Vec::new();
                // Neither side sends anything after the head until the client does, so nothing behind it is read
                // here.
                while !head.ends_with(b"\r\n\r\n") {
                    if head.len() > MAX_HEAD || stream.read_buf(&mut head).await? == 0 {
                        return Err("the proxy does not answer `CONNECT`".into());
                    }
                }
                let head = String::from_utf8_lossy(&head);
                match head.split(' ').nth(1) {
                    Some("200") => Ok(stream),
                    _ => Err(format!("the proxy refuses: {}", head.lines().next().unwrap_or_default()).into()),
                }
            }
        }
    }
}

async fn connect(address: SocketAddr) -> BenchResult<TcpStream> {
    let stream = timeout(TIMEOUT, TcpStream::connect(address)).await??;
    stream.set_nodelay(true)?;
    Ok(stream)
}

/// One setup that makes the same call.
#[derive(Debug, Clone)]
pub(crate) struct ClientSetup {
    pub(crate) path: ClientPath,
    /// TLS to this name, trusted by these roots.
    pub(crate) tls: Option<(String, Arc<ClientConfig>)>,
    /// The target in the request line.
    pub(crate) target: String,
    pub(crate) host: String,
    pub(crate) key: String,
    pub(crate) model: String,
}

/// Whether the answer comes at once or in events.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum AnswerMode {
    Small,
    Stream,
}

impl ClientSetup {
    pub(crate) async fn open(&self) -> BenchResult<BenchConnection> {
        let stream = self.path.connect().await?;
        let (sender, connection) = match &self.tls {
            None => {
                let (sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
                (sender, tokio::spawn(async move { drop(connection.await) }))
            }
            Some((name, config)) => {
                let name = ServerName::try_from(name.clone())?;
                let connector = TlsConnector::from(Arc::clone(config));
                let stream = timeout(TIMEOUT, connector.connect(name, stream)).await??;
                let (sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
                (sender, tokio::spawn(async move { drop(connection.await) }))
            }
        };
        Ok(BenchConnection { sender, _connection: AbortOnDropHandle::new(connection) })
    }

    fn request(&self, call: AnswerMode) -> BenchResult<Request<Full<Bytes>>> {
        let prompt =
            "Read src/log.rs and say why it needs so much memory for a long file; then change it and its test.";
        let body = serde_json::json!({
            "model": self.model,
            "max_tokens": 1024,
            "stream": call == AnswerMode::Stream,
            "system": "You are a careful engineer. You read before you write, and you run the tests afterwards.",
            "messages": [{"role": "user", "content": prompt}],
        });
        let request = Request::post(&self.target)
            .header("host", &self.host)
            .header("content-type", "application/json")
            .header("anthropic-version", "2023-06-01")
            .header("x-api-key", &self.key)
            .body(Full::new(Bytes::from(body.to_string())))?;
        Ok(request)
    }
}

/// A reused connection.
#[derive(Debug)]
pub(crate) struct BenchConnection {
    sender: http1::SendRequest<Full<Bytes>>,
    _connection: AbortOnDropHandle<()>,
}

impl BenchConnection {
    /// Makes a call and waits for the whole answer.
    pub(crate) async fn ask(&mut self, way: &ClientSetup) -> BenchResult<()> {
        let response = self.begin(way, AnswerMode::Small).await?;
        let status = response.status();
        let body = timeout(TIMEOUT, response.into_body().collect()).await??.to_bytes();
        if status != StatusCode::OK || !body.windows(8).any(|part| part == b"end_turn") {
            let answer_start = String::from_utf8_lossy(&body).chars().take(200).collect::<String>();
            return Err(format!("it answers {status}: {answer_start}").into());
        }
        Ok(())
    }

    /// Makes a call and returns as soon as its answer begins.
    pub(crate) async fn begin(&mut self, way: &ClientSetup, call: AnswerMode) -> BenchResult<Response<Incoming>> {
        timeout(TIMEOUT, self.sender.ready()).await?.map_err(|_| "it does not keep the connection")?;
        Ok(timeout(TIMEOUT, self.sender.send_request(way.request(call)?)).await??)
    }
}

impl BenchConnection {
    /// Says whether the other side has hung up.
    pub(crate) fn is_closed(&self) -> bool {
        self.sender.is_closed()
    }
}

/// Returns a configuration that trusts these certificates and uses HTTP/1.1.
pub(crate) fn trusting(pem: &str) -> BenchResult<Arc<ClientConfig>> {
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(pem.as_bytes()) {
        roots.add(certificate?)?;
    }
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let mut config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .with_root_certificates(roots)
        .with_no_client_auth();
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(Arc::new(config))
}
