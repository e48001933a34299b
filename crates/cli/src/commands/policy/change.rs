//! `ralph policy allow|deny`: changes one run by a control, or all future runs in the user's config file.

use std::fs::{self, Permissions};
use std::io::Write as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use ralph_core::config::{ConfigOrigin, parse_toml};
use ralph_core::control_request::{Control, ControlHosts};
use ralph_core::egress::{EgressTarget, is_localhost};
use ralph_core::exit_code::RalphExitCode;
use ralph_core::policy::{BadRule, HostPattern, PRESETS, Policy, PolicyMode, PolicyRule, expand, shell_argument};
use ralph_core::text::strip_control;
use ralph_engine::setup::config_file;
use ralph_proxy::policy::internal_address_kind;
use serde_json::json;

use super::config_edit::{ConfigEdit, edit};
use crate::args::PolicyChangeArgs;
use crate::commands::send_control::send_with_notice;
use crate::error::{CliError, CliResult};
use crate::run_setup::{CliSetup, error_with_hint};
use crate::terminal_output::Ui;

/// The list to which hosts are added.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum PolicyList {
    Allowed,
    Denied,
}

impl PolicyList {
    pub(super) fn key(self) -> &'static str {
        match self {
            Self::Allowed => "allowed",
            Self::Denied => "denied",
        }
    }

    fn control(self, hosts: ControlHosts) -> Control {
        match self {
            Self::Allowed => Control::AllowHost(hosts),
            Self::Denied => Control::DenyHost(hosts),
        }
    }
}

pub(super) async fn change(setup: &CliSetup, args: &PolicyChangeArgs, list: PolicyList, ui: &mut Ui) -> CliResult {
    // All entries are checked before the first is applied.
    let hosts = args.hosts.iter().map(|host| normalize_entry(host, list)).collect::<Result<Vec<_>, _>>()?;
    match &args.of.run {
        Some(run) => change_run(setup, run, &hosts, list, ui).await,
        None => change_user_config(setup, &hosts, list, ui),
    }
}

/// Returns an entry as it is stored: a preset by its name, a rule in its canonical form.
fn normalize_entry(host: &str, list: PolicyList) -> Result<String, CliError> {
    let host = host.trim();
    if PRESETS.iter().any(|preset| preset.name == host) {
        return Ok(host.to_owned());
    }
    let rule: PolicyRule = host.parse().map_err(|error: BadRule| {
        let hint = match (&error, list) {
            (BadRule::Everything { .. }, PolicyList::Denied) => {
                Some("name the hosts; what no rule allows is refused anyway, unless the policy is `open`".to_owned())
            }
            _ => error.hint(),
        };
        error_with_hint(RalphExitCode::Usage, &error, hint)
    })?;
    if list == PolicyList::Allowed {
        reject_unreachable(&rule)?;
    }
    Ok(rule.to_string())
}

/// Refuses an allow rule for an address that the address filter refuses regardless of the rules.
fn reject_unreachable(rule: &PolicyRule) -> Result<(), CliError> {
    let HostPattern::Exact(host) = rule.host() else { return Ok(()) };
    let Ok(target) = EgressTarget::new(host, rule.port().unwrap_or(443)) else { return Ok(()) };
    let alone = Policy { mode: PolicyMode::Allowlist, allow: vec![rule.clone()], deny: Vec::new() };
    let Some(kind) = internal_address_kind(&alone, &target) else { return Ok(()) };
    let failure = |why: &str| CliError::usage(format!("rule `{rule}` would open nothing: `{host}` is {kind}, {why}"));
    Err(if is_localhost(host) {
        let hint = format!("ralph policy allow 127.0.0.1:{}", target.port());
        failure("which only a rule for the address opens").hint(hint)
    } else if kind.can_be_allowed() {
        failure("which cannot be opened for single requests")
            .hint(format!("ralph policy allow {}", shell_argument(&target.allow_rule())))
    } else {
        failure("which is never reached").hint("name a host or an address that is not internal")
    })
}

