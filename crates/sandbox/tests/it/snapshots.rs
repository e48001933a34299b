//! Tests snapshots and forks: both sides have the same files, and changes on one side do not reach the other.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use ralph_sandbox::embedded::EmbeddedBackend;
use ralph_sandbox::{Backend, Error, ExecRequest, PruneRule, Sandbox, capture};

use crate::embedded::{options, spec};
use crate::skip::skip_or_fail;

async fn sh(sandbox: &dyn Sandbox, line: &str) -> String {
    let output = capture(sandbox, &ExecRequest::shell(line, Duration::from_mins(1)), 1 << 20).await.unwrap();
    format!("{}{}", output.stdout_text(), output.stderr_text())
}

async fn fork(backend: &EmbeddedBackend, snapshot: &str, name: &str) -> Arc<dyn Sandbox> {
    backend.fork(snapshot, &spec(name)).await.unwrap()
}

#[tokio::test]
async fn a_sandbox_and_its_forks_are_independent() {
    let dir = tempfile::tempdir().unwrap();
    let backend = EmbeddedBackend::new(options(dir.path()));
    let first = backend.create(&spec("first")).await.unwrap();
    sh(&*first, "echo 1 > kept; echo 1 > changed; echo 1 > deleted; mkdir -p d/e; echo 1 > d/e/f; echo h > ~/h").await;
    let snapshot = first.snapshot().await.unwrap();
    let second = fork(&backend, &snapshot, "second").await;
    assert_eq!(sh(&*first, "cat kept changed deleted d/e/f ~/h").await, "1\n1\n1\n1\nh\n");
    assert_eq!(sh(&*second, "cat kept changed deleted d/e/f ~/h").await, "1\n1\n1\n1\nh\n");
    sh(&*first, "echo 2 > changed; rm deleted; mv d g; echo first > only").await;
    sh(&*second, "echo 3 >> changed; rm -r d; mkdir d; echo second > only; rm ~/h").await;
    assert_eq!(
        sh(&*first, "cat changed only; find . | sort; cat ~/h").await,
        "2\nfirst\n.\n./changed\n./g\n./g/e\n./g/e/f\n./kept\n./only\nh\n"
    );
    assert_eq!(
        sh(&*second, "cat changed only; find . | sort; ls ~").await,
        "1\n3\nsecond\n.\n./changed\n./d\n./deleted\n./kept\n./only\n"
    );
    // A fork of a fork, and the original gone.
    let next = second.snapshot().await.unwrap();
    first.destroy().await.unwrap();
    backend.prune(&PruneRule::NotOfRuns(Vec::new()), false).await.unwrap();
    let third = fork(&backend, &next, "third").await;
    assert_eq!(sh(&*third, "cat kept changed only; ls d").await, "1\n1\n3\nsecond\n");
    second.destroy().await.unwrap();
    assert_eq!(sh(&*third, "cat kept changed").await, "1\n1\n3\n");
    // The first snapshot is unchanged.
    let fourth = fork(&backend, &snapshot, "fourth").await;
    assert_eq!(sh(&*fourth, "cat changed deleted d/e/f; ls").await, "1\n1\n1\nchanged\nd\ndeleted\nkept\n");
    assert_eq!(backend.snapshots().await.unwrap().len(), 2);
    backend.prune(&PruneRule::All, false).await.unwrap();
    assert_eq!(backend.snapshots().await.unwrap(), Vec::<String>::new());
    let gone = backend.fork(&snapshot, &spec("fifth")).await;
    assert!(matches!(gone, Err(Error::NoSnapshot { .. })), "{gone:?}");
    for name in ["..", "", "a/b"] {
        assert!(matches!(backend.fork(name, &spec("sixth")).await, Err(Error::NoSnapshot { .. })), "{name:?}");
    }
}

