//! The second net against leaks: finds known secrets and strings that look like secrets in text on its way out.
//!
//! The first net is that real secrets never reach the sandbox. What to do with a find (mask it, stop the hand-over) is
//! for the caller to decide; nothing here reads files or keeps what it saw, only of which secret and where.

mod encodings;
mod issuer_prefixes;
mod redactor;
mod secret_shape;
mod stream;

pub use encodings::{SHORTEST, encodings, is_too_short};
pub use issuer_prefixes::ISSUER_PREFIXES;
pub use redactor::{Redactor, SecretMatch};
pub use secret_shape::SecretShape;
pub use stream::StreamRedactor;
