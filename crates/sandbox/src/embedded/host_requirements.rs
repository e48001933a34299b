//! Checks whether the host has what cages need.

use ralph_core::config::ToolchainSelection;

use super::backend::EmbeddedBackend;
use super::cage_build_failure::{MIN_KERNEL, NamespaceSettings, explain_failure};
use super::launcher;
use crate::BackendCheckStatus::{Good, Missing, Weak};
use crate::{BackendCheck, BackendCheckStatus};

pub(super) fn check_host(backend: &EmbeddedBackend) -> Vec<BackendCheck> {
    let settings = NamespaceSettings::read();
    let mut checks = vec![kernel(&settings), namespaces(&settings), landlock(), limits(backend)];
    match backend.toolchain_notes(&ToolchainSelection::Auto) {
        Ok(notes) if notes.is_empty() => checks.push(check("toolchains", Good, "all of PATH is visible", None)),
        Ok(notes) => checks.extend(notes.into_iter().map(|note| check("toolchains", Weak, note, None))),
        Err(error) => checks.push(check("toolchains", Weak, error.to_string(), None)),
    }
    checks
}

fn check(name: &'static str, status: BackendCheckStatus, found: impl Into<String>, next: Option<&str>) -> BackendCheck {
    BackendCheck { name, status, found: found.into(), next: next.map(str::to_owned) }
}

fn limits(backend: &EmbeddedBackend) -> BackendCheck {
    match backend.kernel_limits() {
        (true, true) => check("limits", Good, "the kernel limits memory and processes (cgroups)", None),
        _ => check(
            "limits",
            Weak,
            "the kernel enforces no memory limit on this host: process 1 of a sandbox checks memory five times a second instead",
            Some("delegate a cgroup: systemd-run --user --scope -p Delegate=yes ralph run"),
        ),
    }
}

fn kernel(settings: &NamespaceSettings) -> BackendCheck {
    let found = format!("Linux {}", settings.kernel);
    if settings.version() >= MIN_KERNEL {
        check("kernel", Good, found, None)
    } else {
        check("kernel", Missing, found, Some("the embedded sandbox needs Linux 5.12 or newer"))
    }
}

fn namespaces(settings: &NamespaceSettings) -> BackendCheck {
    let refused = settings.max_user_namespaces == Some(0)
        || (!settings.root
            && (settings.unprivileged_userns == Some(0) || settings.apparmor_restriction.is_some_and(|set| set != 0)));
    if !refused {
        return check("user namespaces", Good, "no setting forbids them", None);
    }
    let explanation = explain_failure("make namespaces", &std::io::Error::from_raw_os_error(1), settings);
    let next = explanation.remedies.first().map(String::as_str);
    check("user namespaces", Missing, explanation.why, next)
}

fn landlock() -> BackendCheck {
    match launcher::landlock_version() {
        0 => check(
            "landlock",
            Weak,
            "this kernel has none: the second layer of file isolation is missing, the first one holds without it",
            None,
        ),
        version => check("landlock", Good, format!("version {version}"), None),
    }
}