async fn change_run(setup: &CliSetup, run: &str, hosts: &[String], list: PolicyList, ui: &mut Ui) -> CliResult {
    let folder = setup.find_run_to_change(run)?;
    let id = folder.id();
    let named = ControlHosts::new(hosts.to_vec())
        .ok_or_else(|| CliError::usage("no host is named").hint(format!("ralph policy allow HOST --run {id}")))?;
    let live = send_with_notice(setup, &folder, &list.control(named), "a person", ui).await?.live;
    let unheld = folder.state()?.workplace.is_some_and(|place| !place.isolated);
    if ui.json() {
        ui.print_json(&json!({"format": 1, "run": id, "list": list.key(), "hosts": hosts, "live": live}));
        return Ok(RalphExitCode::Success);
    }
    let can = match list {
        PolicyList::Allowed => "may reach",
        PolicyList::Denied => "may not reach",
    };
    let from = if live { "from now on" } else { "once it is resumed" };
    ui.print_message(&format!("run {id} {can} {} {from}", hosts.join(", ")));
    if unheld {
        ui.print_message("its sandbox does not isolate, so its network policy is not enforced");
    }
    Ok(RalphExitCode::Success)
}

fn change_user_config(setup: &CliSetup, hosts: &[String], list: PolicyList, ui: &mut Ui) -> CliResult {
    let path = config_file(&setup.host.home);
    let shown = path.display().to_string();
    let text = match fs::read_to_string(&path) {
        Ok(text) => text,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => String::new(),
        Err(error) => return Err(write_error(&path, &error)),
    };
    let read = |text: &str| parse_toml(text, ConfigOrigin::User(shown.clone()));
    let before = read(&text).map_err(|error| error_with_hint(RalphExitCode::Usage, &error, error.hint()))?;
    if list == PolicyList::Allowed {
        reject_denied(before.values.sandbox.network.denied.unwrap_or_default(), hosts, &shown)?;
    }
    let by_hand = || {
        CliError::usage(format!("`{shown}` has a form that cannot be edited automatically"))
            .hint(format!("add them by hand to `sandbox.network.{}` in {shown}", list.key()))
    };
    let edited = edit(&text, list, hosts).ok_or_else(by_hand)?;
    // The edited file must have the requested meaning; otherwise nothing is written.
    let after = read(&edited.text).map_err(|_| by_hand())?.values.sandbox.network;
    let rules = if list == PolicyList::Allowed { after.allowed } else { after.denied }.unwrap_or_default();
    let meant = hosts.iter().filter_map(|host| expand(host).ok()).flatten().all(|rule| rules.contains(&rule));
    if !meant {
        return Err(by_hand());
    }
    if !edited.added.is_empty() || edited.mode.is_some() {
        replace_file(&path, &edited.text).map_err(|error| write_error(&path, &error))?;
    }
    print_change(&edited, list, &shown, ui);
    Ok(RalphExitCode::Success)
}

/// Refuses to allow what a deny rule covers: deny beats allow, so that adding it would have no effect.
fn reject_denied(denied: Vec<PolicyRule>, hosts: &[String], shown: &str) -> Result<(), CliError> {
    let policy = Policy { deny: denied, ..Policy::default() };
    for host in hosts {
        if let Ok(Some((rule, by))) = policy.overriding_deny(host) {
            return Err(CliError::usage(format!("`{rule}` is denied by the rule `{by}`, and deny beats allow"))
                .hint(format!("remove `{by}` from `sandbox.network.denied` in {shown}")));
        }
    }
    Ok(())
}

fn print_change(edited: &ConfigEdit, list: PolicyList, shown: &str, ui: &mut Ui) {
    let ConfigEdit { added, already_present: there, mode, .. } = edited;
    if ui.json() {
        ui.print_json(&json!({"format": 1, "run": null, "file": shown, "list": list.key(), "hosts": added,
            "already": there, "policy": mode}));
        return;
    }
    if !there.is_empty() {
        ui.print_message(&format!("{} already in `sandbox.network.{}`", there.join(", "), list.key()));
    }
    if !added.is_empty() {
        ui.print_message(&format!(
            "{} added to `sandbox.network.{}` in {}",
            added.join(", "),
            list.key(),
            strip_control(shown)
        ));
    }
    if let Some(mode) = mode {
        ui.print_message(&format!(
            "`sandbox.network.policy` was `deny` there and is `{mode}` now: with `deny` no list applies"
        ));
    }
    if !added.is_empty() || mode.is_some() {
        ui.print_message("it applies to runs that start from now on; for a run under way use --run RUN");
    }
}

/// Replaces the file, or the file that it links to, atomically and keeps its permissions.
fn replace_file(path: &Path, text: &str) -> std::io::Result<()> {
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

fn write_error(path: &Path, error: &std::io::Error) -> CliError {
    CliError::new(RalphExitCode::Failed, format!("could not change `{}`", path.display()))
        .with_cause(error)
        .hint("check that you may write it; `ralph config path` lists all files")
}
