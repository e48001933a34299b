//! Tests that checking the commits of a sandbox costs what is new in them, once, and can be aborted.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use ralph_core::control_request::Control;
use ralph_core::run::RunStatus;
use ralph_engine::control::send;
use ralph_engine::git::{GitProgram, ImportLimits, ImportOutcome, ImportRefusal, Sha};
use ralph_testkit::model_server::{FakeModelServer, ModelBehaviour};
use serde_json::json;
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;

use super::hostile_repository::import_fixture;
use super::run_fixture::{RunFixture, answer, profile};

/// Long enough for a busy machine, and far below the time that the import would take.
const HEARD_WITHIN: Duration = Duration::from_secs(5);

fn has(bytes: &[u8], text: &str) -> bool {
    String::from_utf8_lossy(bytes).contains(text)
}

#[tokio::test]
async fn a_new_file_is_read_once_for_all_commits() {
    let run = import_fixture().await;
    for n in 0..6 {
        run.agent.write("comes-and-goes", format!("another text, number {n}\n"));
        run.agent.write(&format!("copy-{n}"), "the same text\n");
        run.agent.commit("one");
        run.agent.write("comes-and-goes", "the same text\n");
        run.agent.commit("two");
    }
    let (same, others) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let count = |bytes: &[u8]| {
        same.fetch_add(usize::from(has(bytes, "the same text")), Ordering::Relaxed);
        others.fetch_add(usize::from(has(bytes, "another text")), Ordering::Relaxed);
        None
    };
    let imported = run.import_unless(&run.bundle(), ImportLimits::default(), &count, std::future::pending()).await;
    assert!(matches!(imported, Some(ImportOutcome::Kept { commits: 12, .. })), "{imported:?}");
    assert_eq!((same.into_inner(), others.into_inner()), (1, 6));
}

/// What has a secret-shaped line is read again, because the line may be older than the run; but not without end.
#[tokio::test]
async fn an_old_secret_is_compared_within_the_limit() {
    let mut run = import_fixture().await;
    run.agent.write("fixture", "an example: sk-live-1\n");
    let base = Sha::parse(&run.agent.commit("a fixture")).unwrap();
    let key = |bytes: &[u8]| has(bytes, "sk-live-").then(|| "a live key".to_owned());
    let free = |_: &[u8]| None;
    let fine = ImportLimits::default();
    assert!(run.import_unless(&run.bundle(), fine, &free, std::future::pending()).await.is_some());
    run.base = base;
    for n in 0..3 {
        run.agent.write("fixture", format!("an example: sk-live-1\nused {n} times\n"));
        run.agent.commit("more");
    }
    // The three new files have 105 bytes; comparing each with the one before takes 197.
    let tight = ImportLimits { unpacked_bytes: 110, ..fine };
    let refused = run.import_unless(&run.bundle(), tight, &key, std::future::pending()).await;
    assert!(matches!(refused, Some(ImportOutcome::Refused { why: ImportRefusal::Stopped, .. })), "{refused:?}");
    let kept = run.import_unless(&run.bundle(), fine, &key, std::future::pending()).await;
    assert!(matches!(kept, Some(ImportOutcome::Kept { commits: 3, .. })), "{kept:?}");
}

#[tokio::test]
async fn an_abort_is_heard_between_two_files() {
    const FILES: usize = 200;
    let run = import_fixture().await;
    for n in 0..FILES {
        run.agent.write(&format!("file-{n}"), format!("one of many: {n}\n"));
    }
    run.agent.commit("many");
    let (read, aborted) = (AtomicUsize::new(0), CancellationToken::new());
    let abort_at_first = |bytes: &[u8]| {
        if has(bytes, "one of many") {
            read.fetch_add(1, Ordering::Relaxed);
            aborted.cancel();
            // All of them would take much longer than the test waits.
            std::thread::sleep(Duration::from_millis(200));
        }
        None
    };
    let bundle = run.bundle();
    let import = run.import_unless(&bundle, ImportLimits::default(), &abort_at_first, aborted.cancelled());
    let imported = timeout(HEARD_WITHIN, import).await.expect("the abort is heard");
    assert_eq!((imported, read.into_inner()), (None, 1));
    assert_eq!(run.branch_at().await, Some(run.base.clone()));
    let left = fs::read_dir(run.bare.path().join("objects")).unwrap().flatten();
    let left: Vec<_> = left.filter(|entry| entry.file_name().to_string_lossy().starts_with("incoming-")).collect();
    assert!(left.is_empty(), "{left:?}");
    let again = run.import_unless(&bundle, ImportLimits::default(), &|_| None, std::future::pending()).await;
    assert!(matches!(again, Some(ImportOutcome::Kept { commits: 1, .. })), "{again:?}");
}

/// A `git` whose first check of a pack never ends.
async fn stuck_git(folder: &Path, entered: &Path) -> GitProgram {
    let path = std::env::var_os("PATH").unwrap();
    let real = GitProgram::find(&path).await.unwrap();
    let script = format!(
        "#!/bin/sh\nif [ \"$1\" = index-pack ] && [ ! -e '{entered}' ]; then : > '{entered}'; exec sleep 600; fi\n\
         exec '{real}' \"$@\"\n",
        entered = entered.display(),
        real = real.program().display(),
    );
    let program = folder.join("git");
    fs::write(&program, script).unwrap();
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
    let folders = [folder.to_owned()].into_iter().chain(std::env::split_paths(&path));
    GitProgram::find(&std::env::join_paths(folders).unwrap()).await.unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stop_is_heard_while_commits_are_checked() {
    let dir = tempfile::tempdir().unwrap();
    let entered = dir.path().join("entered");
    let work = json!({"type": "run", "command": "echo x > new.txt && git add new.txt && git commit -qm work"});
    let server = FakeModelServer::with_behaviours([ModelBehaviour::ok(answer("Work.", &[work]))]).await.unwrap();
    let default = profile("own", "openai/lab", Some(server.base_url()));
    let mut fixture = RunFixture::new().await;
    fixture.host.git = stuck_git(dir.path(), &entered).await;
    let (host, home) = (fixture.host.clone(), fixture.case.home());
    let stop = async {
        for _ in 0..3000 {
            if entered.exists() {
                break;
            }
            sleep(Duration::from_millis(20)).await;
        }
        let folder = home.run_folder(home.run_ids().unwrap().first().unwrap());
        let heard = timeout(HEARD_WITHIN, send(&host, &folder, &Control::Stop, "a test")).await;
        assert!(heard.expect("the stop is heard").unwrap().live);
    };
    let (state, ()) = tokio::join!(fixture.drive(&default, None), stop);
    assert!(matches!(state.status, RunStatus::Stopped { .. }), "{}", fixture.case.event_text());
    // The end of the run imports what the stop interrupted.
    assert_eq!(state.commits, 1, "{}", fixture.case.event_text());
}
