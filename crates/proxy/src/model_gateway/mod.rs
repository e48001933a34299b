//! Forwards calls to model endpoints by model routes: injects the credential and reserves the cost of every call in
//! advance.

pub(crate) mod response_body;

mod body_buffers;
mod call_charge;
mod call_reservation;
mod drain;
mod endpoint_pool;
mod gateway_request;
mod route;
mod route_credential;

pub(crate) use body_buffers::BodyBuffers;
pub(crate) use drain::DrainTasks;
pub(crate) use endpoint_pool::EndpointPool;
pub(crate) use gateway_request::{GatewayResponse, find_route, health, serve};
pub(crate) use route::RouteUpstream;
pub use route::{BadRoute, ModelRoute, RouteModel};
