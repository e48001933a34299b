//! `ralph agent`: lists the coding agents and fetches their programs.

use ralph_core::agent::{self, Agent as Known, AgentTestLevel};
use ralph_core::exit_code::RalphExitCode;
use ralph_core::profile::ProviderProtocol;
use ralph_core::text;
use ralph_engine::agent::{AgentOrigin, AgentProgram, Error, find};
use serde_json::{Value, json};

use crate::args::agent::{AgentCommand, AgentInstallArgs};
use crate::error::{CliError, CliResult};
use crate::render::align_columns;
use crate::run_setup::CliSetup;
use crate::terminal_output::Ui;

/// The format version of the `--json` output.
const FORMAT: u32 = 1;

pub(crate) async fn agent(setup: &CliSetup, args: &AgentCommand, ui: &mut Ui) -> CliResult {
    match args {
        AgentCommand::Ls => Ok(ls(setup, ui)),
        AgentCommand::Install(args) => install(setup, args, ui).await,
    }
}

/// The result of a search for an agent's program.
type AgentLookup = Result<Option<AgentProgram>, Error>;

fn ls(setup: &CliSetup, ui: &mut Ui) -> RalphExitCode {
    let all: Vec<(&dyn Known, AgentLookup)> =
        agent::all().iter().map(|agent| (*agent, find(&setup.host, *agent))).collect();
    if ui.json() {
        let rows: Vec<Value> = all.iter().map(|(agent, found)| agent_json(*agent, found)).collect();
        ui.print_json(&json!({"format": FORMAT, "agents": rows}));
        return RalphExitCode::Success;
    }
    let heads = ["NAME", "FOUND", "VERSION", "KEY", "SPEAKS", "PACKAGE", "TESTED"];
    let mut cells = vec![heads.map(str::to_owned).to_vec()];
    for (agent, found) in &all {
        let (whence, version) = match found {
            Ok(Some(found)) => {
                (origin_word(found), found.version.as_deref().map_or_else(|| "?".to_owned(), text::strip_control))
            }
            Ok(None) => ("no", "-".to_owned()),
            Err(_) => ("unfit", "-".to_owned()),
        };
        let wires: Vec<&str> = agent.wires().iter().map(|wire| wire_name(*wire)).collect();
        let wires = if wires.is_empty() { "its maker only".to_owned() } else { wires.join(", ") };
        let package = agent.package().map_or_else(|| "-".to_owned(), |package| package.to_string());
        let key = agent.guarantee().name().to_owned();
        cells.push(vec![agent.name().to_owned(), whence.to_owned(), version, key, wires, package, tested_text(*agent)]);
    }
    for line in align_columns(&cells) {
        ui.print_data(&line);
    }
    let mut listed = Vec::new();
    for guarantee in all.iter().map(|(agent, _)| agent.guarantee()) {
        if !listed.contains(&guarantee) {
            listed.push(guarantee);
            ui.print_message(&format!("{}: {}", guarantee.name(), guarantee.description()));
        }
    }
    for (agent, found) in &all {
        if let Err(error) = found {
            ui.print_message(&format!("{}: {error}", agent.name()));
        }
    }
    if let Some((agent, _)) = all.iter().find(|(agent, found)| matches!(found, Ok(None)) && agent.package().is_some()) {
        ui.print_message(&format!("next: ralph agent install {}", agent.name()));
    }
    RalphExitCode::Success
}

fn agent_json(agent: &dyn Known, found: &AgentLookup) -> Value {
    let guarantee = agent.guarantee();
    let (place, trouble) = match found {
        Ok(Some(found)) => (
            json!({"from": origin_word(found), "version": found.version, "program": found.on_host, "inside": found.program}),
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
        "guarantee": {"name": guarantee.name(), "words": guarantee.description()},
        "wires": agent.wires().iter().map(|wire| wire_name(*wire)).collect::<Vec<_>>(),
        "package": agent.package().map(|package| package.to_string()),
        "by_hand": Some(agent.install_hint()).filter(|words| !words.is_empty()),
        "tested": tested_text(agent),
    })
}

fn origin_word(found: &AgentProgram) -> &'static str {
    match found.from {
        AgentOrigin::Installed => "shelf",
        AgentOrigin::Path => "path",
    }
}

fn tested_text(agent: &dyn Known) -> String {
    match agent.test_level() {
        AgentTestLevel::Real(version) => format!("with the real {version}"),
        AgentTestLevel::Recorded(version) => format!("with recordings of {version}"),
        AgentTestLevel::Documentation => "by its documentation".to_owned(),
    }
}

fn wire_name(wire: ProviderProtocol) -> &'static str {
    match wire {
        ProviderProtocol::Chat => "chat",
        ProviderProtocol::Responses => "responses",
        ProviderProtocol::Anthropic => "anthropic",
        ProviderProtocol::Gemini => "gemini",
        ProviderProtocol::Azure => "azure",
        ProviderProtocol::Scripted => "scripted",
    }
}

fn find_agent(name: &str) -> Result<&'static dyn Known, CliError> {
    agent::by_name(name).ok_or_else(|| {
        let failure =
            CliError::usage(format!("there is no agent `{}`", text::strip_control(text::first_line(name, 40))));
        match text::did_you_mean(name, agent::all().iter().map(|agent| agent.name())) {
            Some(meant) => failure.hint(format!("did you mean `{meant}`?")),
            None => failure.hint("ralph agent ls"),
        }
    })
}

async fn install(setup: &CliSetup, args: &AgentInstallArgs, ui: &mut Ui) -> CliResult {
    let agent = find_agent(&args.name)?;
    let request =
        ralph_engine::agent::AgentInstallRequest { agent, version: args.version.as_deref(), allow: &args.allow_host };
    let found = ralph_engine::agent::install(&setup.host, &request, &mut |line| ui.print_message(line)).await;
    let found = found.map_err(|error| {
        let mut failure = CliError::from_error(error.exit(), &error);
        failure.hint = error.hint();
        failure
    })?;
    let version = found.version.clone().unwrap_or_default();
    if ui.json() {
        let place = json!({"name": agent.name(), "version": version, "program": found.on_host});
        ui.print_json(&json!({"format": FORMAT, "installed": place}));
    } else {
        ui.print_message(&format!("{} {version} is installed", agent.name()));
    }
    Ok(RalphExitCode::Success)
}
