//! Manages granted credentials: sandboxes hold phantoms, the proxy injects the real ones, and leaks of either are
//! detected.

pub(crate) mod header_filter;
pub(crate) mod leak_scan;

mod credential_set;
mod phantom;
mod proxy_credential;

pub(crate) use credential_set::CredentialSet;
pub use phantom::{PhantomCredential, RandomSourceError};
pub(crate) use proxy_credential::strip_credentials;
pub use proxy_credential::{BadCredential, CredentialPlacement, ProxyCredential};
