//! Holds every credential that one sandbox is granted, and finds their phantoms where they must not be.

use std::sync::Arc;

use hyper::header::HeaderMap;
use ralph_core::egress::{EgressTarget, HTTPS_PORT};

use super::leak_scan::ForbiddenTexts;
use super::proxy_credential::ProxyCredential;

/// The credentials of one sandbox.
#[derive(Debug)]
pub(crate) struct CredentialSet {
    all: Vec<Arc<ProxyCredential>>,
    /// The credentials that are granted to hosts.
    for_hosts: Vec<Arc<ProxyCredential>>,
    /// The real credentials in every encoding: they must not come back in an answer.
    pub(crate) secrets: ForbiddenTexts,
    /// The phantoms in every encoding: they must not be sent anywhere but to their own host.
    pub(crate) phantoms: ForbiddenTexts,
}

impl CredentialSet {
    pub(crate) fn new(all: Vec<Arc<ProxyCredential>>, for_hosts: Vec<Arc<ProxyCredential>>) -> Self {
        let secrets = ForbiddenTexts::new(all.iter().flat_map(|credential| credential.secret_encodings()));
        let phantoms = ForbiddenTexts::new(all.iter().flat_map(|credential| credential.phantom_encodings()));
        Self { all, for_hosts, secrets, phantoms }
    }

    /// Makes every phantom worthless.
    pub(crate) fn revoke_phantoms(&self) {
        for credential in &self.all {
            credential.revoke();
        }
    }

    /// Returns the one credential that is granted to a host over TLS; if two claim the same host, none is returned.
    pub(crate) fn for_target(&self, target: &EgressTarget) -> Option<&Arc<ProxyCredential>> {
        let mut all = self.for_hosts.iter().filter(|credential| credential.is_for_host(target.host()));
        match (all.next(), all.next()) {
            (Some(one), None) if target.port() == HTTPS_PORT => Some(one),
            _ => None,
        }
    }

    /// Finds a phantom in a request to a host it is not for, and returns its name.
    pub(crate) fn find_misdirected_phantom(
        &self,
        headers: &HeaderMap,
        path: &str,
        own: Option<&Arc<ProxyCredential>>,
    ) -> Option<String> {
        let strange = |credential: &&Arc<ProxyCredential>| !own.is_some_and(|own| Arc::ptr_eq(own, credential));
        let found = self.all.iter().filter(strange).find(|credential| {
            credential.phantom_in_text(path) || headers.iter().any(|(_, value)| credential.phantom_in_value(value))
        });
        found.map(|credential| credential.name().to_owned())
    }

    /// Finds the credentials whose phantoms a body contains, in any encoding.
    pub(crate) fn with_phantom_in(&self, body: &[u8]) -> Vec<&Arc<ProxyCredential>> {
        if self.phantoms.find(body).is_none() {
            return Vec::new();
        }
        let held = |credential: &&Arc<ProxyCredential>| {
            ForbiddenTexts::new(credential.phantom_encodings()).find(body).is_some()
        };
        self.all.iter().filter(held).collect()
    }
}
