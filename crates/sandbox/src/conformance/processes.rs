//! Cases about which processes must end, and which must keep running.

use std::path::Path;
use std::time::Duration;

use super::fixture::{
    ConformanceFixture, ConformanceResult, HEARTBEAT_SCRIPT, LONG, expect_eq, expect_heartbeat_stopped, expect_true,
    require_program, wait_for_heartbeat,
};
use crate::{ExecRequest, ExecStatus, OutputCapture, Sandbox, capture};

/// Long enough for a shell to start on a busy machine, short enough to wait for.
const SHORT: Duration = Duration::from_secs(2);
/// What a backend may add to a timeout: its grace period, and the time to find all processes.
const TIMEOUT_SLACK: Duration = Duration::from_secs(15);

async fn expect_timeout(sandbox: &dyn Sandbox, folder: &str, line: &str) -> ConformanceResult {
    sandbox.mkdirs(Path::new(folder)).await?;
    let output = capture(sandbox, &ExecRequest::shell(line, SHORT).cwd(folder), 4096).await?;
    expect_eq("the status", output.exit.status, ExecStatus::TimedOut)?;
    expect_true("not before the timeout", output.exit.duration >= SHORT)?;
    expect_true("in time", output.exit.duration < SHORT + TIMEOUT_SLACK)
}

pub(super) async fn timeout(fixture: &ConformanceFixture<'_>) -> ConformanceResult {
    let exec = ExecRequest::shell("echo said; echo also >&2; sleep 60; echo never", SHORT);
    let output = capture(fixture.shared(), &exec, 4096).await?;
    let got = (output.exit.status, output.stdout_text(), output.stderr_text());
    expect_eq("the end", got, (ExecStatus::TimedOut, "said\n".to_owned(), "also\n".to_owned()))?;
    expect_true("in time", output.exit.duration < SHORT + TIMEOUT_SLACK)
}

pub(super) async fn timeout_tree(fixture: &ConformanceFixture<'_>) -> ConformanceResult {
    expect_timeout(fixture.shared(), "tree", &format!("sh -c '({HEARTBEAT_SCRIPT}) & sleep 60' & sleep 60")).await?;
    expect_heartbeat_stopped(fixture.shared(), "tree").await
}

pub(super) async fn timeout_stubborn(fixture: &ConformanceFixture<'_>) -> ConformanceResult {
    let line = format!("trap '' TERM INT HUP; ({HEARTBEAT_SCRIPT}) & {HEARTBEAT_SCRIPT}; sleep 60");
    expect_timeout(fixture.shared(), "stubborn", &line).await?;
    expect_heartbeat_stopped(fixture.shared(), "stubborn").await
}

pub(super) async fn timeout_daemon(fixture: &ConformanceFixture<'_>) -> ConformanceResult {
    require_program(fixture.shared(), "setsid").await?;
    let line = format!("setsid sh -c '{HEARTBEAT_SCRIPT}' < /dev/null > /dev/null 2>&1 & sleep 60");
    expect_timeout(fixture.shared(), "daemon", &line).await?;
    expect_heartbeat_stopped(fixture.shared(), "daemon").await
}

pub(super) async fn timeout_spares_others(fixture: &ConformanceFixture<'_>) -> ConformanceResult {
    let sandbox = fixture.shared();
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

pub(super) async fn cancel(fixture: &ConformanceFixture<'_>) -> ConformanceResult {
    let sandbox = fixture.shared();
    sandbox.mkdirs(Path::new("cancel")).await?;
    let exec = ExecRequest::shell(&format!("trap '' TERM; ({HEARTBEAT_SCRIPT}) & sleep 60"), LONG).cwd("cancel");
    let mut sink = OutputCapture::new(0);
    tokio::select! {
        ended = sandbox.exec(&exec, &mut sink) => expect_true("it ended by itself", ended.is_err())?,
        started = wait_for_heartbeat(sandbox, "cancel") => started?,
    }
    expect_heartbeat_stopped(sandbox, "cancel").await
}

pub(super) async fn background(fixture: &ConformanceFixture<'_>) -> ConformanceResult {
    // The background process holds both pipes; it must neither delay the end nor lose the output written before.
    let exec = ExecRequest::shell("sleep 50 & echo said; echo also >&2; exit 4", LONG);
    let output = capture(fixture.shared(), &exec, 4096).await?;
    let got = (output.exit.status, output.stdout_text(), output.stderr_text());
    expect_eq("the end", got, (ExecStatus::Code(4), "said\n".to_owned(), "also\n".to_owned()))?;
    expect_true("at once", output.exit.duration < LONG / 4)
}
