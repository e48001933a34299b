//! The connection of the attacking client: plain, TLS, or datagrams.

use std::io::{self, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream, UdpSocket};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, aws_lc_rs};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::time_provider::TimeProvider;
use rustls::{ClientConfig, ClientConnection, DigitallySignedStruct, RootCertStore, SignatureScheme, StreamOwned};

#[derive(Debug)]
pub(super) enum ClientSocket {
    Plain(TcpStream),
    Tls(Box<StreamOwned<ClientConnection, TcpStream>>),
    /// Sends to this address; accepts answers from any address.
    Datagram(UdpSocket, SocketAddr),
}

impl ClientSocket {
    pub(super) fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        match self {
            Self::Plain(stream) => stream.write_all(bytes),
            Self::Tls(stream) => stream.write_all(bytes).and_then(|()| stream.flush()),
            Self::Datagram(socket, to) => socket.send_to(bytes, *to).map(drop),
        }
    }

    pub(super) fn read(&mut self, room: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Plain(stream) => stream.read(room),
            Self::Tls(stream) => stream.read(room),
            Self::Datagram(socket, _) => {
                socket.set_read_timeout(Some(Duration::from_millis(300)))?;
                socket.recv_from(room).map(|(got, _)| got)
            }
        }
    }
}

/// Starts TLS to a name, trusting only the certificates in a file, or every certificate; `later` is the number of
/// seconds by which the clock is set forward. Also returns the server's certificate.
pub(super) fn connect_tls(
    mut stream: TcpStream,
    name: &str,
    trusted: Option<&str>,
    later: u64,
) -> io::Result<(ClientSocket, String)> {
    let provider = Arc::new(aws_lc_rs::default_provider());
    let builder =
        ClientConfig::builder_with_details(Arc::clone(&provider), Arc::new(SkewedClock(Duration::from_secs(later))))
            .with_safe_default_protocol_versions()
            .map_err(io::Error::other)?;
    let mut config = match trusted {
        Some(file) => {
            let mut roots = RootCertStore::empty();
            for certificate in CertificateDer::pem_file_iter(file).map_err(io::Error::other)? {
                // A certificate that cannot be parsed is not trusted.
                let _ = roots.add(certificate.map_err(io::Error::other)?);
            }
            builder.with_root_certificates(roots).with_no_client_auth()
        }
        None => builder
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(AcceptAnyCertificate(provider)))
            .with_no_client_auth(),
    };
    // `-` means no SNI.
    config.enable_sni = name != "-";
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    let named = if name == "-" { "nobody.test" } else { name };
    let named = ServerName::try_from(named.to_owned()).map_err(io::Error::other)?;
    let mut tls = ClientConnection::new(Arc::new(config), named).map_err(io::Error::other)?;
    while tls.is_handshaking() {
        tls.complete_io(&mut stream)?;
    }
    let shown = tls.peer_certificates().and_then(|all| all.first()).map(|leaf| ralph_core::hash::short_sha256(leaf));
    Ok((ClientSocket::Tls(Box::new(StreamOwned::new(tls, stream))), shown.unwrap_or_default()))
}

/// A clock that is set forward.
#[derive(Debug)]
struct SkewedClock(Duration);

impl TimeProvider for SkewedClock {
    fn current_time(&self) -> Option<UnixTime> {
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).ok()?;
        Some(UnixTime::since_unix_epoch(now + self.0))
    }
}

/// Trusts every certificate, as an attacker does.
#[derive(Debug)]
struct AcceptAnyCertificate(Arc<CryptoProvider>);

impl ServerCertVerifier for AcceptAnyCertificate {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn verify_tls13_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}
