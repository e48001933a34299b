//! Tests publishing end to end on real repositories, and the clone inside a sandbox.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, LazyLock};

use ralph_core::event::CommitIdentity;
use ralph_core::identifiers::TaskBranch;
use ralph_engine::git::in_sandbox::{
    self, BundleOutcome, BundleRequest, CloneSeed, CloneSnapshot, CommitPaths, StateFiles,
};
use ralph_engine::git::user_repo::{BaseCommit, BaseSource, CheckoutStatus, TaskFileStatus};
use ralph_engine::git::{
    BareRepo, CommitStamp, CommitTrailer, DiffLimits, Error, GitAuth, GitProgram, GitRemote, ImportLimits,
    ImportOutcome, ImportRules, PushOutcome, RunName, Sha, SkippedDirtyFile, UserRepo,
};
use ralph_sandbox::local::LocalBackend;
use ralph_sandbox::{Backend as _, Sandbox, SandboxSpec};
use ralph_testkit::repo::TestRepo;

pub(crate) async fn tool() -> GitProgram {
    GitProgram::find(&std::env::var_os("PATH").unwrap()).await.unwrap()
}

pub(crate) fn branch() -> TaskBranch {
    TaskBranch::parse("ralph/t/work").unwrap()
}

pub(crate) fn sha(text: &str) -> Sha {
    Sha::parse(text).unwrap()
}

pub(crate) fn stamp() -> CommitStamp {
    CommitStamp {
        identity: CommitIdentity { name: "ralph".to_owned(), email: "ralph@localhost".to_owned() },
        at: jiff::Timestamp::from_second(1_700_000_000).unwrap(),
    }
}

struct GitFixture {
    folder: tempfile::TempDir,
    repo: TestRepo,
    user: UserRepo,
    bare: BareRepo,
    base: Sha,
}

async fn git_fixture() -> GitFixture {
    let tool = tool().await;
    let repo = TestRepo::with_commit();
    let user = UserRepo::find(&tool, &repo.path()).await.unwrap();
    let folder = tempfile::tempdir().unwrap();
    let bare = BareRepo::create(&tool, &folder.path().join("repo.git"), user.format()).await.unwrap();
    let base = user.base(None).await.unwrap().sha;
    bare.seed_from(&user, &base).await.unwrap();
    GitFixture { folder, repo, user, bare, base }
}

