//! `ralph run`: lint, pin, drive, tell.

use std::path::Path;
use std::process::{Command as Process, Stdio};

use ralph_core::exit::RalphExitCode;
use ralph_core::lint::{LintFinding, Severity, fix, has_errors};
use ralph_core::policy::PolicyMode;
use ralph_core::run::RunState;
use ralph_engine::egress::{SecretGrant, SecretGrantError};
use ralph_engine::run::{KeepSandbox, PreparedRun, Runner, StopSignals, begin};
use ralph_engine::store::RunFolder;
use ralph_sandbox::BackendCapabilities;

use crate::args::RunArgs;
use crate::error::{CliError, CliResult};
use crate::foreground::{self, DisplayNotifier};
use crate::render::findings;
use crate::setup::{CliSetup, LoadedTask, RunOverrides, TASK_FILE, shell_quote};
use crate::ui::{Ui, YELLOW, paint};

pub(crate) async fn run(setup: &CliSetup, args: RunArgs, ui: &mut Ui) -> CliResult {
    let mut flags = RunOverrides {
        backend: args.backend,
        profile: args.profile,
        engine: args.engine,
        agent: args.agent,
        max_iterations: args.max_iterations,
        max_cost: args.max_cost,
        max_minutes: args.max_wall_time_minutes,
        max_tokens: args.max_tokens,
        network: args.network,
        allow_hosts: args.allow_host,
        lend: args.lend,
        no_baseline: args.no_baseline,
        include_dirty: args.include_dirty,
    };
    if flags.network == Some(PolicyMode::Deny) && !flags.allow_hosts.is_empty() {
        return Err(CliError::usage("`--allow-host` adds to a network that `--network deny` takes away")
            .hint("use `--network allowlist`, or leave `--network` out"));
    }
    let mut loans = Vec::new();
    for text in &flags.lend {
        let loan: SecretGrant = text.parse().map_err(|error: SecretGrantError| {
            let hint = error.hint().unwrap_or_default();
            CliError::usage(error.to_string()).hint(hint)
        })?;
        match setup.host.secrets().find(&loan.secret).map_err(ralph_engine::Error::from)? {
            Some(found) => ralph_engine::egress::check_grantable(&found, &[&loan.host])?,
            None => return Err(ralph_engine::Error::NoSecret { name: loan.secret }.into()),
        }
        loans.push(loan);
    }
    ui.set_status("▸ reading the task");
    let read = setup.load_task(args.task.as_deref()).await?;
    if read.source.is_none() {
        return Err(missing_task());
    }
    if !loans.is_empty() && flags.network != Some(PolicyMode::Deny) {
        let policy = setup.policy(&read, &flags)?;
        for host in policy.unreachable_hosts(loans.iter().map(|loan| loan.host.as_str())) {
            ui.print_message(&lent_host_notice(host));
            flags.allow_hosts.push(host.to_owned());
        }
    }
    let found = setup.lint(&read, &flags).await?;
    if !found.is_empty() && !ui.json() {
        findings::print_findings(&found, read.source.as_deref().unwrap_or(""), &read.display_path, ui);
    }
    if has_errors(&found) {
        return Err(task_has_errors(&read, &found, ui.json()));
    }
    let wish = setup.resolve_run(&read, &flags)?;
    // A missing key or backend is told before anything is made; where an agent asks, so is what it could not ask.
    if wish.agent.is_none() {
        for profile in [Some(&wish.profiles.default), wish.profiles.fallback.as_ref()].into_iter().flatten() {
            setup.host.model(profile).await?;
        }
    }
    let isolation = setup.host.backend(&wish.backend)?.capabilities();
    warn_if_not_isolated(&isolation, ui);
    ui.set_status("▸ preparing the run");
    let (wake, stops) = (DisplayNotifier::default(), StopSignals::default());
    let keep = if args.keep_sandbox { KeepSandbox::Always } else { KeepSandbox::Never };
    let PreparedRun { runner, remarks } = begin(&setup.host, wish, Box::new(wake.clone()), stops.clone(), keep).await?;
    for remark in remarks {
        ui.print_message(&format!("{} {remark}", paint(YELLOW, "!")));
    }
    if args.detach {
        let folder = runner.folder().clone();
        drop(runner);
        return detach(&folder, keep, ui);
    }
    drive(runner, &wake, stops, 0, ui).await
}

/// Says that a host is allowed because something is lent to it: whoever lends a secret to a host means it to be reached.
/// One that has rules keeps them, since whoever allowed some of its requests did not mean all.
pub(crate) fn lent_host_notice(host: &str) -> String {
    format!(
        "{host} may be reached, because something is lent to it and no rule names it; to allow less: --allow-host 'GET {host}/PATH'"
    )
}

/// Says at every start what the sandbox does not do.
pub(crate) fn warn_if_not_isolated(backend: &BackendCapabilities, ui: &mut Ui) {
    if !backend.isolation.is_isolated() {
        let mark = paint(YELLOW, "!");
        ui.print_message(&format!(
            "{mark} backend {} does NOT isolate: commands run on this machine as you, with your files and your network",
            backend.name
        ));
    }
}

pub(crate) fn missing_task() -> CliError {
    CliError::usage(format!("there is no task file `{TASK_FILE}`"))
        .hint("`ralph init` writes one; or name another: ralph run PATH")
}

/// Tells that a task has errors, and whether a machine can mend them.
pub(crate) fn task_has_errors(read: &LoadedTask, found: &[LintFinding], json: bool) -> CliError {
    let source = read.source.as_deref().unwrap_or_default();
    let errors: Vec<&LintFinding> = found.iter().filter(|finding| finding.severity == Severity::Error).collect();
    let count = match errors.len() {
        1 => "1 error".to_owned(),
        n => format!("{n} errors"),
    };
    let path = shell_quote(&read.display_path);
    let mut failure = CliError::usage(format!("`{}` cannot be run as it is: {count}", read.display_path.display()));
    if json {
        failure.causes = errors.iter().map(|finding| finding.message.clone()).collect();
    }
    failure.hint(match fix(source, found) == source {
        true => "mend the file as told above; `ralph help task-file` shows the format".to_owned(),
        false if read.display_path == Path::new(TASK_FILE) => "ralph lint --fix".to_owned(),
        false => format!("ralph lint --fix {path}"),
    })
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

/// Leaves the run to a process of its own and prints its id.
pub(crate) fn detach(folder: &RunFolder, keep: KeepSandbox, ui: &mut Ui) -> CliResult {
    let program = std::env::current_exe().map_err(|error| {
        CliError::new(RalphExitCode::Failed, "could not find out where ralph itself is").with_cause(&error)
    })?;
    let failed = |error: std::io::Error| {
        CliError::new(RalphExitCode::Failed, format!("could not leave run `{}` to the background", folder.id()))
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
