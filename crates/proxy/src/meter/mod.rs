//! The pure half of metering: what may be asked of a model, what it costs at most, and what an answer says it cost.
//!
//! Everything here is bytes in, judgement out. Reserving, dialling and writing down are done elsewhere. Requests come
//! from the cage and are hostile: what cannot be read one way only, or cannot be estimated, is refused.

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