#[tokio::test]
async fn finds_the_repository_and_its_base() {
    let tool = tool().await;
    let repo = TestRepo::with_commit();
    let first = sha(&repo.head());
    let user = UserRepo::find(&tool, &repo.path().join("src")).await.unwrap();
    assert_eq!(user.top(), repo.path().canonicalize().unwrap());
    assert_eq!(user.remote().await.unwrap(), None);
    let base = user.base(None).await.unwrap();
    assert_eq!((base.branch.as_deref(), &base.sha, base.from), (Some("main"), &first, BaseSource::Current));
    assert!(matches!(user.base(Some("nope")).await, Err(Error::NoCommit { .. })));
    assert!(matches!(user.base(Some("--all")).await, Err(Error::NoCommit { .. })));
    assert!(matches!(UserRepo::find(&tool, &repo.home()).await, Err(Error::NotARepository { .. })));

    repo.git(["config", "remote.origin.url", "https://me:tok@host.invalid/o/r"]);
    repo.git(["update-ref", "refs/remotes/origin/trunk", first.as_str()]);
    repo.git(["symbolic-ref", "refs/remotes/origin/HEAD", "refs/remotes/origin/trunk"]);
    repo.write("more", "x");
    let second = sha(&repo.commit("local"));
    let user = UserRepo::find(&tool, &repo.path()).await.unwrap();
    // What is not pushed counts.
    let base = user.base(None).await.unwrap();
    assert_eq!((base.branch.as_deref(), &base.sha, base.from), (Some("main"), &second, BaseSource::Current));
    let told = async |base: &BaseCommit| {
        let different = user.remote_difference(base).await.unwrap();
        different.and_then(|different| different.describe(base.branch.as_deref().unwrap()))
    };
    let unpublished =
        "the base `main` is a branch that is not at the remote (no `origin/main`): push it before the pull request";
    assert_eq!(told(&base).await.as_deref(), Some(unpublished));
    repo.git(["update-ref", "refs/remotes/origin/main", first.as_str()]);
    let ahead = "the base `main` has 1 commit that `origin/main` has not: they become part of the pull request unless you push them";
    assert_eq!(told(&base).await.as_deref(), Some(ahead));
    repo.git(["update-ref", "refs/remotes/origin/main", second.as_str()]);
    assert_eq!(told(&base).await, None);
    let behind = BaseCommit { sha: first.clone(), ..base };
    let pull = "the base `main` lacks 1 commit of `origin/main`, as last fetched: `git pull` first to start from there";
    assert_eq!(told(&behind).await.as_deref(), Some(pull));
    repo.git(["update-ref", "refs/remotes/origin/main", first.as_str()]);
    let base = user.base(Some("main")).await.unwrap();
    assert_eq!((base.sha, base.from), (second, BaseSource::Local));
    let base = user.base(Some("trunk")).await.unwrap();
    assert_eq!((&base.sha, base.from), (&first, BaseSource::Remote));
    assert_eq!(told(&base).await, None);
    let remote = user.remote().await.unwrap().unwrap();
    assert_eq!((remote.name.as_str(), remote.display_url.as_str()), ("origin", "https://host.invalid/o/r"));
    let shown = format!("{remote:?} {:?}", GitRemote::parse(remote.url.expose()).unwrap());
    assert!(!shown.contains("tok"), "{shown}");
    let files: Vec<_> = user.odb().files_at(&first).await.unwrap().into_iter().map(|entry| entry.path).collect();
    assert_eq!(files, ["README.md", "src/lib.rs"]);
    assert_eq!(user.odb().file_at(&first, "README.md", 99).await.unwrap(), b"# Test\n");
    assert!(matches!(user.odb().file_at(&first, "none", 99).await, Err(Error::NoFile { .. })));
    assert!(matches!(user.odb().file_at(&first, "../x", 99).await, Err(Error::BadName { .. })));
    assert!(matches!(user.odb().file_at(&first, "README.md", 3).await, Err(Error::TooMuchOutput { .. })));
}

#[tokio::test]
async fn reports_uncommitted_changes() {
    let tool = tool().await;
    let repo = TestRepo::with_commit();
    repo.write(".gitignore", "*.log\n");
    repo.write("task.md", "- [ ] a\n");
    repo.commit("task");
    let user = UserRepo::find(&tool, &repo.path()).await.unwrap();
    let clean = CheckoutStatus { task: TaskFileStatus::Committed, dirty: vec![], untracked: 0, cut: false };
    assert_eq!(user.checkout("task.md").await.unwrap(), clean);
    repo.write("README.md", "changed");
    repo.write("task.md", "- [ ] b\n");
    repo.write("new/one", "1");
    repo.write("new/two", "2");
    repo.write("x.log", "ignored");
    std::fs::remove_file(repo.path().join("src/lib.rs")).unwrap();
    let dirty = vec!["README.md".to_owned(), "src/lib.rs".to_owned()];
    let want = CheckoutStatus { task: TaskFileStatus::Changed, dirty: dirty.clone(), untracked: 2, cut: false };
    assert_eq!(user.checkout("task.md").await.unwrap(), want);
    let mut with_task = dirty.clone();
    with_task.push("task.md".to_owned());
    for (task, state, untracked) in [
        ("new/one", TaskFileStatus::Untracked, 1),
        ("x.log", TaskFileStatus::Untracked, 2),
        ("gone.md", TaskFileStatus::Missing, 2),
    ] {
        let want = CheckoutStatus { task: state, dirty: with_task.clone(), untracked, cut: false };
        assert_eq!(user.checkout(task).await.unwrap(), want, "{task}");
    }
}

