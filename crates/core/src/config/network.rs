//! Resolves the network policy from its layers. Unlike other options it is not replaced but narrowed, step by step.

use super::config_keys::NetworkValues;
use super::error::{ConfigWidening, Error};
use super::layer::ConfigLayer;
use super::layer_precedence::ConfigStack;
use super::origin::{ConfigOrigin, ResolvedValue};
use super::resolved::NetworkConfig;
use crate::policy::{Policy, PolicyMode, PolicyRule, PolicyWidening, narrow, shorten};

/// Starts from what the user allows (nothing by default), adds the hosts of the command line, and lets project and task
/// narrow the result. A policy named on the command line is final.
pub(super) fn resolve(stack: &ConfigStack<'_>) -> Result<NetworkConfig, Error> {
    let mut network = NetworkConfig {
        policy: ResolvedValue::built_in(PolicyMode::Deny),
        allowed: ResolvedValue::built_in(Vec::new()),
        denied: ResolvedValue::built_in(Vec::new()),
    };
    let trusted = |layer: &&ConfigLayer| layer.origin.is_trusted();
    for layer in stack.lowest_first().filter(trusted) {
        apply_trusted(&mut network, &layer.values.sandbox.network, &layer.origin);
    }
    let settled = stack
        .lowest_first()
        .any(|layer| layer.origin.rank() > task_rank() && layer.values.sandbox.network.policy.is_some());
    // Deny rules accumulate, so those of the command line are already included; its hosts survive every narrowing.
    let kept: Vec<PolicyRule> = stack
        .lowest_first()
        .filter(|layer| layer.origin == ConfigOrigin::Flag)
        .flat_map(|layer| layer.values.sandbox.network.allowed.iter().flatten().cloned())
        .collect();
    for layer in stack.lowest_first().filter(|layer| !layer.origin.is_trusted()) {
        apply_untrusted(&mut network, &layer.values.sandbox.network, &layer.origin, settled)?;
    }
    if !settled && !kept.is_empty() && network.policy.value != PolicyMode::Open {
        network.policy = raised_to_allowlist(network.policy);
        network.allowed.origin = ConfigOrigin::Flag;
    }
    if network.policy.value != PolicyMode::Deny {
        add_rules(&mut network.allowed.value, &kept);
    }
    Ok(network)
}

fn task_rank() -> u8 {
    ConfigOrigin::Task(String::new()).rank()
}

/// Applies a layer of the user: a file's list replaces, the command line's list adds.
fn apply_trusted(network: &mut NetworkConfig, values: &NetworkValues, origin: &ConfigOrigin) {
    if let Some(rules) = &values.allowed {
        if *origin == ConfigOrigin::Flag {
            add_rules(&mut network.allowed.value, rules);
        } else {
            network.allowed.value.clone_from(rules);
        }
        network.allowed.origin = origin.clone();
        if values.policy.is_none() && network.policy.value == PolicyMode::Deny && !rules.is_empty() {
            // Hosts without a policy can only mean an allowlist.
            network.policy = ResolvedValue { value: PolicyMode::Allowlist, origin: origin.clone() };
        }
    }
    if let Some(mode) = values.policy {
        network.policy = ResolvedValue { value: mode, origin: origin.clone() };
    }
    if let Some(rules) = &values.denied {
        add_rules(&mut network.denied.value, rules);
        network.denied.origin = origin.clone();
    }
}

/// Applies a layer of a checkout, which may only narrow.
fn apply_untrusted(
    network: &mut NetworkConfig,
    values: &NetworkValues,
    origin: &ConfigOrigin,
    settled: bool,
) -> Result<(), Error> {
    if let Some(rules) = &values.denied {
        add_rules(&mut network.denied.value, rules);
        network.denied.origin = origin.clone();
    }
    let mode = match (values.policy, &values.allowed) {
        _ if settled => return Ok(()),
        (Some(mode), _) => mode,
        (None, Some(_)) => PolicyMode::Allowlist,
        (None, None) => return Ok(()),
    };
    let limit = network.policy();
    // An allowlist without a list means the current one.
    let asked = match &values.allowed {
        Some(rules) => rules.clone(),
        None if mode == PolicyMode::Allowlist && limit.mode == PolicyMode::Allowlist => limit.allow.clone(),
        None => Vec::new(),
    };
    let ask = Policy { mode, allow: asked, deny: Vec::new() };
    let narrowed = narrow(&limit, &ask).map_err(|widening| widening_error(widening, network, origin))?;
    network.policy = ResolvedValue { value: narrowed.mode, origin: origin.clone() };
    network.allowed = ResolvedValue { value: narrowed.allow, origin: origin.clone() };
    Ok(())
}

fn widening_error(widening: PolicyWidening, network: &NetworkConfig, by: &ConfigOrigin) -> Error {
    let (key, asked, limit, limit_by, flag) = match widening {
        PolicyWidening::Mode { asked, limit } => (
            "sandbox.network.policy",
            asked.to_string(),
            format!("only {limit}"),
            &network.policy.origin,
            Some(format!("--network {asked}")),
        ),
        PolicyWidening::NotAllowed { rules } => {
            // The list that lacks the hosts, or the policy that overrides every list.
            let by =
                if network.policy.value == PolicyMode::Deny { &network.policy.origin } else { &network.allowed.origin };
            let hosts = shorten(&rules);
            let flags: Vec<String> = hosts.iter().map(|host| format!("--allow-host {}", quoted(host))).collect();
            let limit = "no such host".to_owned();
            ("sandbox.network.allowed", hosts.join(", "), limit, by, Some(flags.join(" ")))
        }
        // A deny rule is deliberate: no flag overrides it.
        PolicyWidening::Denied { rule, by } => {
            let limit = format!("nothing under `{by}`");
            ("sandbox.network.denied", rule.to_string(), limit, &network.denied.origin, None)
        }
    };
    ConfigWidening { key, asked, by: by.clone(), limit, limit_by: limit_by.clone(), flag }.into()
}

