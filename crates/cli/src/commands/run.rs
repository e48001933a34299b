//! `ralph run`: lint, pin, drive, tell.

use std::path::Path;
use std::process::{Command as Process, Stdio};

use ralph_core::exit::Exit;
use ralph_core::lint::{Finding, Severity, fix, has_errors};
use ralph_core::policy::Mode;
use ralph_core::run::State;
use ralph_engine::egress::{BadLoan, Loan};
use ralph_engine::run::{Begun, Keep, Runner, Stops, begin};
use ralph_engine::store::Folder;
use ralph_sandbox::{Capabilities, Isolation};

use crate::args::Run;
use crate::error::{Failure, Outcome};
use crate::live::{self, Wake};
use crate::render::findings;
use crate::setup::{Flags, Read, Setup, TASK_FILE, quoted};
use crate::ui::{Ui, YELLOW, paint};

pub(crate) async fn run(setup: &Setup, args: Run, ui: &mut Ui) -> Outcome {
    let mut flags = Flags {
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
    if flags.network == Some(Mode::Deny) && !flags.allow_hosts.is_empty() {
        return Err(Failure::usage("`--allow-host` adds to a network that `--network deny` takes away")
            .hint("use `--network allowlist`, or leave `--network` out"));
    }
    let mut loans = Vec::new();
    for text in &flags.lend {
        let loan: Loan = text.parse().map_err(|error: BadLoan| {
            let hint = error.hint().unwrap_or_default();
            Failure::usage(error.to_string()).hint(hint)
        })?;
        match setup.host.secrets().find(&loan.secret).map_err(ralph_engine::Error::from)? {
            Some(found) => ralph_engine::egress::lendable(&found, &[&loan.host])?,
            None => return Err(ralph_engine::Error::NoSecret { name: loan.secret }.into()),
        }
        loans.push(loan);
    }
    ui.pin("▸ reading the task");
    let read = setup.read(args.task.as_deref()).await?;
    if read.source.is_none() {
        return Err(no_task());
    }
    if !loans.is_empty() && flags.network != Some(Mode::Deny) {
        let policy = setup.policy(&read, &flags)?;
        for host in policy.unreached(loans.iter().map(|loan| loan.host.as_str())) {
            ui.say(&opened(host));
            flags.allow_hosts.push(host.to_owned());
        }
    }
    let found = setup.lint(&read, &flags).await?;
    if !found.is_empty() && !ui.json() {
        findings::tell(&found, read.source.as_deref().unwrap_or(""), &read.shown, ui);
    }
    if has_errors(&found) {
        return Err(not_ready(&read, &found, ui.json()));
    }
    let wish = setup.begin(&read, &flags)?;
    // A missing key or backend is told before anything is made; where an agent asks, so is what it could not ask.
    if wish.agent.is_none() {
        for profile in [Some(&wish.profiles.default), wish.profiles.fallback.as_ref()].into_iter().flatten() {
            setup.host.model(profile).await?;
        }
    }
    let isolation = setup.host.backend(&wish.backend)?.capabilities();
    warn_of(&isolation, ui);
    ui.pin("▸ preparing the run");
    let (wake, stops) = (Wake::default(), Stops::default());
    let keep = if args.keep_sandbox { Keep::Always } else { Keep::Never };
    let Begun { runner, remarks } = begin(&setup.host, wish, Box::new(wake.clone()), stops.clone(), keep).await?;
    for remark in remarks {
        ui.say(&format!("{} {remark}", paint(YELLOW, "!")));
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
pub(crate) fn opened(host: &str) -> String {
    format!(
        "{host} may be reached, because something is lent to it and no rule names it; to allow less: --allow-host 'GET {host}/PATH'"
    )
}

/// Says at every start what the sandbox does not do.
pub(crate) fn warn_of(backend: &Capabilities, ui: &mut Ui) {
    if backend.isolation == Isolation::None {
        let mark = paint(YELLOW, "!");
        ui.say(&format!(
            "{mark} backend {} does NOT isolate: commands run on this machine as you, with your files and your network",
            backend.name
        ));
    }
}

pub(crate) fn no_task() -> Failure {
    Failure::usage(format!("there is no task file `{TASK_FILE}`"))
        .hint("`ralph init` writes one; or name another: ralph run PATH")
}

/// Tells that a task has errors, and whether a machine can mend them.
pub(crate) fn not_ready(read: &Read, found: &[Finding], json: bool) -> Failure {
    let source = read.source.as_deref().unwrap_or_default();
    let errors: Vec<&Finding> = found.iter().filter(|finding| finding.severity == Severity::Error).collect();
    let count = match errors.len() {
        1 => "1 error".to_owned(),
        n => format!("{n} errors"),
    };
    let path = quoted(&read.shown);
    let mut failure = Failure::usage(format!("`{}` cannot be run as it is: {count}", read.shown.display()));
    if json {
        failure.causes = errors.iter().map(|finding| finding.message.clone()).collect();
    }
    failure.hint(match fix(source, found) == source {
        true => "mend the file as told above; `ralph help task-file` shows the format".to_owned(),
        false if read.shown == Path::new(TASK_FILE) => "ralph lint --fix".to_owned(),
        false => format!("ralph lint --fix {path}"),
    })
}

/// Drives a run in the foreground and ends with its exit code.
pub(crate) async fn drive(runner: Runner, wake: &Wake, stops: Stops, after: u64, ui: &mut Ui) -> Outcome {
    let state = live::drive(runner, wake, stops, after, ui).await?;
    Ok(exit(&state))
}

pub(crate) fn exit(state: &State) -> Exit {
    state.exit()
}

/// Leaves the run to a process of its own and prints its id.
pub(crate) fn detach(folder: &Folder, keep: Keep, ui: &mut Ui) -> Outcome {
    let program = std::env::current_exe()
        .map_err(|error| Failure::new(Exit::Failed, "could not find out where ralph itself is").because(&error))?;
    let failed = |error: std::io::Error| {
        Failure::new(Exit::Failed, format!("could not leave run `{}` to the background", folder.id()))
            .because(&error)
            .hint(format!("ralph resume {}", folder.id()))
    };
    let log = std::fs::File::options().append(true).create(true).open(folder.log_path()).map_err(&failed)?;
    let mut process = Process::new(program);
    process.args(["resume", &folder.id(), "--in-background"]);
    if keep == Keep::Always {
        process.arg("--keep-sandbox");
    }
    let errors = log.try_clone().map_err(&failed)?;
    process.stdin(Stdio::null()).stdout(log).stderr(errors);
    process.spawn().map_err(&failed)?;
    if ui.json() {
        ui.object(&serde_json::json!({"format": 1, "run": folder.id()}));
    } else {
        ui.data(&folder.id());
    }
    Ok(Exit::Success)
}
