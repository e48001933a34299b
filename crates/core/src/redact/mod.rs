//! Finds known secrets, and strings that look like secrets, in outgoing text, as a second defence against leaks.
//!
//! The first defence is that real secrets never reach the sandbox. The caller decides what to do with a match (mask
//! it, stop the import); nothing here reads files or keeps text, only which secret was found and where.

mod encodings;
mod issuer_prefixes;
mod masked_text;
mod private_key_block;
mod redactor;
mod secret_shape;
mod stream;

pub use encodings::{SHORTEST, encodings, is_too_short};
pub use issuer_prefixes::ISSUER_PREFIXES;
pub use masked_text::MaskedText;
pub use redactor::{Redactor, SecretMatch};
pub use secret_shape::SecretShape;
pub use stream::StreamRedactor;