#[tokio::test]
async fn file_types_and_attributes_survive() {
    let dir = tempfile::tempdir().unwrap();
    let backend = EmbeddedBackend::new(options(dir.path()));
    let first = backend.create(&spec("first")).await.unwrap();
    let made = "echo x > run; chmod 751 run; ln run hard; ln -s run soft; ln -s /nowhere dead; mkdir -m 1700 sticky; \
        mkfifo -m 640 pipe; touch -d '2001-02-03 04:05:06' old; touch \"$(printf 'a\\nb')\"; truncate -s 10M hole; \
        mkdir full; touch full/1 full/2";
    sh(&*first, made).await;
    let look = "stat -c '%a %F %h %s %Y %b' run hard sticky pipe old hole full; readlink soft dead; ls -1q | wc -l; \
        test run -ef hard && echo same";
    let before = sh(&*first, look).await;
    let snapshot = first.snapshot().await.unwrap();
    let second = fork(&backend, &snapshot, "second").await;
    assert_eq!(sh(&*first, look).await, before);
    assert_eq!(sh(&*second, look).await, before);
    // A directory below is renamed and replaced; names that were deleted come back as something else.
    let changed = "mv full moved && ls moved; mkdir full; ls full; rm run; mkdir run; rm old; ln -s run old; cat hard; ls -d run old";
    let want = "1\n2\nx\nold\nrun\n";
    assert_eq!(sh(&*second, changed).await, want);
    let deeper = second.snapshot().await.unwrap();
    let third = fork(&backend, &deeper, "third").await;
    assert_eq!(sh(&*third, "ls moved; ls full; cat hard; ls -d run old").await, want);
    let xattr = "python3 -c \"import os; os.setxattr('hard', 'user.note', b'kept')\" && echo ok";
    if sh(&*third, xattr).await == "ok\n" {
        let name = third.snapshot().await.unwrap();
        let fourth = fork(&backend, &name, "fourth").await;
        let read = "python3 -c \"import os; print(os.getxattr('hard', 'user.note'))\"";
        assert_eq!(sh(&*fourth, read).await, "b'kept'\n");
    } else {
        skip_or_fail("attributes of files were not tried: this host has none, or no python3");
    }
}

#[tokio::test]
async fn layered_sandboxes_have_one_cage_and_a_limit_of_layers() {
    let dir = tempfile::tempdir().unwrap();
    let [one, two] = [(); 2].map(|()| EmbeddedBackend::new(options(dir.path())));
    let ours = one.create(&spec("box")).await.unwrap();
    ours.snapshot().await.unwrap();
    assert_eq!(sh(&*ours, "echo ours").await, "ours\n");
    let theirs = two.open("box").await.unwrap();
    let busy = theirs.read(Path::new("x"), 1).await;
    assert!(matches!(busy, Err(Error::Busy { .. })), "{busy:?}");
    ours.stop().await.unwrap();
    assert_eq!(sh(&*theirs, "echo theirs").await, "theirs\n");
    let mut taken = 1;
    let refused = loop {
        sh(&*theirs, &format!("echo {taken} > f{taken}")).await;
        match theirs.snapshot().await {
            Ok(_) => taken += 1,
            Err(error) => break error,
        }
        assert!(taken < 100);
    };
    assert!(matches!(refused, Error::Refused { .. }), "{refused}");
    // It stays usable.
    assert_eq!(sh(&*theirs, "ls f* | wc -l; cat f1 f20").await, format!("{taken}\n1\n20\n"));
    one.prune(&PruneRule::All, false).await.unwrap();
}

/// What git's index records of its files (inode numbers, times) must hold in a fork, or every first `status` reads all.
#[tokio::test]
async fn git_finds_nothing_changed() {
    if !Path::new("/usr/bin/git").exists() {
        return skip_or_fail("git was not tried on a snapshot: there is none on this host");
    }
    let dir = tempfile::tempdir().unwrap();
    let backend = EmbeddedBackend::new(options(dir.path()));
    let first = backend.create(&spec("first")).await.unwrap();
    let made = "git init -q . && mkdir d && for i in $(seq 50); do echo $i > d/$i; done && git add . && \
        git -c user.name=a -c user.email=a@example.com commit -qm one && sleep 1.1 && git status --short";
    assert_eq!(sh(&*first, made).await, "");
    let snapshot = first.snapshot().await.unwrap();
    let second = fork(&backend, &snapshot, "second").await;
    // The index stays the same, so nothing was compared by content.
    let look = "sha256sum .git/index > /tmp/before; git diff-files; git status --short; sha256sum .git/index | cmp - /tmp/before && echo same";
    assert_eq!(sh(&*second, look).await, "same\n");
    assert_eq!(sh(&*first, look).await, "same\n");
    let work = "echo x > d/1; git mv d/2 e; git -c user.name=a -c user.email=a@example.com commit -qam two && \
        git status --short; git log --format=%s; git fsck --strict 2>&1";
    assert_eq!(sh(&*second, work).await, "two\none\n");
    assert_eq!(sh(&*first, "git log --format=%s; git status --short").await, "one\n");
    backend.prune(&PruneRule::All, false).await.unwrap();
}
