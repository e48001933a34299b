//! The way out attacked from inside a sandbox: rogue clients at real doors, scripted providers and hosts outside.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod chance;
mod connections;
mod crowd;
mod hangups;
mod host;
mod inside;
mod others;
mod outflow;
mod overspend;
mod routes;
mod stage;
mod streams;
mod wire;
