//! Resolves options from layers with an origin: flag over environment over task over project over user over built-in.
//!
//! A task and a project come with a checkout, so they may only narrow what the user allows; [`resolve`] refuses the
//! rest and names the flag that would allow it. The caller reads the files, from the base commit.

mod config_keys;
mod error;
mod layer;
mod layer_precedence;
mod network;
mod origin;
mod parse_layers;
mod resolve;
mod resolved;
mod show;
mod task_options;
mod value_types;

pub use config_keys::{
    AgentValues, BudgetValues, CheckValues, ConfigValues, EgressValues, GitValues, LintValues, ModelValues,
    NetworkValues, ResourceValues, SandboxValues,
};
pub use error::{ConfigWidening, Error};
pub use layer::ConfigLayer;
pub use origin::{ConfigOrigin, ResolvedValue};
pub use parse_layers::{env_layers, parse_agent_loop, parse_toml};
pub use resolve::resolve;
pub use resolved::{
    AgentConfig, BudgetConfig, CheckConfig, Config, EgressConfig, GitConfig, LintConfig, ModelConfig, NetworkConfig,
    ResourceConfig, SandboxConfig,
};
pub use show::{ConfigRow, rows, schema};
pub use task_options::TaskOptions;
pub use value_types::{
    BackendKind, ByteSize, CpuCount, InvalidUnit, IsolationLevel, ToolchainSelection, UnknownBackend,
};
