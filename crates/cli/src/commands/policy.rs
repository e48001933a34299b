//! `ralph policy`: shows and changes what runs may reach on the network.

mod change;
mod config_edit;
mod log;

use ralph_core::egress::{EgressTarget, is_localhost};
use ralph_core::exit_code::RalphExitCode;
use ralph_core::policy::{
    self, PolicyDecision, PolicyMode, PolicyRule, decide_connection, decide_request, rule_for_request, shell_argument,
    shorten,
};
use ralph_core::run::RunState;
use ralph_engine::setup::{RunOverrides, resolve_config};
use ralph_proxy::policy::internal_address_kind;
use serde_json::{Value, json};

use crate::args::{PolicyCommand, PolicyTestArgs};
use crate::error::{CliError, CliResult};
use crate::render::align_columns;
use crate::run_setup::CliSetup;
use crate::terminal_output::Ui;

pub(crate) async fn policy(setup: &CliSetup, args: &PolicyCommand, ui: &mut Ui) -> CliResult {
    match args {
        PolicyCommand::Ls(of) => Ok(ls(&EffectivePolicy::find(setup, of.run.as_deref()).await?, ui)),
        PolicyCommand::Test(args) => test(&EffectivePolicy::find(setup, args.of.run.as_deref()).await?, args, ui),
        PolicyCommand::Allow(args) => change::change(setup, args, change::PolicyList::Allowed, ui).await,
        PolicyCommand::Deny(args) => change::change(setup, args, change::PolicyList::Denied, ui).await,
        PolicyCommand::Log(args) => log::log(setup, args, ui).await,
    }
}

/// The policy of a run, or of runs that start here, with the origin of its parts.
struct EffectivePolicy {
    /// The run's id.
    run: Option<String>,
    policy: policy::Policy,
    mode_origin: String,
    /// Rules with their origin, in order.
    allow: Vec<(Vec<PolicyRule>, String)>,
    deny: Vec<(Vec<PolicyRule>, String)>,
}

impl EffectivePolicy {
    async fn find(setup: &CliSetup, run: Option<&str>) -> Result<Self, CliError> {
        if let Some(run) = run {
            return Ok(Self::from_run(&setup.find_run(run)?.state()?));
        }
        // Outside a repository there is no project layer; the rest is still worth showing.
        let top = setup.repo_top().await;
        let network = resolve_config(&setup.host, top.as_deref(), &RunOverrides::default(), None)?.sandbox.network;
        Ok(Self {
            run: None,
            policy: network.policy(),
            mode_origin: network.policy.origin.to_string(),
            allow: vec![(network.allowed.value, network.allowed.origin.to_string())],
            deny: vec![(network.denied.value, network.denied.origin.to_string())],
        })
    }

    fn from_run(state: &RunState) -> Self {
        const START: &str = "start of the run";
        const PERSON: &str = "a person, later";
        let (started, policy) = (&state.started.policy, state.policy());
        let split = |now: &[PolicyRule], then: &[PolicyRule]| {
            let (old, new) = now.iter().cloned().partition(|rule| then.contains(rule));
            vec![(old, START.to_owned()), (new, PERSON.to_owned())]
        };
        Self {
            run: Some(state.id().to_owned()),
            policy: policy.clone(),
            mode_origin: if policy.mode == started.mode { START } else { PERSON }.to_owned(),
            allow: split(&policy.allow, &started.allow),
            deny: split(&policy.deny, &started.deny),
        }
    }

    /// Returns the `--run` flag for commands about the same run; empty without a run.
    fn run_flag(&self) -> String {
        self.run.as_ref().map(|run| format!(" --run {run}")).unwrap_or_default()
    }
}

fn ls(in_force: &EffectivePolicy, ui: &mut Ui) -> RalphExitCode {
    let mode = in_force.policy.mode;
    if ui.json() {
        let list = |rules: &[(Vec<PolicyRule>, String)]| -> Vec<Value> {
            let to_json = |(rules, origin): &(Vec<PolicyRule>, String)| {
                rules.iter().map(|rule| json!({"rule": rule, "origin": origin})).collect::<Vec<_>>()
            };
            rules.iter().flat_map(to_json).collect()
        };
        ui.print_json(&json!({"format": 1, "run": in_force.run, "mode": mode, "mode_origin": in_force.mode_origin,
            "allow": list(&in_force.allow), "deny": list(&in_force.deny)}));
        return RalphExitCode::Success;
    }
    let mut rows = vec![vec!["policy".to_owned(), mode.to_string(), in_force.mode_origin.clone()]];
    for (word, lists) in [("allow", &in_force.allow), ("deny", &in_force.deny)] {
        for (rules, origin) in lists {
            rows.extend(shorten(rules).into_iter().map(|rule| vec![word.to_owned(), rule, origin.clone()]));
        }
    }
    for line in align_columns(&rows) {
        ui.print_data(&line);
    }
    match mode {
        PolicyMode::Deny => ui.print_message("nothing but the model endpoints of the run can be reached"),
        PolicyMode::Allowlist if in_force.policy.allow.is_empty() => {
            ui.print_message("the list is empty: nothing can be reached");
        }
        PolicyMode::Allowlist | PolicyMode::Open => (),
    }
    RalphExitCode::Success
}

