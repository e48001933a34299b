//! A model server that speaks the OpenAI chat format on a local port and misbehaves on request.
//!
//! It fakes the wire, not the type: what a test sees passed through real sockets. It does not stream.

mod behaviour;
mod connection;
mod server;

pub use behaviour::Behaviour;
pub use server::{Received, Server};
