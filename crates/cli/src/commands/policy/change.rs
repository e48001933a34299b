//! `ralph policy allow|deny`: for one run through its door, or for all runs to come in the user's own file.

use std::fs::{self, Permissions};
use std::io::Write as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use ralph_core::config::{Origin, parse_toml};
use ralph_core::control::Control;
use ralph_core::exit::Exit;
use ralph_core::policy::{BadRule, Mode, PRESETS, Pattern, Policy, Rule, argument, expand};
use ralph_core::text::plain;
use ralph_engine::control::ask;
use ralph_engine::run::at_rest;
use ralph_proxy::judge::{is_localhost, kept_inside};
use ralph_proxy::target::Target;
use serde_json::json;

use super::edit::{Edited, edit};
use crate::args::PolicyChange;
use crate::commands::steer::patiently;
use crate::error::{Failure, Outcome};
use crate::live::Wake;
use crate::setup::{Setup, told};
use crate::ui::Ui;

/// The list that is added to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum List {
    Allowed,
    Denied,
}

impl List {
    pub(super) fn key(self) -> &'static str {
        match self {
            Self::Allowed => "allowed",
            Self::Denied => "denied",
        }
    }

    fn control(self, host: &str) -> Control {
        let host = host.to_owned();
        match self {
            Self::Allowed => Control::AllowHost { host },
            Self::Denied => Control::DenyHost { host },
        }
    }
}

pub(super) async fn change(setup: &Setup, args: &PolicyChange, list: List, ui: &mut Ui) -> Outcome {
    // All of them are looked at before the first is applied.
    let hosts = args.hosts.iter().map(|host| written(host, list)).collect::<Result<Vec<_>, _>>()?;
    match &args.of.run {
        Some(run) => for_run(setup, run, &hosts, list, ui).await,
        None => for_all(setup, &hosts, list, ui),
    }
}

/// Returns an entry as it is kept: a preset by its name, a rule in its one spelling.
fn written(host: &str, list: List) -> Result<String, Failure> {
    let host = host.trim();
    if PRESETS.iter().any(|preset| preset.name == host) {
        return Ok(host.to_owned());
    }
    let rule: Rule = host.parse().map_err(|error: BadRule| {
        let hint = match (&error, list) {
            (BadRule::Everything { .. }, List::Denied) => {
                Some("name the hosts; what no rule allows is refused anyway, unless the policy is `open`".to_owned())
            }
            _ => error.hint(),
        };
        told(Exit::Usage, &error, hint)
    })?;
    if list == List::Allowed {
        in_vain(&rule)?;
    }
    Ok(rule.to_string())
}

/// What the address filter refuses whatever the rules say is not written down as allowed.
fn in_vain(rule: &Rule) -> Result<(), Failure> {
    let Pattern::Exact(host) = rule.host() else { return Ok(()) };
    let Ok(target) = Target::new(host, rule.port().unwrap_or(443)) else { return Ok(()) };
    let alone = Policy { mode: Mode::Allowlist, allow: vec![rule.clone()], deny: Vec::new() };
    let Some(kind) = kept_inside(&alone, &target) else { return Ok(()) };
    let failure = |why: &str| Failure::usage(format!("rule `{rule}` would open nothing: `{host}` is {kind}, {why}"));
    Err(if is_localhost(host) {
        let hint = format!("ralph policy allow 127.0.0.1:{}", target.port());
        failure("which only a rule for the address opens").hint(hint)
    } else if kind.may_be_listed() {
        failure("which cannot be opened for single requests")
            .hint(format!("ralph policy allow {}", argument(&target.rule())))
    } else {
        failure("which is never reached").hint("name a host or an address that is not inside")
    })
}

async fn for_run(setup: &Setup, run: &str, hosts: &[String], list: List, ui: &mut Ui) -> Outcome {
    let folder = setup.own(run)?;
    let id = folder.id();
    let live = folder.in_use();
    for host in hosts {
        let control = list.control(host);
        if live {
            patiently(ask(&folder, &control, "a person"), ui).await?;
        } else {
            at_rest(&setup.host, folder.clone(), control, "a person", Box::new(Wake::default())).await?;
        }
    }
    let unheld = folder.state()?.workplace.is_some_and(|place| !place.isolated);
    if ui.json() {
        ui.object(&json!({"format": 1, "run": id, "list": list.key(), "hosts": hosts, "live": live}));
        return Ok(Exit::Success);
    }
    let can = match list {
        List::Allowed => "may reach",
        List::Denied => "may not reach",
    };
    let from = if live { "from now on" } else { "once it is resumed" };
    ui.say(&format!("run {id} {can} {} {from}", hosts.join(", ")));
    if unheld {
        ui.say("its sandbox does not isolate, so nothing holds it to its network policy");
    }
    Ok(Exit::Success)
}

