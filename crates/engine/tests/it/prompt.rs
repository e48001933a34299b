//! Tests the prompt of a real run whose files are far too large: it stays small, and almost nothing of them is read.

use std::fs::{self, File};
use std::io::{Seek as _, SeekFrom, Write as _};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use ralph_core::env_vars::Env;
use ralph_core::event::{Event, EventLine, EventLogLevel};
use ralph_core::prompt::{MAX_PROMPT_BYTES, PromptPart};
use ralph_core::run::{RunState, RunStatus};
use ralph_engine::host_environment::HostContext;
use ralph_engine::run::{KeepSandbox, RunSpec, StopSignals, begin};
use ralph_engine::store::{AnnouncePhase, EventObserver, RalphHome, SilentObserver};
use serde_json::{Value, json};

use super::killable_run::{CrashScenario, KillableRun, PushTarget};

const SIMPLE: CrashScenario = CrashScenario {
    task: r#"---
task_id: large-001
test_command: "true"
---

# Write it

- [ ] M1.1 There is an out
  - verify: `grep -q done out.txt`
"#,
    script: r#"{"format": 1}
{"usage": {"input": 900, "output": 40}, "json": {"summary": "Out.", "actions": [{"type": "write", "path": "out.txt", "content": "done\n"}, {"type": "commit", "message": "out"}, {"type": "stop_success", "reason": "done"}], "claims": {"checkboxes_checked": ["M1.1"]}}}
"#,
};

const LARGE_FILE_BYTES: u64 = 200 << 20;

/// Installs huge files while the prompt is built, and removes them again.
struct LargeFileObserver {
    home: RalphHome,
    seen: Arc<Mutex<LargeFileReads>>,
}

#[derive(Debug, Default)]
struct LargeFileReads {
    /// The previous contents, by path.
    kept: Vec<(PathBuf, Option<Vec<u8>>)>,
    read_before: u64,
    read: Option<u64>,
}

impl EventObserver for LargeFileObserver {
    fn on_event(&self, moment: AnnouncePhase, line: &EventLine) {
        let mut seen = self.seen.lock().unwrap();
        match (&line.event, moment) {
            (Event::IterationStarted { n: 1, .. }, AnnouncePhase::After) => {
                for path in self.target_paths() {
                    seen.kept.push((path.clone(), fs::read(&path).ok()));
                    write_large_file(&path);
                }
                seen.read_before = bytes_read();
            }
            (Event::ModelCalled { n: 1, .. }, AnnouncePhase::Before) => {
                let before = seen.read_before;
                seen.read = Some(bytes_read() - before);
                for (path, kept) in seen.kept.drain(..) {
                    match kept {
                        Some(bytes) => fs::write(&path, bytes).unwrap(),
                        None => fs::remove_file(&path).unwrap(),
                    }
                }
            }
            _ => (),
        }
    }
}

impl LargeFileObserver {
    fn target_paths(&self) -> Vec<PathBuf> {
        let ids = self.home.run_ids().unwrap();
        let folder = self.home.run_folder(ids.first().unwrap());
        let sandbox = folder.state().unwrap().workplace.unwrap().sandbox;
        let state = self.home.sandboxes_dir().join(sandbox).join("workspace/.ralph");
        let logs = ["errors.log", "guardrails.md", "notes.md", "progress.md"].map(|name| state.join(name));
        logs.into_iter().chain([folder.iteration(0).join("test_output.txt")]).collect()
    }
}

/// Creates a file of 200 MB whose beginning and end are text.
fn write_large_file(path: &Path) {
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    let mut file = File::create(path).unwrap();
    let text = |word: &str| format!("{word} of {}\n", path.file_name().unwrap().to_str().unwrap()).repeat(2000);
    file.write_all(text("beginning").as_bytes()).unwrap();
    file.set_len(LARGE_FILE_BYTES).unwrap();
    file.seek(SeekFrom::End(0)).unwrap();
    file.write_all(text("end").as_bytes()).unwrap();
}

