//! Tests the `local` backend with the conformance suite, and what only this backend guarantees.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::time::Duration;

use ralph_sandbox::conformance::{self, ConformanceOutcome};
use ralph_sandbox::local::LocalBackend;
use ralph_sandbox::{
    Backend, Error, ExecRequest, ExecStatus, IsolationLevel, OutputCapture, PruneRule, SandboxSpec, capture,
};

use crate::eventually;

pub(crate) const LONG: Duration = Duration::from_mins(1);

pub(crate) fn spec(name: &str) -> SandboxSpec {
    SandboxSpec {
        name: name.to_owned(),
        labels: BTreeMap::new(),
        env: BTreeMap::new(),
        image: None,
        ..SandboxSpec::default()
    }
}

fn names_in(folder: &Path) -> Vec<String> {
    let mut names: Vec<_> =
        fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

#[tokio::test(flavor = "multi_thread")]
async fn conforms() {
    let folder = tempfile::tempdir().unwrap();
    let results = conformance::suite(&LocalBackend::new(folder.path().join("sandboxes"))).await;
    let missed: Vec<_> =
        results.iter().filter(|case| case.outcome != ConformanceOutcome::Passed).map(ToString::to_string).collect();
    assert_eq!(missed, Vec::<String>::new());
    assert!(results.len() >= 30, "only {} cases", results.len());
    assert_eq!(names_in(&folder.path().join("sandboxes")), [".lock"]);
}

#[tokio::test]
async fn reports_no_isolation() {
    let local = LocalBackend::new("/nowhere".into());
    assert_eq!(local.capabilities().isolation, IsolationLevel::None);
    assert_eq!(local.list().await.unwrap(), []);
    assert_eq!(local.prune(&PruneRule::All, false).await.unwrap(), []);
    assert!(matches!(local.open("a").await, Err(Error::Gone { .. })));
}

#[tokio::test]
async fn environment_holds_only_the_fixed_variables() {
    let folder = tempfile::tempdir().unwrap();
    let local = LocalBackend::new(folder.path().to_owned());
    let sandbox = local.create(&spec("env")).await.unwrap();
    let exec = ExecRequest::new(["env"], LONG).env("RALPH_SANDBOX_MARK", "forged").env("RALPH_SANDBOX", "forged");
    let output = capture(sandbox.as_ref(), &exec, 1 << 16).await.unwrap().stdout_text();
    let variables: BTreeMap<_, _> = output.lines().filter_map(|line| line.split_once('=')).collect();
    let names: Vec<_> = variables.keys().copied().collect();
    let want = [
        "GIT_CONFIG_GLOBAL",
        "GIT_CONFIG_NOSYSTEM",
        "GIT_TERMINAL_PROMPT",
        "HOME",
        "LANG",
        "LOGNAME",
        "PATH",
        "RALPH_SANDBOX",
        "RALPH_SANDBOX_MARK",
        "TERM",
        "TMPDIR",
        "USER",
    ];
    assert_eq!(names, want);
    assert_eq!(variables["RALPH_SANDBOX"], "env");
    assert_ne!(variables["RALPH_SANDBOX_MARK"], "forged");
    let home = fs::canonicalize(folder.path().join("env/home")).unwrap();
    assert_eq!(variables["HOME"], home.to_str().unwrap());
}

#[tokio::test]
async fn invalid_variable_names_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let mut spec = spec("odd");
    spec.env.insert("A=B".to_owned(), String::new());
    let refused = LocalBackend::new(folder.path().to_owned()).create(&spec).await.unwrap_err();
    assert_eq!(refused.to_string(), "refused `A=B`: an environment variable cannot have this name");
}

