//! `ralph selftest`: creates a real sandbox, uses it, tries what it must refuse, and checks that nothing is left over.

use std::net::TcpListener;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use ralph_core::exit_code::RalphExitCode;
use ralph_core::policy::{Policy, PolicyMode};
use ralph_engine::egress::EgressRequest;
use ralph_engine::host_environment::{DEFAULT_BACKEND, HostContext};
use ralph_engine::sandbox_lifecycle::{self, SandboxRequest};
use ralph_sandbox::conformance::{self, ConformanceOutcome as Case};
use ralph_sandbox::{Backend, Error, ExecRequest, ExecStatus, Sandbox, SandboxSpec, capture};
use serde::Serialize;
use serde_json::json;

use super::run::warn_if_not_isolated;
use crate::args::SelftestArgs;
use crate::error::CliResult;
use crate::run_setup::CliSetup;
use crate::terminal_output::{GREEN, RED, Ui, YELLOW, paint};

const COMMAND_TIMEOUT: Duration = Duration::from_secs(20);

#[derive(Debug, Serialize)]
struct SelftestResult {
    what: String,
    outcome: Case,
    ms: u128,
}

pub(crate) async fn selftest(setup: &CliSetup, args: &SelftestArgs, ui: &mut Ui) -> CliResult {
    let name = args.backend.as_deref().unwrap_or(DEFAULT_BACKEND);
    let backend = setup.host.backend(name)?;
    warn_if_not_isolated(&backend.capabilities(), ui);
    let mut tried = Vec::new();
    let mut report = |ui: &mut Ui, what: &str, began: Instant, outcome: Case| {
        let ms = began.elapsed().as_millis();
        if !ui.json() {
            let (mark, why) = match &outcome {
                Case::Passed => (paint(GREEN, "✓"), String::new()),
                Case::Failed(why) => (paint(RED, "✗"), format!(": {why}")),
                Case::Skipped(why) => (paint(YELLOW, "-"), format!(": {why}")),
            };
            ui.print_data(&format!("{mark} {what}{why} ({ms} ms)"));
        }
        tried.push(SelftestResult { what: what.to_owned(), outcome, ms });
    };
    let id = format!("selftest-{}", std::process::id());
    let began = Instant::now();
    match create_sandbox(&setup.host, &*backend, &id).await {
        Err(error) => {
            let why = explain_error(&*backend, &error);
            report(ui, "a sandbox is made and runs a command", began, Case::Failed(why));
        }
        Ok(sandbox) => {
            report(ui, "a sandbox is made and runs a command", began, Case::Passed);
            for (what, line, want) in INSIDE_CHECKS {
                let began = Instant::now();
                let isolates = backend.capabilities().isolation.is_isolated();
                let outcome = if isolates { check_output(&*sandbox, line, want).await } else { skipped_no_isolation() };
                report(ui, what, began, outcome);
            }
            let began = Instant::now();
            let outcome = if backend.capabilities().egress.is_available() {
                check_host_ports_closed(&*sandbox).await
            } else {
                skipped_no_isolation()
            };
            report(ui, "the host's own ports cannot be reached", began, outcome);
            let began = Instant::now();
            report(ui, "a command that does not end is ended with its children", began, check_timeout(&*sandbox).await);
            let began = Instant::now();
            report(ui, "files go in and out, and links are not followed", began, check_files(&*sandbox).await);
            let began = Instant::now();
            let outcome = match sandbox.destroy().await {
                Ok(()) => check_removed(&*backend, &id).await,
                Err(error) => Case::Failed(error.to_string()),
            };
            report(ui, "it is removed and nothing is left", began, outcome);
            if backend.capabilities().egress.is_available() {
                let began = Instant::now();
                report(
                    ui,
                    "the egress proxy refuses a host that is not allowed",
                    began,
                    check_egress_denied(&setup.host, &*backend, &id).await,
                );
            }
            if backend.capabilities().snapshot {
                let began = Instant::now();
                report(ui, "a snapshot is taken and forked", began, check_fork(&*backend, &id).await);
            }
        }
    }
    if args.full {
        for case in conformance::suite(&*backend).await {
            report(ui, case.name, Instant::now(), case.outcome);
        }
    }
    let failed = tried.iter().filter(|one| matches!(one.outcome, Case::Failed(_))).count();
    let skipped = tried.iter().filter(|one| matches!(one.outcome, Case::Skipped(_))).count();
    if ui.json() {
        ui.print_json(&json!({"format": 1, "backend": name, "passed": failed == 0, "tried": tried}));
    } else {
        ui.print_message(&format!("{} passed, {failed} failed, {skipped} skipped", tried.len() - failed - skipped));
    }
    Ok(if failed == 0 { RalphExitCode::Success } else { RalphExitCode::NotReady })
}

