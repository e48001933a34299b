//! Connects clients to hosts: by tunnels whose first bytes are checked, or request by request behind our own TLS.

pub(crate) mod client_hello;
pub(crate) mod host_connection;
pub(crate) mod http_forward;
pub(crate) mod tunnel;

mod mitm_ca;

pub use mitm_ca::{CertificateError, MitmCa};
