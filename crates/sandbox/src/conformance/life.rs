//! Cases about whole sandboxes: made, found, stopped and removed.

use std::path::Path;
use std::time::Duration;

use super::bench::{Bench, CAP, HEART, LONG, Verdict, beats, claim, gone, is_dead, refuses, sh, want};
use crate::{Capture, Error, Exec, Listed, Prune, Pruned, Status};

pub(super) async fn create(bench: &Bench<'_>) -> Verdict {
    let sandbox = bench.fresh("create").await?;
    let spec = bench.spec("create");
    want("its id", sandbox.id(), spec.name.as_str())?;
    want("its files", sandbox.list(Path::new(".")).await?, Vec::new())?;
    let listed = bench.backend.list().await?;
    let found = listed.into_iter().find(|one| one.id == spec.name).map(|one| Listed { bytes: None, ..one });
    let (id, fingerprint) = (spec.name.clone(), spec.fingerprint());
    want("its place in the list", found, Some(Listed { id, labels: spec.labels, fingerprint, bytes: None }))?;
    Ok(sandbox.destroy().await?)
}

pub(super) async fn create_twice(bench: &Bench<'_>) -> Verdict {
    let sandbox = bench.fresh("twice").await?;
    sandbox.write(Path::new("file"), b"first", None).await?;
    let again = bench.fresh("twice").await;
    refuses("the second", &again, |error| matches!(error, Error::Exists { .. }))?;
    want("the first's file", sandbox.read(Path::new("file"), CAP).await?, b"first")?;
    Ok(sandbox.destroy().await?)
}

pub(super) async fn bad_names(bench: &Bench<'_>) -> Verdict {
    for name in ["", ".", "..", ".hidden", "-flag", "a/b", "a b", "a\nb", "ü", &"x".repeat(64)] {
        let mut spec = bench.spec("bad");
        name.clone_into(&mut spec.name);
        let is_name = |error: &Error| matches!(error, Error::Name { .. });
        refuses(&format!("create {name:?}"), &bench.backend.create(&spec).await, is_name)?;
        refuses(&format!("open {name:?}"), &bench.backend.open(name).await, |e| is_name(e) || gone(e))?;
    }
    Ok(())
}

pub(super) async fn open_missing(bench: &Bench<'_>) -> Verdict {
    refuses("open", &bench.backend.open(&bench.spec("never-made").name).await, gone)
}

pub(super) async fn open_again(bench: &Bench<'_>) -> Verdict {
    let sandbox = bench.fresh("again").await?;
    sandbox.write(Path::new("file"), b"kept", None).await?;
    let opened = bench.backend.open(sandbox.id()).await?;
    want("the id", opened.id(), sandbox.id())?;
    want("the workspace", opened.workspace(), sandbox.workspace())?;
    want("the file", opened.read(Path::new("file"), CAP).await?, b"kept")?;
    want("the environment", sh(opened.as_ref(), "echo $FROM_SPEC").await?, "spec value\n")?;
    Ok(opened.destroy().await?)
}

