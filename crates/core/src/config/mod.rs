//! Options as data with an origin: flag over environment over task over project over user over built-in.
//!
//! A task and a project come with a checkout, so they may only narrow what the user allows; [`resolve`] refuses the
//! rest and names the flag that would allow it. Files are read by the caller, from the base commit.

mod ask;
mod error;
mod layer;
mod network;
mod origin;
mod read;
mod resolve;
mod resolved;
mod show;
mod stack;
mod units;
mod values;

pub use ask::TaskAsk;
pub use error::{Error, Widens};
pub use layer::Layer;
pub use origin::{Origin, Resolved};
pub use read::{env_layers, parse_agent_loop, parse_toml};
pub use resolve::resolve;
pub use resolved::{Agent, Budget, Check, Config, Egress, Git, Lint, Models, Network, Resources, Sandbox};
pub use show::{Row, rows, schema};
pub use units::{Backend, Cpus, Enforcement, NotAUnit, Size, Toolchains, UnknownBackend};
pub use values::{
    AgentValues, BudgetValues, CheckValues, EgressValues, GitValues, LintValues, ModelValues, NetworkValues,
    ResourceValues, SandboxValues, Values,
};
