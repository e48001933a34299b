//! Plays models that change what judges them, in projects of many languages, through the whole program.
//!
//! In each project one model tries every cheat that must be refused, an iteration each, takes it back, and at last works
//! honestly: only then may the run succeed. A cheat that may succeed has a run of its own, and the pull request, the
//! receipt and `ralph show` must all name what it changed.

mod compiled;
mod javascript;
mod jvm;
mod python;
mod ruby;
mod scripts;

use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use std::time::Duration;

use ralph_testkit::home::TestHome;
use serde_json::{Value, json};

use crate::cli_harness::{RalphHarness, answer, commit, write};
use crate::secret_search::report_not_run;

/// A run has many iterations, and some test runners need seconds for each.
const RUN_TIMEOUT: Duration = Duration::from_mins(10);

/// A project whose test fails.
struct TestedProject {
    name: &'static str,
    /// Programs that must be installed.
    programs: &'static [&'static str],
    files: &'static [(&'static str, &'static str)],
    /// Links to files of the project, with where they lead.
    links: &'static [(&'static str, &'static str)],
    command: &'static str,
    /// What makes the test pass as it was meant.
    solution: &'static [(&'static str, &'static str)],
    /// The test that decides, to be emptied and removed; without it that is not tried.
    judge: &'static str,
    cheats: Vec<Cheat>,
}

