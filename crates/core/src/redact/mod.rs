//! The second net against leaks: finds known secrets and strings that look like secrets in text on its way out.
//!
//! The first net is that real secrets never reach the sandbox. What to do with a find (mask it, stop the hand-over) is
//! for the caller to decide; nothing here reads files or keeps what it saw, only of which secret and where.

mod forms;
mod issuer;
mod redactor;
mod shape;
mod stream;

pub use forms::{SHORTEST, forms, too_short};
pub use issuer::PREFIXES;
pub use redactor::{Found, Redactor};
pub use shape::Shape;
pub use stream::Stream;
