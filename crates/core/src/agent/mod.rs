//! The coding agents ralph knows: how each is started without a person, what its output says, and what its end means.
//!
//! Nothing is run here. `engine::agent` finds and installs the programs, `engine::run` starts them in a sandbox.

mod aider;
mod catalogue;
mod claude;
mod codex;
mod contract;
mod copilot;
mod cursor;
mod custom;
mod ear;
mod gemini;
mod goose;
mod judge;
mod lines;
mod messages;
mod opencode;
mod plain;
mod qwen;
mod said;
mod words;

pub use catalogue::{all, named};
pub use contract::{Agent, Guarantee, Package, Session, Start, Tested};
pub use custom::{BadTemplate, Custom};
pub use judge::{Ended, Outcome, Seen, hopeless, judge};
pub use lines::Lines;
pub use said::{Finished, Reader, Said};

#[cfg(test)]
mod tests;
