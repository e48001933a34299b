//! Asks a run for something, whether a process works on it or it rests, and waits until it is acknowledged.
//!
//! [`send`] is the one way in for the command line, the screen and a server. What a control does to a run is in
//! [`crate::run`]; this module only delivers it.

mod request;
mod send;
mod socket;

pub use request::{ControlAck, ControlRequest};
pub use send::{send, send_request};
pub(crate) use socket::{ControlSocket, IncomingControl};
