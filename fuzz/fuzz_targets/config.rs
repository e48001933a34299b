//! Reads any texts as the user's config and the project's, with a NUL between them: a project can only narrow.
#![no_main]

use libfuzzer_sys::fuzz_target;
use ralph_core::config::{self, BackendKind, Config, ConfigLayer, ConfigOrigin, Error};
use ralph_core::policy::decide_request;

fuzz_target!(|input: &str| {
    let (user, project) = ralph_fuzz::pair(input).unwrap_or((input, ""));
    let user = said(config::parse_toml(user, ConfigOrigin::User("config.toml".to_owned())));
    let project = said(config::parse_toml(project, ConfigOrigin::Project("ralph.toml".to_owned())));
    let Some(user) = user else { return };
    let Some(alone) = resolved(&[user.clone()]) else { return };
    let Some(project) = project else { return };
    if let Some(both) = resolved(&[user, project]) {
        narrowed(&alone, &both);
    }
});

fn resolved(layers: &[ConfigLayer]) -> Option<Config> {
    let config = said(config::resolve(layers, BackendKind::Embedded))?;
    assert!(!config::rows(&config).is_empty(), "a config can be shown");
    Some(config)
}

/// Checks the text of an error: it is printed to a terminal, and may quote the file.
fn said<T>(result: Result<T, Error>) -> Option<T> {
    result
        .map_err(|error| {
            let text = error.to_string();
            // A tab in a quoted key does no harm.
            let harmful = |c: char| c.is_control() && c != '\t';
            assert!(!text.is_empty() && !text.contains(harmful), "{text:?}");
        })
        .ok()
}

fn narrowed(alone: &Config, both: &Config) {
    assert!(both.budget.max_cost.value <= alone.budget.max_cost.value, "more dollars");
    assert!(both.budget.max_iterations.value <= alone.budget.max_iterations.value, "more iterations");
    assert!(both.budget.max_wall_time_minutes.value <= alone.budget.max_wall_time_minutes.value, "more time");
    if let Some(limit) = alone.budget.max_tokens.value {
        assert!(both.budget.max_tokens.value.is_some_and(|tokens| tokens <= limit), "more tokens");
    }
    let isolation = |config: &Config| config.sandbox.backend.value.isolation();
    assert!(!isolation(alone).is_stronger_than(isolation(both)), "weaker isolation");
    for host in ["example.org", "api.github.com", "10.0.0.1"] {
        let allows = |config: &Config| decide_request(&config.sandbox.network.policy(), host, 443, "GET", "/a").allowed;
        assert!(allows(alone) || !allows(both), "{host} became reachable");
    }
}
