//! Runs the suites against one backend. The one entry of the crate that exists on every system.

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;

use ralph_sandbox::Backend;

use crate::report::{AttackReport, RedteamReport};

/// What to attack, and with which cases.
#[derive(Debug)]
pub struct AttackRequest<'a> {
    pub backend: &'a dyn Backend,
    /// Where the suite keeps the sandboxes it creates.
    pub dir: PathBuf,
    /// The directories to search for the host's programs.
    pub search_path: OsString,
    /// An area, a case, the start of a case with `*`, or `mechanism:` and an isolation mechanism; `None` is everything.
    pub only: Option<&'a str>,
}

/// Runs the selected attacks and reports each as soon as it has ended; `None` on a system where no attack can be
/// tried.
#[cfg(target_os = "linux")]
pub async fn run_suites(
    request: &AttackRequest<'_>,
    on_case: &mut (dyn FnMut(&AttackReport) + Send),
) -> Option<RedteamReport> {
    use crate::cage::{self, RedteamTarget};
    use crate::egress::{self, EgressSuiteOptions};
    use crate::proofs::{self, ProofTarget};

    let target = RedteamTarget::for_backend(request.backend, request.dir.clone());
    let mut report = cage::run(&target, request.only, on_case).await;
    if target.is_own_cage() {
        let target = EgressSuiteOptions { program: None, search_path: request.search_path.clone() };
        egress::run(&target, request.only, &mut report, on_case).await;
    } else {
        let why = "the suite's fake network can serve only the listeners of cages";
        egress::skip(why, request.only, &mut report, on_case);
    }
    if request.backend.capabilities().separation {
        let target = ProofTarget { backend: request.backend, search_path: request.search_path.clone() };
        proofs::run(&target, request.only, &mut report, on_case).await;
    } else {
        let why = "the backend cannot separate the processes of a check";
        proofs::skip(why, request.only, &mut report, on_case);
    }
    Some(report)
}

/// Runs the selected attacks and reports each as soon as it has ended; `None` on a system where no attack can be
/// tried.
#[cfg(not(target_os = "linux"))]
#[expect(clippy::unused_async, reason = "the same signature on every system")]
pub async fn run_suites(
    _request: &AttackRequest<'_>,
    _on_case: &mut (dyn FnMut(&AttackReport) + Send),
) -> Option<RedteamReport> {
    None
}

/// Returns whether a selection includes any case. Where no attack can be tried, any selection is accepted, and that
/// is reported instead.
pub fn selects_any(only: &str) -> bool {
    #[cfg(target_os = "linux")]
    return crate::cage::cases().any(|case| case.is_selected(only))
        || crate::egress::cases().any(|case| case.is_selected(only))
        || crate::proofs::cases().any(|case| case.is_selected(only));
    #[cfg(not(target_os = "linux"))]
    return !only.is_empty();
}

/// Runs one of the programs that attack from inside a sandbox, if this process was started as one. Call it early in
/// `main`, before any thread starts.
pub fn payload_entry() -> Option<ExitCode> {
    #[cfg(target_os = "linux")]
    return crate::cage::probe_entry().or_else(crate::egress::attack_client_entry);
    #[cfg(not(target_os = "linux"))]
    return None;
}