#[tokio::test]
async fn an_uncommitted_task_becomes_the_first_commit() {
    let host = git_fixture().await;
    let trailers = [CommitTrailer::new("Ralph-Run", "r1")];
    let at = stamp();
    let make = || host.bare.commit_task_file(&host.base, "docs/task.md", b"- [ ] a\r\n", &at, &trailers);
    let first = make().await.unwrap();
    assert_eq!(first, make().await.unwrap());
    assert_eq!(host.bare.odb().file_at(&first, "docs/task.md", 99).await.unwrap(), b"- [ ] a\r\n");
    assert_eq!(host.bare.odb().commit_count(&host.base, &first).await.unwrap(), 1);
    let again = host.bare.commit_task_file(&first, "docs/task.md", b"- [ ] a\r\n", &stamp(), &trailers).await.unwrap();
    assert_eq!(again, first);
    // A file replaces a folder.
    let over = host.bare.commit_task_file(&host.base, "src", b"x", &stamp(), &[]).await.unwrap();
    let paths: Vec<_> = host.bare.odb().files_at(&over).await.unwrap().into_iter().map(|entry| entry.path).collect();
    assert_eq!(paths, ["README.md", "src"]);
    let git_dir = host.bare.path().to_str().unwrap();
    let message = host.repo.git(["--git-dir", git_dir, "log", "-1", "--format=%an <%ae> %at%n%B", first.as_str()]);
    assert_eq!(message, "ralph <ralph@localhost> 1700000000\nralph: add docs/task.md\n\nRalph-Run: r1");
    // Seeding again, as after a crash, changes nothing.
    host.bare.seed_from(&host.user, &host.base).await.unwrap();
}

#[tokio::test]
async fn dirty_files_are_taken_without_filters() {
    let host = git_fixture().await;
    let repo = &host.repo;
    repo.write(".gitattributes", "*.bin filter=lfs\n*.txt text eol=crlf\n");
    for path in ["a.bin", "b.txt", "gone", "plain"] {
        repo.write(path, "old\n");
    }
    let parent = sha(&repo.commit("files"));
    host.bare.seed_from(&host.user, &parent).await.unwrap();
    repo.write("a.bin", "new\n");
    repo.write("b.txt", "new\r\n");
    repo.write_program("plain", "new\n");
    repo.write("staged", "new\n");
    repo.write("untracked", "new\n");
    repo.write("task.md", "new\n");
    repo.git(["add", "staged", "task.md"]);
    std::fs::remove_file(repo.path().join("gone")).unwrap();
    std::fs::remove_file(repo.path().join("README.md")).unwrap();
    std::os::unix::fs::symlink("src", repo.path().join("README.md")).unwrap();
    let user = UserRepo::find(&tool().await, &repo.path()).await.unwrap();
    let before = repo.git(["status", "--porcelain"]);
    let included = host.bare.include_dirty(&user, &parent, "task.md", &stamp(), &[]).await.unwrap();
    let mut taken = included.included.clone();
    taken.sort();
    assert_eq!(taken, ["README.md", "b.txt", "gone", "plain", "staged"]);
    let left = SkippedDirtyFile { path: "a.bin".to_owned(), why: "a filter program would have to read it" };
    assert_eq!(included.skipped, [left]);
    let files: BTreeMap<_, _> = host
        .bare
        .odb()
        .files_at(&included.sha)
        .await
        .unwrap()
        .into_iter()
        .map(|entry| (entry.path, entry.mode))
        .collect();
    let want = [
        (".gitattributes", 0o100_644),
        ("README.md", 0o120_000),
        ("a.bin", 0o100_644),
        ("b.txt", 0o100_644),
        ("plain", 0o100_755),
        ("src/lib.rs", 0o100_644),
        ("staged", 0o100_644),
    ];
    assert_eq!(files, want.map(|(path, mode)| (path.to_owned(), mode)).into());
    assert_eq!(host.bare.odb().file_at(&included.sha, "b.txt", 99).await.unwrap(), b"new\n");
    assert_eq!(host.bare.odb().file_at(&included.sha, "a.bin", 99).await.unwrap(), b"old\n");
    assert_eq!(repo.git(["status", "--porcelain"]), before);
}

