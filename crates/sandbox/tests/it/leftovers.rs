//! Tests that nothing is left on the host when sandboxes end, however they end.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use ralph_sandbox::embedded::EmbeddedBackend;
use ralph_sandbox::{Backend, Error, ExecRequest, ExecStatus, OutputCapture, PruneRule, Sandbox, capture};

use crate::embedded::{options, spec};
use crate::eventually;

const BUSY_VARIABLE: &str = "RALPH_TEST_CAGES";
const OWNER_VARIABLE: &str = "RALPH_TEST_ONE_CAGE";
const SURVIVOR_VARIABLE: &str = "RALPH_TEST_SURVIVOR";
const LONG: Duration = Duration::from_mins(1);

fn spawn_test(test: &str, name: &str, value: &Path) -> Child {
    Command::new(std::env::current_exe().unwrap())
        .args(["--exact", test, "--nocapture"])
        .env(name, value)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap()
}

async fn sh(sandbox: &dyn Sandbox, line: &str) -> String {
    let output = capture(sandbox, &ExecRequest::shell(line, LONG), 1 << 20).await.unwrap();
    format!("{}{}", output.stdout_text(), output.stderr_text())
}

/// Does nothing in a normal test run; started by the tests below, it creates and destroys sandboxes until it is killed.
#[tokio::test]
async fn be_busy() {
    let Some(folder) = std::env::var_os(BUSY_VARIABLE) else { return };
    let backend = EmbeddedBackend::new(options(Path::new(&folder)));
    for n in 0.. {
        let name = format!("busy-{}-{n}", std::process::id());
        let sandbox = backend.create(&spec(&name)).await.unwrap();
        sh(&*sandbox, "sleep 600 > /dev/null 2>&1 & mkdir a; echo x > a/b; chmod 000 a").await;
        let snapshot = sandbox.snapshot().await.unwrap();
        let fork = backend.fork(&snapshot, &spec(&format!("{name}-fork"))).await.unwrap();
        sh(&*fork, "chmod 700 a; rm -rf a; setsid sleep 600 > /dev/null 2>&1 & echo").await;
        fork.destroy().await.unwrap();
        sandbox.destroy().await.unwrap();
    }
}

/// Returns the processes that have a part of a folder mounted.
fn processes_mounting(folder: &Path) -> Vec<i32> {
    let name = folder.file_name().unwrap().to_str().unwrap().to_owned();
    let numbers = fs::read_dir("/proc").unwrap().filter_map(|e| e.unwrap().file_name().to_str()?.parse::<i32>().ok());
    numbers
        .filter(|pid| fs::read_to_string(format!("/proc/{pid}/mountinfo")).is_ok_and(|table| table.contains(&name)))
        .collect()
}

/// Returns the control groups created by one of these processes.
fn cgroups_made_by(makers: &BTreeSet<u32>) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut open = vec![(PathBuf::from("/sys/fs/cgroup"), 0)];
    while let Some((dir, depth)) = open.pop() {
        for entry in fs::read_dir(dir).into_iter().flatten().flatten().filter(|e| e.path().is_dir()) {
            let name = entry.file_name().into_string().unwrap_or_default();
            let maker = name.strip_prefix("ralph-").and_then(|rest| rest.split('-').next()?.parse().ok());
            if maker.is_some_and(|maker| makers.contains(&maker)) {
                found.push(entry.path());
            } else if depth < 6 {
                open.push((entry.path(), depth + 1));
            }
        }
    }
    found
}

