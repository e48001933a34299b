//! `ralph agent`: which coding agents there are, and fetching their programs.

use ralph_core::agent::{self, Agent as Known, Tested};
use ralph_core::exit::Exit;
use ralph_core::profile::Wire;
use ralph_core::text;
use ralph_engine::agent::{Error, Found, Whence, find};
use serde_json::{Value, json};

use crate::args::agent::{Agent, Install};
use crate::error::{Failure, Outcome};
use crate::render::columns;
use crate::setup::Setup;
use crate::ui::Ui;

/// The version of what `--json` prints.
const FORMAT: u32 = 1;

pub(crate) async fn agent(setup: &Setup, args: &Agent, ui: &mut Ui) -> Outcome {
    match args {
        Agent::Ls => Ok(ls(setup, ui)),
        Agent::Install(args) => install(setup, args, ui).await,
    }
}

/// What a search for an agent's program brought.
type Search = Result<Option<Found>, Error>;

fn ls(setup: &Setup, ui: &mut Ui) -> Exit {
    let all: Vec<(&dyn Known, Search)> = agent::all().iter().map(|agent| (*agent, find(&setup.host, *agent))).collect();
    if ui.json() {
        let rows: Vec<Value> = all.iter().map(|(agent, found)| row(*agent, found)).collect();
        ui.object(&json!({"format": FORMAT, "agents": rows}));
        return Exit::Success;
    }
    let heads = ["NAME", "FOUND", "VERSION", "KEY", "SPEAKS", "PACKAGE", "TESTED"];
    let mut cells = vec![heads.map(str::to_owned).to_vec()];
    for (agent, found) in &all {
        let (whence, version) = match found {
            Ok(Some(found)) => (word(found), found.version.as_deref().map_or_else(|| "?".to_owned(), text::plain)),
            Ok(None) => ("no", "-".to_owned()),
            Err(_) => ("unfit", "-".to_owned()),
        };
        let wires: Vec<&str> = agent.wires().iter().map(|wire| speaks(*wire)).collect();
        let wires = if wires.is_empty() { "its maker only".to_owned() } else { wires.join(", ") };
        let package = agent.package().map_or_else(|| "-".to_owned(), |package| package.to_string());
        let key = agent.guarantee().name().to_owned();
        cells.push(vec![agent.name().to_owned(), whence.to_owned(), version, key, wires, package, tested(*agent)]);
    }
    for line in columns(&cells) {
        ui.data(&line);
    }
    let mut told = Vec::new();
    for guarantee in all.iter().map(|(agent, _)| agent.guarantee()) {
        if !told.contains(&guarantee) {
            told.push(guarantee);
            ui.say(&format!("{}: {}", guarantee.name(), guarantee.words()));
        }
    }
    for (agent, found) in &all {
        if let Err(error) = found {
            ui.say(&format!("{}: {error}", agent.name()));
        }
    }
    if let Some((agent, _)) = all.iter().find(|(agent, found)| matches!(found, Ok(None)) && agent.package().is_some()) {
        ui.say(&format!("next: ralph agent install {}", agent.name()));
    }
    Exit::Success
}

fn row(agent: &dyn Known, found: &Search) -> Value {
    let guarantee = agent.guarantee();
    let (place, trouble) = match found {
        Ok(Some(found)) => (
            json!({"from": word(found), "version": found.version, "program": found.on_host, "inside": found.program}),
            None,
        ),
        Ok(None) => (Value::Null, None),
        Err(error) => (Value::Null, Some(error.to_string())),
    };
    json!({
        "name": agent.name(),
        "program": agent.program(),
        "found": place,
        "trouble": trouble,
        "guarantee": {"name": guarantee.name(), "words": guarantee.words()},
        "wires": agent.wires().iter().map(|wire| speaks(*wire)).collect::<Vec<_>>(),
        "package": agent.package().map(|package| package.to_string()),
        "by_hand": Some(agent.by_hand()).filter(|words| !words.is_empty()),
        "tested": tested(agent),
    })
}

fn word(found: &Found) -> &'static str {
    match found.from {
        Whence::Shelf => "shelf",
        Whence::Path => "path",
    }
}

fn tested(agent: &dyn Known) -> String {
    match agent.tested() {
        Tested::Real(version) => format!("with the real {version}"),
        Tested::Recorded(version) => format!("with recordings of {version}"),
        Tested::Documentation => "by its documentation".to_owned(),
    }
}

fn speaks(wire: Wire) -> &'static str {
    match wire {
        Wire::Chat => "chat",
        Wire::Responses => "responses",
        Wire::Anthropic => "anthropic",
        Wire::Gemini => "gemini",
        Wire::Azure => "azure",
        Wire::Scripted => "scripted",
    }
}

fn known(name: &str) -> Result<&'static dyn Known, Failure> {
    agent::named(name).ok_or_else(|| {
        let failure = Failure::usage(format!("there is no agent `{}`", text::plain(text::first_line(name, 40))));
        match text::did_you_mean(name, agent::all().iter().map(|agent| agent.name())) {
            Some(meant) => failure.hint(format!("did you mean `{meant}`?")),
            None => failure.hint("ralph agent ls"),
        }
    })
}

#[cfg(target_os = "linux")]
async fn install(setup: &Setup, args: &Install, ui: &mut Ui) -> Outcome {
    let agent = known(&args.name)?;
    let wish = ralph_engine::agent::Wish { agent, version: args.version.as_deref(), allow: &args.allow_host };
    let found = ralph_engine::agent::install(&setup.host, &wish, &mut |line| ui.say(line)).await;
    let found = found.map_err(|error| {
        let mut failure = Failure::of(error.exit(), &error);
        failure.hint = error.hint();
        failure
    })?;
    let version = found.version.clone().unwrap_or_default();
    if ui.json() {
        let place = json!({"name": agent.name(), "version": version, "program": found.on_host});
        ui.object(&json!({"format": FORMAT, "installed": place}));
    } else {
        ui.say(&format!("{} {version} is on the shelf", agent.name()));
    }
    Ok(Exit::Success)
}

#[cfg(not(target_os = "linux"))]
async fn install(_setup: &Setup, args: &Install, _ui: &mut Ui) -> Outcome {
    let agent = known(&args.name)?;
    let failure = Failure::new(Exit::NotReady, format!("`{}` cannot be fetched in a cage here", agent.name()));
    Err(failure.hint(format!("put `{}` on PATH; `ralph agent ls` shows it then", agent.program())))
}
