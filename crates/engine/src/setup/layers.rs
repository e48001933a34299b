//! Reads the config layers and resolves them into one config.

use std::path::{Path, PathBuf};

use ralph_core::config::{self, BackendKind, Config, ConfigLayer, ConfigOrigin, TaskOptions};

use super::{RunOverrides, SetupError};
use crate::host_environment::{DEFAULT_BACKEND, HostContext};
use crate::read_optional_text_file;
use crate::store::RalphHome;

/// Returns the user's own config file, whether or not it exists.
pub fn config_file(home: &RalphHome) -> PathBuf {
    home.config_dir().join("config.toml")
}

/// Resolves the config for a repository, or outside of any. A task's options come with the path of its file.
pub fn resolve_config(
    host: &HostContext,
    top: Option<&Path>,
    overrides: &RunOverrides,
    task: Option<(TaskOptions, &str)>,
) -> Result<Config, SetupError> {
    let mut layers = vec![ConfigLayer::flags(overrides.config_values()?)];
    if let Some((options, path)) = task {
        layers.push(options.layer(path)?);
    }
    layers.extend(read_layers(host, top)?);
    Ok(config::resolve(&layers, default_backend())?)
}

/// Reads the layers below overrides and task.
fn read_layers(host: &HostContext, top: Option<&Path>) -> Result<Vec<ConfigLayer>, SetupError> {
    let mut layers = config::env_layers(&host.env)?;
    let project = |name: &str| top.map_or(Ok(None), |top| read_config(&top.join(name)));
    if let Some(text) = project("ralph.toml")? {
        layers.push(config::parse_toml(&text, ConfigOrigin::Project("ralph.toml".to_owned()))?);
    }
    let name = ".agent-loop/config.json";
    if let Some(text) = project(name)? {
        layers.push(config::parse_agent_loop(&text, name)?);
    }
    let user = config_file(&host.home);
    if let Some(text) = read_config(&user)? {
        layers.push(config::parse_toml(&text, ConfigOrigin::User(user.display().to_string()))?);
    }
    Ok(layers)
}

/// Reads a file of settings, if there is one.
pub(super) fn read_config(path: &Path) -> Result<Option<String>, SetupError> {
    read_optional_text_file(path).map_err(|source| SetupError::UnreadableConfig { path: path.to_owned(), source })
}

/// Returns the default backend of this machine.
fn default_backend() -> BackendKind {
    let default = |backend: &&BackendKind| backend.as_str() == DEFAULT_BACKEND;
    BackendKind::ALL.iter().find(default).copied().unwrap_or(BackendKind::Local)
}
