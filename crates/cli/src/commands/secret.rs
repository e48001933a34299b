//! `ralph secret`: stores, lists, checks, prints and removes credentials, and never prints one to a terminal.

use std::fs::File;
use std::os::fd::AsFd as _;
use std::os::unix::fs::FileTypeExt as _;

use jiff::Timestamp;
use ralph_core::exit_code::RalphExitCode;
use ralph_core::secret::{AgentSecrets, EXPIRY_WARNING_DAYS, SecretKind, SecretName, days_left, expiry_text};
use ralph_engine::secret::{Error, ResolvedSecret, SecretStore, SecretSummary};
use serde_json::json;

use super::secret_set::set;
use crate::args::secret::{GetTokenArgs, SecretCheckArgs, SecretCommand, SecretSetArgs, StoreTokenArgs};
use crate::error::{CliError, CliResult};
use crate::render::align_columns;
use crate::run_setup::{CliSetup, error_with_hint};
use crate::terminal_output::{GREEN, RED, Ui, YELLOW, paint};

/// The format version of the `--json` output.
const FORMAT: u32 = 1;

pub(crate) async fn secret(setup: &CliSetup, args: SecretCommand, ui: &mut Ui) -> CliResult {
    match args {
        SecretCommand::Set(args) => set(setup, args, ui).await,
        SecretCommand::Ls => ls(setup, ui),
        SecretCommand::Check(args) => check(setup, &args, ui),
        SecretCommand::Get(args) => get(setup, &args.name, ui),
        SecretCommand::Rm(args) => rm(setup, &args.name, ui),
    }
}

/// `store-token`: stores the token of an agent under the name that the agent knows.
pub(crate) async fn store_token(setup: &CliSetup, args: StoreTokenArgs, ui: &mut Ui) -> CliResult {
    let name = find_agent(&args.agent)?.preferred_secret().to_owned();
    set(setup, SecretSetArgs { name, how: args.how }, ui).await
}

/// `get-token`: prints the first of an agent's secrets that exists, beginning with the one that `store-token` stores.
pub(crate) fn get_token(setup: &CliSetup, args: &GetTokenArgs, ui: &mut Ui) -> CliResult {
    let agent = find_agent(&args.agent)?;
    let names: Vec<String> =
        [agent.preferred_secret()].iter().chain(agent.secrets).map(|name| (*name).to_owned()).collect();
    let found = open_store(setup).first_valid(&names)?;
    let name = found.map_or_else(|| agent.preferred_secret().to_owned(), |found| found.name);
    get(setup, &name, ui)
}

pub(super) fn open_store(setup: &CliSetup) -> SecretStore {
    SecretStore::open(&setup.host.home, &setup.environment.env)
}

impl From<Error> for CliError {
    fn from(error: Error) -> Self {
        error_with_hint(error.exit(), &error, error.hint())
    }
}

pub(super) fn parse_name(text: &str) -> Result<SecretName, CliError> {
    SecretName::parse(text).map_err(|error| error_with_hint(RalphExitCode::Usage, &error, error.hint()))
}

fn find_agent(name: &str) -> Result<&'static AgentSecrets, CliError> {
    AgentSecrets::find(name).map_err(|error| error_with_hint(RalphExitCode::Usage, &error, error.hint()))
}

fn ls(setup: &CliSetup, ui: &mut Ui) -> CliResult {
    let listed = open_store(setup).list()?;
    let now = Timestamp::now();
    if ui.json() {
        let rows: Vec<_> = listed
            .iter()
            .map(|one| {
                json!({"name": one.name, "kind": one.kind, "source": one.source, "expires": one.expires,
                    "days_left": one.expires.map(|end| days_left(end, now)), "set_at": one.set_at,
                    "last_used": one.last_used, "trouble": one.problem})
            })
            .collect();
        ui.print_json(&json!({"format": FORMAT, "secrets": rows}));
        return Ok(RalphExitCode::Success);
    }
    if listed.is_empty() {
        ui.print_message("no secrets yet; `ralph secret set ANTHROPIC_API_KEY` stores one");
        return Ok(RalphExitCode::Success);
    }
    let mut table = vec![["NAME", "KIND", "SOURCE", "ENDS", "LAST USED"].map(str::to_owned).to_vec()];
    table.extend(listed.iter().map(|one| cells(one, now)));
    for line in align_columns(&table) {
        ui.print_data(&line);
    }
    for one in &listed {
        if let Some(trouble) = &one.problem {
            ui.print_message(&format!("{} {}: {trouble}", paint(YELLOW, "!"), one.name));
        }
    }
    Ok(RalphExitCode::Success)
}

