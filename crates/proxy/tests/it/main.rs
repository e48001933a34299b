//! Attacks the egress proxy from inside a sandbox: rogue clients at real listeners, scripted providers and hosts
//! outside.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod client_hangups;
mod connections;
mod fixture;
mod http_client;
mod model_routes;
mod outflow;
mod overspend;
mod resource_limits;
mod route_endpoints;
mod scripted_host;
mod seeded_random;
mod streaming;
mod substituted_model;
mod tls_inspection;
