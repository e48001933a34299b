//! Stores and finds credentials: in the system's keyring, a private file, the environment, or through a program. The
//! kinds of credentials are defined in `ralph_core::secret`.
//!
//! A name is looked up in that order, and the first source that has it wins. Ralph queries the keyring only for
//! secrets it stored there itself, so that users who keep keys in the environment are never asked to unlock it.
//!
//! The keyrings are accessed through the programs `secret-tool` and `security`. The tests use fakes that behave as the
//! manuals of those programs say; a real Secret Service or Keychain is not part of the tests.

mod command;
mod error;
mod file;
mod helper_program;
mod keyring;
mod metadata;
mod private_files;
mod store;
#[cfg(test)]
mod tests;
mod validation;

pub use command::read_from_command as secret_from_command;
pub use error::Error;
pub use metadata::{SecretMetadata, SecretSource};
pub use store::{NewSecret, ResolvedSecret, SecretSetReport, SecretStorage, SecretStore, SecretSummary};
pub use validation::{SecretValidation, ValidationVerdict, validate};
