//! Serves model APIs for tests: Anthropic Messages, OpenAI Chat and Responses, and Gemini, streamed and not, over
//! HTTP/1.1 and HTTP/2, with TLS under names that the test chooses.
//!
//! It fakes the wire, not the type, and keeps its own bill, so that a meter's result can be compared with what was
//! served. A [`FakeModelScript`] plays the turns of a conversation; [`ModelBehaviour`]s misbehave, one for each
//! request.

mod behaviour;
mod billing;
mod connection;
mod handler;
mod reply;
mod reply_body;
mod script;
mod server;
mod test_ca;
mod wire;

pub use behaviour::ModelBehaviour;
pub use billing::ServerBill;
pub use script::{BilledTokens, FakeModelScript, ScriptedTurn, UsageReport};
pub use server::{FakeModelRequest, FakeModelServer, FakeModelServerBuilder};
pub use test_ca::TestCa;

#[cfg(test)]
mod tests;