fn cells(one: &SecretSummary, now: Timestamp) -> Vec<String> {
    let day = |at: Timestamp| at.strftime("%Y-%m-%d").to_string();
    vec![
        one.name.clone(),
        one.kind.map_or("?", SecretKind::as_str).to_owned(),
        one.source.as_str().to_owned(),
        one.expires.map_or_else(|| "-".to_owned(), |end| format!("{} ({})", day(end), expiry_text(Some(end), now))),
        one.last_used.map_or_else(|| "never".to_owned(), day),
    ]
}

/// The state of one credential.
struct SecretCheckResult {
    name: String,
    /// `Err` with the reason why it cannot be used.
    state: Result<Option<Timestamp>, String>,
    kind: Option<SecretKind>,
}

impl SecretCheckResult {
    /// Derives the state from the result of reading the value: only a value that can be read can be used.
    fn new(asked: Result<Option<ResolvedSecret>, Error>, name: String, kind: Option<SecretKind>) -> Self {
        match asked {
            Ok(Some(found)) => Self { name, state: Ok(found.expires), kind: Some(found.kind) },
            Ok(None) => Self { name, state: Err("it is gone".to_owned()), kind },
            Err(error) => Self { name, state: Err(error.to_string()), kind },
        }
    }

    fn is_usable(&self, now: Timestamp) -> bool {
        self.state.as_ref().is_ok_and(|end| end.is_none_or(|end| end > now))
    }
}

fn check(setup: &CliSetup, args: &SecretCheckArgs, ui: &mut Ui) -> CliResult {
    let now = Timestamp::now();
    let store = open_store(setup);
    let listed = store.list()?;
    let (standing, wanted, unused) = match &args.agent {
        Some(name) => {
            let agent = find_agent(name)?;
            let standing = check_agent(&store, agent);
            let there = listed.into_iter().map(|one| one.name).filter(|name| agent.secrets.contains(&name.as_str()));
            let unused = there.filter(|name| standing.as_ref().is_some_and(|one| one.name != *name)).collect();
            (standing.into_iter().collect::<Vec<_>>(), agent.preferred_secret(), unused)
        }
        None => {
            let all = listed.into_iter().map(|one| SecretCheckResult::new(store.find(&one.name), one.name, one.kind));
            (all.collect(), ralph_core::env_vars::ANTHROPIC_API_KEY, Vec::new())
        }
    };
    let bad = standing.is_empty() || standing.iter().any(|one| !one.is_usable(now));
    if ui.json() {
        let rows: Vec<_> = standing
            .iter()
            .map(|one| {
                let end = one.state.as_ref().ok().copied().flatten();
                json!({"name": one.name, "good": one.is_usable(now), "expires": end,
                    "days_left": end.map(|end| days_left(end, now)), "trouble": one.state.as_ref().err(),
                    "renew": renewal_hint(&one.name, one.kind)})
            })
            .collect();
        ui.print_json(&json!({"format": FORMAT, "agent": args.agent, "good": !bad, "secrets": rows, "unused": unused,
            "next": bad.then(|| format!("ralph secret set {wanted}"))}));
        return Ok(if bad { RalphExitCode::Auth } else { RalphExitCode::Success });
    }
    for one in &standing {
        let (mark, state) = match &one.state {
            Err(trouble) => (paint(RED, "✗"), trouble.clone()),
            Ok(end) if !one.is_usable(now) => (paint(RED, "✗"), expiry_text(*end, now)),
            Ok(end) if end.is_some_and(|end| days_left(end, now) < EXPIRY_WARNING_DAYS) => {
                (paint(YELLOW, "!"), expiry_text(*end, now))
            }
            Ok(end) => (paint(GREEN, "✓"), expiry_text(*end, now)),
        };
        ui.print_data(&format!("{mark} {}: {state}", one.name));
        if mark != paint(GREEN, "✓") {
            ui.print_message(&format!("    renew it: {}", renewal_hint(&one.name, one.kind)));
        }
    }
    for (name, used) in unused.iter().zip(standing.iter().cycle()) {
        ui.print_message(&format!("{} {name} is also available; a run uses {}", paint(YELLOW, "!"), used.name));
    }
    if standing.is_empty() {
        let whom = args.agent.as_ref().map(|agent| format!(" that `{agent}` could use")).unwrap_or_default();
        return Err(CliError::new(RalphExitCode::Auth, format!("there is no credential{whom}"))
            .hint(renewal_hint(wanted, None)));
    }
    Ok(if bad { RalphExitCode::Auth } else { RalphExitCode::Success })
}

