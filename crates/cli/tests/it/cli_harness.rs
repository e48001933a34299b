//! Runs the built program in a hermetic home: to its end, or live while a test steers it.

use std::fs::{self, File};
use std::ops::Deref;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use ralph_testkit::home::TestHome;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use tempfile::TempDir;

/// Long enough for a slow machine; only a broken test waits this long.
pub(crate) const TIMEOUT: Duration = Duration::from_mins(1);

/// A home and the program that runs in it.
#[derive(Debug)]
pub(crate) struct RalphHarness {
    home: TestHome,
    printed: TempDir,
    started: AtomicU32,
}

impl Deref for RalphHarness {
    type Target = TestHome;

    fn deref(&self) -> &TestHome {
        &self.home
    }
}

/// How a command ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ProcessOutput {
    pub(crate) code: Option<i32>,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl ProcessOutput {
    #[track_caller]
    pub(crate) fn expect_exit(self, code: i32) -> Self {
        assert_eq!(self.code, Some(code), "stdout: {}\nstderr: {}", self.stdout, self.stderr);
        self
    }
}

impl RalphHarness {
    pub(crate) fn new(replies: &[Value]) -> Self {
        Self::with_home(TestHome::new(), replies)
    }

    pub(crate) fn with_home(home: TestHome, replies: &[Value]) -> Self {
        home.script(replies);
        Self { home, printed: tempfile::tempdir().expect("a temporary folder"), started: AtomicU32::new(0) }
    }

    fn command(&self, args: &[&str]) -> Command {
        let mut command = self.home.command(env!("CARGO_BIN_EXE_ralph"));
        command.args(args);
        command
    }

    /// Runs a command to its end.
    #[track_caller]
    pub(crate) fn ralph(&self, args: &[&str]) -> ProcessOutput {
        self.start(args).wait()
    }

    /// Runs a command to its end in another folder.
    #[track_caller]
    pub(crate) fn ralph_in(&self, folder: &std::path::Path, args: &[&str]) -> ProcessOutput {
        let mut command = self.command(args);
        command.current_dir(folder);
        self.spawn(command).wait()
    }

    /// Runs a command to its end with more variables in its environment.
    #[track_caller]
    pub(crate) fn ralph_with(&self, env: &[(&str, &str)], args: &[&str]) -> ProcessOutput {
        let mut command = self.command(args);
        command.envs(env.iter().copied());
        self.spawn(command).wait()
    }

    /// Starts a command that runs while the test does something else.
    pub(crate) fn start(&self, args: &[&str]) -> RalphProcess {
        self.spawn(self.command(args))
    }

    fn spawn(&self, mut command: Command) -> RalphProcess {
        let n = self.started.fetch_add(1, Ordering::Relaxed);
        // Files and not pipes: the program cannot block on them when the test does not read.
        let folder = self.printed.path();
        let (out, err) = (folder.join(format!("{n}.out")), folder.join(format!("{n}.err")));
        let create = |path| File::create(path).expect("a file");
        command.stdin(Stdio::null()).stdout(create(&out)).stderr(create(&err));
        let child = command.spawn().expect("the program was built");
        RalphProcess { child, out, err }
    }

    /// Returns the id of the only run.
    #[track_caller]
    pub(crate) fn run_id(&self) -> String {
        let runs = self.home.state().join("runs");
        let mut names: Vec<String> = fs::read_dir(&runs)
            .expect("there was a run")
            .map(|entry| entry.expect("an entry").file_name().into_string().expect("a plain name"))
            .collect();
        assert_eq!(names.len(), 1, "{names:?}");
        names.remove(0)
    }

    pub(crate) fn run_folder(&self) -> std::path::PathBuf {
        self.home.state().join("runs").join(self.run_id())
    }

    /// Returns the run as `ralph show --json` prints it.
    #[track_caller]
    pub(crate) fn show(&self) -> Value {
        let output = self.ralph(&["show", "@", "--json"]).expect_exit(0);
        serde_json::from_str(&output.stdout).expect("JSON")
    }

    /// Returns the events of the only run; none while there is no run yet.
    pub(crate) fn events(&self) -> Vec<Value> {
        let runs = self.home.state().join("runs");
        let Some(folder) = fs::read_dir(&runs).ok().and_then(|mut entries| entries.next()) else { return Vec::new() };
        let text = fs::read_to_string(folder.expect("an entry").path().join("events.jsonl")).unwrap_or_default();
        // The last line may be half written.
        text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect()
    }

    /// Returns the events of one kind.
    pub(crate) fn events_of(&self, kind: &str) -> Vec<Value> {
        self.events().into_iter().filter(|event| event["type"] == kind).collect()
    }

    /// Waits until there is a matching event.
    #[track_caller]
    pub(crate) fn await_event(&self, what: &str, wanted: impl Fn(&Value) -> bool) -> Value {
        let mut found = None;
        wait_until(what, || {
            found = self.events().into_iter().find(|event| wanted(event));
            found.is_some()
        });
        found.expect("it was just found")
    }

    /// Reads the host's copy of a `.ralph` file.
    pub(crate) fn state_file(&self, name: &str) -> String {
        fs::read_to_string(self.run_folder().join("state").join(name)).unwrap_or_default()
    }

