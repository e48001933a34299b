//! Connects clients to hosts: through tunnels whose first bytes are checked, or by terminating TLS and checking each
//! request.

pub(crate) mod client_hello;
pub(crate) mod host_connection;
pub(crate) mod http_forward;
pub(crate) mod tunnel;

mod mitm_ca;

pub use mitm_ca::{CertificateError, MitmCa};
