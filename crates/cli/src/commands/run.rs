//! `ralph run`: lints the task, pins the run's settings, drives the run and reports the result.

use std::process::{Command as Process, Stdio};

use ralph_core::exit_code::RalphExitCode;
use ralph_core::run::RunState;
use ralph_engine::run::{KeepSandbox, PreparedRun, Runner, StopSignals, begin};
use ralph_engine::setup::{RunOverrides, RunRequest, SetupError};
use ralph_engine::store::RunFolder;
use ralph_sandbox::BackendCapabilities;

use crate::args::RunArgs;
use crate::error::{CliError, CliResult};
use crate::foreground::{self, DisplayNotifier};
use crate::render::findings;
use crate::run_setup::{CliSetup, current_dir, task_input};
use crate::terminal_output::{Ui, YELLOW, paint};

pub(crate) async fn run(setup: &CliSetup, args: RunArgs, ui: &mut Ui) -> CliResult {
    let request = RunRequest {
        dir: current_dir()?,
        task: task_input(args.task.as_deref()),
        overrides: RunOverrides {
            no_baseline: args.no_baseline,
            include_dirty: args.include_dirty,
            ..args.overrides.to_overrides()
        },
    };
    ui.set_status("▸ reading the task");
    let loaded = request.load(&setup.host).await?;
    for host in loaded.granted_hosts() {
        ui.print_message(&lent_host_notice(host));
    }
    let linted = loaded.lint(&setup.host).await?;
    let task = linted.task();
    if !linted.findings().is_empty() && !ui.json() {
        findings::print_findings(linted.findings(), task.source.as_deref().unwrap_or(""), &task.display_path, ui);
    }
    let spec = linted.resolve(&setup.host).await.map_err(|error| setup_failure(error, ui.json()))?;
    let isolation = setup.host.backend(&spec.backend)?.capabilities();
    warn_if_not_isolated(&isolation, ui);
    ui.set_status("▸ preparing the run");
    let (wake, stops) = (DisplayNotifier::default(), StopSignals::default());
    let keep = if args.keep_sandbox { KeepSandbox::Always } else { KeepSandbox::Never };
    let PreparedRun { runner, remarks } = begin(&setup.host, spec, Box::new(wake.clone()), stops.clone(), keep).await?;
    if args.detach {
        // Otherwise they are shown with the other events.
        for remark in remarks {
            ui.print_message(&format!("{} {remark}", paint(YELLOW, "!")));
        }
        let folder = runner.folder().clone();
        runner.close().await?;
        return detach(&folder, keep, ui);
    }
    drive(runner, &wake, stops, 0, ui).await
}

/// Returns the notice that a host is allowed because a secret is granted for it: a user who grants a secret for a host
/// wants it to be reachable. A host that has rules keeps them, since a user who allowed some of its requests did not
/// mean all.
pub(crate) fn lent_host_notice(host: &str) -> String {
    format!(
        "{host} may be reached, because a credential is granted for it and no rule names it; to allow less: --allow-host 'GET {host}/PATH'"
    )
}

/// Warns at every start when the sandbox does not isolate.
pub(crate) fn warn_if_not_isolated(backend: &BackendCapabilities, ui: &mut Ui) {
    if !backend.isolation.is_isolated() {
        let mark = paint(YELLOW, "!");
        ui.print_message(&format!(
            "{mark} backend {} does NOT isolate: commands run on this machine as you, with your files and your network",
            backend.name
        ));
    }
}

/// Returns why a run cannot be set up. With `--json` it includes the lint findings, which were printed only for
/// people.
fn setup_failure(error: SetupError, json: bool) -> CliError {
    let problems = match &error {
        SetupError::TaskHasErrors { problems, .. } if json => problems.clone(),
        _ => Vec::new(),
    };
    let mut failure = CliError::from(error);
    failure.causes.extend(problems);
    failure
}

/// Drives a run in the foreground and ends with its exit code.
pub(crate) async fn drive(
    runner: Runner,
    wake: &DisplayNotifier,
    stops: StopSignals,
    after: u64,
    ui: &mut Ui,
) -> CliResult {
    let state = foreground::drive(runner, wake, stops, after, ui).await?;
    Ok(exit_code(&state))
}

pub(crate) fn exit_code(state: &RunState) -> RalphExitCode {
    state.exit()
}

/// Starts a background process for the run and prints the run's id.
pub(crate) fn detach(folder: &RunFolder, keep: KeepSandbox, ui: &mut Ui) -> CliResult {
    let program = std::env::current_exe().map_err(|error| {
        CliError::new(RalphExitCode::Failed, "could not find the program file of ralph itself").with_cause(&error)
    })?;
    let failed = |error: std::io::Error| {
        CliError::new(RalphExitCode::Failed, format!("could not move run `{}` to the background", folder.id()))
            .with_cause(&error)
            .hint(format!("ralph resume {}", folder.id()))
    };
    let log = std::fs::File::options().append(true).create(true).open(folder.log_path()).map_err(&failed)?;
    let mut process = Process::new(program);
    process.args(["resume", &folder.id(), "--in-background"]);
    if keep == KeepSandbox::Always {
        process.arg("--keep-sandbox");
    }
    let errors = log.try_clone().map_err(&failed)?;
    process.stdin(Stdio::null()).stdout(log).stderr(errors);
    process.spawn().map_err(&failed)?;
    if ui.json() {
        ui.print_json(&serde_json::json!({"format": 1, "run": folder.id()}));
    } else {
        ui.print_data(&folder.id());
    }
    Ok(RalphExitCode::Success)
}
