//! A model server that speaks four formats on a local port and misbehaves on request.
//!
//! It fakes the wire, not the type: what a test sees passed through real sockets. It does not stream.

mod behaviour;
mod connection;
mod paced_body;
mod server;
mod wire;

pub use behaviour::ModelBehaviour;
pub use server::{FaultyModelRequest, FaultyModelServer};
