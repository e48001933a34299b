//! `ralph sandbox exec`: runs one command in a sandbox and passes on its output and exit code.

use std::fs;
use std::io::{self, Read as _, Write as _};
use std::path::Path;
use std::time::Duration;

use ralph_core::config::ToolchainSelection;
use ralph_core::event::Event;
use ralph_core::exit_code::RalphExitCode;
use ralph_core::money::MicroUsd;
use ralph_core::policy::{Policy, PolicyMode, shell_argument};
use ralph_engine::Error;
use ralph_engine::egress::{EgressLease, EgressReport, EgressRequest, SecretGrant};
use ralph_engine::host_environment::{DEFAULT_BACKEND, short_key_warning};
use ralph_engine::sandbox_lifecycle::{self, SandboxRequest, sandbox_limits};
use ralph_engine::setup::{RunOverrides, pin_named_profiles, pinned_resources, resolve_config};
use ralph_proxy::ledger::{Ledger, LedgerCaps};
use ralph_sandbox::{ExecRequest, ExecStatus, OutputSink, OutputStream, ResourceLimit, Sandbox, SandboxSpec};

use super::run::{lent_host_notice, warn_if_not_isolated};
use crate::args::SandboxExecArgs;
use crate::error::{CliError, CliResult};
use crate::run_setup::{CliSetup, error_with_hint};
use crate::terminal_output::{Ui, YELLOW, paint};

pub(crate) async fn exec(setup: &CliSetup, args: SandboxExecArgs, ui: &mut Ui) -> CliResult {
    let backend = match &args.name {
        Some(name) => setup.host.backend_of(name, args.on.backend.as_deref()).await?,
        None => setup.host.backend(args.on.backend.as_deref().unwrap_or(DEFAULT_BACKEND))?,
    };
    warn_if_not_isolated(&backend.capabilities(), ui);
    let exec = exec_request(&args)?;
    // A signal that ends ralph also ends the command, and a sandbox that was created for it is removed.
    let mut stops = ExecSignals::new().map_err(|error| CliError::from_error(RalphExitCode::Failed, &error))?;
    let (made, ledger) = match &args.name {
        Some(name) => (sandbox_lifecycle::open(&setup.host, &*backend, name, None).await, None),
        None => {
            let (spec, egress) =
                prepare_request(setup, &args, backend.capabilities().egress.is_available(), ui).await?;
            let ledger = egress.ledger.clone();
            let request = SandboxRequest { backend: &*backend, spec, egress: Some(egress) };
            (sandbox_lifecycle::create(&setup.host, request).await, Some(ledger))
        }
    };
    for name in setup.host.take_short_keys() {
        ui.print_message(&format!("{} {}", paint(YELLOW, "!"), short_key_warning(&name)));
    }
    let made = made?;
    let sandbox = made.sandbox;
    let ended = tokio::select! {
        ended = run(&*sandbox, &args, &exec) => Some(ended),
        () = stops.recv() => None,
    };
    if args.name.is_none()
        && let Err(error) = sandbox.destroy().await
    {
        ui.print_message(&format!(
            "the sandbox could not be removed: {error}; next: ralph sandbox rm {}",
            sandbox.id()
        ));
    }
    if let Some(lease) = &made.lease {
        print_egress_events(lease, ui);
    }
    if let Some(ledger) = ledger.filter(|_| !args.profile.is_empty()) {
        print_cost(&ledger, &args, ui);
    }
    let Some(ended) = ended else { return Ok(RalphExitCode::Interrupted) };
    let exit = ended?;
    let message = match (exit.status, exit.limit) {
        (ExecStatus::TimedOut, _) => Some(format!("the command was ended after {} s", args.timeout)),
        (_, Some(ResourceLimit::Memory)) => Some("the sandbox reached its memory limit".to_owned()),
        (_, Some(ResourceLimit::Disk)) => Some("the sandbox reached its disk limit".to_owned()),
        (_, Some(ResourceLimit::Processes)) => Some("the sandbox reached its process limit".to_owned()),
        _ => None,
    };
    if let Some(message) = message {
        ui.print_message(&message);
    }
    Ok(match exit.code() {
        0 => RalphExitCode::Success,
        code => RalphExitCode::Command(u8::try_from(code).unwrap_or(1)),
    })
}