#[tokio::test]
async fn pushes_only_forward_and_only_once() {
    let host = git_fixture().await;
    let first = host.bare.commit_task_file(&host.base, "a", b"1", &stamp(), &[]).await.unwrap();
    let second = host.bare.commit_task_file(&first, "a", b"2", &stamp(), &[]).await.unwrap();
    let other = host.bare.commit_task_file(&first, "a", b"3", &stamp(), &[]).await.unwrap();
    let path = host.folder.path().join("remote.git");
    BareRepo::create(&tool().await, &path, host.user.format()).await.unwrap();
    let remote = GitRemote::parse(path.to_str().unwrap()).unwrap();
    let push = |sha: Sha| {
        let (bare, remote) = (host.bare.clone(), remote.clone());
        async move { bare.push(&remote, &branch(), &sha, &GitAuth::None).await }
    };
    assert_eq!(push(first.clone()).await.unwrap(), PushOutcome::New);
    assert_eq!(push(first.clone()).await.unwrap(), PushOutcome::AlreadyThere);
    assert_eq!(push(second.clone()).await.unwrap(), PushOutcome::Forward);
    assert!(matches!(push(other.clone()).await, Err(Error::NotFastForward { .. })));
    let gone = GitRemote::parse("/nowhere/at/all").unwrap();
    let failed = host.bare.push(&gone, &branch(), &first, &GitAuth::None).await;
    assert!(matches!(failed, Err(Error::Failed { doing: "push", .. })), "{failed:?}");
    let refs = host.repo.git(["ls-remote", path.to_str().unwrap()]);
    assert_eq!(refs, format!("{second}\trefs/heads/ralph/t/work"));

    // The same into a repository without a remote.
    let before = host.repo.git(["for-each-ref"]);
    host.repo.write("README.md", "in the middle of something");
    let status = host.repo.git(["status", "--porcelain", "--branch"]);
    let publish = |sha: Sha| {
        let (bare, user) = (host.bare.clone(), host.user.clone());
        async move { bare.publish_into(&user, &branch(), &sha).await }
    };
    assert_eq!(publish(first.clone()).await.unwrap(), PushOutcome::New);
    assert_eq!(publish(first.clone()).await.unwrap(), PushOutcome::AlreadyThere);
    assert_eq!(publish(second.clone()).await.unwrap(), PushOutcome::Forward);
    assert!(matches!(publish(other.clone()).await, Err(Error::NotFastForward { .. })));
    assert_eq!(host.repo.git(["for-each-ref"]), format!("{before}\n{second} commit\trefs/heads/ralph/t/work"));
    assert_eq!(host.repo.git(["status", "--porcelain", "--branch"]), status);
    assert!(!host.repo.path().join(".git/FETCH_HEAD").exists());
    host.repo.git(["checkout", "-q", "-f", "ralph/t/work"]);
    let third = host.bare.commit_task_file(&second, "a", b"4", &stamp(), &[]).await.unwrap();
    assert!(matches!(publish(third).await, Err(Error::CheckedOut { .. })));
}