    /// Returns the folder in which the model works.
    #[track_caller]
    pub(crate) fn workspace(&self) -> std::path::PathBuf {
        let ready = self.events_of("sandbox-ready");
        let name = ready.last().and_then(|event| event["sandbox"].as_str()).expect("a sandbox").to_owned();
        self.home.state().join("embedded/boxes").join(name).join("workspace")
    }

    /// Returns a function that checks whether a process still works in the model's folder.
    #[track_caller]
    pub(crate) fn workspace_busy(&self) -> impl Fn() -> bool + use<> {
        use std::os::unix::fs::MetadataExt as _;
        let place = |path: std::path::PathBuf| fs::metadata(path).map(|found| (found.dev(), found.ino())).ok();
        let own = place(self.workspace()).expect("a sandbox");
        // Processes of a cage have other ids inside, but the folder is the same.
        move || {
            let mut all = fs::read_dir("/proc").expect("processes").flatten();
            all.any(|entry| place(entry.path().join("cwd")) == Some(own))
        }
    }

    /// Reads a file from the tip of the run's branch in the user's repository; `None` when either is missing.
    pub(crate) fn branch_file(&self, path: &str) -> Option<String> {
        let out = self.home.repo.try_git(["show", &format!("{BRANCH}:{path}")], b"");
        out.status.success().then(|| String::from_utf8_lossy(&out.stdout).into_owned())
    }
}

/// The branch of the home's task.
pub(crate) const BRANCH: &str = "ralph/count-001/make-the-files-count";

/// A running command; it is killed when this is dropped.
#[derive(Debug)]
pub(crate) struct RalphProcess {
    child: Child,
    out: std::path::PathBuf,
    err: std::path::PathBuf,
}

impl Drop for RalphProcess {
    fn drop(&mut self) {
        // It has usually ended by then.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl RalphProcess {
    pub(crate) fn interrupt(&self) {
        self.signal(Signal::INT);
    }

    pub(crate) fn signal(&self, signal: Signal) {
        let pid = Pid::from_raw(i32::try_from(self.child.id()).expect("a small number")).expect("not zero");
        kill_process(pid, signal).expect("it is ours");
    }

    pub(crate) fn stderr(&self) -> String {
        fs::read_to_string(&self.err).unwrap_or_default()
    }

    pub(crate) fn stdout(&self) -> String {
        fs::read_to_string(&self.out).unwrap_or_default()
    }

    pub(crate) fn is_running(&mut self) -> bool {
        self.child.try_wait().expect("it is ours").is_none()
    }

    /// Waits for its end; a panic of ralph itself fails the test in any case.
    #[track_caller]
    pub(crate) fn wait(self) -> ProcessOutput {
        self.wait_up_to(TIMEOUT)
    }

    /// Waits for the end of a command that is known to take long.
    #[track_caller]
    pub(crate) fn wait_up_to(mut self, timeout: Duration) -> ProcessOutput {
        let mut status = None;
        wait_until_or(timeout, "the end of the command", || {
            status = self.child.try_wait().expect("it is ours");
            status.is_some()
        });
        let read = |path| String::from_utf8_lossy(&fs::read(path).expect("a file")).into_owned();
        let output = ProcessOutput {
            code: status.and_then(|status| status.code()),
            stdout: read(&self.out),
            stderr: read(&self.err),
        };
        assert!(!output.stderr.contains("panicked"), "{}", output.stderr);
        output
    }
}

/// Polls until a condition holds.
#[track_caller]
pub(crate) fn wait_until(what: &str, holds: impl FnMut() -> bool) {
    wait_until_or(TIMEOUT, what, holds);
}

#[track_caller]
fn wait_until_or(timeout: Duration, what: &str, mut holds: impl FnMut() -> bool) {
    let deadline = Instant::now() + timeout;
    while !holds() {
        assert!(Instant::now() < deadline, "waited in vain for {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Returns a model's answer.
pub(crate) fn answer(actions: &[Value], claimed: &[&str]) -> Value {
    json!({"json": {"summary": "a step", "actions": actions,
        "claims": {"checkboxes_checked": claimed, "milestones_completed": []}}})
}

/// Returns a model's answer for one iteration, at any place in the script.
pub(crate) fn answer_in(iteration: u32, actions: &[Value], claimed: &[&str]) -> Value {
    let mut reply = answer(actions, claimed);
    reply["when"] = json!({"iteration": iteration});
    reply
}

pub(crate) fn run(command: &str) -> Value {
    json!({"type": "run", "command": command, "timeout_s": 60})
}

pub(crate) fn write(path: &str, content: &str) -> Value {
    json!({"type": "write", "path": path, "content": content})
}

pub(crate) fn commit(message: &str) -> Value {
    json!({"type": "commit", "message": message})
}

/// The claims of both boxes.
pub(crate) const BOTH_BOXES: [&str; 2] = ["M1.1", "M1.2"];

/// Returns the actions that do all the work.
pub(crate) fn honest_actions() -> Vec<Value> {
    vec![write("one.txt", "1\n"), write("two.txt", "2\n"), commit("count")]
}
