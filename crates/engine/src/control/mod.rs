//! Sends a control to a run, live or at rest, and waits for its acknowledgement.
//!
//! [`send`] is the single entry point for the command line, the TUI and a server. What a control does to a run is in
//! [`crate::run`]; this module only delivers it.

mod request;
mod send;
mod socket;

pub use request::{ControlAck, ControlRequest};
pub use send::{send, send_request};
pub(crate) use socket::{ControlSocket, IncomingControl};
