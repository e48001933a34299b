//! Runs a supervisor that a case may kill, or that has resources a cage must not inherit: this program again, as the
//! probe.

use std::path::PathBuf;
use std::time::Duration;

use ralph_sandbox::embedded::{EmbeddedBackend, EmbeddedOptions, IsolationMechanism};
use ralph_sandbox::{Backend, ExecRequest, SandboxSpec, capture};

use crate::case::mechanism_name;

/// The name of its one sandbox.
pub(super) const SANDBOX_NAME: &str = "owned";

/// Creates a cage in `dir` without the named mechanisms, runs a shell line in it, and returns its output.
pub(super) fn run_supervisor(dir: &str, without: &str, line: &str) -> String {
    let without = IsolationMechanism::ALL
        .into_iter()
        .filter(|mechanism| without.split(',').any(|one| one == mechanism_name(*mechanism)))
        .collect();
    let options =
        EmbeddedOptions { dir: PathBuf::from(dir), disabled_mechanisms: without, ..EmbeddedOptions::default() };
    let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => return format!("no runtime: {error}"),
    };
    let result = runtime.block_on(async {
        let sandbox = EmbeddedBackend::new(options)
            .create(&SandboxSpec { name: SANDBOX_NAME.to_owned(), ..SandboxSpec::default() })
            .await?;
        capture(&*sandbox, &ExecRequest::shell(line, Duration::from_secs(50)), 1 << 16).await
    });
    match result {
        Ok(output) => format!("{}{}", output.stdout_text(), output.stderr_text()),
        Err(error) => format!("no cage: {error}: {:?}", std::error::Error::source(&error)),
    }
}
