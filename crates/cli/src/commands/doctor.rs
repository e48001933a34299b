//! `ralph doctor`: looks whether this machine can do what a run needs, and what the person has set up so far. It reads and
//! changes nothing; `ralph selftest` really tries.

mod wishes;

use ralph_core::exit::Exit;
use serde::Serialize;
use serde_json::json;

use crate::setup::Setup;
use crate::ui::{GREEN, RED, Ui, YELLOW, paint};

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
enum State {
    Good,
    Weak,
    Missing,
}

#[derive(Debug, Serialize)]
struct Finding {
    what: &'static str,
    state: State,
    found: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    next: Option<String>,
}

fn finding(what: &'static str, state: State, found: impl Into<String>, next: Option<&str>) -> Finding {
    Finding { what, state, found: found.into(), next: next.map(str::to_owned) }
}

pub(crate) async fn doctor(setup: &Setup, ui: &mut Ui) -> Exit {
    let git = setup.host.tool.program().display().to_string();
    let mut findings = vec![finding("git", State::Good, git, None)];
    #[cfg(target_os = "linux")]
    findings.extend(linux::look(setup));
    #[cfg(not(target_os = "linux"))]
    findings.push(finding(
        "embedded sandbox",
        State::Missing,
        "it needs a Linux kernel",
        Some("use `--backend local`, which has no isolation, or a Linux machine"),
    ));
    findings.push(disk(setup));
    findings.extend(wishes::look(setup).await);
    let bad = findings.iter().any(|one| one.state == State::Missing);
    if ui.json() {
        ui.object(&json!({"format": 1, "ready": !bad, "findings": findings}));
    } else {
        for one in &findings {
            let mark = match one.state {
                State::Good => paint(GREEN, "✓"),
                State::Weak => paint(YELLOW, "!"),
                State::Missing => paint(RED, "✗"),
            };
            ui.data(&format!("{mark} {:<18} {}", one.what, one.found));
            if let Some(next) = &one.next {
                ui.data(&format!("    next: {next}"));
            }
        }
        ui.say(if bad { "not ready: see above" } else { "ready; `ralph selftest` really tries the sandbox" });
    }
    if bad { Exit::NotReady } else { Exit::Success }
}

fn disk(setup: &Setup) -> Finding {
    let dir = setup.host.home.state_dir();
    let there = dir.ancestors().find(|path| path.exists()).unwrap_or(dir);
    let free = rustix::fs::statvfs(there).map_or(0, |found| found.f_bavail.saturating_mul(found.f_frsize));
    let text = format!("{:.1} GiB free for sandboxes and runs", free as f64 / f64::from(1 << 30));
    if free > 5 << 30 {
        finding("disk", State::Good, text, None)
    } else {
        finding("disk", State::Weak, text, Some("ralph sandbox prune"))
    }
}

#[cfg(target_os = "linux")]
mod linux {
    use ralph_core::config::Toolchains;
    use ralph_sandbox::embedded::{OLDEST, Settings, explain};

    use super::{Finding, State, finding};
    use crate::setup::Setup;

    pub(super) fn look(setup: &Setup) -> Vec<Finding> {
        let settings = Settings::read();
        let mut findings = vec![kernel(&settings), namespaces(&settings), landlock()];
        let (memory, processes) = setup.host.embedded().held_by_kernel();
        findings.push(match (memory, processes) {
            (true, true) => finding("limits", State::Good, "the kernel holds memory and processes (cgroups)", None),
            _ => finding(
                "limits",
                State::Weak,
                "no memory limit by the kernel on this host: process 1 of a sandbox looks at memory five times a second instead",
                Some("delegate a cgroup: systemd-run --user --scope -p Delegate=yes ralph run"),
            ),
        });
        match setup.host.embedded().toolchain_notes(&Toolchains::Auto) {
            Ok(notes) if notes.is_empty() => {
                findings.push(finding("toolchains", State::Good, "all of PATH is shown", None));
            }
            Ok(notes) => findings.extend(notes.into_iter().map(|note| finding("toolchains", State::Weak, note, None))),
            Err(error) => findings.push(finding("toolchains", State::Weak, error.to_string(), None)),
        }
        findings
    }

    fn kernel(settings: &Settings) -> Finding {
        let found = format!("Linux {}", settings.kernel);
        if settings.version() >= OLDEST {
            finding("kernel", State::Good, found, None)
        } else {
            finding("kernel", State::Missing, found, Some("the embedded sandbox needs Linux 5.12 or newer"))
        }
    }

    fn namespaces(settings: &Settings) -> Finding {
        let refused = settings.most == Some(0)
            || (!settings.root && (settings.unprivileged == Some(0) || settings.apparmor.is_some_and(|set| set != 0)));
        if !refused {
            return finding("user namespaces", State::Good, "no setting is against them", None);
        }
        let told = explain("make namespaces", &std::io::Error::from_raw_os_error(1), settings);
        let next = told.remedies.first().map(String::as_str);
        finding("user namespaces", State::Missing, told.why, next)
    }

    fn landlock() -> Finding {
        match ralph_sandbox::embedded::landlock_version() {
            0 => finding(
                "landlock",
                State::Weak,
                "this kernel has none: the second wall around files is missing, the first stands without it",
                None,
            ),
            version => finding("landlock", State::Good, format!("version {version}"), None),
        }
    }
}
