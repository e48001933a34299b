//! The network policy out of its layers. Unlike other options it is not replaced but narrowed, step by step.

use super::error::{Error, Widens};
use super::layer::Layer;
use super::origin::{Origin, Resolved};
use super::resolved::Network;
use super::stack::Stack;
use super::units::Enforcement;
use super::values::NetworkValues;
use crate::policy::{Mode, Policy, Rule, Widening, narrow, shorten};

/// Starts from what the user allows (nothing, if the user says nothing), adds the hosts of the command line, and lets
/// project and task take away. A policy named on the command line settles the question.
pub(super) fn resolve(stack: &Stack<'_>, enforcement: Resolved<Enforcement>) -> Result<Network, Error> {
    let mut network = Network {
        policy: Resolved::built_in(Mode::Deny),
        allowed: Resolved::built_in(Vec::new()),
        denied: Resolved::built_in(Vec::new()),
        enforcement,
    };
    let trusted = |layer: &&Layer| layer.origin.is_trusted();
    for layer in stack.lowest_first().filter(trusted) {
        grant(&mut network, &layer.values.sandbox.network, &layer.origin);
    }
    let settled = stack
        .lowest_first()
        .any(|layer| layer.origin.rank() > task_rank() && layer.values.sandbox.network.policy.is_some());
    // Deny rules add up, so those of the command line are already in; its hosts survive every narrowing.
    let kept: Vec<Rule> = stack
        .lowest_first()
        .filter(|layer| layer.origin == Origin::Flag)
        .flat_map(|layer| layer.values.sandbox.network.allowed.iter().flatten().cloned())
        .collect();
    for layer in stack.lowest_first().filter(|layer| !layer.origin.is_trusted()) {
        take(&mut network, &layer.values.sandbox.network, &layer.origin, settled)?;
    }
    if !settled && !kept.is_empty() && network.policy.value != Mode::Open {
        network.policy = raised(network.policy);
        network.allowed.origin = Origin::Flag;
    }
    if network.policy.value != Mode::Deny {
        add(&mut network.allowed.value, &kept);
    }
    Ok(network)
}

fn task_rank() -> u8 {
    Origin::Task(String::new()).rank()
}

/// The user speaks: a file's list replaces, the command line's list adds.
fn grant(network: &mut Network, said: &NetworkValues, origin: &Origin) {
    if let Some(rules) = &said.allowed {
        if *origin == Origin::Flag {
            add(&mut network.allowed.value, rules);
        } else {
            network.allowed.value.clone_from(rules);
        }
        network.allowed.origin = origin.clone();
        if said.policy.is_none() && network.policy.value == Mode::Deny && !rules.is_empty() {
            // Hosts without a policy can only mean an allowlist.
            network.policy = Resolved { value: Mode::Allowlist, origin: origin.clone() };
        }
    }
    if let Some(mode) = said.policy {
        network.policy = Resolved { value: mode, origin: origin.clone() };
    }
    if let Some(rules) = &said.denied {
        add(&mut network.denied.value, rules);
        network.denied.origin = origin.clone();
    }
}

/// A checkout speaks: it may take away.
fn take(network: &mut Network, said: &NetworkValues, origin: &Origin, settled: bool) -> Result<(), Error> {
    if let Some(rules) = &said.denied {
        add(&mut network.denied.value, rules);
        network.denied.origin = origin.clone();
    }
    let mode = match (said.policy, &said.allowed) {
        _ if settled => return Ok(()),
        (Some(mode), _) => mode,
        (None, Some(_)) => Mode::Allowlist,
        (None, None) => return Ok(()),
    };
    let limit = network.policy();
    // An allowlist without a list means the one that stands.
    let asked = match &said.allowed {
        Some(rules) => rules.clone(),
        None if mode == Mode::Allowlist && limit.mode == Mode::Allowlist => limit.allow.clone(),
        None => Vec::new(),
    };
    let ask = Policy { mode, allow: asked, deny: Vec::new() };
    let narrowed = narrow(&limit, &ask).map_err(|widening| refused(widening, network, origin))?;
    network.policy = Resolved { value: narrowed.mode, origin: origin.clone() };
    network.allowed = Resolved { value: narrowed.allow, origin: origin.clone() };
    Ok(())
}

fn refused(widening: Widening, network: &Network, by: &Origin) -> Error {
    let (key, asked, limit, limit_by, flag) = match widening {
        Widening::Mode { asked, limit } => (
            "sandbox.network.policy",
            asked.to_string(),
            format!("only {limit}"),
            &network.policy.origin,
            Some(format!("--network {asked}")),
        ),
        Widening::NotAllowed { rules } => {
            // The list that lacks the hosts, or the policy that makes every list moot.
            let by = if network.policy.value == Mode::Deny { &network.policy.origin } else { &network.allowed.origin };
            let hosts = shorten(&rules);
            let flags: Vec<String> = hosts.iter().map(|host| format!("--allow-host {}", quoted(host))).collect();
            let limit = "no such host".to_owned();
            ("sandbox.network.allowed", hosts.join(", "), limit, by, Some(flags.join(" ")))
        }
        // A deny rule is a decision: no flag overrules it.
        Widening::Denied { rule, by } => {
            let limit = format!("nothing under `{by}`");
            ("sandbox.network.denied", rule.to_string(), limit, &network.denied.origin, None)
        }
    };
    Widens { key, asked, by: by.clone(), limit, limit_by: limit_by.clone(), flag }.into()
}

/// Makes a rule one word of a shell.
fn quoted(rule: &str) -> String {
    if rule.contains([' ', '*', '[']) { format!("'{rule}'") } else { rule.to_owned() }
}

fn raised(mode: Resolved<Mode>) -> Resolved<Mode> {
    match mode.value {
        Mode::Deny => Resolved { value: Mode::Allowlist, origin: Origin::Flag },
        Mode::Allowlist | Mode::Open => mode,
    }
}

fn add(rules: &mut Vec<Rule>, more: &[Rule]) {
    for rule in more {
        if !rules.contains(rule) {
            rules.push(rule.clone());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Backend, Layer, Origin, parse_toml, resolve};
    use crate::policy::shorten;

    fn user(text: &str) -> Layer {
        parse_toml(&format!("[sandbox.network]\n{text}"), Origin::User("u".into())).expect("a user's file")
    }

    fn project(text: &str) -> Layer {
        parse_toml(&format!("[sandbox.network]\n{text}"), Origin::Project("p".into())).expect("a project's file")
    }

    fn task(text: &str) -> Layer {
        Layer { origin: Origin::Task("t".into()), ..project(text) }
    }

    fn flag(text: &str) -> Layer {
        Layer::flags(project(text).values)
    }

    #[track_caller]
    fn check(layers: &[Layer], want: &str) {
        let got = match resolve(layers, Backend::Embedded) {
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
    fn the_user_decides() {
        check(&[], "deny (built-in):  (built-in) / ");
        check(&[user("allowed = ['npm']")], "allowlist (user u): npm (user u) / ");
        check(
            &[user("policy = 'allowlist'\nallowed = ['npm']\ndenied = ['x.io']")],
            "allowlist (user u): npm (user u) / x.io",
        );
        check(&[user("policy = 'open'")], "open (user u):  (built-in) / ");
    }

    #[test]
    fn checkouts_narrow() {
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
    fn checkouts_do_not_widen() {
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
    fn flags_win() {
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