#[tokio::test]
async fn only_complete_sandboxes_are_listed_and_leftovers_are_removed() {
    let folder = tempfile::tempdir().unwrap();
    let dir = folder.path();
    let local = LocalBackend::new(dir.to_owned());
    local.create(&spec("whole")).await.unwrap();
    fs::create_dir_all(dir.join(".new-interrupted/workspace")).unwrap();
    fs::create_dir_all(dir.join(".gone-interrupted/workspace")).unwrap();
    fs::copy(dir.join("whole/meta.json"), dir.join(".new-interrupted/meta.json")).unwrap();
    fs::create_dir_all(dir.join("foreign/workspace")).unwrap();
    fs::write(dir.join("file"), "").unwrap();
    fs::create_dir(dir.join("newer")).unwrap();
    fs::write(dir.join("newer/meta.json"), r#"{"format": 99}"#).unwrap();

    let listed: Vec<_> = local.list().await.unwrap().into_iter().map(|one| one.id).collect();
    assert_eq!(listed, ["whole"]);
    assert!(matches!(local.open("foreign").await, Err(Error::Gone { .. })));
    assert!(matches!(local.open("file").await, Err(Error::Gone { .. })));
    assert!(matches!(local.open("newer").await, Err(Error::Format { found: 99, .. })));
    assert!(matches!(local.open(".new-interrupted").await, Err(Error::Name { .. })));
    assert!(matches!(local.create(&spec("foreign")).await, Err(Error::Refused { .. })));
    assert!(matches!(local.create(&spec("file")).await, Err(Error::Refused { .. })));
    assert!(matches!(local.create(&spec("newer")).await, Err(Error::Exists { .. })));

    let pruned: Vec<_> =
        local.prune(&PruneRule::All, true).await.unwrap().into_iter().map(|p| (p.id, p.removed)).collect();
    assert_eq!(pruned, [("whole".to_owned(), false)]);
    // The next backend removes the leftovers.
    let local = LocalBackend::new(dir.to_owned());
    local.create(&spec("next")).await.unwrap();
    assert_eq!(names_in(dir), [".lock", "file", "foreign", "newer", "next", "whole"]);
    local.prune(&PruneRule::All, false).await.unwrap();
    assert_eq!(names_in(dir), [".lock", "file", "foreign", "newer"]);
}

#[tokio::test]
async fn folders_of_a_running_creation_are_kept() {
    use rustix::fs::{FlockOperation, flock};
    let folder = tempfile::tempdir().unwrap();
    let local = LocalBackend::new(folder.path().to_owned());
    fs::create_dir(folder.path().join(".new-being-made")).unwrap();
    let lock = fs::File::create(folder.path().join(".lock")).unwrap();
    flock(&lock, FlockOperation::LockShared).unwrap();
    local.create(&spec("other")).await.unwrap();
    assert_eq!(names_in(folder.path()), [".lock", ".new-being-made", "other"]);
    drop(lock);
    let local = LocalBackend::new(folder.path().to_owned());
    local.create(&spec("another")).await.unwrap();
    assert_eq!(names_in(folder.path()), [".lock", "another", "other"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn concurrent_creation_of_one_name_succeeds_once() {
    let folder = tempfile::tempdir().unwrap();
    let (one, two) = (LocalBackend::new(folder.path().to_owned()), LocalBackend::new(folder.path().to_owned()));
    for n in 0..20 {
        let spec = spec(&format!("race-{n}"));
        let (a, b) = tokio::join!(one.create(&spec), two.create(&spec));
        let exists = [&a, &b].into_iter().filter(|made| matches!(made, Err(Error::Exists { .. }))).count();
        assert_eq!((a.is_ok() ^ b.is_ok(), exists), (true, 1), "{a:?} {b:?}");
    }
    assert_eq!(one.list().await.unwrap().len(), 20);
    assert!(names_in(folder.path()).iter().all(|name| name == ".lock" || name.starts_with("race-")));
}

#[tokio::test]
#[cfg(target_os = "linux")]
async fn destroy_and_drop_end_daemons() {
    let folder = tempfile::tempdir().unwrap();
    let local = LocalBackend::new(folder.path().to_owned());
    let daemon = "setsid sh -c 'echo $$ > pid.new; mv pid.new pid; exec sleep 600' < /dev/null > /dev/null 2>&1 &";
    for end in ["destroy", "drop"] {
        let sandbox = local.create(&spec(end)).await.unwrap();
        let exit = sandbox.exec(&ExecRequest::shell(daemon, LONG), &mut OutputCapture::new(0)).await.unwrap();
        assert_eq!(exit.status, ExecStatus::Code(0));
        let file = sandbox.workspace().join("pid");
        eventually("the daemon starts", || file.exists());
        let pid = fs::read_to_string(file).unwrap().trim().parse().unwrap();
        assert!(crate::is_alive(pid));
        if end == "destroy" {
            sandbox.destroy().await.unwrap();
            assert!(!crate::is_alive(pid));
        } else {
            drop((sandbox, local));
            eventually("the watchdog ends it", || !crate::is_alive(pid));
            break;
        }
    }
}

#[tokio::test]
#[cfg(target_os = "linux")]
async fn same_names_in_two_folders_are_independent() {
    let (one, two) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let (one, two) = (LocalBackend::new(one.path().to_owned()), LocalBackend::new(two.path().to_owned()));
    let (a, b) = (one.create(&spec("same")).await.unwrap(), two.create(&spec("same")).await.unwrap());
    let wait = ExecRequest::shell("touch ready; while [ ! -e go ]; do sleep 0.05; done", LONG);
    let destroy = async {
        let ready = a.workspace().join("ready");
        tokio::task::spawn_blocking(move || eventually("it runs", || ready.exists())).await.unwrap();
        b.destroy().await.unwrap();
        a.write(Path::new("go"), b"", None).await.unwrap();
    };
    let mut sink = OutputCapture::new(0);
    let (exit, ()) = tokio::join!(a.exec(&wait, &mut sink), destroy);
    assert_eq!(exit.unwrap().status, ExecStatus::Code(0));
}
