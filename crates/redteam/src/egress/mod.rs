//! The attacks on the way out of a sandbox: on its network, its names, its proxy and the credentials that are lent there.
//!
//! They are made inside real cages whose doors are served by the real proxy, on terms the engine really lends. Outside
//! there is a world of the suite's own that leads nowhere but to recorders on this machine's loopback. A refusal is worth
//! what its counterpart shows: the words of every attack reach a recorder where the policy allows them, and a case whose
//! words do not is *invalid*, never held. What needs no proxy to be refused is tested beside the cage.

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

pub use arena::EgressTarget;
pub use attack_client::run_if_client as attack_client_entry;
pub use case::{EgressCase, EgressPayload};
pub use run::{cases, run, skip};
