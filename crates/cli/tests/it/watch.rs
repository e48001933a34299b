//! Tests `ralph watch` in a real terminal: the built program in its own tmux, with its screen read and keys sent.

use std::fs;
use std::ops::Deref as _;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use ralph_testkit::home::{TASK, TestHome};
use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

use crate::cli_harness::{BOTH_BOXES, RalphHarness, TIMEOUT, answer, honest_actions, run};
use crate::secret_search::report_not_run;

const SKIPPED: &str = "`ralph watch` was not looked at: there is no `tmux` program to make a terminal with";

/// A terminal with the program in it; it is closed when this is dropped.
struct TmuxTerminal<'a> {
    ralph: &'a RalphHarness,
    socket: TempDir,
}

impl<'a> TmuxTerminal<'a> {
    /// Opens a terminal that runs a shell line and then prints its exit code and the terminal's settings; `None` where
    /// there is no tmux.
    fn open(ralph: &'a RalphHarness, (width, height): (u16, u16), line: &str) -> Option<Self> {
        if Command::new("tmux").arg("-V").output().is_err() {
            return None;
        }
        let terminal = Self { ralph, socket: tempfile::tempdir().unwrap() };
        let line = format!(
            "RALPH='{}'; {line}; echo \"left with $?\"; stty -a | tr ' ;' '\\n\\n' | grep -x -e icanon -e -icanon; exec cat",
            env!("CARGO_BIN_EXE_ralph")
        );
        let (width, height) = (width.to_string(), height.to_string());
        terminal.tmux(&["-f", "/dev/null", "new-session", "-d", "-x", &width, "-y", &height, "sh", "-c", &line]);
        Some(terminal)
    }

