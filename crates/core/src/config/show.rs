//! Renders the config as rows for `config show --origin` and as a JSON Schema for editors.

use serde::Serialize;

use super::config_keys::ConfigValues;
use super::origin::{ConfigOrigin, ResolvedValue};
use super::resolved::Config;

/// One line of `config show`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ConfigRow {
    pub key: &'static str,
    /// The value as written in the file, without quotes; `-` if not set.
    pub value: String,
    pub origin: ConfigOrigin,
}

/// Lists every option with its value and origin, in the order of the file.
pub fn rows(config: &Config) -> Vec<ConfigRow> {
    let Config { sandbox, budget, model, git, lint, check, agent, run, egress } = config;
    let (network, resources) = (&sandbox.network, &sandbox.resources);
    vec![
        row("sandbox.backend", &sandbox.backend),
        optional("sandbox.image", &sandbox.image),
        row("sandbox.toolchains", &sandbox.toolchains),
        row("sandbox.network.policy", &network.policy),
        list("sandbox.network.allowed", &network.allowed),
        list("sandbox.network.denied", &network.denied),
        optional("sandbox.resources.memory", &resources.memory),
        optional("sandbox.resources.cpus", &resources.cpus),
        optional("sandbox.resources.disk", &resources.disk),
        row("sandbox.resources.pids", &resources.pids),
        row("sandbox.resources.timeout_minutes", &resources.timeout_minutes),
        ConfigRow {
            key: "budget.max_cost_usd",
            value: budget.max_cost.value.as_usd().to_string(),
            origin: budget.max_cost.origin.clone(),
        },
        row("budget.max_iterations", &budget.max_iterations),
        row("budget.max_wall_time_minutes", &budget.max_wall_time_minutes),
        optional("budget.max_tokens", &budget.max_tokens),
        row("budget.max_consecutive_gutter", &budget.max_consecutive_gutter),
        row("model.default", &model.default),
        optional("model.fallback", &model.fallback),
        optional("model.doctor", &model.doctor),
        row("git.name", &git.name),
        row("git.email", &git.email),
        row("lint.min_checkboxes", &lint.min_checkboxes),
        row("check.timeout_s", &check.timeout_s),
        list("agent.command", &agent.command),
        row("agent.session_s", &agent.session_s),
        row("agent.idle_s", &agent.idle_s),
        row("agent.grace_s", &agent.grace_s),
        list("run.ladder", &run.ladder),
        row("egress.alarm_after", &egress.alarm_after),
    ]
}

/// Returns the JSON Schema of `config.toml`.
pub fn schema() -> serde_json::Value {
    let generator = schemars::generate::SchemaSettings::draft2020_12().into_generator();
    generator.into_root_schema_for::<ConfigValues>().to_value()
}

fn row<T: ToString>(key: &'static str, resolved: &ResolvedValue<T>) -> ConfigRow {
    ConfigRow { key, value: resolved.value.to_string(), origin: resolved.origin.clone() }
}

fn optional<T: ToString>(key: &'static str, resolved: &ResolvedValue<Option<T>>) -> ConfigRow {
    let value = resolved.value.as_ref().map_or_else(|| "-".to_owned(), ToString::to_string);
    ConfigRow { key, value, origin: resolved.origin.clone() }
}

fn list<T: ToString>(key: &'static str, resolved: &ResolvedValue<Vec<T>>) -> ConfigRow {
    let items: Vec<String> = resolved.value.iter().map(ToString::to_string).collect();
    let value = if items.is_empty() { "-".to_owned() } else { items.join(", ") };
    ConfigRow { key, value, origin: resolved.origin.clone() }
}
