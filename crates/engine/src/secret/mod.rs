//! Where credentials are kept and found: the keyring of the system, a private file, the environment, a program that is
//! asked. What a credential is, in words, is in `ralph_core::secret`.
//!
//! A name is looked for in that order, and the first source that has it decides. Ralph asks the keyring only for what it
//! put there itself, so that nobody who keeps keys in the environment is asked to unlock one.
//!
//! The keyrings are reached through the programs `secret-tool` and `security`. They are tested with stand-ins that
//! behave as the manuals of those programs say; a real Secret Service or Keychain is no part of the tests.

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