fn names(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let mut names: Vec<String> = entries.map(|entry| entry.file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

/// Checks that the folder is as clean as if nothing had ever been in it.
#[track_caller]
fn assert_clean(folder: &Path) {
    assert_eq!((names(&folder.join("boxes")), names(&folder.join("layers"))), (vec![".lock".to_owned()], vec![]));
    assert_eq!(processes_mounting(folder), Vec::<i32>::new());
}

#[tokio::test(flavor = "multi_thread")]
async fn owners_killed_at_any_moment_leave_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let mut makers = BTreeSet::new();
    // Kills at many different moments, spread over all that an owner does.
    for round in 0..50_u64 {
        let mut owners: Vec<Child> =
            (0..4).map(|_| spawn_test("leftovers::be_busy", BUSY_VARIABLE, dir.path())).collect();
        for (n, owner) in owners.iter_mut().enumerate() {
            std::thread::sleep(Duration::from_millis((round * 7 + n as u64 * 13) % 90));
            makers.insert(owner.id());
            owner.kill().unwrap();
        }
        for owner in &mut owners {
            owner.wait().unwrap();
        }
    }
    eventually("all cages are gone with their owners", || processes_mounting(dir.path()).is_empty());
    let backend = EmbeddedBackend::new(options(dir.path()));
    assert!(!names(&dir.path().join("boxes")).is_empty(), "nothing was ever made");
    let pruned = backend.prune(&PruneRule::All, false).await.unwrap();
    assert!(pruned.iter().all(|one| one.removed), "{pruned:?}");
    let sandbox = backend.create(&spec("next")).await.unwrap();
    assert_eq!(sh(&*sandbox, "echo next").await, "next\n");
    sandbox.destroy().await.unwrap();
    assert_clean(dir.path());
    assert_eq!(cgroups_made_by(&makers), Vec::<PathBuf>::new());
}

/// Does nothing in a normal test run; started by the test below, it checks that its descriptors and processes do not
/// grow in number.
#[tokio::test]
async fn be_a_survivor() {
    let Some(folder) = std::env::var_os(SURVIVOR_VARIABLE) else { return };
    let folder = PathBuf::from(folder);
    let backend = EmbeddedBackend::new(options(&folder));
    let count = || (names(Path::new("/proc/self/fd")).len(), names(Path::new("/proc/self/task")).len());
    let mut counts = Vec::new();
    for n in 0..30 {
        let sandbox = backend.create(&spec(&format!("s{n}"))).await.unwrap();
        sh(&*sandbox, "sleep 600 > /dev/null 2>&1 & echo").await;
        let exec = ExecRequest { terminal: Some((24, 80)), ..ExecRequest::shell("echo terminal", LONG) };
        capture(&*sandbox, &exec, 4096).await.unwrap();
        // Dropped while it runs.
        let never = ExecRequest::shell("sleep 600", LONG);
        let mut sink = OutputCapture::new(0);
        assert!(tokio::time::timeout(Duration::from_millis(20), sandbox.exec(&never, &mut sink)).await.is_err());
        sandbox.destroy().await.unwrap();
        counts.push(count().0);
    }
    let (early, late) = (counts[5..10].iter().min().unwrap(), counts[25..].iter().min().unwrap());
    assert!(late <= early, "{counts:?}");
    let own = BTreeSet::from([std::process::id()]);
    eventually("the control groups are gone", || cgroups_made_by(&own).is_empty());
    let stat = |pid: &str| fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let parent = std::process::id().to_string();
    let children = names(Path::new("/proc"))
        .into_iter()
        .filter(|pid| stat(pid).rsplit(") ").next().and_then(|rest| rest.split(' ').nth(1)) == Some(&parent));
    // Only the spare launcher.
    assert!(children.count() <= 1);
    assert_clean(&folder);
}

#[test]
fn long_lived_owners_leak_no_descriptors_or_processes() {
    let dir = tempfile::tempdir().unwrap();
    let out = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "leftovers::be_a_survivor", "--nocapture"])
        .env(SURVIVOR_VARIABLE, dir.path())
        .output()
        .unwrap();
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
}

