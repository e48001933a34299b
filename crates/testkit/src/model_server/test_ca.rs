//! Provides a private certificate authority that issues certificates to servers of a test.

use std::io;
use std::sync::Arc;

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair, KeyUsagePurpose};
use rustls::ServerConfig;
use rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};

/// An authority that no client trusts unless it is configured to.
pub struct TestCa {
    issuer: CertifiedIssuer<'static, KeyPair>,
}

impl std::fmt::Debug for TestCa {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("TestCa")
    }
}

impl TestCa {
    pub fn new() -> io::Result<Self> {
        let mut params = CertificateParams::new(Vec::<String>::new()).map_err(io::Error::other)?;
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        params.distinguished_name.push(DnType::CommonName, "ralph testkit authority");
        let key = KeyPair::generate().map_err(io::Error::other)?;
        let issuer = CertifiedIssuer::self_signed(params, key).map_err(io::Error::other)?;
        Ok(Self { issuer })
    }

    /// Returns the authority's own certificate, for clients that are to trust it.
    pub fn pem(&self) -> String {
        self.issuer.pem()
    }

    /// Issues a certificate for these names and addresses, and returns it with its key, both as PEM.
    pub fn issue(&self, names: &[&str]) -> io::Result<(String, String)> {
        let (certificate, key) = self.leaf(names)?;
        Ok((certificate.pem(), key.serialize_pem()))
    }

    /// Returns the configuration of a TLS server for these names and protocols, the preferred protocol first.
    pub fn server_config(&self, names: &[&str], protocols: &[&[u8]]) -> io::Result<Arc<ServerConfig>> {
        let (certificate, key) = self.leaf(names)?;
        let chain = vec![certificate.der().clone(), self.issuer.der().clone()];
        let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(key.serialize_der()));
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let mut config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(io::Error::other)?
            .with_no_client_auth()
            .with_single_cert(chain, key)
            .map_err(io::Error::other)?;
        config.alpn_protocols = protocols.iter().map(|name| name.to_vec()).collect();
        Ok(Arc::new(config))
    }

    fn leaf(&self, names: &[&str]) -> io::Result<(rcgen::Certificate, KeyPair)> {
        let names: Vec<String> = names.iter().map(ToString::to_string).collect();
        let mut params = CertificateParams::new(names).map_err(io::Error::other)?;
        params.use_authority_key_identifier_extension = true;
        params.extended_key_usages = vec![rcgen::ExtendedKeyUsagePurpose::ServerAuth];
        let key = KeyPair::generate().map_err(io::Error::other)?;
        let certificate = params.signed_by(&key, &self.issuer).map_err(io::Error::other)?;
        Ok((certificate, key))
    }
}
