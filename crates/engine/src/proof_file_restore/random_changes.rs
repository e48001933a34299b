//! Compares checks after random changes with an oracle: a check passes only if the tests of the start commit pass on the
//! product, whatever else was changed.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use ralph_core::redact::Redactor;
use ralph_sandbox::local::LocalBackend;
use ralph_sandbox::{Backend as _, SandboxSpec};
use ralph_testkit::repo::TestRepo;

use super::*;
use crate::check_execution::run_check;
use crate::git::{GitProgram, UserRepo};

const WORKERS: u64 = 8;
const CASES: u64 = 2_000;
const COMMAND: &str = "sh tests/all.sh";

/// Numbers that are the same in every run.
struct RandomNumbers(u64);

impl RandomNumbers {
    fn below(&mut self, most: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % most
    }
}

type ProjectTree = BTreeMap<String, String>;

/// A project with a test for each of its files; half of the files are wrong.
fn project() -> ProjectTree {
    let all = "[ -f tests/env.sh ] && . tests/env.sh\nfor test in tests/test_*.sh; do sh \"$test\" || exit 1; done\n";
    let mut files = ProjectTree::from([("tests/all.sh".to_owned(), all.to_owned())]);
    for n in 0..4 {
        files.insert(format!("tests/test_{n}.sh"), format!("[ \"$(cat src/{n}.txt)\" = {n} ]\n"));
        files.insert(format!("src/{n}.txt"), if n % 2 == 0 { format!("{n}\n") } else { "wrong\n".to_owned() });
    }
    files
}

/// Applies a few changes: to the product, to its tests, and to what the tests load.
fn change(mut tree: ProjectTree, random: &mut RandomNumbers) -> ProjectTree {
    for _ in 0..=random.below(6) {
        let n = random.below(4);
        let put = |tree: &mut ProjectTree, path: &str, text: &str| drop(tree.insert(path.to_owned(), text.to_owned()));
        match random.below(10) {
            0..=3 => put(&mut tree, &format!("src/{n}.txt"), &format!("{n}\n")),
            4 => put(&mut tree, &format!("src/{n}.txt"), "wrong\n"),
            5 => put(&mut tree, &format!("tests/test_{n}.sh"), "exit 0\n"),
            6 => drop(tree.remove(&format!("tests/test_{n}.sh"))),
            7 => put(&mut tree, "tests/env.sh", "exit 0\n"),
            8 => put(&mut tree, "tests/all.sh", "exit 0\n"),
            _ => put(&mut tree, "tests/test_new.sh", "exit 0\n"),
        }
    }
    tree
}

fn write_tree(folder: &Path, tree: &ProjectTree) {
    for part in ["src", "tests"] {
        // Missing before the first case.
        let _ = fs::remove_dir_all(folder.join(part));
        fs::create_dir_all(folder.join(part)).unwrap();
    }
    for (path, text) in tree {
        fs::write(folder.join(path), text).unwrap();
    }
}

fn changes_between(base: &ProjectTree, now: &ProjectTree) -> Vec<ChangedPath> {
    let kind = |path: &String| match (base.get(path), now.get(path)) {
        (None, Some(_)) => Some(PathChangeKind::Created),
        (Some(_), None) => Some(PathChangeKind::Removed),
        (old, new) => (old != new).then_some(PathChangeKind::Modified),
    };
    let paths: BTreeSet<&String> = base.keys().chain(now.keys()).collect();
    paths.into_iter().filter_map(|path| Some(ChangedPath { path: path.clone(), kind: kind(path)? })).collect()
}

/// Returns whether the tests of the start commit pass on the product, without any code of the program.
fn oracle(folder: &Path, base: &ProjectTree, now: &ProjectTree) -> bool {
    let is_product = |path: &str| path.starts_with("src/");
    let judges = base.iter().filter(|(path, _)| !is_product(path));
    let product = now.iter().filter(|(path, _)| is_product(path));
    let mixed: ProjectTree = judges.chain(product).map(|(path, text)| (path.clone(), text.clone())).collect();
    write_tree(folder, &mixed);
    Command::new("sh").args(["-c", COMMAND]).current_dir(folder).output().unwrap().status.success()
}

async fn held_files(folder: &Path, base: &ProjectTree) -> HeldFiles {
    let repo = TestRepo::new();
    for (path, text) in base {
        repo.write(path, text);
    }
    let start = Sha::parse(repo.commit("the project").trim()).unwrap();
    let git = GitProgram::find(OsStr::new("/usr/local/bin:/usr/bin:/bin")).await.unwrap();
    let user = UserRepo::find(&git, &repo.path()).await.unwrap();
    let bare = BareRepo::create(&git, &folder.join("bare.git"), user.format()).await.unwrap();
    bare.seed_from(&user, &start).await.unwrap();
    let rules = HeldFileRules {
        start,
        task_path: "ralph_task.md".to_owned(),
        protected: Vec::new(),
        may_change: Vec::new(),
        commands: vec![COMMAND.to_owned()],
        observed: ObservedFiles::default(),
        left_out: BTreeSet::new(),
    };
    HeldFiles::load(&bare, rules).await.unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_check_passes_only_if_the_base_tests_pass_on_the_product() {
    let dir = tempfile::tempdir().unwrap();
    let base = Arc::new(project());
    let held = Arc::new(held_files(dir.path(), &base).await);
    let mut workers = Vec::new();
    for worker in 0..WORKERS {
        let (base, held, folder) = (base.clone(), held.clone(), dir.path().join(worker.to_string()));
        workers.push(tokio::spawn(async move {
            let mut random = RandomNumbers(0x9e37_79b9_7f4a_7c15 ^ (worker + 1));
            let spec = SandboxSpec { name: format!("worker-{worker}"), ..SandboxSpec::default() };
            let sandbox = LocalBackend::new(folder.join("sandboxes")).create(&spec).await.unwrap();
            let workspace: PathBuf = sandbox.workspace().to_owned();
            let mut passed = 0_u64;
            for case in 0..CASES / WORKERS {
                let now = change((*base).clone(), &mut random);
                write_tree(&workspace, &now);
                let changes = held.classify(&changes_between(&base, &now));
                let redactor = Redactor::new([]);
                let ran =
                    run_check(&*sandbox, &held, &changes, COMMAND, Duration::from_mins(1), &redactor).await.unwrap();
                let want = oracle(&folder.join("oracle"), &base, &now);
                assert_eq!(ran.passed(), want, "worker {worker}, case {case}: {now:#?}\n{}", ran.text);
                passed += u64::from(want);
            }
            passed
        }));
    }
    let mut passed = 0;
    for worker in workers {
        passed += worker.await.unwrap();
    }
    assert!(passed > CASES / 20 && passed < CASES, "both results occur: {passed} of {CASES}");
}
