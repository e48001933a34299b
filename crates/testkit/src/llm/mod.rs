//! A scripted model server: Anthropic Messages, OpenAI Chat and Responses, and Gemini, streamed and not, over HTTP/1.1
//! and HTTP/2, with TLS under names that the test chooses.
//!
//! It fakes the wire, not the type, and keeps its own bill: what a meter says can be held against what was served.

mod authority;
mod body;
mod play;
mod script;
mod server;
mod tally;
mod wire;

pub use authority::Authority;
pub use script::{Script, Tokens, Turn, Usage};
pub use server::{Builder, Received, Server};
pub use tally::Bill;

#[cfg(test)]
mod tests;
