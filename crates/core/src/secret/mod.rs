//! Describes credentials: a value that cannot be printed, its kind, its expiry, and the request that checks it.
//!
//! The engine stores credentials and sends the request.

mod agent_secrets;
mod credential_check_request;
mod credential_command;
mod expiry;
mod input;
mod kind;
mod name;
mod value;

pub use agent_secrets::{AGENTS, AgentSecrets, UnknownAgent};
pub use credential_check_request::{CredentialProbe, ProbeUnavailable, build_probe, cleartext_hint, subscription_hint};
pub use credential_command::{BadCommand, CredentialCommand};
pub use expiry::{BadExpiry, EXPIRY_WARNING_DAYS, days_left, expiry_text, parse_expiry};
pub use input::{BadValue, LONGEST, read, read_new};
pub use kind::{SecretKind, UnknownSecretKind};
pub use name::{BadName, SecretName, known_credentials, looks_like_a_value};
pub use value::Secret;
