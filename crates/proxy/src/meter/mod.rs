//! The pure half of metering: what may be asked of a model, what it costs at most, and what an answer says it cost.
//!
//! Everything here is bytes in, judgement out. Reserving, dialling and writing down are done elsewhere. Requests come
//! from the cage and are hostile: what cannot be read one way only, or cannot be estimated, is refused.

mod endpoint;
mod name;
mod refusal;
mod request;
mod sse;
mod status;
mod tee;
mod usage;

#[cfg(test)]
mod tests;

pub use endpoint::{Call, Endpoint, Wire, endpoint};
pub use name::is_same_model;
pub use refusal::{Refusal, Said, refusal};
pub use request::{BadRequest, Request, Written};
pub use status::gave_up_waiting;
pub use tee::{Seen, Tee};
