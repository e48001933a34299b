//! Finds the folders of the user from the given environment.

use std::path::{Path, PathBuf};

use ralph_core::env_vars::{Env, RALPH_STATE_DIR};

use super::SetupError;
use crate::store::RalphHome;

/// Returns the folders of the user.
pub fn ralph_home(env: &Env) -> Result<RalphHome, SetupError> {
    let folder = |variable: &str, fallback: &str| -> Option<PathBuf> {
        match env.get(variable).filter(|value| Path::new(value).is_absolute()) {
            Some(value) => Some(PathBuf::from(value)),
            None => {
                env.get("HOME").filter(|home| Path::new(home).is_absolute()).map(|home| Path::new(home).join(fallback))
            }
        }
    };
    let config = folder("XDG_CONFIG_HOME", ".config").ok_or(SetupError::NoHome)?.join("ralph");
    let state = match env.get(RALPH_STATE_DIR).filter(|dir| !dir.is_empty()) {
        Some(dir) if Path::new(dir).is_absolute() => PathBuf::from(dir),
        Some(dir) => return Err(SetupError::RelativeStateDir { dir: dir.to_owned() }),
        None => folder("XDG_STATE_HOME", ".local/state").ok_or(SetupError::NoHome)?.join("ralph"),
    };
    Ok(RalphHome::new(state, config))
}
