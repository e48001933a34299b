//! Meters model calls, the pure half: what may be requested of a model, what it costs at most, and what an answer
//! says it cost.
//!
//! Everything here turns bytes into a decision. Reserving, dialling and recording are done elsewhere. Requests come
//! from the sandbox and are hostile: what cannot be read in one way only, or cannot be estimated, is refused.

mod billing_status;
mod endpoint;
mod model_match;
mod refusal;
mod request;
mod sse;
mod tee;
mod usage;

#[cfg(test)]
mod tests;

pub use billing_status::is_timeout_status;
pub use endpoint::{ModelCallKind, RouteApi, RouteEndpoint, classify_endpoint};
pub use model_match::is_same_model;
pub use refusal::{GatewayRefusal, RefusalResponse, refusal_response};
pub use request::{BadRequest, MeteredRequest, RewrittenRequest};
pub use tee::{MeteredAnswer, UsageTee};
