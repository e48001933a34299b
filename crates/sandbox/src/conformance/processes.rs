//! Cases about processes that must end, and those that must not.

use std::path::Path;
use std::time::Duration;

use super::bench::{Bench, HEART, LONG, Verdict, beats, claim, is_dead, needs, want};
use crate::{Capture, Exec, Sandbox, Status, capture};

/// Long enough for a shell to start on a busy machine, short enough to wait for.
const SHORT: Duration = Duration::from_secs(2);
/// What a backend may add to a timeout: its grace, and the time to find everybody.
const PATIENCE: Duration = Duration::from_secs(15);

async fn times_out(sandbox: &dyn Sandbox, folder: &str, line: &str) -> Verdict {
    sandbox.mkdirs(Path::new(folder)).await?;
    let output = capture(sandbox, &Exec::shell(line, SHORT).cwd(folder), 4096).await?;
    want("the status", output.exit.status, Status::TimedOut)?;
    claim("not before its time", output.exit.duration >= SHORT)?;
    claim("in time", output.exit.duration < SHORT + PATIENCE)
}

pub(super) async fn timeout(bench: &Bench<'_>) -> Verdict {
    let exec = Exec::shell("echo said; echo also >&2; sleep 60; echo never", SHORT);
    let output = capture(bench.shared(), &exec, 4096).await?;
    let got = (output.exit.status, output.stdout_text(), output.stderr_text());
    want("the end", got, (Status::TimedOut, "said\n".to_owned(), "also\n".to_owned()))?;
    claim("in time", output.exit.duration < SHORT + PATIENCE)
}

pub(super) async fn timeout_tree(bench: &Bench<'_>) -> Verdict {
    times_out(bench.shared(), "tree", &format!("sh -c '({HEART}) & sleep 60' & sleep 60")).await?;
    is_dead(bench.shared(), "tree").await
}

pub(super) async fn timeout_stubborn(bench: &Bench<'_>) -> Verdict {
    let line = format!("trap '' TERM INT HUP; ({HEART}) & {HEART}; sleep 60");
    times_out(bench.shared(), "stubborn", &line).await?;
    is_dead(bench.shared(), "stubborn").await
}

pub(super) async fn timeout_daemon(bench: &Bench<'_>) -> Verdict {
    needs(bench.shared(), "setsid").await?;
    let line = format!("setsid sh -c '{HEART}' < /dev/null > /dev/null 2>&1 & sleep 60");
    times_out(bench.shared(), "daemon", &line).await?;
    is_dead(bench.shared(), "daemon").await
}

pub(super) async fn timeout_spares_others(bench: &Bench<'_>) -> Verdict {
    let sandbox = bench.shared();
    sandbox.mkdirs(Path::new("others")).await?;
    let other = Exec::shell("while [ ! -e go ]; do sleep 0.05; done; echo done", LONG).cwd("others");
    let late = async {
        let timed_out = times_out(sandbox, "late", "sleep 60").await;
        sandbox.write(Path::new("others/go"), b"", None).await?;
        timed_out
    };
    let (output, timed_out) = tokio::join!(capture(sandbox, &other, 4096), late);
    timed_out?;
    let output = output?;
    want("the other", (output.exit.status, output.stdout_text()), (Status::Code(0), "done\n".to_owned()))
}

pub(super) async fn cancel(bench: &Bench<'_>) -> Verdict {
    let sandbox = bench.shared();
    sandbox.mkdirs(Path::new("cancel")).await?;
    let exec = Exec::shell(&format!("trap '' TERM; ({HEART}) & sleep 60"), LONG).cwd("cancel");
    let mut sink = Capture::new(0);
    tokio::select! {
        ended = sandbox.exec(&exec, &mut sink) => claim("it ended by itself", ended.is_err())?,
        started = beats(sandbox, "cancel") => started?,
    }
    is_dead(sandbox, "cancel").await
}

pub(super) async fn background(bench: &Bench<'_>) -> Verdict {
    // The one left behind holds both pipes; it must neither delay the end nor lose what was said before.
    let exec = Exec::shell("sleep 50 & echo said; echo also >&2; exit 4", LONG);
    let output = capture(bench.shared(), &exec, 4096).await?;
    let got = (output.exit.status, output.stdout_text(), output.stderr_text());
    want("the end", got, (Status::Code(4), "said\n".to_owned(), "also\n".to_owned()))?;
    claim("at once", output.exit.duration < LONG / 4)
}
