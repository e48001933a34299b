//! Attacks on the egress of a sandbox: its network, its names, its proxy and the granted credentials.
//!
//! They run inside real cages whose listeners the real proxy serves, with grants made by the real engine. Outside
//! there is a fake network that leads only to recorders on this machine's loopback. A refusal alone proves nothing:
//! the steps of every attack reach a recorder where the policy allows them, and a case whose steps do not is
//! *invalid*, never held. What can be refused without a proxy is tested with the cage.

mod arena;
mod attack_client;
mod case;
mod cases;
mod certificates;
mod client_codec;
mod client_socket;
mod fake_network;
mod leak_search;
mod policies;
mod recorder;
mod run;

pub use arena::EgressSuiteOptions;
pub use attack_client::run_if_client as attack_client_entry;
pub use case::{EgressCase, EgressPayload};
pub use run::{cases, run, skip};