#[tokio::test]
async fn iteration_refs_notes_and_diffs() {
    let host = git_fixture().await;
    let run = RunName::parse("r-1").unwrap();
    let next = host.bare.commit_task_file(&host.base, "a", b"1\n2\n", &stamp(), &[]).await.unwrap();
    host.bare.set_iteration_ref(&run, 3, &next).await.unwrap();
    host.bare.set_iteration_ref(&run, 3, &next).await.unwrap();
    assert_eq!(host.bare.iteration_commit(&run, 3).await.unwrap(), Some(next.clone()));
    assert_eq!(host.bare.iteration_commit(&run, 4).await.unwrap(), None);
    assert_eq!(host.bare.odb().note_of(&next).await.unwrap(), None);
    host.bare.odb().set_note(&next, b"\n one \n\n", &stamp()).await.unwrap();
    host.bare.odb().set_note(&next, b"two\n\n", &stamp()).await.unwrap();
    assert_eq!(host.bare.odb().note_of(&next).await.unwrap(), Some(b"two\n\n".to_vec()));
    let odb = host.bare.odb();
    let patch = odb.diff(&host.base, &next, DiffLimits::default()).await.unwrap();
    let text = String::from_utf8(patch.bytes).unwrap();
    assert!(text.starts_with("diff --git a/a b/a\nnew file mode 100644\n") && text.ends_with("+1\n+2\n"), "{text}");
    let cut = odb.diff(&host.base, &next, DiffLimits { bytes: 4, context: 3 }).await.unwrap();
    assert_eq!((cut.bytes.as_slice(), cut.cut), (b"diff".as_slice(), true));
    let stat = odb.diffstat(&host.base, &next).await.unwrap();
    assert_eq!((stat.files.len(), stat.added, stat.removed), (1, 2, 0));
    let log = odb.log(&host.base, &next, 9).await.unwrap();
    let seen: Vec<_> = log.iter().map(|entry| (&entry.sha, entry.author.as_str(), entry.subject.as_str())).collect();
    assert_eq!(seen, [(&next, "ralph", "ralph: add a")]);
    let opened = BareRepo::open(&tool().await, host.bare.path()).await.unwrap();
    assert_eq!(opened, host.bare);
    assert!(BareRepo::open(&tool().await, host.folder.path()).await.is_err());
}

fn transfer<'a>(known: &'a Sha, host: &'a Path, cap: u64) -> BundleRequest<'a> {
    static BRANCH: LazyLock<TaskBranch> = LazyLock::new(branch);
    BundleRequest { branch: &BRANCH, known, host, cap }
}

async fn seeded_sandbox(host: &GitFixture, first: &Sha) -> Arc<dyn Sandbox> {
    host.bare.set_branch(&branch(), first).await.unwrap();
    let bundle = host.folder.path().join("in.bundle");
    host.bare.write_bundle(&bundle, &branch()).await.unwrap();
    let local = LocalBackend::new(host.folder.path().join("sandboxes"));
    let spec = SandboxSpec {
        name: "work".to_owned(),
        labels: BTreeMap::new(),
        env: BTreeMap::new(),
        image: None,
        ..SandboxSpec::default()
    };
    let sandbox = local.create(&spec).await.unwrap();
    let shallow = host.bare.shallow().unwrap();
    let identity = CommitIdentity { name: "Agent <x>".to_owned(), email: "agent@localhost".to_owned() };
    let seed = CloneSeed {
        bundle: &bundle,
        branch: &branch(),
        identity: &identity,
        shallow: shallow.as_deref(),
        state: StateFiles::Excluded,
    };
    assert_eq!(in_sandbox::seed(&*sandbox, seed).await.unwrap(), *first);
    // An interrupted seed can be repeated.
    assert_eq!(in_sandbox::seed(&*sandbox, seed).await.unwrap(), *first);
    sandbox
}

fn write_file(sandbox: &dyn Sandbox, path: &str, text: &str) {
    let path = sandbox.workspace().join(path);
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    std::fs::write(path, text).unwrap();
}

fn read_file(sandbox: &dyn Sandbox, path: &str) -> Option<String> {
    std::fs::read_to_string(sandbox.workspace().join(path)).ok()
}

