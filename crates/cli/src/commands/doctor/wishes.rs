//! What the person has set up: the config, the default profile and its key, and files of strangers.

use std::path::Path;

use super::super::profile::{Key, key_of};
use super::{Finding, State, finding};
use crate::error::Failure;
use crate::setup::{Flags, Setup};

pub(super) async fn look(setup: &Setup) -> Vec<Finding> {
    let top = setup.top().await;
    let mut findings = vec![state(setup.host.home.state_dir())];
    let config = match setup.resolve(top.as_deref(), &Flags::default(), None) {
        Ok(config) => {
            let file = setup.config_file();
            let there = if file.exists() { "" } else { " is not there: what is built in counts" };
            findings.push(finding("config", State::Good, format!("`{}`{there}", file.display()), None));
            config
        }
        Err(failure) => {
            findings.push(told("config", failure));
            return findings;
        }
    };
    let here = top.unwrap_or_else(|| std::path::absolute(".").unwrap_or_default());
    let profiles = match setup.profiles(&here) {
        Ok(profiles) => profiles,
        Err(failure) => {
            findings.push(told("profiles", failure));
            return findings;
        }
    };
    let name = &config.model.default.value;
    findings.push(match profiles.iter().find(|(known, _)| known == name) {
        Some((_, entry)) => key(name, &entry.profile.litellm_model, &key_of(setup, entry)),
        None => finding(
            "profile",
            State::Missing,
            format!("there is no profile `{name}`"),
            Some("choose one of `ralph profile ls`, with `model.default` in the config"),
        ),
    });
    for (name, entry) in profiles.iter().filter(|(_, entry)| entry.needs_trust()) {
        let found = format!("`{name}` of {} sets {}", entry.origin.place(), entry.untrusted.join(", "));
        findings.push(finding("trust", State::Weak, found, Some("read it, then run `ralph trust`")));
    }
    findings
}

/// Says whether runs have a place to be written down in.
fn state(dir: &Path) -> Finding {
    let there = dir.ancestors().find(|path| path.exists()).unwrap_or(dir);
    let may = rustix::fs::access(there, rustix::fs::Access::WRITE_OK | rustix::fs::Access::EXEC_OK);
    match may {
        Ok(()) => finding("state", State::Good, dir.display().to_string(), None),
        Err(why) => finding(
            "state",
            State::Missing,
            format!("`{}` cannot be written: {why}", there.display()),
            Some("name another folder with RALPH_STATE_DIR, or make this one yours"),
        ),
    }
}

/// A key that is not there is no fault of the machine's: another profile may be meant.
fn key(profile: &str, model: &str, key: &Key) -> Finding {
    let (state, next) = match key {
        Key::Missing { name } | Key::Over { name } => (State::Weak, Some(format!("ralph secret set {name}"))),
        Key::Trouble(why) => (State::Weak, Some(why.clone())),
        Key::Untrusted => (State::Weak, Some("ralph trust".to_owned())),
        Key::NotNeeded | Key::Found { .. } => (State::Good, None),
    };
    let found = format!("`{profile}` is {model}, key: {}", key.word());
    finding("profile", state, found, next.as_deref())
}

fn told(what: &'static str, failure: Failure) -> Finding {
    let Failure { message, causes, hint, .. } = failure;
    let found = [vec![message], causes].concat().join(": ");
    finding(what, State::Missing, found, hint.as_deref())
}
