//! Grants credentials: the proxy injects the real ones, sandboxes hold phantoms, and neither may leak.

pub(crate) mod header_filter;
pub(crate) mod leak_scan;

mod credential_set;
mod phantom;
mod proxy_credential;

pub(crate) use credential_set::CredentialSet;
pub use phantom::{PhantomCredential, RandomSourceError};
pub(crate) use proxy_credential::strip_credentials;
pub use proxy_credential::{BadCredential, CredentialPlacement, ProxyCredential};