async fn run(
    sandbox: &dyn Sandbox,
    args: &SandboxExecArgs,
    exec: &ExecRequest,
) -> Result<ralph_sandbox::ExecExit, CliError> {
    if let Some(from) = &args.copy {
        copy_dir_in(sandbox, from, Path::new("")).await?;
    }
    Ok(sandbox.exec(exec, &mut PassthroughSink).await.map_err(Error::from)?)
}

fn exec_request(args: &SandboxExecArgs) -> Result<ExecRequest, CliError> {
    let mut exec = ExecRequest::new(args.command.clone(), Duration::from_secs(args.timeout));
    if args.stdin {
        io::stdin()
            .read_to_end(&mut exec.stdin)
            .map_err(|error| CliError::from_error(RalphExitCode::Failed, &error))?;
    }
    exec.terminal = args.terminal.then_some((24, 80));
    Ok(exec)
}

/// Returns the specification of a new sandbox and its request to the egress proxy.
async fn prepare_request(
    setup: &CliSetup,
    args: &SandboxExecArgs,
    has_egress: bool,
    ui: &mut Ui,
) -> Result<(SandboxSpec, EgressRequest), CliError> {
    if !has_egress && (!args.profile.is_empty() || !args.lend.is_empty()) {
        let failure = CliError::usage("this backend has no egress proxy, so no model or secret can be granted");
        return Err(failure.hint("omit `--backend`"));
    }
    let id =
        ralph_core::hash::short_sha256(format!("{:?}{}", std::time::SystemTime::now(), std::process::id()).as_bytes());
    let name = format!("exec-{id}");
    let repo = setup.repo_top().await;
    let top = repo.clone().unwrap_or_else(|| std::path::absolute(".").unwrap_or_default());
    let profiles =
        if args.profile.is_empty() { Vec::new() } else { pin_named_profiles(&setup.host.home, &top, &args.profile)? };
    let mut grants = Vec::new();
    for text in &args.lend {
        let grant: SecretGrant = text.parse().map_err(|error: ralph_engine::egress::SecretGrantError| {
            let hint = error.hint().unwrap_or_default();
            CliError::usage(error.to_string()).hint(hint)
        })?;
        grants.push(grant);
    }
    let cap = MicroUsd::from_usd(args.max_cost);
    let ledger = Ledger::new(LedgerCaps { cost: Some(cap), tokens: None }, MicroUsd::ZERO, 0);
    let mut policy = exec_policy(args)?;
    for host in policy.unreachable_hosts(grants.iter().map(|grant| grant.host.as_str())) {
        ui.print_message(&lent_host_notice(host));
        policy.add_allow(host).map_err(|error| error_with_hint(RalphExitCode::Usage, &error, error.hint()))?;
    }
    // The deny rules and the limits for all runs apply here as well.
    let config = resolve_config(&setup.host, repo.as_deref(), &RunOverrides::default(), None)?.sandbox;
    policy.deny = config.network.denied.value;
    let resources = sandbox_limits(pinned_resources(&config.resources));
    // Real credentials are used, so the audit log records it, as it does for a run.
    let audited = !grants.is_empty() || !args.profile.is_empty();
    let audit_folder = audited.then(|| setup.host.home.exec_audit_folder(&name));
    let egress = EgressRequest { profiles, secrets: grants, ledger, audit_folder, ..EgressRequest::from(policy) };
    let toolchains = match args.toolchain.as_slice() {
        [] => ToolchainSelection::Auto,
        [word] if word == "auto" => ToolchainSelection::Auto,
        [word] if word == "none" => ToolchainSelection::None,
        names => ToolchainSelection::Only(names.to_vec()),
    };
    let spec = SandboxSpec { name, image: args.image.clone(), resources, toolchains, ..SandboxSpec::default() };
    Ok((spec, egress))
}

/// Prints what the calls of granted models cost.
fn print_cost(ledger: &Ledger, args: &SandboxExecArgs, ui: &mut Ui) {
    let (spent, open) = (ledger.settled(), ledger.reserved());
    let (cost, tokens) = (spent.cost + open.cost, spent.tokens.saturating_add(open.tokens));
    ui.print_message(&format!("calls cost {cost} of {}, {tokens} tokens", MicroUsd::from_usd(args.max_cost)));
}