    #[track_caller]
    fn tmux(&self, args: &[&str]) -> String {
        let mut command = self.ralph.deref().command("tmux");
        // UTF-8, whatever this machine's locale.
        command.arg("-u").arg("-S").arg(self.socket.path().join("socket")).args(args);
        let output = command.output().unwrap();
        assert!(output.status.success(), "{args:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    fn screen(&self) -> String {
        self.tmux(&["capture-pane", "-p"])
    }

    fn press(&self, key: &str) {
        self.tmux(&["send-keys", key]);
    }

    /// Waits until the screen shows a text.
    #[track_caller]
    fn wait_for(&self, words: &str) -> String {
        let deadline = Instant::now() + TIMEOUT;
        loop {
            let screen = self.screen();
            if screen.contains(words) {
                return screen;
            }
            assert!(Instant::now() < deadline, "waited in vain for `{words}` on the screen:\n{screen}");
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Checks that the program has ended and the terminal is in line mode again.
    #[track_caller]
    fn assert_terminal_restored(&self, code: i32) {
        let screen = self.wait_for("icanon");
        assert!(screen.contains(&format!("left with {code}")), "{screen}");
        assert!(!screen.contains("-icanon") && !screen.contains('╭'), "{screen}");
        assert_eq!(self.tmux(&["display-message", "-p", "#{alternate_on} #{cursor_flag}"]).trim(), "0 1");
    }

    /// Returns the process that draws.
    fn watch_pid(&self) -> Pid {
        let shell = self.tmux(&["display-message", "-p", "#{pane_pid}"]).trim().to_owned();
        let children = Path::new("/proc").join(&shell).join("task").join(&shell).join("children");
        let child = fs::read_to_string(children).unwrap();
        Pid::from_raw(child.split_whitespace().next().unwrap().parse().unwrap()).unwrap()
    }
}

impl Drop for TmuxTerminal<'_> {
    fn drop(&mut self) {
        let mut command = self.ralph.deref().command("tmux");
        command.arg("-S").arg(self.socket.path().join("socket")).arg("kill-server");
        // It may have ended by itself.
        let _ = command.output();
    }
}

/// Returns a run with many short actions, which get faster when the test releases them.
fn run_with_short_actions() -> RalphHarness {
    let mut actions = vec![run("[ -e .ralph/go ] || sleep 0.1"); 50];
    actions.extend(honest_actions());
    let home = TestHome::with_task(&TASK.replace("max_iterations: 1", "max_iterations: 9"));
    RalphHarness::with_home(home, &[answer(&actions, &BOTH_BOXES)])
}

#[test]
fn a_run_is_watched_paused_and_resumed() {
    let ralph = run_with_short_actions();
    ralph.ralph(&["run", "--detach"]).expect_exit(0);
    ralph.await_event("an action", |event| event["type"] == "action-started");
    let line = "RALPH_LOG=debug $RALPH watch @ 2> $HOME/remarks || cat $HOME/remarks";
    let Some(terminal) = TmuxTerminal::open(&ralph, (80, 24), line) else {
        return report_not_run(SKIPPED);
    };
    for words in ["Make the files count", "● running", "▸ [ -e .ralph/go ]", "Boxes 0 of 2 verified", "p pause"] {
        terminal.wait_for(words);
    }
    terminal.press("p");
    for words in ["‖ paused", "why: a person asked for it", "next: ralph resume", "✓ it is paused", "p resume"] {
        terminal.wait_for(words);
    }
    ralph.await_event("the pause", |event| event["type"] == "paused");

    // A note for a run at rest, with letters that are key bindings elsewhere.
    terminal.press("n");
    terminal.press("use the abacus, psq");
    terminal.wait_for("note: use the abacus, psq");
    terminal.press("Enter");
    terminal.wait_for("the model reads your note");
    let note =
        ralph.await_event("the note", |event| event["type"] == "control-applied" && event["control"]["type"] == "note");
    assert_eq!(note["control"]["text"], "use the abacus, psq");

    terminal.press("p");
    terminal.wait_for("● running");
    fs::write(ralph.workspace().join(".ralph/go"), "").unwrap();
    for words in ["✓ succeeded", "Boxes 2 of 2 verified", "[✓] M1.1", "next: ralph diff"] {
        terminal.wait_for(words);
    }
    assert_eq!(ralph.events_of("action-finished").len(), 53, "an action was lost or done twice");

    // On a smaller screen panels are hidden.
    terminal.tmux(&["resize-window", "-x", "40", "-y", "12"]);
    terminal.wait_for("── Log");
    let screen = terminal.wait_for("✓ succeeded");
    assert!(!screen.contains('╭'), "{screen}");
    terminal.tmux(&["resize-window", "-x", "120", "-y", "40"]);
    terminal.wait_for("Budgets");
    terminal.press("q");
    terminal.assert_terminal_restored(0);
}

#[test]
fn refusals_lost_folders_and_signals_are_handled() {
    let ralph = RalphHarness::new(&[answer(&honest_actions(), &BOTH_BOXES)]);
    ralph.ralph(&["run"]).expect_exit(0);
    let Some(terminal) = TmuxTerminal::open(&ralph, (80, 24), "NO_COLOR=1 $RALPH watch @") else {
        return report_not_run(SKIPPED);
    };
    terminal.wait_for("✓ succeeded");
    terminal.press("r");
    terminal.wait_for("it has succeeded");
    let painted = terminal.tmux(&["capture-pane", "-p", "-e"]);
    let colours = ["\u{1b}[3", "\u{1b}[9", ";3", ";9", "\u{1b}[4"];
    let coloured = painted.match_indices('\u{1b}').map(|(at, _)| painted[at..].split('m').next().unwrap_or_default());
    let coloured: Vec<&str> = coloured
        .filter(|code| {
            colours.iter().any(|colour| code.contains(colour)) && !code.contains("39") && !code.contains("49")
        })
        .collect();
    assert_eq!(coloured, Vec::<&str>::new());

    // The run's folder is removed; what was read stays on screen.
    fs::rename(ralph.run_folder(), ralph.state().join("elsewhere")).unwrap();
    for words in ["the folder of the run is gone", "next: ralph ls", "[✓] M1.2"] {
        terminal.wait_for(words);
    }
    terminal.press("r");
    terminal.wait_for("✗ the folder of the run is gone: nothing can be asked of it");
    kill_process(terminal.watch_pid(), Signal::TERM).unwrap();
    terminal.assert_terminal_restored(130);
}

#[test]
fn suspended_and_back() {
    let ralph = RalphHarness::new(&[answer(&honest_actions(), &BOTH_BOXES)]);
    ralph.ralph(&["run"]).expect_exit(0);
    // A shell with job control.
    let line = "set -m; $RALPH watch @; echo it rests; read answer; fg";
    let Some(terminal) = TmuxTerminal::open(&ralph, (80, 24), line) else {
        return report_not_run(SKIPPED);
    };
    terminal.wait_for("✓ succeeded");
    terminal.press("C-z");
    let screen = terminal.wait_for("it rests");
    assert!(!screen.contains('╭'), "{screen}");
    terminal.press("Enter");
    terminal.wait_for("✓ succeeded");
    terminal.press("C-c");
    terminal.assert_terminal_restored(130);
}

#[test]
fn without_a_terminal() {
    let ralph = RalphHarness::new(&[answer(&honest_actions(), &BOTH_BOXES)]);
    ralph.ralph(&["run"]).expect_exit(0);
    let output = ralph.ralph(&["watch", "@"]).expect_exit(2);
    assert_eq!(output.stderr, "ralph: `ralph watch` needs a terminal to draw on\n\nhint: ralph logs -f @\n");
    assert_eq!(output.stdout, "");
    let output = ralph.ralph(&["watch", "@", "--json"]).expect_exit(2);
    assert!(output.stdout.contains("ralph logs -f @ --json"), "{}", output.stdout);
}