#[tokio::test]
async fn commits_travel_in_and_out() {
    let host = git_fixture().await;
    let first = host.bare.commit_task_file(&host.base, "task.md", b"- [ ] a\n", &stamp(), &[]).await.unwrap();
    let sandbox = seeded_sandbox(&host, &first).await;
    assert_eq!(read_file(&*sandbox, "task.md").as_deref(), Some("- [ ] a\n"));
    let config = read_file(&*sandbox, ".git/config").unwrap();
    assert!(!config.contains("remote") && !config.contains(host.repo.path().to_str().unwrap()), "{config}");
    assert_eq!(in_sandbox::read_status(&*sandbox, first.as_str(), "").await.unwrap().head, first.as_str());
    let out = host.folder.path().join("out.bundle");
    assert_eq!(in_sandbox::bundle(&*sandbox, transfer(&first, &out, 1 << 20)).await.unwrap(), BundleOutcome::Nothing);

    write_file(&*sandbox, ".ralph/notes.md", "not committed");
    write_file(&*sandbox, "src/two.rs", "fn two() {}\n");
    write_file(&*sandbox, "other", "stays\n");
    write_file(&*sandbox, ".git/hooks/pre-commit", "#!/bin/sh\nexit 1\n");
    let trailers = [CommitTrailer::new("Ralph-Run", "r1"), CommitTrailer::new("Ralph-Iteration", "1")];
    let second = in_sandbox::commit(&*sandbox, "Add two", CommitPaths::Only(&["src/two.rs"]), &trailers, &stamp())
        .await
        .unwrap();
    let second = second.unwrap();
    assert_eq!(
        in_sandbox::commit(&*sandbox, "x", CommitPaths::Only(&["src/two.rs"]), &trailers, &stamp()).await.unwrap(),
        None
    );
    let third =
        in_sandbox::commit(&*sandbox, "Add other", CommitPaths::All, &trailers, &stamp()).await.unwrap().unwrap();
    assert_eq!(in_sandbox::commit(&*sandbox, "x", CommitPaths::All, &[], &stamp()).await.unwrap(), None);

    let BundleOutcome::File { bytes } = in_sandbox::bundle(&*sandbox, transfer(&first, &out, 1 << 20)).await.unwrap()
    else {
        panic!("there is work")
    };
    assert_eq!(bytes, std::fs::metadata(&out).unwrap().len());
    let (the_branch, none) = (branch(), globset::GlobSet::empty());
    let rules = ImportRules {
        branch: &the_branch,
        base: &first,
        iteration_ref: None,
        protected: &none,
        secrets: &|_| None,
        limits: ImportLimits::default(),
    };
    let import = host.bare.import(&out, rules).await.unwrap();
    assert_eq!(import, ImportOutcome::Kept { sha: third.clone(), commits: 2, findings: vec![] });
    let paths: Vec<_> = host.bare.odb().changed_paths(&first, &second).await.unwrap();
    assert_eq!(paths.into_iter().map(|change| change.path).collect::<Vec<_>>(), ["src/two.rs"]);
    let git_dir = host.bare.path().to_str().unwrap();
    let message = host.repo.git(["--git-dir", git_dir, "log", "-1", "--format=%an %ct%n%B", second.as_str()]);
    assert_eq!(message, "ralph 1700000000\nAdd two\n\nRalph-Run: r1\nRalph-Iteration: 1");
    write_file(&*sandbox, "last", "x");
    let last = host.folder.path().join("last.bundle");
    let head = in_sandbox::commit(&*sandbox, "Last", CommitPaths::All, &trailers, &stamp()).await.unwrap().unwrap();
    let bundled = in_sandbox::bundle(&*sandbox, transfer(&third, &last, 1 << 20)).await.unwrap();
    assert!(matches!(bundled, BundleOutcome::File { .. }));
    let import = host.bare.import(&last, rules).await.unwrap();
    assert_eq!(import, ImportOutcome::Kept { sha: head.clone(), commits: 3, findings: vec![] });
    let again = host.folder.path().join("again.bundle");
    assert_eq!(in_sandbox::bundle(&*sandbox, transfer(&head, &again, 1 << 20)).await.unwrap(), BundleOutcome::Nothing);
    let too_small = host.folder.path().join("small.bundle");
    let failed = in_sandbox::bundle(&*sandbox, transfer(&first, &too_small, 10)).await;
    assert!(matches!(failed, Err(Error::Sandbox { .. })), "{failed:?}");
}