/// Returns how many bytes this process and the programs it waited for have read.
fn bytes_read() -> u64 {
    let text = fs::read_to_string("/proc/self/io").unwrap();
    text.lines().find_map(|line| line.strip_prefix("rchar: ")).unwrap().parse().unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn huge_files_are_not_read_for_a_prompt() {
    const MOST_READ: u64 = 4 << 20;
    let case = KillableRun::new(SIMPLE, PushTarget::Here);
    let env = [("PATH", std::env::var("PATH").unwrap()), ("HOME", case.home().state_dir().display().to_string())];
    let env = Env::new(env.map(|(name, value)| (name.to_owned(), value)));
    let host = HostContext::open(case.home(), env).await.unwrap();
    let seen = Arc::new(Mutex::new(LargeFileReads::default()));
    let observer = LargeFileObserver { home: case.home(), seen: seen.clone() };
    let begun = begin(&host, case.run_request(), Box::new(observer), StopSignals::default(), KeepSandbox::Always)
        .await
        .unwrap();
    let mut runner = begun.runner;
    let ended = runner.drive().await.unwrap().clone();
    assert_eq!(ended.status, RunStatus::Succeeded, "{}", case.event_text());
    let read = seen.lock().unwrap().read.unwrap();
    assert!(read < MOST_READ, "{read} bytes were read");

    let prompt = fs::read_to_string(case.folder().unwrap().iteration(1).join("prompt.md")).unwrap();
    let own = ralph_core::action::schema().to_string().len() + ralph_core::action::example().len();
    assert!(prompt.len() <= MAX_PROMPT_BYTES + own, "{} bytes", prompt.len());
    for (part, path, shown) in [
        (PromptPart::Errors, ".ralph/errors.log", "end of errors.log"),
        (PromptPart::Guardrails, ".ralph/guardrails.md", "end of guardrails.md"),
        (PromptPart::Notes, ".ralph/notes.md", "end of notes.md"),
        (PromptPart::Progress, ".ralph/progress.md", "beginning of progress.md"),
        (PromptPart::TestOutput, ".ralph/iterations/0/test_output.txt", "end of test_output.txt"),
    ] {
        let note = prompt.lines().find(|line| line.ends_with(&format!("the whole: `{path}`)"))).unwrap();
        let left_out: u64 = note.trim_start_matches('(').split(' ').next().unwrap().parse().unwrap();
        assert!(left_out > LARGE_FILE_BYTES - 1024 && left_out < LARGE_FILE_BYTES + (64 << 10), "{note}");
        assert!(prompt.contains(&format!("\n{shown}\n")), "{part:?}");
        let other = if shown.starts_with("end") {
            shown.replace("end", "beginning")
        } else {
            shown.replace("beginning", "end")
        };
        assert!(!prompt.contains(&other), "{part:?}");
    }
}

const WORD_TASK: &str = r#"---
task_id: word-001
test_command: "sh tests/all.sh"
---

# Say the word

- [ ] M1.1 The word of the house is said
  - verify: `sh tests/all.sh`
"#;

const WORD_FILES: [(&str, &str); 2] = [
    ("house/word.txt", "the word is quince\n"),
    ("tests/all.sh", "cmp -s house/word.txt said.txt || { echo 'that is not the word' >&2; exit 1; }\n"),
];

fn step(actions: &Value, claimed: &[&str]) -> Value {
    json!({"usage": {"input": 900, "output": 40},
        "json": {"summary": "A step.", "actions": actions, "claims": {"checkboxes_checked": claimed}}})
}

async fn run(case: &KillableRun, change: impl FnOnce(&mut RunSpec)) -> RunState {
    let env = [("PATH", std::env::var("PATH").unwrap()), ("HOME", case.home().state_dir().display().to_string())];
    let env = Env::new(env.map(|(name, value)| (name.to_owned(), value)));
    let host = HostContext::open(case.home(), env).await.unwrap();
    let mut request = case.run_request();
    change(&mut request);
    let mut runner = begin(&host, request, Box::new(SilentObserver), StopSignals::default(), KeepSandbox::Always)
        .await
        .unwrap()
        .runner;
    runner.drive().await.unwrap().clone()
}

/// `sandbox.resources.timeout_minutes` wins over what the model asks for.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_command_ends_at_the_limit_of_the_config() {
    let waits = step(&json!([{"type": "run", "command": "sleep 50", "timeout_s": 60}]), &[]);
    let done = json!([{"type": "write", "path": "out.txt", "content": "done\n"}, {"type": "commit", "message": "out"}]);
    let script: Vec<String> =
        [json!({"format": 1}), waits, step(&done, &["M1.1"])].iter().map(Value::to_string).collect();
    let case = KillableRun::with(&[], SIMPLE.task, &script.join("\n"), PushTarget::Here);
    let ended = run(&case, |request| request.command_timeout_s = 1).await;
    assert_eq!(ended.status, RunStatus::Succeeded, "{}", case.event_text());
    assert!(case.event_text().contains("no end within 1 s"), "{}", case.event_text());
}