/// Quotes a rule as one shell word.
fn quoted(rule: &str) -> String {
    if rule.contains([' ', '*', '[']) { format!("'{rule}'") } else { rule.to_owned() }
}

fn raised_to_allowlist(mode: ResolvedValue<PolicyMode>) -> ResolvedValue<PolicyMode> {
    match mode.value {
        PolicyMode::Deny => ResolvedValue { value: PolicyMode::Allowlist, origin: ConfigOrigin::Flag },
        PolicyMode::Allowlist | PolicyMode::Open => mode,
    }
}

fn add_rules(rules: &mut Vec<PolicyRule>, more: &[PolicyRule]) {
    for rule in more {
        if !rules.contains(rule) {
            rules.push(rule.clone());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::{BackendKind, ConfigLayer, ConfigOrigin, parse_toml, resolve};
    use crate::policy::shorten;

    fn user(text: &str) -> ConfigLayer {
        parse_toml(&format!("[sandbox.network]\n{text}"), ConfigOrigin::User("u".into())).expect("a user's file")
    }

    fn project(text: &str) -> ConfigLayer {
        parse_toml(&format!("[sandbox.network]\n{text}"), ConfigOrigin::Project("p".into())).expect("a project's file")
    }

    fn task(text: &str) -> ConfigLayer {
        ConfigLayer { origin: ConfigOrigin::Task("t".into()), ..project(text) }
    }

    fn flag(text: &str) -> ConfigLayer {
        ConfigLayer::flags(project(text).values)
    }

    #[track_caller]
    fn check(layers: &[ConfigLayer], want: &str) {
        let got = match resolve(layers, BackendKind::Embedded) {
            Ok(config) => {
                let network = config.sandbox.network;
                format!(
                    "{} ({}): {} ({}) / {}",
                    network.policy.value,
                    network.policy.origin,
                    shorten(&network.allowed.value).join(" "),
                    network.allowed.origin,
                    shorten(&network.denied.value).join(" ")
                )
            }
            Err(error) => format!("{error} | {}", error.hint().unwrap_or_default()),
        };
        assert_eq!(got, want);
    }

    #[test]
    fn the_user_sets_the_policy() {
        check(&[], "deny (built-in):  (built-in) / ");
        check(&[user("allowed = ['npm']")], "allowlist (user u): npm (user u) / ");
        check(
            &[user("policy = 'allowlist'\nallowed = ['npm']\ndenied = ['x.io']")],
            "allowlist (user u): npm (user u) / x.io",
        );
        check(&[user("policy = 'open'")], "open (user u):  (built-in) / ");
    }

    #[test]
    fn checkouts_may_narrow_the_policy() {
        let npm = || user("allowed = ['npm', '*.x.io']");
        check(&[npm(), task("allowed = ['a.x.io']")], "allowlist (task t): a.x.io (task t) / ");
        check(&[npm(), task("policy = 'deny'")], "deny (task t):  (task t) / ");
        check(&[npm(), task("policy = 'allowlist'")], "allowlist (task t): npm *.x.io (task t) / ");
        check(&[npm(), project("denied = ['b.x.io']")], "allowlist (user u): npm *.x.io (user u) / b.x.io");
        check(&[user("policy = 'open'"), task("allowed = ['y.io']")], "allowlist (task t): y.io (task t) / ");
        check(
            &[npm(), project("allowed = ['npm']"), task("allowed = ['a.x.io']")],
            "task t asks for `sandbox.network.allowed = a.x.io`, but project p allows no such host | to allow it for this run, add `--allow-host a.x.io`",
        );
    }

    #[test]
    fn checkouts_may_not_widen_the_policy() {
        check(
            &[task("policy = 'open'")],
            "task t asks for `sandbox.network.policy = open`, but built-in allows only deny | to allow it for this run, add `--network open`",
        );
        check(
            &[task("allowed = ['npm', '*.x.io', 'GET y.io/a']")],
            "task t asks for `sandbox.network.allowed = npm, *.x.io, GET y.io/a`, but built-in allows no such host | to allow it for this run, add `--allow-host npm --allow-host '*.x.io' --allow-host 'GET y.io/a'`",
        );
        check(
            &[user("allowed = ['*.x.io']\ndenied = ['a.x.io']"), project("allowed = ['a.x.io']")],
            "project p asks for `sandbox.network.denied = a.x.io`, but user u allows nothing under `a.x.io` | to allow it, set `sandbox.network.denied` in your own config; `ralph config path` shows where it is",
        );
    }

    #[test]
    fn flags_override_all_layers() {
        check(&[flag("allowed = ['a.io']")], "allowlist (flag): a.io (flag) / ");
        check(&[task("allowed = ['a.io']"), flag("allowed = ['a.io']")], "allowlist (task t): a.io (flag) / ");
        check(&[task("policy = 'deny'"), flag("allowed = ['a.io']")], "allowlist (flag): a.io (flag) / ");
        check(&[task("policy = 'open'"), flag("policy = 'open'")], "open (flag):  (built-in) / ");
        check(&[task("allowed = ['b.io']"), flag("policy = 'deny'")], "deny (flag):  (built-in) / ");
        check(
            &[user("allowed = ['u.io']"), task("allowed = ['u.io']"), flag("allowed = ['a.io']")],
            "allowlist (task t): u.io a.io (flag) / ",
        );
        check(&[task("denied = ['a.io']"), flag("allowed = ['a.io']")], "allowlist (flag): a.io (flag) / a.io");
    }
}