/// What must hold inside a sandbox: a description, a command and its expected output.
const INSIDE_CHECKS: [(&str, &str, &str); 5] = [
    ("the agent runs as user 1000 inside", "id -u; id -g", "1000\n1000\n"),
    (
        "it has no capabilities and cannot gain any",
        "grep -E 'CapEff|CapBnd|NoNewPrivs' /proc/self/status | tr -d '\\t'",
        "CapEff:0000000000000000\nCapBnd:0000000000000000\nNoNewPrivs:1\n",
    ),
    ("system calls are filtered", "grep -E '^Seccomp:' /proc/self/status | tr -d '\\t'", "Seccomp:2\n"),
    ("it sees its own processes only", "cat /proc/1/comm", "ralph-init\n"),
    ("the system is read-only", "touch /usr/x 2> /dev/null || echo refused", "refused\n"),
];

fn skipped_no_isolation() -> Case {
    Case::Skipped("this backend does not isolate".to_owned())
}

fn spec(id: &str) -> SandboxSpec {
    SandboxSpec { name: id.to_owned(), ..SandboxSpec::default() }
}

async fn create_sandbox(
    host: &HostContext,
    backend: &dyn Backend,
    id: &str,
) -> Result<Arc<dyn Sandbox>, ralph_engine::Error> {
    let request = SandboxRequest { backend, spec: spec(id), egress: None };
    let sandbox = sandbox_lifecycle::create(host, request).await?.sandbox;
    match capture(&*sandbox, &ExecRequest::new(["true"], COMMAND_TIMEOUT), 1024).await {
        Ok(_) => Ok(sandbox),
        Err(error) => {
            // The first failure is the one to report.
            sandbox_lifecycle::discard(&*sandbox).await;
            Err(error.into())
        }
    }
}

/// Describes a failure together with the host settings that explain it.
fn explain_error(backend: &dyn Backend, error: &ralph_engine::Error) -> String {
    let ralph_engine::Error::Sandbox(error) = error else { return error.to_string() };
    if let Some(explanation) = backend.explain(error) {
        return explanation;
    }
    let source = std::error::Error::source(error).map_or_else(String::new, |source| format!(": {source}"));
    format!("{error}{source}")
}

async fn check_output(sandbox: &dyn Sandbox, line: &str, want: &str) -> Case {
    match capture(sandbox, &ExecRequest::shell(line, COMMAND_TIMEOUT), 4096).await {
        Ok(output) if output.stdout_text() == want => Case::Passed,
        Ok(output) => Case::Failed(format!("it says {:?}", output.stdout_text())),
        Err(error) => Case::Failed(error.to_string()),
    }
}

/// Checks that a port that accepts connections on the host cannot be reached from inside.
async fn check_host_ports_closed(sandbox: &dyn Sandbox) -> Case {
    let Ok(listener) = TcpListener::bind("127.0.0.1:0") else { return Case::Skipped("no port to try".to_owned()) };
    let Ok(port) = listener.local_addr().map(|address| address.port()) else {
        return Case::Skipped("no port to try".to_owned());
    };
    if listener.set_nonblocking(true).is_err() {
        return Case::Skipped("no port to try".to_owned());
    }
    let line = format!("bash -c 'exec 3<>/dev/tcp/127.0.0.1/{port}' 2> /dev/null && echo open || echo closed");
    let outcome = check_output(sandbox, &line, "closed\n").await;
    match listener.accept() {
        Ok(_) => Case::Failed("something inside reached the host".to_owned()),
        Err(_) => outcome,
    }
}

