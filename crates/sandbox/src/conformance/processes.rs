//! Cases about processes that must end, and those that must not.

use std::path::Path;
use std::time::Duration;

use super::fixture::{
    ConformanceFixture, ConformanceResult, HEARTBEAT_SCRIPT, LONG, expect_eq, expect_heartbeat_stopped, expect_true,
    require_program, wait_for_heartbeat,
};
use crate::{ExecRequest, ExecStatus, OutputCapture, Sandbox, capture};

/// Long enough for a shell to start on a busy machine, short enough to wait for.
const SHORT: Duration = Duration::from_secs(2);
/// What a backend may add to a timeout: its grace, and the time to find everybody.
const TIMEOUT_SLACK: Duration = Duration::from_secs(15);

async fn expect_timeout(sandbox: &dyn Sandbox, folder: &str, line: &str) -> ConformanceResult {
    sandbox.mkdirs(Path::new(folder)).await?;
    let output = capture(sandbox, &ExecRequest::shell(line, SHORT).cwd(folder), 4096).await?;
    expect_eq("the status", output.exit.status, ExecStatus::TimedOut)?;
    expect_true("not before its time", output.exit.duration >= SHORT)?;
    expect_true("in time", output.exit.duration < SHORT + TIMEOUT_SLACK)
}

pub(super) async fn timeout(bench: &ConformanceFixture<'_>) -> ConformanceResult {
    let exec = ExecRequest::shell("echo said; echo also >&2; sleep 60; echo never", SHORT);
    let output = capture(bench.shared(), &exec, 4096).await?;
    let got = (output.exit.status, output.stdout_text(), output.stderr_text());
    expect_eq("the end", got, (ExecStatus::TimedOut, "said\n".to_owned(), "also\n".to_owned()))?;
    expect_true("in time", output.exit.duration < SHORT + TIMEOUT_SLACK)
}

pub(super) async fn timeout_tree(bench: &ConformanceFixture<'_>) -> ConformanceResult {
    expect_timeout(bench.shared(), "tree", &format!("sh -c '({HEARTBEAT_SCRIPT}) & sleep 60' & sleep 60")).await?;
    expect_heartbeat_stopped(bench.shared(), "tree").await
}

pub(super) async fn timeout_stubborn(bench: &ConformanceFixture<'_>) -> ConformanceResult {
    let line = format!("trap '' TERM INT HUP; ({HEARTBEAT_SCRIPT}) & {HEARTBEAT_SCRIPT}; sleep 60");
    expect_timeout(bench.shared(), "stubborn", &line).await?;
    expect_heartbeat_stopped(bench.shared(), "stubborn").await
}

pub(super) async fn timeout_daemon(bench: &ConformanceFixture<'_>) -> ConformanceResult {
    require_program(bench.shared(), "setsid").await?;
    let line = format!("setsid sh -c '{HEARTBEAT_SCRIPT}' < /dev/null > /dev/null 2>&1 & sleep 60");
    expect_timeout(bench.shared(), "daemon", &line).await?;
    expect_heartbeat_stopped(bench.shared(), "daemon").await
}

pub(super) async fn timeout_spares_others(bench: &ConformanceFixture<'_>) -> ConformanceResult {
    let sandbox = bench.shared();
    sandbox.mkdirs(Path::new("others")).await?;
    let other = ExecRequest::shell("while [ ! -e go ]; do sleep 0.05; done; echo done", LONG).cwd("others");
    let late = async {
        let timed_out = expect_timeout(sandbox, "late", "sleep 60").await;
        sandbox.write(Path::new("others/go"), b"", None).await?;
        timed_out
    };
    let (output, timed_out) = tokio::join!(capture(sandbox, &other, 4096), late);
    timed_out?;
    let output = output?;
    expect_eq("the other", (output.exit.status, output.stdout_text()), (ExecStatus::Code(0), "done\n".to_owned()))
}

pub(super) async fn cancel(bench: &ConformanceFixture<'_>) -> ConformanceResult {
    let sandbox = bench.shared();
    sandbox.mkdirs(Path::new("cancel")).await?;
    let exec = ExecRequest::shell(&format!("trap '' TERM; ({HEARTBEAT_SCRIPT}) & sleep 60"), LONG).cwd("cancel");
    let mut sink = OutputCapture::new(0);
    tokio::select! {
        ended = sandbox.exec(&exec, &mut sink) => expect_true("it ended by itself", ended.is_err())?,
        started = wait_for_heartbeat(sandbox, "cancel") => started?,
    }
    expect_heartbeat_stopped(sandbox, "cancel").await
}

pub(super) async fn background(bench: &ConformanceFixture<'_>) -> ConformanceResult {
    // The one left behind holds both pipes; it must neither delay the end nor lose what was said before.
    let exec = ExecRequest::shell("sleep 50 & echo said; echo also >&2; exit 4", LONG);
    let output = capture(bench.shared(), &exec, 4096).await?;
    let got = (output.exit.status, output.stdout_text(), output.stderr_text());
    expect_eq("the end", got, (ExecStatus::Code(4), "said\n".to_owned(), "also\n".to_owned()))?;
    expect_true("at once", output.exit.duration < LONG / 4)
}
