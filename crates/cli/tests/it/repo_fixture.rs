//! Provides a repository, an empty home and the built program. Values that differ from run to run are replaced by
//! words.

use std::fmt;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};

use ralph_testkit::repo::{TestRepo, hermetic_command};

/// A repository and a home of its own.
#[derive(Debug)]
pub(crate) struct RepoFixture {
    pub(crate) repo: TestRepo,
}

/// What a command printed, and how it ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct CliOutput {
    pub(crate) code: i32,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl fmt::Display for CliOutput {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "exit {}", self.code)?;
        for (name, text) in [("stdout", &self.stdout), ("stderr", &self.stderr)] {
            if !text.is_empty() {
                writeln!(f, "--- {name}\n{}", text.trim_end())?;
            }
        }
        Ok(())
    }
}

impl RepoFixture {
    /// Creates a repository with one commit and no task.
    pub(crate) fn new() -> Self {
        Self { repo: TestRepo::with_commit() }
    }

    /// Creates a repository with a small task that is ready to run, and a scripted model that completes it.
    pub(crate) fn with_task() -> Self {
        let fixture = Self { repo: TestRepo::new() };
        fixture.repo.write("tests/one.sh", "test -f one.txt\n");
        fixture.repo.write("tests/two.sh", "grep -q two one.txt\n");
        fixture.repo.write("ralph_task.md", TASK);
        fixture.repo.commit("a task");
        fixture.config("models.yaml", MODELS);
        fixture.config("script.jsonl", SCRIPT);
        fixture
    }

    /// Writes a file of the user's configuration.
    pub(crate) fn config(&self, name: &str, text: &str) {
        let dir = self.repo.home().join(".config/ralph");
        std::fs::create_dir_all(&dir).unwrap();
        std::fs::write(dir.join(name), text).unwrap();
    }

    pub(crate) fn state(&self) -> PathBuf {
        self.repo.home().join(".local/state/ralph")
    }

    /// Returns the ids of all runs, oldest first.
    pub(crate) fn runs(&self) -> Vec<String> {
        let Ok(entries) = std::fs::read_dir(self.state().join("runs")) else { return Vec::new() };
        let mut ids: Vec<String> = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        ids.sort();
        ids
    }

    /// Returns a command for the program in the repository.
    pub(crate) fn command(&self, args: &[&str]) -> Command {
        let mut command = hermetic_command(env!("CARGO_BIN_EXE_ralph"), &self.repo.home());
        command.env("TZ", "UTC").current_dir(self.repo.path()).args(args).stdin(Stdio::null());
        command
    }

    pub(crate) fn ralph(&self, args: &[&str]) -> CliOutput {
        self.output_of(&self.command(args).output().unwrap())
    }

    /// Runs the program with variables set.
    pub(crate) fn ralph_with(&self, env: &[(&str, &str)], args: &[&str]) -> CliOutput {
        self.output_of(&self.command(args).envs(env.iter().copied()).output().unwrap())
    }

    /// Runs the program in another folder beside the repository.
    pub(crate) fn ralph_in(&self, folder: &str, args: &[&str]) -> CliOutput {
        let dir = self.repo.home().join(folder);
        std::fs::create_dir_all(&dir).unwrap();
        self.output_of(&self.command(args).current_dir(dir).output().unwrap())
    }

    pub(crate) fn output_of(&self, output: &Output) -> CliOutput {
        CliOutput {
            code: output.status.code().unwrap_or(-1),
            stdout: self.normalize(&String::from_utf8_lossy(&output.stdout)),
            stderr: self.normalize(&String::from_utf8_lossy(&output.stderr)),
        }
    }

    /// Replaces paths, ids, hashes, times and durations by words.
    pub(crate) fn normalize(&self, text: &str) -> String {
        let mut text = text.to_owned();
        for (path, word) in [(self.repo.path(), "REPO"), (self.repo.home(), "HOME")] {
            let real = path.canonicalize().unwrap_or_else(|_| path.clone());
            text = text.replace(real.to_str().unwrap(), word).replace(path.to_str().unwrap(), word);
        }
        for (at, id) in self.runs().iter().enumerate() {
            text = text.replace(id, &format!("RUN{}", at + 1));
        }
        let lines: Vec<String> = text.lines().map(normalize_line).collect();
        lines.join("\n") + if text.ends_with('\n') { "\n" } else { "" }
    }
}

fn normalize_line(line: &str) -> String {
    let mut words: Vec<String> = Vec::new();
    for word in line.split(' ') {
        let digits = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        let bare = word.trim_matches(|c: char| !c.is_ascii_alphanumeric());
        let hash = bare.len() >= 10 && bare.bytes().all(|byte| byte.is_ascii_hexdigit());
        let time = word.len() == 8 && word.split(':').all(digits) && word.split(':').count() == 3;
        let unit = word == "ms" || word == "s" || (word == "of" && line.trim_start().starts_with("minutes "));
        if unit && words.last().is_some_and(|last| last.parse::<f64>().is_ok()) {
            words.pop();
            words.push("N".to_owned());
            words.push(word.to_owned());
        } else if time {
            words.push("TIME".to_owned());
        } else if hash {
            words.push(word.replace(bare, "SHA"));
        } else {
            words.push(word.to_owned());
        }
    }
    words.join(" ")
}

const TASK: &str = "\
---
task_id: small-001
test_command: \"sh tests/two.sh\"
max_iterations: 5
max_wall_time_minutes: 10
max_cost_usd_estimate: 1
protected_paths: [\"tests/\"]
---

# Write one file

Two small facts about a file at the top of the repository.

- [ ] M1.1 There is a file one.txt
  - verify: `sh tests/one.sh`
- [ ] M1.2 It says two
  - verify: `sh tests/two.sh`
";

const MODELS: &str = "\
profiles:
  default-cheap:
    litellm_model: scripted/script.jsonl
    max_output_tokens: 2048
    price: {input_per_mtok: 0.6, output_per_mtok: 2.2}
";

const SCRIPT: &str = r#"{"format": 1}
{"json": {"summary": "Half of it.", "actions": [{"type": "write", "path": "one.txt", "content": "one\n"}, {"type": "commit", "message": "one", "paths": ["one.txt"]}], "claims": {"checkboxes_checked": ["M1.1", "M1.2"], "milestones_completed": []}}}
{"json": {"summary": "The rest.", "actions": [{"type": "write", "path": "one.txt", "content": "one\ntwo\n"}, {"type": "commit", "message": "two", "paths": ["one.txt"]}, {"type": "stop_success", "reason": "done"}], "claims": {"checkboxes_checked": ["M1.2"], "milestones_completed": ["M1"]}}}
"#;