async fn check_timeout(sandbox: &dyn Sandbox) -> Case {
    let exec = ExecRequest::shell("setsid sh -c 'sleep 600' & sleep 600", Duration::from_millis(300));
    match capture(sandbox, &exec, 1024).await {
        Ok(output) if output.exit.status == ExecStatus::TimedOut => {
            check_output(sandbox, "grep -l sleep /proc/[0-9]*/comm 2> /dev/null | wc -l | tr -d ' '", "0\n").await
        }
        Ok(output) => Case::Failed(format!("it ended with {:?}", output.exit.status)),
        Err(error) => Case::Failed(error.to_string()),
    }
}

async fn check_files(sandbox: &dyn Sandbox) -> Case {
    let written = sandbox.write(Path::new("in"), b"hello\n", None).await;
    if let Err(error) = written {
        return Case::Failed(error.to_string());
    }
    let inside = check_output(sandbox, "cat in && cp in out && ln -s /etc/passwd link", "hello\n").await;
    if inside != Case::Passed {
        return inside;
    }
    match (sandbox.read(Path::new("out"), 100).await, sandbox.read(Path::new("link"), 1 << 20).await) {
        (Ok(bytes), Err(Error::Refused { .. })) if bytes == b"hello\n" => Case::Passed,
        other => Case::Failed(format!("{other:?}")),
    }
}

async fn check_removed(backend: &dyn Backend, id: &str) -> Case {
    match backend.list().await {
        Ok(listed) if listed.iter().all(|one| one.id != id) => Case::Passed,
        Ok(_) => Case::Failed("it is still listed".to_owned()),
        Err(error) => Case::Failed(error.to_string()),
    }
}

async fn check_egress_denied(host: &HostContext, backend: &dyn Backend, id: &str) -> Case {
    let policy = Policy { mode: PolicyMode::Allowlist, ..Policy::default() };
    let request =
        SandboxRequest { backend, spec: spec(&format!("{id}-egress")), egress: Some(EgressRequest::from(policy)) };
    let sandbox = match sandbox_lifecycle::create(host, request).await {
        Ok(granted) => granted.into_sandbox(),
        Err(error) => return Case::Failed(error.to_string()),
    };
    let address = sandbox.egress_url().unwrap_or_default().trim_start_matches("http://").replace(':', "/");
    let line = "bash -c 'exec 3<>/dev/tcp/ADDRESS; printf \"CONNECT example.com:443 HTTP/1.1\\r\\nHost: example.com:443\\r\\n\\r\\n\" >&3; head -n 1 <&3' | tr -d '\\r'";
    let line = line.replace("ADDRESS", &address);
    let outcome = match capture(&*sandbox, &ExecRequest::shell(&line, COMMAND_TIMEOUT), 4096).await {
        Ok(output) if output.stdout_text().contains(" 403 ") => Case::Passed,
        Ok(output) => Case::Failed(format!("it answers {:?} {:?}", output.stdout_text(), output.stderr_text())),
        Err(error) => Case::Failed(error.to_string()),
    };
    match sandbox.destroy().await {
        Ok(()) => outcome,
        Err(error) => Case::Failed(error.to_string()),
    }
}

async fn check_fork(backend: &dyn Backend, id: &str) -> Case {
    let steps = async {
        let first = backend.create(&spec(&format!("{id}-first"))).await?;
        first.write(Path::new("file"), b"one\n", None).await?;
        let snapshot = first.snapshot().await?;
        first.write(Path::new("file"), b"two\n", None).await?;
        let second = backend.fork(&snapshot, &spec(&format!("{id}-second"))).await?;
        let kept = second.read(Path::new("file"), 100).await;
        // Everything is removed, whatever was read.
        second.destroy().await?;
        first.destroy().await?;
        backend.remove_snapshot(&snapshot).await?;
        kept
    };
    match steps.await {
        Ok(kept) if kept == b"one\n" => Case::Passed,
        Ok(kept) => Case::Failed(format!("the fork holds {:?}", String::from_utf8_lossy(&kept))),
        Err(error) => Case::Failed(explain_error(backend, &ralph_engine::Error::from(error))),
    }
}
