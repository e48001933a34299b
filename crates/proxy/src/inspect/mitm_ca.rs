//! Issues certificates for hosts as the CA of one sandbox; its key is only in memory and is dropped with the sandbox.
//!
//! Its key never leaves this process and is never written to disk; only its certificate goes into the sandbox. It
//! signs only for hosts that the policy allows and whose requests have to be inspected.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use jiff::{Timestamp, ToSpan as _, tz::TimeZone};
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose,
};
use rustls::ServerConfig;
use rustls::crypto::aws_lc_rs;
use rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};

/// A run that lasts longer has its sandbox reopened long before.
const VALID_DAYS: i32 = 30;
/// The most certificates that are cached; those of further hosts are signed again when needed.
const MAX_LEAVES: usize = 256;

/// The certificate authority of one sandbox.
pub struct MitmCa {
    certificate: String,
    issuer: Issuer<'static, KeyPair>,
    /// One key for all leaves: its owner could impersonate any of them anyway.
    key: KeyPair,
    leaves: Mutex<HashMap<String, Arc<ServerConfig>>>,
}

impl fmt::Debug for MitmCa {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("MitmCa(…)")
    }
}

/// A certificate could not be created.
#[derive(Debug, thiserror::Error)]
#[error("could not create a certificate for `{host}`")]
pub struct CertificateError {
    host: String,
    source: Box<dyn std::error::Error + Send + Sync>,
}

fn certificate_error<E: Into<Box<dyn std::error::Error + Send + Sync>>>(
    host: &str,
) -> impl FnOnce(E) -> CertificateError {
    let host = host.to_owned();
    move |source| CertificateError { host, source: source.into() }
}

impl MitmCa {
    /// Creates a CA whose name contains that of its sandbox.
    pub fn new(sandbox: &str) -> Result<Self, CertificateError> {
        let key = || KeyPair::generate().map_err(certificate_error(sandbox));
        let mut params = CertificateParams::default();
        params.distinguished_name = distinguished_name(&format!("ralph sandbox {sandbox}"));
        params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        set_validity(&mut params);
        let own = key()?;
        let certificate = params.self_signed(&own).map_err(certificate_error(sandbox))?.pem();
        Ok(Self { certificate, issuer: Issuer::new(params, own), key: key()?, leaves: Mutex::default() })
    }

    /// Returns the certificate to trust, as PEM.
    pub fn certificate(&self) -> &str {
        &self.certificate
    }

    /// Returns the TLS configuration for acting as a host. Only for a host that may be reached.
    pub(crate) fn server_config(&self, host: &str) -> Result<Arc<ServerConfig>, CertificateError> {
        if let Some(found) = self.lock().get(host) {
            return Ok(Arc::clone(found));
        }
        let made = Arc::new(self.sign(host)?);
        let mut leaves = self.lock();
        if leaves.len() >= MAX_LEAVES {
            leaves.clear();
        }
        leaves.insert(host.to_owned(), Arc::clone(&made));
        Ok(made)
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, HashMap<String, Arc<ServerConfig>>> {
        self.leaves.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn sign(&self, host: &str) -> Result<ServerConfig, CertificateError> {
        let subject = host.trim_start_matches('[').trim_end_matches(']');
        let mut params = CertificateParams::new(vec![subject.to_owned()]).map_err(certificate_error(host))?;
        params.distinguished_name = distinguished_name(subject);
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        params.use_authority_key_identifier_extension = true;
        set_validity(&mut params);
        let leaf = params.signed_by(&self.key, &self.issuer).map_err(certificate_error(host))?;
        let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(self.key.serialize_der()));
        let mut config = ServerConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
            .with_safe_default_protocol_versions()
            .map_err(certificate_error(host))?
            .with_no_client_auth()
            .with_single_cert(vec![leaf.der().clone()], key)
            .map_err(certificate_error(host))?;
        // The contents are parsed as HTTP/1, so nothing else is offered.
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        Ok(config)
    }
}

fn distinguished_name(text: &str) -> DistinguishedName {
    let mut name = DistinguishedName::new();
    // A common name has at most 64 characters.
    name.push(DnType::CommonName, text.chars().take(64).collect::<String>());
    name
}

fn set_validity(params: &mut CertificateParams) {
    let day = |days: i32| {
        let today = Timestamp::now().to_zoned(TimeZone::UTC).date();
        let date = today.saturating_add(days.days());
        let (month, day) = (date.month().unsigned_abs(), date.day().unsigned_abs());
        rcgen::date_time_ymd(i32::from(date.year()), month, day)
    };
    params.not_before = day(-1);
    params.not_after = day(VALID_DAYS);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_sandbox_has_its_own_ca() {
        let (one, two) = (MitmCa::new("a").unwrap(), MitmCa::new("b").unwrap());
        assert_ne!(one.certificate(), two.certificate());
        assert!(one.certificate().starts_with("-----BEGIN CERTIFICATE-----"));
        assert_eq!(format!("{one:?}"), "MitmCa(…)");
        let first = one.server_config("x.io").unwrap();
        assert!(Arc::ptr_eq(&first, &one.server_config("x.io").unwrap()));
        for host in ["a-name-of-many-labels.and-so-on.example.org", "[::1]", "192.0.2.1"] {
            one.server_config(host).unwrap();
        }
    }
}