pub(super) async fn open_spares_the_living(bench: &Bench<'_>) -> Verdict {
    let sandbox = bench.fresh("living").await?;
    let line = "touch ready; while [ ! -e go ]; do sleep 0.05; done; echo done";
    let open = async {
        let until = std::time::Instant::now() + LONG / 2;
        while sandbox.read(Path::new("ready"), CAP).await.is_err() && std::time::Instant::now() < until {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        let opened = bench.backend.open(sandbox.id()).await;
        sandbox.write(Path::new("go"), b"", None).await?;
        opened
    };
    let (output, opened) = tokio::join!(sh(sandbox.as_ref(), line), open);
    opened?;
    want("the command", output?, "done\n")?;
    Ok(sandbox.destroy().await?)
}

pub(super) async fn prune_dry(bench: &Bench<'_>) -> Verdict {
    let sandbox = bench.fresh("dry").await?;
    let pruned = bench.backend.prune(&all_but(bench, "dry").await?, true).await?;
    let told = pruned.iter().map(|one| (one.id.as_str(), one.removed, one.why.is_empty())).collect::<Vec<_>>();
    want("what would be removed", told, vec![(sandbox.id(), false, false)])?;
    want("its files", sandbox.list(Path::new(".")).await?, Vec::new())?;
    bench.backend.open(sandbox.id()).await?;
    Ok(sandbox.destroy().await?)
}

pub(super) async fn prune_rule(bench: &Bench<'_>) -> Verdict {
    let (kept, going) = (bench.fresh("kept").await?, bench.fresh("going").await?);
    let mut unlabelled = bench.spec("unlabelled");
    unlabelled.labels.clear();
    let unlabelled = bench.backend.create(&unlabelled).await?;
    let rule = all_but(bench, "going").await?;
    let ids = |pruned: Vec<Pruned>| pruned.into_iter().map(|one| (one.id, one.removed)).collect::<Vec<_>>();
    want("a dry run", ids(bench.backend.prune(&rule, true).await?), vec![(going.id().to_owned(), false)])?;
    want("a real one", ids(bench.backend.prune(&rule, false).await?), vec![(going.id().to_owned(), true)])?;
    refuses("open the pruned", &bench.backend.open(going.id()).await, gone)?;
    for one in [kept, unlabelled] {
        bench.backend.open(one.id()).await?.destroy().await?;
    }
    Ok(())
}

/// Returns the rule that keeps every run but one of the suite's own. `Prune::All` is never tried here, not even dry: a
/// backend that gets it wrong would take sandboxes of others with it.
async fn all_but(bench: &Bench<'_>, name: &str) -> Result<Prune, Error> {
    let going = bench.spec(name).labels.into_values().next();
    let runs = bench.backend.list().await?.into_iter().flat_map(|one| one.labels.into_values());
    Ok(Prune::NotOfRuns(runs.filter(|run| Some(run) != going.as_ref()).collect()))
}

pub(super) async fn stop_and_start(bench: &Bench<'_>) -> Verdict {
    let sandbox = bench.fresh("stop").await?;
    let sandbox = sandbox.as_ref();
    sh(sandbox, &format!("({HEART}) > /dev/null 2>&1 & echo kept > file")).await?;
    beats(sandbox, ".").await?;
    sandbox.stop().await?;
    sandbox.start().await?;
    is_dead(sandbox, ".").await?;
    want("the file", sandbox.read(Path::new("file"), CAP).await?, b"kept\n")?;
    want("a command after", sh(sandbox, "echo back").await?, "back\n")?;
    Ok(sandbox.destroy().await?)
}

pub(super) async fn destroy(bench: &Bench<'_>) -> Verdict {
    let (sandbox, host) = (bench.fresh("destroy").await?, bench.host_folder()?);
    std::fs::write(host.join("victim"), "untouched")?;
    let line = format!("mkdir -p a/b; echo old > a/b/file; ln -s '{}' a/link", host.join("").display());
    sh(sandbox.as_ref(), &line).await?;
    sandbox.destroy().await?;
    want("what a link led to", std::fs::read_to_string(host.join("victim"))?, "untouched")?;
    let (id, file) = (sandbox.id(), Path::new("a/b/file"));
    claim("it is not listed", bench.backend.list().await?.iter().all(|one| one.id != id))?;
    refuses("open", &bench.backend.open(id).await, gone)?;
    refuses("read", &sandbox.read(file, CAP).await, gone)?;
    refuses("write", &sandbox.write(file, b"", None).await, gone)?;
    let exec = Exec::new(["true"], LONG);
    refuses("exec", &sandbox.exec(&exec, &mut Capture::new(0)).await, gone)?;
    sandbox.destroy().await?;
    let next = bench.fresh("destroy").await?;
    want("the next one's files", next.list(Path::new(".")).await?, Vec::new())?;
    refuses("read through the old one", &sandbox.read(file, CAP).await, gone)?;
    sandbox.destroy().await?;
    want("a command in the next one", sh(next.as_ref(), "echo new").await?, "new\n")?;
    Ok(next.destroy().await?)
}

pub(super) async fn destroy_locked(bench: &Bench<'_>) -> Verdict {
    let sandbox = bench.fresh("locked").await?;
    let deep = "d=0123456789012345678901234567890123456789; i=0; \
        while [ $i -lt 60 ]; do mkdir $d && cd $d || exit 1; i=$((i+1)); done";
    sh(sandbox.as_ref(), deep).await?;
    sh(sandbox.as_ref(), "mkdir -p a/b/c && echo x > a/b/c/file && chmod 000 a/b/c a/b a && chmod 500 .").await?;
    sandbox.destroy().await?;
    claim("it is not listed", bench.backend.list().await?.iter().all(|one| one.id != sandbox.id()))?;
    refuses("open", &bench.backend.open(sandbox.id()).await, gone)
}

pub(super) async fn destroy_running(bench: &Bench<'_>) -> Verdict {
    let sandbox = bench.fresh("running").await?;
    let exec = Exec::shell("echo > beat; exec sleep 60", LONG);
    let mut sink = Capture::new(0);
    let destroy = async {
        beats(sandbox.as_ref(), ".").await?;
        Ok::<_, super::bench::Miss>(sandbox.destroy().await?)
    };
    let (ended, destroyed) = tokio::join!(sandbox.exec(&exec, &mut sink), destroy);
    destroyed?;
    match ended {
        Ok(exit) => {
            claim("it was ended, in time", matches!(exit.status, Status::Signal(_)) && exit.duration < LONG / 2)
        }
        // A backend that lost the whole machine cannot say how the command ended.
        Err(Error::Gone { .. }) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

pub(super) async fn apart(bench: &Bench<'_>) -> Verdict {
    let (one, two) = (bench.fresh("one").await?, bench.fresh("two").await?);
    one.write(Path::new("file"), b"one", None).await?;
    sh(one.as_ref(), "echo one > \"$HOME/mine\"; echo one > \"${TMPDIR:-/tmp}/ralph-apart\"").await?;
    want("the other's workspace", two.list(Path::new(".")).await?, Vec::new())?;
    let line = "cat \"$HOME/mine\" \"${TMPDIR:-/tmp}/ralph-apart\" 2> /dev/null || echo nothing";
    want("the other's home", sh(two.as_ref(), line).await?, "nothing\n")?;
    one.destroy().await?;
    want("the other after", sh(two.as_ref(), "echo alive").await?, "alive\n")?;
    Ok(two.destroy().await?)
}
