//! A private certificate authority for the servers of the fake network, and certificates that must not be trusted.

use std::io;
use std::sync::Arc;

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair, KeyUsagePurpose};
use rustls::crypto::{CryptoProvider, aws_lc_rs};
use rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};
use rustls::{ClientConfig, RootCertStore, ServerConfig};
use tokio_rustls::TlsAcceptor;

/// The names to which the proxy itself speaks TLS; other clients trust every certificate.
const NAMES: [&str; 6] = ["api.test", "git.test", "model.test", "look.test", "rebind-api.test", "allowed.test"];

/// What is wrong with a server's certificate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum CertificateFault {
    Expired,
    /// Signed by an unknown authority.
    UnknownAuthority,
    /// For another name.
    WrongName,
}

/// The certificate authority of the fake network.
pub(super) struct TestCertificates {
    known: CertifiedIssuer<'static, KeyPair>,
    unknown: CertifiedIssuer<'static, KeyPair>,
    provider: Arc<CryptoProvider>,
}

impl TestCertificates {
    pub(super) fn new() -> io::Result<Self> {
        let provider = Arc::new(aws_lc_rs::default_provider());
        Ok(Self { known: new_authority()?, unknown: new_authority()?, provider })
    }

    /// Returns a client that trusts only this authority.
    pub(super) fn client(&self) -> io::Result<Arc<ClientConfig>> {
        let mut roots = RootCertStore::empty();
        roots.add(self.known.der().clone()).map_err(io::Error::other)?;
        let config = ClientConfig::builder_with_provider(Arc::clone(&self.provider))
            .with_safe_default_protocol_versions()
            .map_err(io::Error::other)?
            .with_root_certificates(roots)
            .with_no_client_auth();
        Ok(Arc::new(config))
    }

    /// Returns a server for every name of the fake network, or for one whose certificate has a fault.
    pub(super) fn server(&self, fault: Option<(&str, CertificateFault)>) -> io::Result<TlsAcceptor> {
        let names = match fault {
            Some((_, CertificateFault::WrongName)) => vec!["elsewhere.test".to_owned()],
            Some((name, _)) => vec![name.to_owned()],
            None => NAMES.map(str::to_owned).to_vec(),
        };
        let mut params = CertificateParams::new(names).map_err(io::Error::other)?;
        params.use_authority_key_identifier_extension = true;
        if let Some((_, CertificateFault::Expired)) = fault {
            params.not_before = rcgen::date_time_ymd(2020, 1, 1);
            params.not_after = rcgen::date_time_ymd(2020, 2, 1);
        }
        let signer =
            if let Some((_, CertificateFault::UnknownAuthority)) = fault { &self.unknown } else { &self.known };
        let key = KeyPair::generate().map_err(io::Error::other)?;
        let leaf = params.signed_by(&key, signer).map_err(io::Error::other)?;
        let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(key.serialize_der()));
        let mut config = ServerConfig::builder_with_provider(Arc::clone(&self.provider))
            .with_safe_default_protocol_versions()
            .map_err(io::Error::other)?
            .with_no_client_auth()
            .with_single_cert(vec![leaf.der().clone()], key)
            .map_err(io::Error::other)?;
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        Ok(TlsAcceptor::from(Arc::new(config)))
    }
}

fn new_authority() -> io::Result<CertifiedIssuer<'static, KeyPair>> {
    let mut params = CertificateParams::new(Vec::<String>::new()).map_err(io::Error::other)?;
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    params.distinguished_name.push(DnType::CommonName, "ralph redteam network");
    let key = KeyPair::generate().map_err(io::Error::other)?;
    CertifiedIssuer::self_signed(params, key).map_err(io::Error::other)
}
