//! `ralph doctor`: looks whether this machine can do what a run needs, and what the person has set up so far. It reads and
//! changes nothing; `ralph selftest` really tries.

mod setup;

use ralph_core::exit::RalphExitCode;
use serde::Serialize;
use serde_json::json;

use crate::setup::CliSetup;
use crate::ui::{GREEN, RED, Ui, YELLOW, paint};

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
enum DoctorStatus {
    Good,
    Weak,
    Missing,
}

#[derive(Debug, Serialize)]
struct DoctorFinding {
    what: &'static str,
    state: DoctorStatus,
    found: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    next: Option<String>,
}

fn finding(what: &'static str, state: DoctorStatus, found: impl Into<String>, next: Option<&str>) -> DoctorFinding {
    DoctorFinding { what, state, found: found.into(), next: next.map(str::to_owned) }
}

pub(crate) async fn doctor(setup: &CliSetup, ui: &mut Ui) -> RalphExitCode {
    let git = setup.host.git.program().display().to_string();
    let mut findings = vec![finding("git", DoctorStatus::Good, git, None)];
    #[cfg(target_os = "linux")]
    findings.extend(linux::check_host(setup));
    #[cfg(not(target_os = "linux"))]
    findings.push(finding(
        "embedded sandbox",
        DoctorStatus::Missing,
        "it needs a Linux kernel",
        Some("use `--backend local`, which has no isolation, or a Linux machine"),
    ));
    findings.push(disk(setup));
    findings.extend(setup::check_setup(setup).await);
    let bad = findings.iter().any(|one| one.state == DoctorStatus::Missing);
    if ui.json() {
        ui.print_json(&json!({"format": 1, "ready": !bad, "findings": findings}));
    } else {
        for one in &findings {
            let mark = match one.state {
                DoctorStatus::Good => paint(GREEN, "✓"),
                DoctorStatus::Weak => paint(YELLOW, "!"),
                DoctorStatus::Missing => paint(RED, "✗"),
            };
            ui.print_data(&format!("{mark} {:<18} {}", one.what, one.found));
            if let Some(next) = &one.next {
                ui.print_data(&format!("    next: {next}"));
            }
        }
        ui.print_message(if bad { "not ready: see above" } else { "ready; `ralph selftest` really tries the sandbox" });
    }
    if bad { RalphExitCode::NotReady } else { RalphExitCode::Success }
}

fn disk(setup: &CliSetup) -> DoctorFinding {
    let dir = setup.host.home.state_dir();
    let there = dir.ancestors().find(|path| path.exists()).unwrap_or(dir);
    let free = rustix::fs::statvfs(there).map_or(0, |found| found.f_bavail.saturating_mul(found.f_frsize));
    let text = format!("{:.1} GiB free for sandboxes and runs", free as f64 / f64::from(1 << 30));
    if free > 5 << 30 {
        finding("disk", DoctorStatus::Good, text, None)
    } else {
        finding("disk", DoctorStatus::Weak, text, Some("ralph sandbox prune"))
    }
}

#[cfg(target_os = "linux")]
mod linux {
    use ralph_core::config::ToolchainSelection;
    use ralph_sandbox::embedded::{MIN_KERNEL, NamespaceSettings, explain_failure};

    use super::{DoctorFinding, DoctorStatus, finding};
    use crate::setup::CliSetup;

    pub(super) fn check_host(setup: &CliSetup) -> Vec<DoctorFinding> {
        let settings = NamespaceSettings::read();
        let mut findings = vec![kernel(&settings), namespaces(&settings), landlock()];
        let (memory, processes) = setup.host.embedded().kernel_limits();
        findings.push(match (memory, processes) {
            (true, true) => finding("limits", DoctorStatus::Good, "the kernel holds memory and processes (cgroups)", None),
            _ => finding(
                "limits",
                DoctorStatus::Weak,
                "no memory limit by the kernel on this host: process 1 of a sandbox looks at memory five times a second instead",
                Some("delegate a cgroup: systemd-run --user --scope -p Delegate=yes ralph run"),
            ),
        });
        match setup.host.embedded().toolchain_notes(&ToolchainSelection::Auto) {
            Ok(notes) if notes.is_empty() => {
                findings.push(finding("toolchains", DoctorStatus::Good, "all of PATH is shown", None));
            }
            Ok(notes) => {
                findings.extend(notes.into_iter().map(|note| finding("toolchains", DoctorStatus::Weak, note, None)))
            }
            Err(error) => findings.push(finding("toolchains", DoctorStatus::Weak, error.to_string(), None)),
        }
        findings
    }

    fn kernel(settings: &NamespaceSettings) -> DoctorFinding {
        let found = format!("Linux {}", settings.kernel);
        if settings.version() >= MIN_KERNEL {
            finding("kernel", DoctorStatus::Good, found, None)
        } else {
            finding("kernel", DoctorStatus::Missing, found, Some("the embedded sandbox needs Linux 5.12 or newer"))
        }
    }

    fn namespaces(settings: &NamespaceSettings) -> DoctorFinding {
        let refused = settings.max_user_namespaces == Some(0)
            || (!settings.root
                && (settings.unprivileged_userns == Some(0)
                    || settings.apparmor_restriction.is_some_and(|set| set != 0)));
        if !refused {
            return finding("user namespaces", DoctorStatus::Good, "no setting is against them", None);
        }
        let told = explain_failure("make namespaces", &std::io::Error::from_raw_os_error(1), settings);
        let next = told.remedies.first().map(String::as_str);
        finding("user namespaces", DoctorStatus::Missing, told.why, next)
    }

    fn landlock() -> DoctorFinding {
        match ralph_sandbox::embedded::landlock_version() {
            0 => finding(
                "landlock",
                DoctorStatus::Weak,
                "this kernel has none: the second wall around files is missing, the first stands without it",
                None,
            ),
            version => finding("landlock", DoctorStatus::Good, format!("version {version}"), None),
        }
    }
}
