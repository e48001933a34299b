//! Pins profiles with their current prices: a run keeps them whatever happens to the files.

use std::path::Path;

use ralph_core::config::{Config, ConfigOrigin};
use ralph_core::event::{PinnedProfile, RunProfiles};
use ralph_core::price::PriceTable;
use ralph_core::profile::ProfileCatalog;

use super::{SetupError, load_profiles, prices_in_force};
use crate::store::RalphHome;

/// Pins profiles by name.
pub fn pin_named_profiles(home: &RalphHome, top: &Path, names: &[String]) -> Result<Vec<PinnedProfile>, SetupError> {
    let (profiles, table) = (load_profiles(home, top)?, prices_in_force(home)?);
    names.iter().map(|name| pin_profile(&profiles, &table, name, top)).collect()
}

/// Pins the profiles that a config names.
pub(super) fn pin_run_profiles(home: &RalphHome, top: &Path, config: &Config) -> Result<RunProfiles, SetupError> {
    let (profiles, table) = (load_profiles(home, top)?, prices_in_force(home)?);
    let pin = |name: &str| pin_profile(&profiles, &table, name, top);
    let optional = |name: &Option<String>| name.as_deref().map(pin).transpose();
    Ok(RunProfiles {
        default: pin(&config.model.default.value)?,
        fallback: optional(&config.model.fallback.value)?,
        doctor: optional(&config.model.doctor.value)?,
    })
}

fn pin_profile(
    profiles: &ProfileCatalog,
    table: &PriceTable,
    name: &str,
    top: &Path,
) -> Result<PinnedProfile, SetupError> {
    let entry = profiles.get(name)?;
    let profile = &entry.profile;
    Ok(PinnedProfile {
        name: name.to_owned(),
        model: absolute_script(&profile.litellm_model, &entry.origin, top),
        base_url: profile.base_url.clone(),
        api_key_env: profile.api_key_env.clone(),
        max_output_tokens: profile.max_output_tokens,
        temperature: profile.temperature,
        timeout_s: u64::from(profile.timeout_s),
        price: profile.price(table),
        most_output: profile.model_max_output(table),
        extra: profile.extra.clone(),
    })
}

/// Makes a script's path absolute: it is beside the file that names it, wherever the run is resumed from.
fn absolute_script(model: &str, origin: &ConfigOrigin, top: &Path) -> String {
    let Some(file) = model.strip_prefix("scripted/") else { return model.to_owned() };
    let base = match origin {
        ConfigOrigin::User(path) => Path::new(path).parent().unwrap_or(top).to_owned(),
        _ => top.to_owned(),
    };
    format!("scripted/{}", base.join(file).display())
}