/// Returns the state of the credential that a run of an agent would use, if there is one.
fn check_agent(store: &SecretStore, agent: &AgentSecrets) -> Option<SecretCheckResult> {
    let names: Vec<String> = agent.secrets.iter().map(|name| (*name).to_owned()).collect();
    match store.first_valid(&names) {
        Ok(found) => found.map(|found| SecretCheckResult::new(Ok(Some(found.clone())), found.name, None)),
        // A run would fail at the same one.
        Err(error) => {
            let name = names.into_iter().find(|name| store.find(name).is_err())?;
            Some(SecretCheckResult::new(Err(error), name, None))
        }
    }
}

/// Returns the commands that obtain and store a new credential.
fn renewal_hint(name: &str, kind: Option<SecretKind>) -> String {
    if kind == Some(SecretKind::Oauth) || name == ralph_core::env_vars::CLAUDE_CODE_OAUTH_TOKEN {
        return format!("claude setup-token, then ralph secret set {name}");
    }
    format!("ralph secret set {name}")
}

fn get(setup: &CliSetup, wanted: &str, ui: &mut Ui) -> CliResult {
    let name = parse_name(wanted)?;
    if !stdout_is_pipe() {
        return Err(CliError::usage("a secret is printed only to a pipe, never to a terminal or into a file")
            .hint(format!("pipe it where it is needed: ralph secret get {name} | PROGRAM")));
    }
    let store = open_store(setup);
    let found = store.find(&name)?;
    let Some(found) = found else {
        return Err(Error::Missing { name: name.to_string() }.into());
    };
    ui.print_message(&format!(
        "{} the value of `{name}` is written to the pipe unmasked: keep it out of files and logs",
        paint(YELLOW, "!")
    ));
    if let Err(error) = store.mark_used(&name) {
        ui.print_message(&format!("its use could not be recorded: {error}"));
    }
    if ui.json() {
        ui.print_json(&json!({"format": FORMAT, "name": found.name, "value": found.secret.expose()}));
    } else {
        ui.print_data(found.secret.expose());
    }
    Ok(RalphExitCode::Success)
}

/// Returns whether standard output is a pipe to another program. Anything else would keep the secret or show it.
fn stdout_is_pipe() -> bool {
    let kind = std::io::stdout().as_fd().try_clone_to_owned().and_then(|out| File::from(out).metadata());
    kind.is_ok_and(|kind| kind.file_type().is_fifo() || kind.file_type().is_socket())
}

fn rm(setup: &CliSetup, wanted: &str, ui: &mut Ui) -> CliResult {
    let name = parse_name(wanted)?;
    let removed = open_store(setup).remove(&name)?;
    if ui.json() {
        ui.print_json(&json!({"format": FORMAT, "name": name.as_str(), "removed": removed}));
        return Ok(RalphExitCode::Success);
    }
    let from: Vec<&str> = removed.iter().map(|source| source.as_str()).collect();
    match from.as_slice() {
        [] => ui.print_message(&format!("`{name}` was gone already, and is no longer listed")),
        from => ui.print_message(&format!("`{name}` is removed from {}", from.join(" and "))),
    }
    if setup.environment.env.get(&name).is_some() {
        ui.print_message(&format!(
            "{} `{name}` is also set in the environment, and is used from there now",
            paint(YELLOW, "!")
        ));
    }
    Ok(RalphExitCode::Success)
}