#[tokio::test]
async fn locked_and_deep_trees_are_removed() {
    let dir = tempfile::tempdir().unwrap();
    let backend = EmbeddedBackend::new(options(dir.path()));
    let sandbox = backend.create(&spec("stay")).await.unwrap();
    let line = "mkdir -p locked/inner; echo x > locked/inner/f; chmod 000 locked/inner locked; \
        (for i in $(seq 300); do mkdir deep; cd -P deep; done); mkfifo pipe; ln -s / out; \
        printf x > \"$(printf 'new\\nline')\"; mkdir ~/ro; touch ~/ro/f; chmod 500 ~/ro; chmod 000 .";
    sh(&*sandbox, line).await;
    sandbox.snapshot().await.unwrap();
    let output =
        sh(&*sandbox, "chmod 755 . locked locked/inner; rm -rf locked pipe; mkdir locked; chmod 000 locked; chmod 0 .")
            .await;
    assert_eq!(output, "");
    sandbox.destroy().await.unwrap();
    backend.prune(&PruneRule::All, false).await.unwrap();
    assert_clean(dir.path());
}

#[tokio::test]
async fn concurrent_creation_of_one_name_succeeds_once() {
    let dir = tempfile::tempdir().unwrap();
    let backends: Vec<_> = (0..2).map(|_| Arc::new(EmbeddedBackend::new(options(dir.path())))).collect();
    let mut tasks = tokio::task::JoinSet::new();
    for n in 0..16 {
        let backend = backends[n % 2].clone();
        tasks.spawn(async move { backend.create(&spec("same")).await.map(drop) });
    }
    let results = tasks.join_all().await;
    let made = results.iter().filter(|result| result.is_ok()).count();
    let refused = results.iter().filter(|result| matches!(result, Err(Error::Exists { .. }))).count();
    assert_eq!((made, refused), (1, 15), "{results:?}");
    assert_eq!(names(&dir.path().join("boxes")), [".lock", "same"]);
}

#[tokio::test]
async fn two_owners_share_files_and_either_can_destroy() {
    let dir = tempfile::tempdir().unwrap();
    let [first, second] = [(); 2].map(|()| EmbeddedBackend::new(options(dir.path())));
    let ours = first.create(&spec("both")).await.unwrap();
    let theirs = second.open("both").await.unwrap();
    // A plain folder can have two cages; they see each other's files, not each other's processes.
    assert_eq!(sh(&*ours, "echo ours > file; sleep 60 > /dev/null 2>&1 & echo").await, "\n");
    assert_eq!(sh(&*theirs, "cat file; pgrep sleep").await, "ours\n");
    // The other owner destroys it while a command runs.
    let exec = ExecRequest::shell("touch running; sleep 60", LONG);
    let mut sink = OutputCapture::new(0);
    let end = async {
        while theirs.read(Path::new("running"), 10).await.is_err() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        theirs.destroy().await.unwrap();
    };
    let (exit, ()) = tokio::join!(ours.exec(&exec, &mut sink), end);
    assert_eq!(exit.unwrap().status, ExecStatus::Signal(9));
    let gone = ours.exec(&ExecRequest::shell("true", LONG), &mut sink).await;
    assert!(matches!(gone, Err(Error::Gone { .. })), "{gone:?}");
    assert_clean(dir.path());
}

