//! `ralph policy`: what runs may reach, why, and how a person changes it.

mod change;
mod edit;
mod log;

use ralph_core::exit::Exit;
use ralph_core::policy::{self, Decision, Mode, Rule, argument, decide, decide_request, rule_for, shorten};
use ralph_core::run::State;
use ralph_proxy::judge::{is_localhost, kept_inside};
use ralph_proxy::target::Target;
use serde_json::{Value, json};

use crate::args::{Policy, PolicyTest};
use crate::error::{Failure, Outcome};
use crate::render::columns;
use crate::setup::{Flags, Setup};
use crate::ui::Ui;

pub(crate) async fn policy(setup: &Setup, args: &Policy, ui: &mut Ui) -> Outcome {
    match args {
        Policy::Ls(of) => Ok(ls(&InForce::find(setup, of.run.as_deref()).await?, ui)),
        Policy::Test(args) => test(&InForce::find(setup, args.of.run.as_deref()).await?, args, ui),
        Policy::Allow(args) => change::change(setup, args, change::List::Allowed, ui).await,
        Policy::Deny(args) => change::change(setup, args, change::List::Denied, ui).await,
        Policy::Log(args) => log::log(setup, args, ui).await,
    }
}

/// The policy of a run, or that of the runs that start here, with the origin of its parts.
struct InForce {
    /// The run's id.
    run: Option<String>,
    policy: policy::Policy,
    mode_by: String,
    /// Rules with their origin, in order.
    allow: Vec<(Vec<Rule>, String)>,
    deny: Vec<(Vec<Rule>, String)>,
}

impl InForce {
    async fn find(setup: &Setup, run: Option<&str>) -> Result<Self, Failure> {
        if let Some(run) = run {
            return Ok(Self::of_run(&setup.find(run)?.state()?));
        }
        // Outside a repository there is no project layer; the rest is still worth showing.
        let top = setup.top().await;
        let network = setup.resolve(top.as_deref(), &Flags::default(), None)?.sandbox.network;
        Ok(Self {
            run: None,
            policy: network.policy(),
            mode_by: network.policy.origin.to_string(),
            allow: vec![(network.allowed.value, network.allowed.origin.to_string())],
            deny: vec![(network.denied.value, network.denied.origin.to_string())],
        })
    }

    fn of_run(state: &State) -> Self {
        const START: &str = "start of the run";
        const PERSON: &str = "a person, later";
        let (started, policy) = (&state.started.policy, state.policy());
        let split = |now: &[Rule], then: &[Rule]| {
            let (old, new) = now.iter().cloned().partition(|rule| then.contains(rule));
            vec![(old, START.to_owned()), (new, PERSON.to_owned())]
        };
        Self {
            run: Some(state.id().to_owned()),
            policy: policy.clone(),
            mode_by: if policy.mode == started.mode { START } else { PERSON }.to_owned(),
            allow: split(&policy.allow, &started.allow),
            deny: split(&policy.deny, &started.deny),
        }
    }

    /// Returns the end of a command that is about the same run.
    fn of(&self) -> String {
        self.run.as_ref().map(|run| format!(" --run {run}")).unwrap_or_default()
    }
}

fn ls(in_force: &InForce, ui: &mut Ui) -> Exit {
    let mode = in_force.policy.mode;
    if ui.json() {
        let list = |rules: &[(Vec<Rule>, String)]| -> Vec<Value> {
            let told = |(rules, origin): &(Vec<Rule>, String)| {
                rules.iter().map(|rule| json!({"rule": rule, "origin": origin})).collect::<Vec<_>>()
            };
            rules.iter().flat_map(told).collect()
        };
        ui.object(&json!({"format": 1, "run": in_force.run, "mode": mode, "mode_origin": in_force.mode_by,
            "allow": list(&in_force.allow), "deny": list(&in_force.deny)}));
        return Exit::Success;
    }
    let mut rows = vec![vec!["policy".to_owned(), mode.to_string(), in_force.mode_by.clone()]];
    for (word, lists) in [("allow", &in_force.allow), ("deny", &in_force.deny)] {
        for (rules, origin) in lists {
            rows.extend(shorten(rules).into_iter().map(|rule| vec![word.to_owned(), rule, origin.clone()]));
        }
    }
    for line in columns(&rows) {
        ui.data(&line);
    }
    match mode {
        Mode::Deny => ui.say("nothing but the model endpoints of the run can be reached"),
        Mode::Allowlist if in_force.policy.allow.is_empty() => ui.say("the list is empty: nothing can be reached"),
        Mode::Allowlist | Mode::Open => (),
    }
    Exit::Success
}

