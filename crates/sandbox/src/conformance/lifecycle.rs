//! Cases about creating, finding, stopping and removing whole sandboxes.

use std::path::Path;
use std::time::Duration;

use super::fixture::{
    ConformanceFixture, ConformanceResult, HEARTBEAT_SCRIPT, LONG, READ_CAP, expect_eq, expect_error,
    expect_heartbeat_stopped, expect_true, is_gone, sh, wait_for_heartbeat,
};
use crate::{Error, ExecRequest, ExecStatus, OutputCapture, PruneResult, PruneRule, SandboxSummary};

pub(super) async fn create(fixture: &ConformanceFixture<'_>) -> ConformanceResult {
    let sandbox = fixture.fresh_sandbox("create").await?;
    let spec = fixture.spec("create");
    expect_eq("its id", sandbox.id(), spec.name.as_str())?;
    expect_eq("its files", sandbox.list(Path::new(".")).await?, Vec::new())?;
    let listed = fixture.backend.list().await?;
    let found = listed.into_iter().find(|one| one.id == spec.name).map(|one| SandboxSummary { bytes: None, ..one });
    let (id, fingerprint) = (spec.name.clone(), spec.fingerprint());
    expect_eq(
        "its place in the list",
        found,
        Some(SandboxSummary { id, labels: spec.labels, fingerprint, bytes: None }),
    )?;
    Ok(sandbox.destroy().await?)
}

pub(super) async fn create_twice(fixture: &ConformanceFixture<'_>) -> ConformanceResult {
    let sandbox = fixture.fresh_sandbox("twice").await?;
    sandbox.write(Path::new("file"), b"first", None).await?;
    let again = fixture.fresh_sandbox("twice").await;
    expect_error("the second", &again, |error| matches!(error, Error::Exists { .. }))?;
    expect_eq("the first's file", sandbox.read(Path::new("file"), READ_CAP).await?, b"first")?;
    Ok(sandbox.destroy().await?)
}

pub(super) async fn bad_names(fixture: &ConformanceFixture<'_>) -> ConformanceResult {
    for name in ["", ".", "..", ".hidden", "-flag", "a/b", "a b", "a\nb", "ü", &"x".repeat(64)] {
        let mut spec = fixture.spec("bad");
        name.clone_into(&mut spec.name);
        let is_name = |error: &Error| matches!(error, Error::Name { .. });
        expect_error(&format!("create {name:?}"), &fixture.backend.create(&spec).await, is_name)?;
        expect_error(&format!("open {name:?}"), &fixture.backend.open(name).await, |e| is_name(e) || is_gone(e))?;
    }
    Ok(())
}

pub(super) async fn open_missing(fixture: &ConformanceFixture<'_>) -> ConformanceResult {
    expect_error("open", &fixture.backend.open(&fixture.spec("never-made").name).await, is_gone)
}

pub(super) async fn open_again(fixture: &ConformanceFixture<'_>) -> ConformanceResult {
    let sandbox = fixture.fresh_sandbox("again").await?;
    sandbox.write(Path::new("file"), b"kept", None).await?;
    let opened = fixture.backend.open(sandbox.id()).await?;
    expect_eq("the id", opened.id(), sandbox.id())?;
    expect_eq("the workspace", opened.workspace(), sandbox.workspace())?;
    expect_eq("the file", opened.read(Path::new("file"), READ_CAP).await?, b"kept")?;
    expect_eq("the environment", sh(opened.as_ref(), "echo $FROM_SPEC").await?, "spec value\n")?;
    Ok(opened.destroy().await?)
}