#[tokio::test]
async fn stop_and_snapshot_end_running_commands() {
    let dir = tempfile::tempdir().unwrap();
    let backend = EmbeddedBackend::new(options(dir.path()));
    let sandbox = backend.create(&spec("ending")).await.unwrap();
    sandbox.snapshot().await.unwrap();
    // A layered sandbox can have one cage only: an ended cage must have released the sandbox.
    for n in 0..5 {
        let exec = ExecRequest::shell("touch running; sleep 60", LONG);
        let (mut one, mut two) = (OutputCapture::new(0), OutputCapture::new(0));
        let end = async {
            while sandbox.read(Path::new("running"), 10).await.is_err() {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
            if n % 2 == 0 {
                sandbox.stop().await.unwrap();
            } else {
                sandbox.snapshot().await.map(drop).unwrap();
            }
            assert_eq!(sh(&*sandbox, "rm running; echo again").await, "again\n");
        };
        let (first, second, ()) = tokio::join!(sandbox.exec(&exec, &mut one), sandbox.exec(&exec, &mut two), end);
        assert_eq!(first.unwrap().status, ExecStatus::Signal(9));
        // It may have started late and run in the next cage; then only its timeout ends it, which is long.
        drop(second);
    }
    sandbox.destroy().await.unwrap();
    backend.prune(&PruneRule::All, false).await.unwrap();
    assert_clean(dir.path());
}

/// Does nothing in a normal test run; started by the test below, it owns one sandbox with a running command.
#[tokio::test]
async fn be_an_owner() {
    let Some(folder) = std::env::var_os(OWNER_VARIABLE) else { return };
    let backend = EmbeddedBackend::new(options(Path::new(&folder)));
    let sandbox = backend.create(&spec("owned")).await.unwrap();
    sandbox.snapshot().await.unwrap();
    sh(&*sandbox, "setsid sleep 600 > /dev/null 2>&1 & touch running; sleep 600").await;
}

#[tokio::test]
async fn sandboxes_of_dead_owners_can_be_used() {
    let dir = tempfile::tempdir().unwrap();
    let mut owner = spawn_test("leftovers::be_an_owner", OWNER_VARIABLE, dir.path());
    let running = dir.path().join("boxes/owned/workspace/running");
    eventually("the owner's command runs", || running.exists());
    let backend = EmbeddedBackend::new(options(dir.path()));
    let sandbox = backend.open("owned").await.unwrap();
    // A layered sandbox can have one cage only.
    let busy = sandbox.list(Path::new(".")).await;
    assert!(matches!(busy, Err(Error::Busy { .. })), "{busy:?}");
    owner.kill().unwrap();
    owner.wait().unwrap();
    eventually("the cage is gone", || processes_mounting(dir.path()).is_empty());
    assert_eq!(sh(&*sandbox, "ls; pgrep sleep").await, "running\n");
    let pid_files = names(&dir.path().join("boxes/owned")).into_iter().filter(|name| name.starts_with("cage-"));
    assert_eq!(pid_files.count(), 1, "the dead owner's file is still there");
    sandbox.destroy().await.unwrap();
    backend.prune(&PruneRule::All, false).await.unwrap();
    assert_clean(dir.path());
}

/// Interrupts a snapshot at each of its steps.
#[tokio::test]
async fn interrupted_snapshots_are_finished() {
    for step in 0..5 {
        let dir = tempfile::tempdir().unwrap();
        let backend = EmbeddedBackend::new(options(dir.path()));
        let sandbox = backend.create(&spec("half")).await.unwrap();
        sh(&*sandbox, "echo one > file; echo two > ~/file").await;
        sandbox.stop().await.unwrap();
        let (folder, layer) = (dir.path().join("boxes/half"), dir.path().join("layers/0123456789abcdef"));
        fs::write(folder.join("snapshot"), "0123456789abcdef").unwrap();
        if step > 0 {
            fs::create_dir_all(&layer).unwrap();
        }
        if step > 1 {
            fs::write(layer.join("chain.json"), "[]").unwrap();
            fs::rename(folder.join("workspace"), layer.join("workspace")).unwrap();
        }
        if step > 2 {
            // Created, but not yet owned by the agent.
            fs::create_dir(folder.join("workspace")).unwrap();
        }
        if step > 3 {
            fs::rename(folder.join("home"), layer.join("home")).unwrap();
        }
        let again = EmbeddedBackend::new(options(dir.path()));
        let sandbox = again.open("half").await.unwrap();
        assert_eq!(sh(&*sandbox, "cat file ~/file; echo three > new; ls").await, "one\ntwo\nfile\nnew\n", "{step}");
        assert!(!folder.join("snapshot").exists());
        let fork = again.fork("0123456789abcdef", &spec("fork")).await.unwrap();
        assert_eq!(sh(&*fork, "cat file ~/file; ls").await, "one\ntwo\nfile\n", "{step}");
        again.prune(&PruneRule::All, false).await.unwrap();
        assert_clean(dir.path());
    }
}
