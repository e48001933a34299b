//! Loads the model profiles: the user's over the project's over the built-in ones.

use std::path::{Path, PathBuf};

use ralph_core::config::ConfigOrigin;
use ralph_core::profile::{ProfileCatalog, ProfileFile, SHIPPED};

use super::layers::read_config;
use super::{SetupError, trusted_files};
use crate::store::RalphHome;

/// The files of a repository that may hold profiles; the first wins.
pub const PROJECT_MODEL_FILES: [&str; 2] = ["config/models.yaml", "models.yaml"];

/// Returns the user's own profiles, whether or not the file exists.
pub fn user_models_file(home: &RalphHome) -> PathBuf {
    home.config_dir().join("models.yaml")
}

/// Loads every profile a run in this repository may name.
pub fn load_profiles(home: &RalphHome, top: &Path) -> Result<ProfileCatalog, SetupError> {
    let mut sources = vec![ProfileFile { origin: ConfigOrigin::BuiltIn, text: SHIPPED.to_owned() }];
    for name in PROJECT_MODEL_FILES {
        if let Some(text) = read_config(&top.join(name))? {
            sources.push(ProfileFile { origin: ConfigOrigin::Project(name.to_owned()), text });
        }
    }
    let user = user_models_file(home);
    if let Some(text) = read_config(&user)? {
        sources.push(ProfileFile { origin: ConfigOrigin::User(user.display().to_string()), text });
    }
    Ok(ProfileCatalog::load(&sources, &trusted_files(home))?)
}