fn test(in_force: &EffectivePolicy, args: &PolicyTestArgs, ui: &mut Ui) -> CliResult {
    let target = EgressTarget::parse_authority(&args.host, Some(443)).map_err(|error| {
        CliError::usage(format!("`{}` names no host and port", ralph_core::text::strip_control(&args.host)))
            .with_cause(&error)
            .hint("ralph policy test registry.example.org:443")
    })?;
    let policy = &in_force.policy;
    let mut decision = decide_connection(policy, target.host(), target.port());
    let reached = decision.allowed;
    let inside = internal_address_kind(policy, &target);
    let mut rule = match inside {
        // Only a rule for the address itself opens an internal address, never one for a name; some are opened by no
        // rule.
        _ if is_localhost(target.host()) => inside.map(|_| format!("127.0.0.1:{}", target.port())),
        Some(kind) => kind.can_be_allowed().then(|| target.allow_rule()),
        None => Some(target.allow_rule()),
    };
    if decision.allowed && (args.method.is_some() || args.path.is_some()) {
        let (method, path) = (args.method.as_deref().unwrap_or("GET"), args.path.as_deref().unwrap_or("/"));
        decision = decide_request(policy, target.host(), target.port(), method, path);
        // The suggested rule allows no more than the request that was tested, where a rule can express that.
        if inside.is_none() {
            rule = rule_for_request(&target.allow_rule(), method, path).map(|rule| rule.to_string());
        }
    }
    // No allow rule overrides a deny rule, so none is suggested.
    let denied = !decision.allowed && decision.rule.is_some();
    let inside = inside.filter(|_| !denied);
    decision.allowed &= inside.is_none();
    let open = !decision.allowed && !denied && (policy.mode != PolicyMode::Open || inside.is_some());
    let next = rule.filter(|_| open).map(|rule| allow_command(&rule, &in_force.run_flag()));
    if ui.json() {
        ui.print_json(&json!({"format": 1, "run": in_force.run, "host": target.host(), "port": target.port(),
            "allowed": decision.allowed, "address": inside.map(|kind| kind.to_string()), "rule": decision.rule, "mode": policy.mode,
            "each_request": decision.inspect, "next": next}));
    } else {
        let words = match inside {
            Some(kind) if kind.can_be_allowed() => {
                format!("is denied: it is {kind}, which only a rule for that address and port opens")
            }
            Some(kind) => format!("is denied: it is {kind}, which no rule opens"),
            None => decision_text(in_force, &decision, reached),
        };
        let named = decision.allowed && target.ip_address().is_none() && !is_localhost(target.host());
        let unless = if named { ", if its address is a public one" } else { "" };
        ui.print_data(&format!("{target} {words}{unless}"));
        if let Some(next) = next {
            ui.print_message(&format!("next: {next}"));
        }
    }
    Ok(if decision.allowed { RalphExitCode::Success } else { RalphExitCode::Failed })
}

/// Describes the decision. `reached` says that rules name the host, so that the request is denied because none of them
/// allows it.
fn decision_text(in_force: &EffectivePolicy, decision: &PolicyDecision, reached: bool) -> String {
    let PolicyDecision { allowed, rule, inspect } = decision;
    let mode = in_force.policy.mode;
    let word = if *allowed { "allowed" } else { "denied" };
    let why = match rule {
        Some(rule) if *allowed => format!("is {word} by rule `{rule}`"),
        Some(rule) => {
            let origin = in_force.deny.iter().find(|(rules, _)| rules.contains(rule)).map(|(_, origin)| origin);
            format!("is {word} by rule `{rule}`{}", origin.map(|of| format!(" of {of}")).unwrap_or_default())
        }
        None if *allowed => format!("is {word}: the network policy is `{mode}`"),
        None if reached => format!("is {word}: its rules allow other requests, and none allows this one"),
        None => format!("is {word}: no rule names it, and the network policy is `{mode}`"),
    };
    if *inspect { format!("{why}; each request is checked separately, see --method and --path") } else { why }
}

/// Returns the command that adds an allow rule.
fn allow_command(rule: &str, of: &str) -> String {
    format!("ralph policy allow {}{of}", shell_argument(rule))
}