pub(super) async fn open_keeps_running_commands(fixture: &ConformanceFixture<'_>) -> ConformanceResult {
    let sandbox = fixture.fresh_sandbox("living").await?;
    let line = "touch ready; while [ ! -e go ]; do sleep 0.05; done; echo done";
    let open = async {
        let until = std::time::Instant::now() + LONG / 2;
        while sandbox.read(Path::new("ready"), READ_CAP).await.is_err() && std::time::Instant::now() < until {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        let opened = fixture.backend.open(sandbox.id()).await;
        sandbox.write(Path::new("go"), b"", None).await?;
        opened
    };
    let (output, opened) = tokio::join!(sh(sandbox.as_ref(), line), open);
    opened?;
    expect_eq("the command", output?, "done\n")?;
    Ok(sandbox.destroy().await?)
}

pub(super) async fn prune_dry(fixture: &ConformanceFixture<'_>) -> ConformanceResult {
    let sandbox = fixture.fresh_sandbox("dry").await?;
    let pruned = fixture.backend.prune(&keep_all_but(fixture, "dry").await?, true).await?;
    let planned = pruned.iter().map(|one| (one.id.as_str(), one.removed, one.why.is_empty())).collect::<Vec<_>>();
    expect_eq("what would be removed", planned, vec![(sandbox.id(), false, false)])?;
    expect_eq("its files", sandbox.list(Path::new(".")).await?, Vec::new())?;
    fixture.backend.open(sandbox.id()).await?;
    Ok(sandbox.destroy().await?)
}

pub(super) async fn prune_rule(fixture: &ConformanceFixture<'_>) -> ConformanceResult {
    let (kept, going) = (fixture.fresh_sandbox("kept").await?, fixture.fresh_sandbox("going").await?);
    let mut unlabelled = fixture.spec("unlabelled");
    unlabelled.labels.clear();
    let unlabelled = fixture.backend.create(&unlabelled).await?;
    let rule = keep_all_but(fixture, "going").await?;
    let ids = |pruned: Vec<PruneResult>| pruned.into_iter().map(|one| (one.id, one.removed)).collect::<Vec<_>>();
    expect_eq("a dry run", ids(fixture.backend.prune(&rule, true).await?), vec![(going.id().to_owned(), false)])?;
    expect_eq("a real one", ids(fixture.backend.prune(&rule, false).await?), vec![(going.id().to_owned(), true)])?;
    expect_error("open the pruned", &fixture.backend.open(going.id()).await, is_gone)?;
    for one in [kept, unlabelled] {
        fixture.backend.open(one.id()).await?.destroy().await?;
    }
    Ok(())
}

/// Returns a rule that keeps every run except one of the suite's own. `PruneRule::All` is never used here, not even
/// as a dry run: a faulty backend would remove sandboxes of other runs.
async fn keep_all_but(fixture: &ConformanceFixture<'_>, name: &str) -> Result<PruneRule, Error> {
    let going = fixture.spec(name).labels.into_values().next();
    let runs = fixture.backend.list().await?.into_iter().flat_map(|one| one.labels.into_values());
    Ok(PruneRule::NotOfRuns(runs.filter(|run| Some(run) != going.as_ref()).collect()))
}

pub(super) async fn stop_and_start(fixture: &ConformanceFixture<'_>) -> ConformanceResult {
    let sandbox = fixture.fresh_sandbox("stop").await?;
    let sandbox = sandbox.as_ref();
    sh(sandbox, &format!("({HEARTBEAT_SCRIPT}) > /dev/null 2>&1 & echo kept > file")).await?;
    wait_for_heartbeat(sandbox, ".").await?;
    sandbox.stop().await?;
    sandbox.start().await?;
    expect_heartbeat_stopped(sandbox, ".").await?;
    expect_eq("the file", sandbox.read(Path::new("file"), READ_CAP).await?, b"kept\n")?;
    expect_eq("a command after", sh(sandbox, "echo back").await?, "back\n")?;
    Ok(sandbox.destroy().await?)
}

pub(super) async fn destroy(fixture: &ConformanceFixture<'_>) -> ConformanceResult {
    let (sandbox, host) = (fixture.fresh_sandbox("destroy").await?, fixture.host_folder()?);
    std::fs::write(host.join("victim"), "untouched")?;
    let line = format!("mkdir -p a/b; echo old > a/b/file; ln -s '{}' a/link", host.join("").display());
    sh(sandbox.as_ref(), &line).await?;
    sandbox.destroy().await?;
    expect_eq("what a link led to", std::fs::read_to_string(host.join("victim"))?, "untouched")?;
    let (id, file) = (sandbox.id(), Path::new("a/b/file"));
    expect_true("it is not listed", fixture.backend.list().await?.iter().all(|one| one.id != id))?;
    expect_error("open", &fixture.backend.open(id).await, is_gone)?;
    expect_error("read", &sandbox.read(file, READ_CAP).await, is_gone)?;
    expect_error("write", &sandbox.write(file, b"", None).await, is_gone)?;
    let exec = ExecRequest::new(["true"], LONG);
    expect_error("exec", &sandbox.exec(&exec, &mut OutputCapture::new(0)).await, is_gone)?;
    sandbox.destroy().await?;
    let next = fixture.fresh_sandbox("destroy").await?;
    expect_eq("the next one's files", next.list(Path::new(".")).await?, Vec::new())?;
    expect_error("read through the old one", &sandbox.read(file, READ_CAP).await, is_gone)?;
    sandbox.destroy().await?;
    expect_eq("a command in the next one", sh(next.as_ref(), "echo new").await?, "new\n")?;
    Ok(next.destroy().await?)
}

pub(super) async fn destroy_locked(fixture: &ConformanceFixture<'_>) -> ConformanceResult {
    let sandbox = fixture.fresh_sandbox("locked").await?;
    let deep = "d=0123456789012345678901234567890123456789; i=0; \
        while [ $i -lt 60 ]; do mkdir $d && cd $d || exit 1; i=$((i+1)); done";
    sh(sandbox.as_ref(), deep).await?;
    sh(sandbox.as_ref(), "mkdir -p a/b/c && echo x > a/b/c/file && chmod 000 a/b/c a/b a && chmod 500 .").await?;
    sandbox.destroy().await?;
    expect_true("it is not listed", fixture.backend.list().await?.iter().all(|one| one.id != sandbox.id()))?;
    expect_error("open", &fixture.backend.open(sandbox.id()).await, is_gone)
}

pub(super) async fn destroy_running(fixture: &ConformanceFixture<'_>) -> ConformanceResult {
    let sandbox = fixture.fresh_sandbox("running").await?;
    let exec = ExecRequest::shell("echo > beat; exec sleep 60", LONG);
    let mut sink = OutputCapture::new(0);
    let destroy = async {
        wait_for_heartbeat(sandbox.as_ref(), ".").await?;
        Ok::<_, super::fixture::ConformanceError>(sandbox.destroy().await?)
    };
    let (ended, destroyed) = tokio::join!(sandbox.exec(&exec, &mut sink), destroy);
    destroyed?;
    match ended {
        Ok(exit) => expect_true(
            "it was ended, in time",
            matches!(exit.status, ExecStatus::Signal(_)) && exit.duration < LONG / 2,
        ),
        // A backend that lost the whole machine cannot report how the command ended.
        Err(Error::Gone { .. }) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

pub(super) async fn isolation(fixture: &ConformanceFixture<'_>) -> ConformanceResult {
    let (one, two) = (fixture.fresh_sandbox("one").await?, fixture.fresh_sandbox("two").await?);
    one.write(Path::new("file"), b"one", None).await?;
    sh(one.as_ref(), "echo one > \"$HOME/mine\"; echo one > \"${TMPDIR:-/tmp}/ralph-apart\"").await?;
    expect_eq("the other's workspace", two.list(Path::new(".")).await?, Vec::new())?;
    let line = "cat \"$HOME/mine\" \"${TMPDIR:-/tmp}/ralph-apart\" 2> /dev/null || echo nothing";
    expect_eq("the other's home", sh(two.as_ref(), line).await?, "nothing\n")?;
    one.destroy().await?;
    expect_eq("the other after", sh(two.as_ref(), "echo alive").await?, "alive\n")?;
    Ok(two.destroy().await?)
}