/// Prints what was refused, what raised an alarm, and where the audit log is.
fn print_egress_events(lease: &EgressLease, ui: &mut Ui) {
    let EgressReport { refusals, more, others } = lease.take_report();
    for event in refusals {
        if let Event::PolicyDenied { host, port, request, rule, remedy, .. } = event {
            let what = request.map(|request| format!("{request} of ")).unwrap_or_default();
            let next = remedy.map(|rule| format!("; next: --allow-host {}", shell_argument(&rule)));
            ui.print_message(&format!("{what}{host}:{port} was refused: {rule}{}", next.unwrap_or_default()));
        }
    }
    if more > 0 {
        ui.print_message(&format!("and {more} more refusals"));
    }
    // Alarms come last, where they are most visible.
    for event in others {
        if let Event::Log { text, .. } = event {
            ui.print_message(&text);
        }
    }
    match lease.flush_audit() {
        Ok(Some(path)) => {
            let name = path.parent().and_then(Path::file_name).unwrap_or_default().display();
            ui.print_message(&format!("the audit log is {}; next: ralph policy log {name}", path.display()));
        }
        Ok(None) => (),
        Err(error) => ui.print_message(&format!("the audit log could not be written completely: {error}")),
    }
}

fn exec_policy(args: &SandboxExecArgs) -> Result<Policy, CliError> {
    let mode = match (args.network, args.allow_host.is_empty()) {
        (Some(mode), _) => mode,
        (None, true) => PolicyMode::Deny,
        (None, false) => PolicyMode::Allowlist,
    };
    let hosts: Vec<&str> = args.allow_host.iter().map(String::as_str).collect();
    parse_policy(mode, &hosts)
}

fn parse_policy(mode: PolicyMode, hosts: &[&str]) -> Result<Policy, CliError> {
    Policy::parse(mode, hosts, &[]).map_err(|error| {
        let failure = CliError::usage(error.to_string());
        match error.hint() {
            Some(hint) => failure.hint(hint),
            None => failure,
        }
    })
}

/// Copies files and directories into the sandbox; skips links and everything else.
async fn copy_dir_in(sandbox: &dyn Sandbox, from: &Path, to: &Path) -> Result<(), CliError> {
    let failed = |error: io::Error| CliError::usage(format!("could not read `{}`: {error}", from.display()));
    let mut open = vec![(from.to_owned(), to.to_owned())];
    while let Some((dir, inside)) = open.pop() {
        for entry in fs::read_dir(&dir).map_err(failed)? {
            let entry = entry.map_err(failed)?;
            let (kind, there) = (entry.file_type().map_err(failed)?, inside.join(entry.file_name()));
            if kind.is_dir() {
                sandbox.mkdirs(&there).await.map_err(Error::from)?;
                open.push((entry.path(), there));
            } else if kind.is_file() {
                sandbox.copy_in(&entry.path(), &there).await.map_err(Error::from)?;
            }
        }
    }
    Ok(())
}

/// The signals that ask a program to end.
struct ExecSignals([tokio::signal::unix::Signal; 3]);

impl ExecSignals {
    fn new() -> io::Result<Self> {
        use tokio::signal::unix::{SignalKind, signal};
        Ok(Self([signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?, signal(SignalKind::hangup())?]))
    }

    async fn recv(&mut self) {
        let [interrupt, terminate, hangup] = &mut self.0;
        tokio::select! {
            _ = interrupt.recv() => (),
            _ = terminate.recv() => (),
            _ = hangup.recv() => (),
        }
    }
}

/// Forwards output as it arrives.
struct PassthroughSink;

impl OutputSink for PassthroughSink {
    fn chunk(&mut self, stream: OutputStream, bytes: &[u8]) {
        // A closed output must not keep the command from finishing.
        let _ = match stream {
            OutputStream::Stdout => io::stdout().write_all(bytes).and_then(|()| io::stdout().flush()),
            OutputStream::Stderr => io::stderr().write_all(bytes),
        };
    }
}
