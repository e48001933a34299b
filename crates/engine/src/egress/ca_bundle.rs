//! Builds the CA bundle of a sandbox: the host's trusted certificates and the sandbox's own CA.

use std::sync::OnceLock;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;

/// Writes a bundle of certificates as PEM: the host's, then the sandbox's own.
pub(super) fn bundle(own: &str) -> String {
    static HOST: OnceLock<String> = OnceLock::new();
    let mut out = HOST.get_or_init(host_certificates).clone();
    out.push_str(own);
    out
}

fn host_certificates() -> String {
    let mut out = String::new();
    // A certificate that cannot be read is left out: the sandbox does not trust it.
    for certificate in rustls_native_certs::load_native_certs().certs {
        out.push_str("-----BEGIN CERTIFICATE-----\n");
        let text = BASE64.encode(certificate.as_ref());
        for line in text.as_bytes().chunks(64) {
            out.push_str(&String::from_utf8_lossy(line));
            out.push('\n');
        }
        out.push_str("-----END CERTIFICATE-----\n");
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn own_certificate_comes_last() {
        let own = "-----BEGIN CERTIFICATE-----\nown\n-----END CERTIFICATE-----\n";
        let all = bundle(own);
        assert!(all.ends_with(own));
        let (begins, ends) = (all.matches("-----BEGIN").count(), all.matches("-----END").count());
        assert_eq!(begins, ends);
        assert!(all.lines().all(|line| line.len() <= 64));
    }
}
