//! Checks what the user has set up: the config, the default profile and its key, and files that are not trusted yet.

use std::path::Path;

use ralph_engine::setup::{RunOverrides, config_file, load_profiles, resolve_config};

use super::super::profile::{ProfileKeyStatus, profile_key_status};
use super::{BackendCheckStatus, DoctorFinding, finding};
use crate::error::CliError;
use crate::run_setup::CliSetup;

pub(super) async fn check_setup(setup: &CliSetup) -> Vec<DoctorFinding> {
    let top = setup.repo_top().await;
    let mut findings = vec![state_dir_finding(setup.host.home.state_dir())];
    let config = match resolve_config(&setup.host, top.as_deref(), &RunOverrides::default(), None) {
        Ok(config) => {
            let file = config_file(&setup.host.home);
            let there = if file.exists() { "" } else { " does not exist: the built-in defaults apply" };
            findings.push(finding("config", BackendCheckStatus::Good, format!("`{}`{there}", file.display()), None));
            config
        }
        Err(failure) => {
            findings.push(error_finding("config", failure.into()));
            return findings;
        }
    };
    let here = top.unwrap_or_else(|| std::path::absolute(".").unwrap_or_default());
    let profiles = match load_profiles(&setup.host.home, &here) {
        Ok(profiles) => profiles,
        Err(failure) => {
            findings.push(error_finding("profiles", failure.into()));
            return findings;
        }
    };
    let name = &config.model.default.value;
    findings.push(match profiles.iter().find(|(known, _)| known == name) {
        Some((_, entry)) => profile_finding(name, &entry.profile.litellm_model, &profile_key_status(setup, entry)),
        None => finding(
            "profile",
            BackendCheckStatus::Missing,
            format!("there is no profile `{name}`"),
            Some("choose one of `ralph profile ls`, with `model.default` in the config"),
        ),
    });
    for (name, entry) in profiles.iter().filter(|(_, entry)| entry.needs_trust()) {
        let found = format!("`{name}` of {} sets {}", entry.origin.location(), entry.untrusted.join(", "));
        findings.push(finding("trust", BackendCheckStatus::Weak, found, Some("read it, then run `ralph trust`")));
    }
    findings
}

/// Reports whether runs can write to the state directory.
fn state_dir_finding(dir: &Path) -> DoctorFinding {
    let there = dir.ancestors().find(|path| path.exists()).unwrap_or(dir);
    let may = rustix::fs::access(there, rustix::fs::Access::WRITE_OK | rustix::fs::Access::EXEC_OK);
    match may {
        Ok(()) => finding("state", BackendCheckStatus::Good, dir.display().to_string(), None),
        Err(why) => finding(
            "state",
            BackendCheckStatus::Missing,
            format!("`{}` cannot be written: {why}", there.display()),
            Some("name another folder with RALPH_STATE_DIR, or make this one writable"),
        ),
    }
}

/// Reports the default profile and its key. A missing key is only a weakness: the user may mean another profile.
fn profile_finding(profile: &str, model: &str, key: &ProfileKeyStatus) -> DoctorFinding {
    let (state, next) = match key {
        ProfileKeyStatus::Missing { name } | ProfileKeyStatus::Expired { name } => {
            (BackendCheckStatus::Weak, Some(format!("ralph secret set {name}")))
        }
        ProfileKeyStatus::Failed(why) => (BackendCheckStatus::Weak, Some(why.clone())),
        ProfileKeyStatus::Untrusted => (BackendCheckStatus::Weak, Some("ralph trust".to_owned())),
        ProfileKeyStatus::NotNeeded | ProfileKeyStatus::Found { .. } => (BackendCheckStatus::Good, None),
    };
    let found = format!("`{profile}` is {model}, key: {}", key.text());
    finding("profile", state, found, next.as_deref())
}

fn error_finding(what: &'static str, failure: CliError) -> DoctorFinding {
    let CliError { message, causes, hint, .. } = failure;
    let found = [vec![message], causes].concat().join(": ");
    finding(what, BackendCheckStatus::Missing, found, hint.as_deref())
}
