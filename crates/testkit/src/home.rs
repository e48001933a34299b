//! Creates a user's environment in a temporary folder: a home, a checkout with a task in it, and a scripted model.
//!
//! The test chooses which program to run in it.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::{Value, json};

use crate::repo::{TestRepo, hermetic_command};

/// The task of a new home: two boxes, each proved by a check of its own.
pub const TASK: &str = r#"---
task_id: count-001
test_command: "sh tests/all.sh"
max_iterations: 1
max_wall_time_minutes: 10
max_cost_usd_estimate: 1
protected_paths: ["tests/"]
---

# Make the files count

`one.txt` and `two.txt` shall hold what their checks ask for.

## Milestone M1: counting

- [ ] M1.1 `one.txt` holds 1
  - verify: `sh tests/one.sh`
- [ ] M1.2 `two.txt` holds 2
  - verify: `sh tests/two.sh`
"#;

/// A profile without a key and with a price, so that costs are counted.
const MODELS: &str = "profiles:\n  lab: {litellm_model: \"scripted/script.jsonl\", max_output_tokens: 2048, \
                      price: {input_per_mtok: 1, output_per_mtok: 2}}\n";

/// A home with a checkout beside it, all in one temporary folder.
#[derive(Debug)]
pub struct TestHome {
    pub repo: TestRepo,
}

impl Default for TestHome {
    fn default() -> Self {
        Self::new()
    }
}

impl TestHome {
    /// Creates a home whose checkout has [`TASK`] committed and whose default profile plays `script.jsonl`.
    pub fn new() -> Self {
        Self::with_task(TASK)
    }

    pub fn with_task(task: &str) -> Self {
        let home = Self { repo: TestRepo::new() };
        home.repo.write("README.md", "# Counting\n");
        home.repo.commit("an idea");
        home.repo.write("one.txt", "nothing\n");
        home.repo.write("two.txt", "nothing\n");
        for (name, number) in [("one", 1), ("two", 2)] {
            let check = format!(
                "#!/bin/sh\ntest \"$(cat {name}.txt)\" = {number} || {{ echo '{name}.txt does not hold {number}' >&2; exit 1; }}\n"
            );
            home.repo.write(&format!("tests/{name}.sh"), check);
        }
        home.repo.write("tests/all.sh", "#!/bin/sh\nsh tests/one.sh && sh tests/two.sh\n");
        home.repo.write("ralph_task.md", task);
        home.repo.commit("files that do not count");
        home.config("models.yaml", MODELS);
        home.config("config.toml", "[model]\ndefault = \"lab\"\n");
        fs::write(home.root().join("canary.txt"), "beside the checkout\n").expect("a file");
        fs::write(home.path().join("canary.txt"), "in the home\n").expect("a file");
        home
    }

    /// Returns the folder with the home, the checkout and anything that a test puts beside them.
    pub fn root(&self) -> PathBuf {
        self.repo.path().parent().expect("it is below the temporary folder").to_owned()
    }

    /// Returns the home folder itself.
    pub fn path(&self) -> PathBuf {
        self.repo.home()
    }

    /// Returns the folder in which runs and sandboxes are stored.
    pub fn state(&self) -> PathBuf {
        self.path().join(".local/state/ralph")
    }

    /// Writes a file of the user's configuration.
    pub fn config(&self, name: &str, text: &str) {
        let folder = self.path().join(".config/ralph");
        fs::create_dir_all(&folder).expect("a folder");
        fs::write(folder.join(name), text).expect("a file");
    }

    /// Writes the scripted model's replies, one per line.
    pub fn script(&self, replies: &[Value]) {
        let mut text = json!({"format": 1}).to_string();
        for reply in replies {
            text.push('\n');
            text.push_str(&reply.to_string());
        }
        self.config("script.jsonl", &text);
    }

    /// Returns a command in the checkout with no environment variable of this machine except `PATH`.
    pub fn command(&self, program: &str) -> Command {
        let mut command = hermetic_command(program, &self.path());
        command.current_dir(self.repo.path());
        command
    }

    /// Returns everything that a run must not change: all files but ralph's own, and all refs but its branches and
    /// notes.
    pub fn snapshot_outside(&self) -> BTreeMap<String, String> {
        let mut found = BTreeMap::new();
        let git = self.repo.path().join(".git");
        let own = [
            self.state(),
            git.join("objects"),
            git.join("logs"),
            git.join("refs/heads/ralph"),
            git.join("refs/notes"),
            self.path().join(".config/ralph/script.jsonl"),
        ];
        snapshot_files(&self.root(), &own, &mut found);
        for line in self.repo.git(["for-each-ref"]).lines() {
            if !line.contains("refs/heads/ralph/") && !line.contains("refs/notes/") {
                found.insert(format!("ref {line}"), String::new());
            }
        }
        let status = self.repo.git(["--no-optional-locks", "status", "--porcelain"]);
        found.insert("status".to_owned(), status);
        found
    }

    /// Returns the names of what has changed.
    pub fn changed_since(&self, before: &BTreeMap<String, String>) -> Vec<String> {
        let now = self.snapshot_outside();
        let all: BTreeSet<&String> = now.keys().chain(before.keys()).collect();
        all.into_iter().filter(|name| now.get(*name) != before.get(*name)).cloned().collect()
    }
}

fn snapshot_files(folder: &Path, skip: &[PathBuf], found: &mut BTreeMap<String, String>) {
    for entry in fs::read_dir(folder).expect("a folder") {
        let path = entry.expect("an entry").path();
        if skip.contains(&path) {
            continue;
        }
        let meta = path.symlink_metadata().expect("it is there");
        let content = if meta.is_symlink() {
            format!("-> {}", fs::read_link(&path).expect("a link").display())
        } else if meta.is_dir() {
            snapshot_files(&path, skip, found);
            continue;
        } else {
            let bytes = fs::read(&path).expect("a file");
            format!("{:o} {}", meta.permissions().mode(), String::from_utf8_lossy(&bytes))
        };
        found.insert(path.display().to_string(), content);
    }
}