fn test(in_force: &InForce, args: &PolicyTest, ui: &mut Ui) -> Outcome {
    let target = Target::authority(&args.host, Some(443)).map_err(|error| {
        Failure::usage(format!("`{}` names no host and port", ralph_core::text::plain(&args.host)))
            .because(&error)
            .hint("ralph policy test registry.example.org:443")
    })?;
    let policy = &in_force.policy;
    let mut decision = decide(policy, target.host(), target.port());
    let reached = decision.allowed;
    let inside = kept_inside(policy, &target);
    let mut rule = match inside {
        // Only the address itself opens an inner address, never a name, and some are opened by nothing.
        _ if is_localhost(target.host()) => inside.map(|_| format!("127.0.0.1:{}", target.port())),
        Some(kind) => kind.may_be_listed().then(|| target.rule()),
        None => Some(target.rule()),
    };
    if decision.allowed && (args.method.is_some() || args.path.is_some()) {
        let (method, path) = (args.method.as_deref().unwrap_or("GET"), args.path.as_deref().unwrap_or("/"));
        decision = decide_request(policy, target.host(), target.port(), method, path);
        // No more than what was asked for, where a rule can say that.
        if inside.is_none() {
            rule = rule_for(&target.rule(), method, path).map(|rule| rule.to_string());
        }
    }
    // A deny rule is a decision that no other rule overrules.
    let denied = !decision.allowed && decision.rule.is_some();
    let inside = inside.filter(|_| !denied);
    decision.allowed &= inside.is_none();
    let open = !decision.allowed && !denied && (policy.mode != Mode::Open || inside.is_some());
    let next = rule.filter(|_| open).map(|rule| allow_command(&rule, &in_force.of()));
    if ui.json() {
        ui.object(&json!({"format": 1, "run": in_force.run, "host": target.host(), "port": target.port(),
            "allowed": decision.allowed, "address": inside.map(|kind| kind.to_string()), "rule": decision.rule, "mode": policy.mode,
            "each_request": decision.inspect, "next": next}));
    } else {
        let words = match inside {
            Some(kind) if kind.may_be_listed() => {
                format!("is denied: it is {kind}, which only a rule for that address and port opens")
            }
            Some(kind) => format!("is denied: it is {kind}, which no rule opens"),
            None => words(in_force, &decision, reached),
        };
        let named = decision.allowed && target.literal().is_none() && !is_localhost(target.host());
        let unless = if named { ", if its address is a public one" } else { "" };
        ui.data(&format!("{target} {words}{unless}"));
        if let Some(next) = next {
            ui.say(&format!("next: {next}"));
        }
    }
    Ok(if decision.allowed { Exit::Success } else { Exit::Failed })
}

/// Says what was decided; where the host is `reached` and the request is not, that is not for want of a rule about it.
fn words(in_force: &InForce, decision: &Decision, reached: bool) -> String {
    let Decision { allowed, rule, inspect } = decision;
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
    if *inspect { format!("{why}; each request is judged by itself, see --method and --path") } else { why }
}

/// Returns the command by which a person allows a rule.
fn allow_command(rule: &str, of: &str) -> String {
    format!("ralph policy allow {}{of}", argument(rule))
}
