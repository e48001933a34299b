//! `ralph config`: prints the configuration in force and where each value comes from.

use std::path::Path;

use ralph_core::config::{rows, schema};
use ralph_core::exit_code::RalphExitCode;
use ralph_engine::setup::{RunOverrides, config_file, resolve_config, trust_file, user_models_file};
use serde_json::json;

use crate::args::ConfigCommand;
use crate::error::CliResult;
use crate::render::align_columns;
use crate::run_setup::CliSetup;
use crate::terminal_output::Ui;

pub(crate) async fn config(setup: &CliSetup, args: &ConfigCommand, ui: &mut Ui) -> CliResult {
    // Outside a repository there is no project layer; the rest is still worth showing.
    let top = setup.repo_top().await;
    match args {
        ConfigCommand::Schema => ui.print_data(&serde_json::to_string_pretty(&schema()).unwrap_or_default()),
        ConfigCommand::Path => print_paths(setup, top.as_deref(), ui),
        ConfigCommand::Show { origin } => {
            let config = resolve_config(&setup.host, top.as_deref(), &RunOverrides::default(), None)?;
            let all = rows(&config);
            if ui.json() {
                let rows: Vec<_> = all
                    .iter()
                    .map(|row| json!({"key": row.key, "value": row.value, "origin": row.origin.to_string()}))
                    .collect();
                ui.print_json(&json!({"format": 1, "values": rows}));
                return Ok(RalphExitCode::Success);
            }
            let line = |row: &ralph_core::config::ConfigRow| {
                let mut cells = vec![row.key.to_owned(), row.value.clone()];
                if *origin {
                    cells.push(row.origin.to_string());
                }
                cells
            };
            for line in align_columns(&all.iter().map(line).collect::<Vec<_>>()) {
                ui.print_data(&line);
            }
        }
    }
    Ok(RalphExitCode::Success)
}

fn print_paths(setup: &CliSetup, top: Option<&Path>, ui: &mut Ui) {
    let home = &setup.host.home;
    let mut files = vec![
        ("user", config_file(home)),
        ("user models", user_models_file(home)),
        ("trusted", trust_file(home)),
        ("runs", home.runs_dir()),
        ("sandboxes", home.sandboxes_dir()),
    ];
    if let Some(top) = top {
        files.extend([
            ("project", top.join("ralph.toml")),
            ("project", top.join(".agent-loop/config.json")),
            ("project models", top.join("config/models.yaml")),
            ("project models", top.join("models.yaml")),
        ]);
    }
    if ui.json() {
        let rows: Vec<_> =
            files.iter().map(|(kind, path)| json!({"kind": kind, "path": path, "exists": path.exists()})).collect();
        ui.print_json(&json!({"format": 1, "paths": rows}));
        return;
    }
    let row = |(kind, path): &(&str, std::path::PathBuf)| {
        let there = if path.exists() { "" } else { "(not there)" };
        vec![(*kind).to_owned(), path.display().to_string(), there.to_owned()]
    };
    for line in align_columns(&files.iter().map(row).collect::<Vec<_>>()) {
        ui.print_data(&line);
    }
}