#[tokio::test]
async fn status_reports_everything() {
    let host = git_fixture().await;
    let sandbox = seeded_sandbox(&host, &host.base).await;
    let base = host.base.as_str();
    let clean = in_sandbox::read_status(&*sandbox, base, "").await.unwrap();
    assert_eq!(
        (clean.changed_lines, clean.files.len(), clean.status.as_str(), clean.diffstat.as_str()),
        (0, 0, "", "")
    );
    write_file(&*sandbox, "README.md", "# Other\n");
    let second = in_sandbox::commit(&*sandbox, "m", CommitPaths::All, &[], &stamp()).await.unwrap().unwrap();
    write_file(&*sandbox, "new file", "1\n2\n3\n");
    write_file(&*sandbox, "binary", "\0\0");
    write_file(&*sandbox, ".ralph/x", "excluded");
    std::fs::remove_file(sandbox.workspace().join("src/lib.rs")).unwrap();
    let status = in_sandbox::read_status(&*sandbox, base, &clean.tree).await.unwrap();
    assert_eq!(status.head, second.as_str());
    assert_eq!(status.diffstat, "1\t1\tREADME.md\n-\t-\tbinary\n3\t0\tnew file\n0\t3\tsrc/lib.rs\n");
    assert_eq!(status.changed_lines, 2 + 1 + 3 + 3);
    assert_eq!(status.status, "A binary\nA new file\nD src/lib.rs\n");
    assert_eq!(status.files["src/lib.rs"], "");
    assert_eq!(status.files["new file"], host.repo.blob(b"1\n2\n3\n"));
    assert_eq!(in_sandbox::read_status(&*sandbox, base, &clean.tree).await.unwrap(), status);
    let since = in_sandbox::read_status(&*sandbox, base, &status.tree).await.unwrap();
    assert_eq!((since.changed_lines, since.files.len()), (0, 0));
    let failed = in_sandbox::read_status(&*sandbox, &"1".repeat(40), "").await;
    assert!(matches!(failed, Err(Error::SandboxScript { .. })), "{failed:?}");
}

#[tokio::test]
async fn restoring_a_snapshot_is_exact() {
    let host = git_fixture().await;
    let sandbox = seeded_sandbox(&host, &host.base).await;
    write_file(&*sandbox, ".gitignore", "*.log\n");
    write_file(&*sandbox, "staged", "1\n");
    in_sandbox::commit(&*sandbox, "ignore", CommitPaths::Only(&[".gitignore"]), &[], &stamp()).await.unwrap();
    write_file(&*sandbox, "untracked/file", "kept\n");
    write_file(&*sandbox, "README.md", "changed\n");
    write_file(&*sandbox, "a.log", "ignored\n");
    let git = |args: &[&str]| {
        let mut command = ralph_testkit::repo::hermetic_command("git", sandbox.workspace());
        let output = command.args(args).current_dir(sandbox.workspace()).output().unwrap();
        String::from_utf8(output.stdout).unwrap()
    };
    git(&["add", "staged"]);
    let status = git(&["status", "--porcelain", "--branch", "-uall"]);
    let clone_status = in_sandbox::read_status(&*sandbox, host.base.as_str(), "").await.unwrap();
    let branch = Some("refs/heads/ralph/t/work".to_owned());
    let taken = CloneSnapshot {
        head: sha(&clone_status.head),
        branch,
        index: sha(&clone_status.index),
        tree: sha(&clone_status.tree),
    };
    assert_eq!(git(&["status", "--porcelain", "--branch", "-uall"]), status);

    write_file(&*sandbox, ".gitignore", "*.log\nhidden\nuntracked\n");
    write_file(&*sandbox, "hidden", "was made behind an ignore rule\n");
    write_file(&*sandbox, "junk/deep/file", "x");
    write_file(&*sandbox, "untracked/file", "overwritten");
    write_file(&*sandbox, "a.log", "ignored, changed\n");
    std::fs::remove_file(sandbox.workspace().join("README.md")).unwrap();
    std::fs::remove_dir_all(sandbox.workspace().join("src")).unwrap();
    write_file(&*sandbox, "README.md/now/a/folder", "x");
    write_file(&*sandbox, "src", "now a file");
    git(&["checkout", "-q", "-b", "elsewhere"]);
    in_sandbox::commit(&*sandbox, "mess", CommitPaths::All, &[], &stamp()).await.unwrap().unwrap();
    git(&["branch", "-f", "ralph/t/work"]);
    write_file(&*sandbox, "more", "x");

    in_sandbox::restore(&*sandbox, &taken).await.unwrap();
    assert_eq!(in_sandbox::read_status(&*sandbox, host.base.as_str(), "").await.unwrap(), clone_status);
    assert_eq!(git(&["status", "--porcelain", "--branch", "-uall"]), status);
    let seen: Vec<_> =
        ["README.md", "src/lib.rs", "untracked/file", "staged", "hidden", "junk/deep/file", "more", "a.log"]
            .map(|path| read_file(&*sandbox, path))
            .into_iter()
            .collect();
    let text = |text: &str| Some(text.to_owned());
    let lib = text("pub fn one() -> u32 {\n    1\n}\n");
    let want = vec![text("changed\n"), lib, text("kept\n"), text("1\n"), None, None, None, text("ignored, changed\n")];
    assert_eq!(seen, want);
    assert!(!sandbox.workspace().join("junk").exists());
    in_sandbox::restore(&*sandbox, &taken).await.unwrap();
    assert_eq!(in_sandbox::read_status(&*sandbox, host.base.as_str(), "").await.unwrap(), clone_status);
}

