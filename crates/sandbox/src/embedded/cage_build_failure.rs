//! Explains why a cage cannot be built on a host, and what the user can do about it. Decides from the failed step, the
//! kernel's error and settings that were read before.

use std::fs;
use std::io;

/// Settings of the host that decide whether a user may create namespaces.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct NamespaceSettings {
    /// `kernel.apparmor_restrict_unprivileged_userns`.
    pub(super) apparmor_restriction: Option<u64>,
    /// `kernel.unprivileged_userns_clone`, on hosts that have it.
    pub(super) unprivileged_userns: Option<u64>,
    /// `user.max_user_namespaces`.
    pub(super) max_user_namespaces: Option<u64>,
    /// Whether this process seems to run in a container.
    pub(super) container: bool,
    pub(super) root: bool,
    /// The kernel's version string.
    pub(super) kernel: String,
}

impl NamespaceSettings {
    /// Reads the settings; changes nothing.
    pub(super) fn read() -> Self {
        let number = |path: &str| fs::read_to_string(path).ok()?.trim().parse().ok();
        Self {
            apparmor_restriction: number("/proc/sys/kernel/apparmor_restrict_unprivileged_userns"),
            unprivileged_userns: number("/proc/sys/kernel/unprivileged_userns_clone"),
            max_user_namespaces: number("/proc/sys/user/max_user_namespaces"),
            container: ["/.dockerenv", "/run/.containerenv"].iter().any(|path| fs::exists(path).unwrap_or(false)),
            root: rustix::process::geteuid().is_root(),
            kernel: rustix::system::uname().release().to_string_lossy().into_owned(),
        }
    }

    /// Returns the kernel's version as two numbers.
    pub(super) fn version(&self) -> (u32, u32) {
        let mut parts = self.kernel.split(|c: char| !c.is_ascii_digit()).map(|part| part.parse().unwrap_or(0));
        (parts.next().unwrap_or(0), parts.next().unwrap_or(0))
    }
}

/// A reason and what to do about it, the best remedy first.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct FailureExplanation {
    pub(super) why: String,
    pub(super) remedies: Vec<String>,
}

/// The oldest kernel with all features that a cage needs.
pub(super) const MIN_KERNEL: (u32, u32) = (5, 12);

const APPARMOR_PROFILE_COMMAND: &str = "printf 'abi <abi/4.0>,\\ninclude <tunables/global>\\nprofile ralph %s flags=(unconfined) { userns, }\\n' \"$(command -v ralph)\" | sudo tee /etc/apparmor.d/ralph && sudo apparmor_parser -r /etc/apparmor.d/ralph";

/// Explains a failed step.
pub(super) fn explain_failure(step: &str, error: &io::Error, settings: &NamespaceSettings) -> FailureExplanation {
    let explain = |why: &str, remedies: &[&str]| FailureExplanation {
        why: why.to_owned(),
        remedies: remedies.iter().map(ToString::to_string).collect(),
    };
    let other = "ralph run --backend docker, or --backend local for a run without isolation";
    let errno = error.raw_os_error().unwrap_or(0);
    let users = step.contains("namespaces") || step.contains("uid_map") || step.contains("setgroups");
    if errno == libc::ENOSYS || (errno == libc::EINVAL && settings.version() < MIN_KERNEL) {
        return explain(
            &format!("this kernel ({}) is older than {}.{}", settings.kernel, MIN_KERNEL.0, MIN_KERNEL.1),
            &["use a newer kernel", other],
        );
    }
    if users && (errno == libc::ENOSPC || settings.max_user_namespaces == Some(0)) {
        return explain(
            "this host allows no user namespaces (user.max_user_namespaces)",
            &["sudo sysctl -w user.max_user_namespaces=15000", other],
        );
    }
    if users && settings.unprivileged_userns == Some(0) && !settings.root {
        return explain(
            "this host allows user namespaces only to root (kernel.unprivileged_userns_clone)",
            &["sudo sysctl -w kernel.unprivileged_userns_clone=1", other],
        );
    }
    let denied = errno == libc::EPERM || errno == libc::EACCES;
    if denied && settings.apparmor_restriction.is_some_and(|set| set != 0) && !settings.root {
        return explain(
            "AppArmor does not let programs without a profile use user namespaces (kernel.apparmor_restrict_unprivileged_userns)",
            &[APPARMOR_PROFILE_COMMAND, other],
        );
    }
    if denied && step.contains("mount proc") {
        return explain(
            "the container this runs in covers parts of /proc, so no new /proc can be mounted in it",
            &["run the container with `--security-opt systempaths=unconfined`", other],
        );
    }
    if denied && (users || settings.container) {
        return explain(
            "the container this runs in does not let programs create namespaces (seccomp or capabilities)",
            &["run the container with `--security-opt seccomp=unconfined --security-opt apparmor=unconfined`", other],
        );
    }
    explain(&format!("the step `{step}` failed with `{error}`"), &[other])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(step: &str, errno: i32, settings: &NamespaceSettings, why: &str) {
        let got = explain_failure(step, &io::Error::from_raw_os_error(errno), settings);
        assert!(got.why.contains(why), "{got:?}");
        assert!(!got.remedies.is_empty());
    }

    #[test]
    fn every_known_refusal_has_its_own_explanation() {
        let plain = NamespaceSettings { kernel: "6.8.0-31-generic".to_owned(), ..NamespaceSettings::default() };
        let with = |change: fn(&mut NamespaceSettings)| {
            let mut settings = plain.clone();
            change(&mut settings);
            settings
        };
        check("make namespaces", libc::ENOSPC, &plain, "max_user_namespaces");
        check("make namespaces", libc::EPERM, &with(|s| s.unprivileged_userns = Some(0)), "unprivileged_userns_clone");
        check("write uid_map", libc::EPERM, &with(|s| s.apparmor_restriction = Some(1)), "AppArmor");
        check("bring the loopback up", libc::EPERM, &with(|s| s.apparmor_restriction = Some(1)), "AppArmor");
        check("mount proc", libc::EPERM, &plain, "covers parts of /proc");
        check("make namespaces", libc::EPERM, &with(|s| s.container = true), "container");
        check("make namespaces", libc::ENOSYS, &with(|s| s.kernel = "4.19.0".to_owned()), "older than 5.12");
        check("swap roots", libc::EIO, &plain, "the step `swap roots`");
    }
}