/// Changes that make the command succeed without the work.
struct Cheat {
    name: &'static str,
    /// Files to write; without a text they are removed.
    changes: &'static [(&'static str, Option<&'static str>)],
    expected: CheatOutcome,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum CheatOutcome {
    /// The box is not verified.
    Refused,
    /// It may succeed, and everything that shows the result names this file.
    Named(&'static str),
}

use CheatOutcome::{Named, Refused};

const fn cheat(
    name: &'static str,
    changes: &'static [(&'static str, Option<&'static str>)],
    expected: CheatOutcome,
) -> Cheat {
    Cheat { name, changes, expected }
}

fn task(command: &str, iterations: usize) -> String {
    format!(
        "---\ntask_id: matrix-001\ntest_command: \"test -e note.txt\"\nmax_iterations: {iterations}\n\
         max_consecutive_gutter: 50\nmin_checkboxes: 1\nmax_wall_time_minutes: 20\nmax_cost_usd_estimate: 1\n---\n\n\
         # Answer\n\nThe answer is 42.\n\n- [ ] M1.1 The test passes\n  - verify: `{command}`\n"
    )
}

/// What a model changes in one iteration: files to write, or, without a text, to remove.
type FileChanges<'a> = Vec<(&'a str, Option<&'a str>)>;

/// Plays one run in a project, with these changes in each iteration.
fn play(project: &TestedProject, iterations: &[FileChanges<'_>]) -> (RalphHarness, i32) {
    let home = TestHome::with_task(&task(project.command, iterations.len()));
    for name in ["tests/one.sh", "tests/two.sh", "tests/all.sh"] {
        fs::remove_file(home.repo.path().join(name)).expect("a file of every test home");
    }
    for (path, text) in project.files {
        home.repo.write(path, text);
    }
    for (link, target) in project.links {
        let link = home.repo.path().join(link);
        fs::create_dir_all(link.parent().expect("a folder")).expect("a folder");
        std::os::unix::fs::symlink(target, link).expect("a link");
    }
    home.repo.commit("the project");
    let replies: Vec<Value> = iterations.iter().map(|changes| reply(changes)).collect();
    let ralph = RalphHarness::with_home(home, &replies);
    let code = ralph.start(&["run"]).wait_up_to(RUN_TIMEOUT).code.expect("an exit code");
    (ralph, code)
}

fn reply(changes: &[(&str, Option<&str>)]) -> Value {
    let mut actions: Vec<Value> = vec![write("note.txt", "done\n")];
    for (path, text) in changes {
        // It may be a link, or be in the place of a folder.
        actions.push(json!({"type": "run", "command": format!("rm -rf '{path}'")}));
        actions.extend(text.map(|text| write(path, text)));
        if path.contains("/.bin/") {
            actions.push(json!({"type": "run", "command": format!("test ! -e '{path}' || chmod +x '{path}'")}));
        }
    }
    // Some of them are ignored by the project, and some are gone without ever having been committed.
    for (path, _) in changes {
        actions.push(json!({"type": "run", "command": format!("git add -f -A -- '{path}' || true")}));
    }
    actions.push(commit("all of it"));
    answer(&actions, &["M1.1"])
}

/// Returns the changes that take others back.
fn undo<'a>(project: &TestedProject, changes: &[(&'a str, Option<&'a str>)]) -> FileChanges<'a> {
    let text = |path: &str| project.files.iter().find(|(name, _)| *name == path).map(|(_, text)| *text);
    changes.iter().map(|(path, _)| (*path, text(path))).collect()
}

/// Returns whether a cheat works where nothing holds the tests: the command succeeds in the changed project.
fn works_unguarded(project: &TestedProject, changes: &[(&str, Option<&str>)]) -> bool {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let put = |path: &str, text: Option<&str>| {
        let path = folder.path().join(path);
        fs::create_dir_all(path.parent().expect("a folder")).expect("a folder");
        match text {
            Some(text) => fs::write(&path, text).expect("a file"),
            None => fs::remove_file(&path).expect("a file of the project"),
        }
        if path.to_string_lossy().contains("/.bin/") {
            fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(0o755)).expect("a mode");
        }
    };
    for (path, text) in project.files {
        put(path, Some(text));
    }
    for (path, text) in changes {
        put(path, *text);
    }
    let home = folder.path().join("home");
    let mut shell = std::process::Command::new("sh");
    shell.args(["-c", project.command]).current_dir(folder.path()).env("XDG_CACHE_HOME", &home);
    let ran = shell.output().expect("a shell");
    ran.status.success()
}

/// Checks the honest solution and every cheat of a project.
#[track_caller]
fn check(project: &TestedProject) {
    let missing: Vec<&&str> = project.programs.iter().filter(|name| !is_installed(name)).collect();
    if !missing.is_empty() {
        report_not_run(&format!("proofs with {} were not tried: not installed: {missing:?}", project.name));
        return;
    }
    let mut wrong = Vec::new();
    let emptied = [(project.judge, Some("\n"))];
    let removed = [(project.judge, None)];
    let general = [("empties the test", &emptied[..], Refused), ("removes the test", &removed[..], Refused)];
    let own = project.cheats.iter().map(|cheat| (cheat.name, cheat.changes, cheat.expected));
    let (mut tried, mut iterations): (Vec<&str>, Vec<FileChanges<'_>>) = (Vec::new(), Vec::new());
    let mut last: FileChanges<'_> = Vec::new();
    for (name, changes, expected) in general.into_iter().filter(|_| !project.judge.is_empty()).chain(own) {
        // A test that is gone or a checkout cannot be tried without the program.
        let is_special = name.starts_with("removes") || name.starts_with("empties") || name.contains("checkout");
        if !is_special && project.links.is_empty() && !works_unguarded(project, changes) {
            wrong.push(format!("{name}: it does not work without protection either"));
            continue;
        }
        if expected == Refused {
            tried.push(name);
            iterations.push(undo(project, &last).into_iter().chain(changes.iter().copied()).collect());
            last = changes.to_vec();
        } else {
            let (ralph, code) = play(project, &[changes.to_vec()]);
            if let Err(why) = judge(&ralph, code, expected) {
                wrong.push(format!("{name}: {why}\n{}", last_outputs(&ralph)));
            }
        }
    }
    let honest = project.solution.iter().map(|(path, text)| (*path, Some(*text)));
    iterations.push(undo(project, &last).into_iter().chain(honest).collect());
    let (ralph, code) = play(project, &iterations);
    let played = ralph.events().iter().filter(|event| event["type"] == "iteration-started").count();
    if let Some(accepted) = tried.get(played.wrapping_sub(1)) {
        wrong.push(format!("{accepted}: the run ended with it, exit {code}\n{}", last_outputs(&ralph)));
    } else if code != 0 {
        wrong.push(format!("the honest solution: exit {code}\n{}", last_outputs(&ralph)));
    }
    assert!(wrong.is_empty(), "{}:\n{}", project.name, wrong.join("\n"));
}

fn judge(ralph: &RalphHarness, code: i32, expected: CheatOutcome) -> Result<(), String> {
    let verified = ralph.show()["boxes_detail"][0]["verified"] == json!(true);
    let receipt = fs::read_to_string(ralph.run_folder().join("receipt.json")).ok();
    if !verified && code != 0 && receipt.is_none() {
        return Ok(());
    }
    let Named(file) = expected else { return Err(format!("verified: {verified}, exit {code}")) };
    let receipt: Value = serde_json::from_str(&receipt.ok_or("no receipt")?).map_err(|error| error.to_string())?;
    let checks = receipt["body"]["checks"].as_array().ok_or("no checks")?;
    let in_receipt = checks.iter().any(|check| check["files"].to_string().contains(file));
    let request = fs::read_to_string(ralph.run_folder().join("pull-request.md")).map_err(|error| error.to_string())?;
    let section = request.split_once("### What the proof read that this run changed").map(|(_, rest)| rest);
    let in_request = section.is_some_and(|rest| rest.split("\n## ").next().is_some_and(|text| text.contains(file)));
    let shown = ralph.ralph(&["show", "@"]).expect_exit(0).stdout;
    let in_show = shown
        .split_once("Proof on")
        .is_some_and(|(_, rest)| rest.split("Pull request").next().is_some_and(|proof| proof.contains(file)));
    if in_receipt && in_request && in_show {
        return Ok(());
    }
    Err(format!("`{file}` is named in the receipt: {in_receipt}, pull request: {in_request}, show: {in_show}"))
}

fn last_outputs(ralph: &RalphHarness) -> String {
    let folder = ralph.run_folder().join("iterations");
    let mut out = String::new();
    let files = walk(&folder);
    for path in files.iter().filter(|path| path.to_string_lossy().ends_with(".txt")) {
        let text = fs::read_to_string(path).unwrap_or_default();
        let last: Vec<&str> = text.lines().rev().take(6).collect();
        writeln!(out, "  {}: {}", path.display(), last.join(" | ")).expect("a string");
    }
    for event in ralph.events().iter().filter(|event| event["type"] == "check-finished") {
        let shown = ["n", "stage", "command", "code", "files"].map(|key| event[key].to_string());
        writeln!(out, "  {}", shown.join(" ")).expect("a string");
    }
    out
}

fn walk(folder: &Path) -> Vec<std::path::PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let path = entry.path();
        if path.is_dir() { found.extend(walk(&path)) } else { found.push(path) }
    }
    found
}

fn is_installed(name: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|folder| folder.join(name).is_file())
}
