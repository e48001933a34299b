//! `ralph secret`: stores, lists, checks, prints and forgets credentials, and never shows one to a terminal.

use std::fs::File;
use std::os::fd::AsFd as _;
use std::os::unix::fs::FileTypeExt as _;

use jiff::Timestamp;
use ralph_core::exit::Exit;
use ralph_core::secret::{Agent, Kind, Name, SOON_DAYS, days_left, words};
use ralph_engine::secret::{Error, Found, Listed, Store};
use serde_json::json;

use super::secret_set::set;
use crate::args::secret::{Check, GetToken, Secret, Set, StoreToken};
use crate::error::{Failure, Outcome};
use crate::render::columns;
use crate::setup::{Setup, told};
use crate::ui::{GREEN, RED, Ui, YELLOW, paint};

/// The version of what `--json` prints.
const FORMAT: u32 = 1;

pub(crate) async fn secret(setup: &Setup, args: Secret, ui: &mut Ui) -> Outcome {
    match args {
        Secret::Set(args) => set(setup, args, ui).await,
        Secret::Ls => ls(setup, ui),
        Secret::Check(args) => check(setup, &args, ui),
        Secret::Get(args) => get(setup, &args.name, ui),
        Secret::Rm(args) => rm(setup, &args.name, ui),
    }
}

/// `store-token`: the token of an agent under the name that agent knows.
pub(crate) async fn store_token(setup: &Setup, args: StoreToken, ui: &mut Ui) -> Outcome {
    let name = agent(&args.agent)?.first().to_owned();
    set(setup, Set { name, how: args.how }, ui).await
}

/// `get-token`: whichever of an agent's secrets is there, what `store-token` keeps first.
pub(crate) fn get_token(setup: &Setup, args: &GetToken, ui: &mut Ui) -> Outcome {
    let agent = agent(&args.agent)?;
    let names: Vec<String> = [agent.first()].iter().chain(agent.secrets).map(|name| (*name).to_owned()).collect();
    let found = store(setup).first(&names)?;
    let name = found.map_or_else(|| agent.first().to_owned(), |found| found.name);
    get(setup, &name, ui)
}

pub(super) fn store(setup: &Setup) -> Store {
    Store::open(&setup.host.home, &setup.environment.env)
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        told(error.exit(), &error, error.hint())
    }
}

pub(super) fn name(text: &str) -> Result<Name, Failure> {
    Name::parse(text).map_err(|error| told(Exit::Usage, &error, error.hint()))
}

fn agent(name: &str) -> Result<&'static Agent, Failure> {
    Agent::find(name).map_err(|error| told(Exit::Usage, &error, error.hint()))
}

fn ls(setup: &Setup, ui: &mut Ui) -> Outcome {
    let listed = store(setup).list()?;
    let now = Timestamp::now();
    if ui.json() {
        let rows: Vec<_> = listed
            .iter()
            .map(|one| {
                json!({"name": one.name, "kind": one.kind, "source": one.source, "expires": one.expires,
                    "days_left": one.expires.map(|end| days_left(end, now)), "set_at": one.set_at,
                    "last_used": one.last_used, "trouble": one.trouble})
            })
            .collect();
        ui.object(&json!({"format": FORMAT, "secrets": rows}));
        return Ok(Exit::Success);
    }
    if listed.is_empty() {
        ui.say("no secrets yet; `ralph secret set ANTHROPIC_API_KEY` stores one");
        return Ok(Exit::Success);
    }
    let mut table = vec![["NAME", "KIND", "SOURCE", "ENDS", "LAST USED"].map(str::to_owned).to_vec()];
    table.extend(listed.iter().map(|one| cells(one, now)));
    for line in columns(&table) {
        ui.data(&line);
    }
    for one in &listed {
        if let Some(trouble) = &one.trouble {
            ui.say(&format!("{} {}: {trouble}", paint(YELLOW, "!"), one.name));
        }
    }
    Ok(Exit::Success)
}

fn cells(one: &Listed, now: Timestamp) -> Vec<String> {
    let day = |at: Timestamp| at.strftime("%Y-%m-%d").to_string();
    vec![
        one.name.clone(),
        one.kind.map_or("?", Kind::as_str).to_owned(),
        one.source.as_str().to_owned(),
        one.expires.map_or_else(|| "-".to_owned(), |end| format!("{} ({})", day(end), words(Some(end), now))),
        one.last_used.map_or_else(|| "never".to_owned(), day),
    ]
}

/// How one credential stands.
struct Standing {
    name: String,
    /// `Err` says why it cannot be used.
    state: Result<Option<Timestamp>, String>,
    kind: Option<Kind>,
}

impl Standing {
    /// Judges what came of asking for a value: only what can be taken out can be used.
    fn new(asked: Result<Option<Found>, Error>, name: String, kind: Option<Kind>) -> Self {
        match asked {
            Ok(Some(found)) => Self { name, state: Ok(found.expires), kind: Some(found.kind) },
            Ok(None) => Self { name, state: Err("it is gone".to_owned()), kind },
            Err(error) => Self { name, state: Err(error.to_string()), kind },
        }
    }

    fn good(&self, now: Timestamp) -> bool {
        self.state.as_ref().is_ok_and(|end| end.is_none_or(|end| end > now))
    }
}