#[tokio::test]
async fn single_paths_are_restored() {
    let host = git_fixture().await;
    let sandbox = seeded_sandbox(&host, &host.base).await;
    write_file(&*sandbox, "README.md", "changed\n");
    write_file(&*sandbox, "new", "x");
    in_sandbox::commit(&*sandbox, "m", CommitPaths::All, &[], &stamp()).await.unwrap();
    write_file(&*sandbox, "untracked", "x");
    write_file(&*sandbox, "kept", "x");
    std::fs::remove_dir_all(sandbox.workspace().join("src")).unwrap();
    let paths = ["README.md", "new", "untracked", "src/lib.rs", "never was"];
    in_sandbox::revert_paths(&*sandbox, &host.base, &paths).await.unwrap();
    let tree = host.bare.odb().tree_of(&host.base).await.unwrap();
    let status = in_sandbox::read_status(&*sandbox, host.base.as_str(), tree.as_str()).await.unwrap();
    assert_eq!(status.files.keys().collect::<Vec<_>>(), ["kept"]);
    for bad in ["../x", "/etc/x", ".git/config", ""] {
        assert!(matches!(in_sandbox::revert_paths(&*sandbox, &host.base, &[bad]).await, Err(Error::BadName { .. })));
    }
}

#[tokio::test]
async fn shallow_clones_work() {
    let origin = TestRepo::with_commit();
    origin.write("b", "b");
    origin.commit("second");
    let repo = TestRepo::new();
    let url = format!("file://{}", origin.path().display());
    repo.git(["fetch", "-q", "--depth=1", &url, "main"]);
    repo.git(["reset", "-q", "--hard", "FETCH_HEAD"]);
    let tool = tool().await;
    let user = UserRepo::find(&tool, &repo.path()).await.unwrap();
    let folder = tempfile::tempdir().unwrap();
    let bare = BareRepo::create(&tool, &folder.path().join("repo.git"), user.format()).await.unwrap();
    let base = user.base(None).await.unwrap().sha;
    bare.seed_from(&user, &base).await.unwrap();
    let host = GitFixture { folder, repo, user, bare, base: base.clone() };
    let sandbox = seeded_sandbox(&host, &base).await;
    write_file(&*sandbox, "c", "c");
    let tip = in_sandbox::commit(&*sandbox, "m", CommitPaths::All, &[], &stamp()).await.unwrap().unwrap();
    let out = host.folder.path().join("out.bundle");
    in_sandbox::bundle(&*sandbox, transfer(&base, &out, 1 << 20)).await.unwrap();
    let (the_branch, none) = (branch(), globset::GlobSet::empty());
    let rules = ImportRules {
        branch: &the_branch,
        base: &base,
        iteration_ref: None,
        protected: &none,
        secrets: &|_| None,
        limits: ImportLimits::default(),
    };
    let import = host.bare.import(&out, rules).await.unwrap();
    assert_eq!(import, ImportOutcome::Kept { sha: tip, commits: 1, findings: vec![] });
}