fn for_all(setup: &Setup, hosts: &[String], list: List, ui: &mut Ui) -> Outcome {
    let path = setup.config_file();
    let shown = path.display().to_string();
    let text = match fs::read_to_string(&path) {
        Ok(text) => text,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => String::new(),
        Err(error) => return Err(unwritten(&path, &error)),
    };
    let read = |text: &str| parse_toml(text, Origin::User(shown.clone()));
    let before = read(&text).map_err(|error| told(Exit::Usage, &error, error.hint()))?;
    if list == List::Allowed {
        overruled(before.values.sandbox.network.denied.unwrap_or_default(), hosts, &shown)?;
    }
    let by_hand = || {
        Failure::usage(format!("`{shown}` is written in a way that cannot be added to"))
            .hint(format!("add them by hand to `sandbox.network.{}` in {shown}", list.key()))
    };
    let edited = edit(&text, list, hosts).ok_or_else(by_hand)?;
    // What is written must mean what was asked for; otherwise nothing is written.
    let after = read(&edited.text).map_err(|_| by_hand())?.values.sandbox.network;
    let rules = if list == List::Allowed { after.allowed } else { after.denied }.unwrap_or_default();
    let meant = hosts.iter().filter_map(|host| expand(host).ok()).flatten().all(|rule| rules.contains(&rule));
    if !meant {
        return Err(by_hand());
    }
    if !edited.added.is_empty() || edited.mode.is_some() {
        replace(&path, &edited.text).map_err(|error| unwritten(&path, &error))?;
    }
    say(&edited, list, &shown, ui);
    Ok(Exit::Success)
}

/// A deny rule is a decision: what it covers is not allowed by adding it to the other list.
fn overruled(denied: Vec<Rule>, hosts: &[String], shown: &str) -> Result<(), Failure> {
    let policy = Policy { deny: denied, ..Policy::default() };
    for host in hosts {
        if let Ok(Some((rule, by))) = policy.denial_of(host) {
            return Err(Failure::usage(format!("`{rule}` is denied by the rule `{by}`, and deny beats allow"))
                .hint(format!("remove `{by}` from `sandbox.network.denied` in {shown}")));
        }
    }
    Ok(())
}

fn say(edited: &Edited, list: List, shown: &str, ui: &mut Ui) {
    let Edited { added, there, mode, .. } = edited;
    if ui.json() {
        ui.object(&json!({"format": 1, "run": null, "file": shown, "list": list.key(), "hosts": added,
            "already": there, "policy": mode}));
        return;
    }
    if !there.is_empty() {
        ui.say(&format!("{} already in `sandbox.network.{}`", there.join(", "), list.key()));
    }
    if !added.is_empty() {
        ui.say(&format!("{} added to `sandbox.network.{}` in {}", added.join(", "), list.key(), plain(shown)));
    }
    if let Some(mode) = mode {
        ui.say(&format!("`sandbox.network.policy` was `deny` there and is `{mode}` now: with `deny` no list counts"));
    }
    if !added.is_empty() || mode.is_some() {
        ui.say("runs that start from now on have it; a run under way takes --run RUN");
    }
}

/// Replaces the file, or what it links to, whole or not at all, and leaves it as readable as it was.
fn replace(path: &Path, text: &str) -> std::io::Result<()> {
    let path = path.canonicalize().unwrap_or_else(|_| path.to_owned());
    let folder = path.parent().unwrap_or(Path::new("."));
    fs::create_dir_all(folder)?;
    let mode = fs::metadata(&path).map_or(0o600, |meta| meta.permissions().mode());
    let mut new = tempfile::NamedTempFile::new_in(folder)?;
    new.write_all(text.as_bytes())?;
    new.as_file().set_permissions(Permissions::from_mode(mode))?;
    new.as_file().sync_data()?;
    new.persist(&path).map_err(|error| error.error)?;
    Ok(())
}

fn unwritten(path: &Path, error: &std::io::Error) -> Failure {
    Failure::new(Exit::Failed, format!("could not change `{}`", path.display()))
        .because(error)
        .hint("check that it is yours to write; `ralph config path` lists all files")
}