/// A model that guesses, then reads the file, and knows the word only once its output is in the prompt.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_model_sees_what_its_actions_printed() {
    let look = json!([
        {"type": "run", "command": "echo nothing"},
        {"type": "run", "command": "seq 100000; cat house/word.txt"},
    ]);
    let mut looks = step(&look, &[]);
    looks["repeat"] = true.into();
    let say = json!([{"type": "write", "path": "said.txt", "content": "the word is quince\n"}, {"type": "commit", "message": "say it"}]);
    let mut says = step(&say, &["M1.1"]);
    says["when"] = json!({"prompt_contains": "\nthe word is quince\n"});
    let guesses = step(&json!([{"type": "write", "path": "said.txt", "content": "the word is pear\n"}]), &[]);
    let script: Vec<String> = [json!({"format": 1}), guesses, looks, says].iter().map(Value::to_string).collect();
    let case = KillableRun::with(&WORD_FILES, WORD_TASK, &script.join("\n"), PushTarget::Here);
    let ended = run(&case, |request| request.task_path = "tasks/word.md".to_owned()).await;
    assert_eq!((ended.status, ended.spent.iterations), (RunStatus::Succeeded, 3), "{}", case.event_text());

    let folder = case.folder().unwrap();
    let prompt = |n: u32| fs::read_to_string(folder.iteration(n).join("prompt.md")).unwrap();
    let (first, second, third) = (prompt(1), prompt(2), prompt(3));
    assert!(!first.contains("What your last actions printed") && first.contains("# Last test output\n(empty)\n"));
    assert!(second.contains("# What your last actions printed (iteration 1)\n- action 0, done: write said.txt\n\n# "));
    let mark = third.split("[ralph:begin last-actions ").nth(1).unwrap().split(']').next().unwrap();
    let printed = format!(
        "# What your last actions printed (iteration 2)\n- action 0, exit 0: echo nothing\n\
         [ralph:begin last-actions {mark}]\nnothing\n[ralph:end last-actions {mark}]\n\
         - action 1, exit 0: seq 100000; cat house/word.txt\n[ralph:begin last-actions {mark}]\n1\n2\n3\n"
    );
    assert!(third.contains(&printed), "{third}");
    let whole = fs::metadata(folder.iteration(2).join("action-1.txt")).unwrap().len();
    let cut = format!(
        "[ralph:end last-actions {mark}]\n({} bytes left out here; the whole: `.ralph/iterations/2/action-1.txt`)\n\
         [ralph:begin last-actions {mark}]\n",
        whole - (16 << 10)
    );
    assert!(third.contains(&cut), "{third}");
    // The iteration that only read did not test: the earlier failure is what counts.
    let tests = format!(
        "# Last test output (iteration 1)\n[ralph:begin test-output {mark}]\nthat is not the word\n[ralph:end test-output {mark}]\n"
    );
    assert!(third.contains(&tests), "{third}");
    for prompt in [&first, &second, &third] {
        assert!(
            prompt.contains("Never edit `tasks/word.md`, a proof") && !prompt.contains("ralph_task.md"),
            "{prompt}"
        );
    }
}

/// A claim that uses other text than the ids is resolved if possible, and reported if not.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn claims_that_name_no_box_are_reported() {
    let say = json!([{"type": "write", "path": "said.txt", "content": "the word is quince\n"}, {"type": "commit", "message": "say it"}]);
    let vague = step(&say, &["the word", "M7"]);
    let mut corrected = step(&json!([{"type": "run", "command": "cat said.txt"}]), &["The word of the house is said"]);
    corrected["when"] = json!({"prompt_contains": "you claimed `the word`, `M7`, which names no box: claim boxes by their ids, here `M1.1`"});
    let script: Vec<String> = [json!({"format": 1}), vague, corrected].iter().map(Value::to_string).collect();
    let case = KillableRun::with(&WORD_FILES, WORD_TASK, &script.join("\n"), PushTarget::Here);
    let ended = run(&case, |_| ()).await;
    assert_eq!((ended.status, ended.spent.iterations), (RunStatus::Succeeded, 2), "{}", case.event_text());
    let warned = |line: EventLine| matches!(line.event, Event::Log { level: EventLogLevel::Warn, text, .. } if text == "claimed what names no box: `the word`, `M7`");
    assert_eq!(case.lines().into_iter().filter(|line| warned(line.clone())).count(), 1, "{}", case.event_text());
}
