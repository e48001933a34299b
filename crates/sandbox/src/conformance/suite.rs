//! Lists the cases and runs them.

use std::fmt;
use std::time::Duration;

use serde::Serialize;

use super::fixture::{ConformanceFixture, ConformanceResult};
use super::{exec, files, host_layers, lifecycle, processes};
use crate::Backend;

/// A case that takes longer counts as hanging; it fails and does not stop the others.
const CASE_TIMEOUT: Duration = Duration::from_mins(2);

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum ConformanceOutcome {
    Passed,
    Failed(String),
    /// Something the case needs is missing; never reported as passed.
    Skipped(String),
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct CaseResult {
    pub name: &'static str,
    pub outcome: ConformanceOutcome,
}

impl fmt::Display for CaseResult {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.outcome {
            ConformanceOutcome::Passed => write!(f, "passed: {}", self.name),
            ConformanceOutcome::Failed(why) => write!(f, "failed: {}: {why}", self.name),
            ConformanceOutcome::Skipped(why) => write!(f, "skipped: {}: {why}", self.name),
        }
    }
}

macro_rules! run {
    ($fixture:expr; $($name:literal => $case:path,)*) => {{
        let mut results = Vec::new();
        $(results.push(run_case($name, $case(&$fixture)).await);)*
        results
    }};
}

/// Runs every case against a backend, one after the other.
pub async fn suite(backend: &dyn Backend) -> Vec<CaseResult> {
    let fixture = match ConformanceFixture::new(backend).await {
        Ok(fixture) => fixture,
        Err(miss) => return vec![CaseResult { name: "create: a sandbox to work in", outcome: Err(miss).into() }],
    };
    run! { fixture;
        "create: an empty workspace, listed with its labels" => lifecycle::create,
        "create: a name in use is refused" => lifecycle::create_twice,
        "create: invalid names are refused" => lifecycle::bad_names,
        "open: a missing sandbox is gone" => lifecycle::open_missing,
        "open: files are found again" => lifecycle::open_again,
        "open: commands of a live owner keep running" => lifecycle::open_keeps_running_commands,
        "prune: a dry run removes nothing" => lifecycle::prune_dry,
        "prune: kept runs stay, others go" => lifecycle::prune_rule,
        "stop: ends processes and keeps files" => lifecycle::stop_and_start,
        "destroy: nothing is left and the name is free" => lifecycle::destroy,
        "destroy: removes locked and deep trees" => lifecycle::destroy_locked,
        "destroy: a running command ends" => lifecycle::destroy_running,
        "isolation: two sandboxes share no files" => lifecycle::isolation,
        "exec: exit codes" => exec::codes,
        "exec: signals" => exec::signals,
        "exec: arguments arrive as given" => exec::arguments,
        "exec: environment" => exec::environment,
        "exec: working directory" => exec::directory,
        "exec: working directory cannot escape" => exec::directory_escape,
        "exec: a mebibyte of input" => exec::input,
        "exec: unread input" => exec::input_unread,
        "exec: without input, reads hit the end of file at once" => exec::input_none,
        "exec: 50 MB of output in small chunks" => exec::output_large,
        "exec: output arrives while the command runs" => exec::output_streams,
        "exec: stderr is separate" => exec::stderr_separate,
        "exec: output is passed on byte for byte" => exec::output_bytes,
        "exec: a missing program" => exec::missing_program,
        "exec: many at once" => exec::parallel,
        "exec: git works" => exec::git,
        "timeout: is reported in time, with the output so far" => processes::timeout,
        "timeout: ends grandchildren" => processes::timeout_tree,
        "timeout: ends processes that ignore signals" => processes::timeout_stubborn,
        "timeout: ends daemons" => processes::timeout_daemon,
        "timeout: spares other commands" => processes::timeout_spares_others,
        "cancel: a dropped command ends with its tree" => processes::cancel,
        "background: does not delay the end of the command" => processes::background,
        "files: write and read" => files::round_trip,
        "files: modes" => files::modes,
        "files: a file is replaced, not rewritten" => files::replaced_whole,
        "files: append" => files::append,
        "files: reading refuses all but plain files" => files::read_refusals,
        "files: writing refuses all but plain files" => files::write_refusals,
        "files: paths stay inside" => files::paths,
        "files: caps, also for sparse files" => files::caps,
        "files: a missing file has its own error" => files::missing,
        "files: list" => files::list,
        "files: mkdirs" => files::mkdirs,
        "files: copy in and out" => files::copies,
        "files: copy out refuses" => files::copy_out_refusals,
        "files: the exchange directory" => files::exchange,
        "layers: only these are visible, and they stay unchanged" => host_layers::layers,
        "end: nothing of the suite is left" => ConformanceFixture::clean_up,
    }
}

async fn run_case(name: &'static str, case: impl Future<Output = ConformanceResult>) -> CaseResult {
    let outcome = match tokio::time::timeout(CASE_TIMEOUT, case).await {
        Ok(verdict) => verdict.into(),
        Err(_) => ConformanceOutcome::Failed(format!("did not end within {CASE_TIMEOUT:?}")),
    };
    CaseResult { name, outcome }
}
