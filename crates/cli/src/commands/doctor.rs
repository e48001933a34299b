//! `ralph doctor`: checks whether this machine can do what a run needs, and what the user has set up so far. It only
//! reads; `ralph selftest` really creates a sandbox.

mod setup;

use ralph_core::exit_code::RalphExitCode;
use ralph_sandbox::{BackendCheck, BackendCheckStatus};
use serde::Serialize;
use serde_json::json;

use crate::run_setup::CliSetup;
use crate::terminal_output::{GREEN, RED, Ui, YELLOW, paint};

#[derive(Debug, Serialize)]
struct DoctorFinding {
    what: &'static str,
    state: BackendCheckStatus,
    found: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    next: Option<String>,
}

impl From<BackendCheck> for DoctorFinding {
    fn from(check: BackendCheck) -> Self {
        let BackendCheck { name, status, found, next } = check;
        Self { what: name, state: status, found, next }
    }
}

fn finding(
    what: &'static str,
    state: BackendCheckStatus,
    found: impl Into<String>,
    next: Option<&str>,
) -> DoctorFinding {
    DoctorFinding { what, state, found: found.into(), next: next.map(str::to_owned) }
}

pub(crate) async fn doctor(setup: &CliSetup, ui: &mut Ui) -> RalphExitCode {
    let git = setup.host.git.program().display().to_string();
    let mut findings = vec![finding("git", BackendCheckStatus::Good, git, None)];
    // Only the default backend: the others are used only when they are named.
    if let Some(backend) = setup.host.backends().first() {
        findings.extend(backend.checks().await.into_iter().map(DoctorFinding::from));
    }
    findings.push(disk(setup));
    findings.extend(setup::check_setup(setup).await);
    let bad = findings.iter().any(|one| one.state == BackendCheckStatus::Missing);
    if ui.json() {
        ui.print_json(&json!({"format": 1, "ready": !bad, "findings": findings}));
    } else {
        for one in &findings {
            let mark = match one.state {
                BackendCheckStatus::Good => paint(GREEN, "✓"),
                BackendCheckStatus::Weak => paint(YELLOW, "!"),
                BackendCheckStatus::Missing => paint(RED, "✗"),
            };
            ui.print_data(&format!("{mark} {:<18} {}", one.what, one.found));
            if let Some(next) = &one.next {
                ui.print_data(&format!("    next: {next}"));
            }
        }
        ui.print_message(if bad { "not ready: see above" } else { "ready; `ralph selftest` tests a real sandbox" });
    }
    if bad { RalphExitCode::NotReady } else { RalphExitCode::Success }
}

fn disk(setup: &CliSetup) -> DoctorFinding {
    let dir = setup.host.home.state_dir();
    let there = dir.ancestors().find(|path| path.exists()).unwrap_or(dir);
    let free = rustix::fs::statvfs(there).map_or(0, |found| found.f_bavail.saturating_mul(found.f_frsize));
    let text = format!("{:.1} GiB free for sandboxes and runs", free as f64 / f64::from(1 << 30));
    if free > 5 << 30 {
        finding("disk", BackendCheckStatus::Good, text, None)
    } else {
        finding("disk", BackendCheckStatus::Weak, text, Some("ralph sandbox prune"))
    }
}