fn check(setup: &Setup, args: &Check, ui: &mut Ui) -> Outcome {
    let now = Timestamp::now();
    let store = store(setup);
    let listed = store.list()?;
    let (standing, wanted, unused) = match &args.agent {
        Some(name) => {
            let agent = agent(name)?;
            let standing = of_agent(&store, agent);
            let there = listed.into_iter().map(|one| one.name).filter(|name| agent.secrets.contains(&name.as_str()));
            let unused = there.filter(|name| standing.as_ref().is_some_and(|one| one.name != *name)).collect();
            (standing.into_iter().collect::<Vec<_>>(), agent.first(), unused)
        }
        None => {
            let all = listed.into_iter().map(|one| Standing::new(store.find(&one.name), one.name, one.kind));
            (all.collect(), ralph_core::env::ANTHROPIC_API_KEY, Vec::new())
        }
    };
    let bad = standing.is_empty() || standing.iter().any(|one| !one.good(now));
    if ui.json() {
        let rows: Vec<_> = standing
            .iter()
            .map(|one| {
                let end = one.state.as_ref().ok().copied().flatten();
                json!({"name": one.name, "good": one.good(now), "expires": end,
                    "days_left": end.map(|end| days_left(end, now)), "trouble": one.state.as_ref().err(),
                    "renew": renewal(&one.name, one.kind)})
            })
            .collect();
        ui.object(&json!({"format": FORMAT, "agent": args.agent, "good": !bad, "secrets": rows, "unused": unused,
            "next": bad.then(|| format!("ralph secret set {wanted}"))}));
        return Ok(if bad { Exit::Auth } else { Exit::Success });
    }
    for one in &standing {
        let (mark, state) = match &one.state {
            Err(trouble) => (paint(RED, "✗"), trouble.clone()),
            Ok(end) if !one.good(now) => (paint(RED, "✗"), words(*end, now)),
            Ok(end) if end.is_some_and(|end| days_left(end, now) < SOON_DAYS) => (paint(YELLOW, "!"), words(*end, now)),
            Ok(end) => (paint(GREEN, "✓"), words(*end, now)),
        };
        ui.data(&format!("{mark} {}: {state}", one.name));
        if mark != paint(GREEN, "✓") {
            ui.say(&format!("    renew it: {}", renewal(&one.name, one.kind)));
        }
    }
    for (name, used) in unused.iter().zip(standing.iter().cycle()) {
        ui.say(&format!("{} {name} is there too; a run takes {}", paint(YELLOW, "!"), used.name));
    }
    if standing.is_empty() {
        let whom = args.agent.as_ref().map(|agent| format!(" that `{agent}` could use")).unwrap_or_default();
        return Err(Failure::new(Exit::Auth, format!("there is no credential{whom}")).hint(renewal(wanted, None)));
    }
    Ok(if bad { Exit::Auth } else { Exit::Success })
}

/// Returns how the credential stands that a run of an agent would take, if there is any.
fn of_agent(store: &Store, agent: &Agent) -> Option<Standing> {
    let names: Vec<String> = agent.secrets.iter().map(|name| (*name).to_owned()).collect();
    match store.first(&names) {
        Ok(found) => found.map(|found| Standing::new(Ok(Some(found.clone())), found.name, None)),
        // A run would stop at the same one.
        Err(error) => {
            let name = names.into_iter().find(|name| store.find(name).is_err())?;
            Some(Standing::new(Err(error), name, None))
        }
    }
}

/// Returns the commands that get and store a fresh one.
fn renewal(name: &str, kind: Option<Kind>) -> String {
    if kind == Some(Kind::Oauth) || name == ralph_core::env::CLAUDE_CODE_OAUTH_TOKEN {
        return format!("claude setup-token, then ralph secret set {name}");
    }
    format!("ralph secret set {name}")
}

fn get(setup: &Setup, wanted: &str, ui: &mut Ui) -> Outcome {
    let name = name(wanted)?;
    if !into_a_pipe() {
        return Err(Failure::usage("a secret goes only into a pipe, never to a terminal or into a file")
            .hint(format!("pipe it where it is needed: ralph secret get {name} | PROGRAM")));
    }
    let store = store(setup);
    let found = store.find(&name)?;
    let Some(found) = found else {
        return Err(Error::Missing { name: name.to_string() }.into());
    };
    ui.say(&format!(
        "{} the value of `{name}` goes to the pipe as it is: keep it out of files and logs",
        paint(YELLOW, "!")
    ));
    if let Err(error) = store.used(&name) {
        ui.say(&format!("its use could not be written down: {error}"));
    }
    if ui.json() {
        ui.object(&json!({"format": FORMAT, "name": found.name, "value": found.secret.expose()}));
    } else {
        ui.data(found.secret.expose());
    }
    Ok(Exit::Success)
}

/// Says whether what is printed goes straight to another program. Everything else keeps it or shows it.
fn into_a_pipe() -> bool {
    let kind = std::io::stdout().as_fd().try_clone_to_owned().and_then(|out| File::from(out).metadata());
    kind.is_ok_and(|kind| kind.file_type().is_fifo() || kind.file_type().is_socket())
}

fn rm(setup: &Setup, wanted: &str, ui: &mut Ui) -> Outcome {
    let name = name(wanted)?;
    let removed = store(setup).remove(&name)?;
    if ui.json() {
        ui.object(&json!({"format": FORMAT, "name": name.as_str(), "removed": removed}));
        return Ok(Exit::Success);
    }
    let from: Vec<&str> = removed.iter().map(|source| source.as_str()).collect();
    match from.as_slice() {
        [] => ui.say(&format!("`{name}` was gone already, and is no longer listed")),
        from => ui.say(&format!("`{name}` is removed from {}", from.join(" and "))),
    }
    if setup.environment.env.get(&name).is_some() {
        ui.say(&format!("{} `{name}` is also set in the environment, and is used from there now", paint(YELLOW, "!")));
    }
    Ok(Exit::Success)
}
