//! Tests that a run killed with SIGKILL, anywhere and any number of times, and resumed reaches exactly the result of
//! an undisturbed run: the same branch, commits, ticks, spend, pull request and receipt.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use crate::killable_run::{self, CrashScenario, KillPoint, KillableRun, PushTarget, RunResult, RunnerEnding};

/// The `main` of the processes that are killed; as a test of its own it does nothing.
#[test]
fn runner_process() {
    killable_run::runner_process();
}

/// Everything a model does to a run: it answers nonsense, makes false claims, weakens a check, stages and commits by
/// itself, leaves its work uncommitted, fails, and finally succeeds.
const WORK: CrashScenario = CrashScenario {
    task: r#"---
task_id: crash-001
test_command: "sh tests/all.sh"
protected_paths: ["tests/"]
---

# Survive

## Milestone M1: one and two

- [ ] M1.1 There is a one
  - verify: `grep -q one a.txt`
- [ ] M1.2 There is a two
  - verify: `sh tests/two.sh`

## Milestone M2: three

- [ ] M2.1 There is a three
  - verify: `sh tests/three.sh`
"#,
    script: r#"{"format": 1}
{"when": {"iteration": 1, "call": 0}, "usage": {"input": 900, "output": 40}, "text": "I will do it, I promise."}
{"when": {"iteration": 1, "call": 1}, "usage": {"input": 1000, "output": 200}, "json": {"summary": "One, and two while I am here.", "actions": [{"type": "write", "path": "a.txt", "content": "zero\none\n"}, {"type": "run", "command": "echo x >> steps.txt; sleep 0.2; echo y >> steps.txt"}, {"type": "write", "path": ".ralph/guardrails.md", "append": true, "content": "\n### Sign: count\n- Instruction: count twice\n"}, {"type": "commit", "message": "the first part"}], "claims": {"checkboxes_checked": ["M1.1", "M1.2"]}}}
{"when": {"iteration": 2, "call": 0}, "usage": {"input": 1100, "output": 300}, "json": {"summary": "The check is too strict.", "actions": [{"type": "write", "path": "tests/two.sh", "content": "exit 0\n"}, {"type": "write", "path": "tests/new.sh", "content": "exit 0\n"}, {"type": "write", "path": "tool.sh", "content": "echo tool\n", "mode": "755"}, {"type": "commit", "message": "relax the check", "paths": ["tests/two.sh", "tool.sh"]}, {"type": "patch", "path": "a.txt", "patch": "--- a/a.txt\n+++ b/a.txt\n@@ -1,2 +1,3 @@\n zero\n one\n+two\n"}], "claims": {"checkboxes_checked": ["M1.2"]}}}
{"when": {"iteration": 3, "call": 0}, "usage": {"input": 1200, "output": 100}, "json": {"summary": "By hand for once.", "actions": [{"type": "run", "command": "echo b > b.txt; git add b.txt; echo later >> a.txt"}, {"type": "run", "command": "sleep 0.1; git commit -q -m 'by hand'"}, {"type": "write", "path": "log.txt", "append": true, "content": "p\n"}, {"type": "write", "path": "log.txt", "append": true, "content": "q\n"}, {"type": "run", "command": "echo 'there is no three' >&2; sleep 0.05; exit 3"}]}}
{"when": {"iteration": 4, "call": 0}, "usage": {"input": 1300, "output": 80}, "json": {"summary": "Three.", "actions": [{"type": "write", "path": "c.txt", "content": "three\n"}, {"type": "stop_success", "reason": "all of it is done"}]}}
"#,
};

/// A model that commits something and then asks the user to decide.
const ASKS: CrashScenario = CrashScenario {
    task: WORK.task,
    script: r#"{"format": 1}
{"usage": {"input": 900, "output": 40}, "json": {"summary": "Which one?", "actions": [{"type": "write", "path": "steps.txt", "content": "x\ny\n"}, {"type": "commit", "message": "a question"}, {"type": "pause", "reason": "one or two?"}]}, "repeat": true}
"#,
};

/// A model that commits something and then gives up.
const GIVES_UP: CrashScenario = CrashScenario {
    task: WORK.task,
    script: r#"{"format": 1}
{"usage": {"input": 900, "output": 40}, "json": {"summary": "No.", "actions": [{"type": "write", "path": "steps.txt", "content": "x\ny\n"}, {"type": "commit", "message": "a try"}, {"type": "stop_failure", "reason": "it cannot be done"}]}, "repeat": true}
"#,
};

/// A model that commits only half of its work: the final proof fails, for more than one box.
const FORGETS: CrashScenario = CrashScenario {
    task: r#"---
task_id: crash-003
test_command: "true"
---

# Remember

- [ ] There is an out
  - verify: `ls out.*`
- [ ] There is a log
  - verify: `ls log.*`
"#,
    script: r#"{"format": 1}
{"usage": {"input": 900, "output": 40}, "json": {"summary": "Done.", "actions": [{"type": "write", "path": ".gitignore", "content": "*.tmp\n"}, {"type": "write", "path": "out.tmp", "content": "o\n"}, {"type": "write", "path": "log.tmp", "content": "l\n"}, {"type": "write", "path": "steps.txt", "content": "x\ny\n"}, {"type": "stop_success", "reason": "it works here"}]}}
{"usage": {"input": 900, "output": 40}, "json": {"summary": "Done properly.", "actions": [{"type": "write", "path": "out.txt", "content": "o\n"}, {"type": "write", "path": "log.txt", "content": "l\n"}, {"type": "stop_success", "reason": "it works anywhere"}]}}
"#,
};

/// A model that removes its repository once.
const SPOILS: CrashScenario = CrashScenario {
    task: FORGETS.task,
    script: r#"{"format": 1}
{"usage": {"input": 900, "output": 40}, "json": {"summary": "Tidy up.", "actions": [{"type": "write", "path": "out.txt", "content": "o\n"}, {"type": "run", "command": "rm -rf .git"}, {"type": "commit", "message": "it is not there"}]}}
{"usage": {"input": 900, "output": 40}, "json": {"summary": "Done properly.", "actions": [{"type": "write", "path": "steps.txt", "content": "x\ny\n"}, {"type": "write", "path": "out.txt", "content": "o\n"}, {"type": "write", "path": "log.txt", "content": "l\n"}, {"type": "stop_success", "reason": "it works anywhere"}]}}
"#,
};

/// A task that is done before it begins: not a token may be spent on it, killed or not.
const VACUOUS: CrashScenario = CrashScenario {
    task: r#"---
task_id: crash-002
test_command: "true"
---

# Nothing to do

- [ ] There is a zero
  - verify: `grep -q zero a.txt`
"#,
    script: GIVES_UP.script,
};

#[track_caller]
fn run_undisturbed(scenario: CrashScenario, hand_over: PushTarget) -> (RunResult, u64) {
    let mut case = KillableRun::new(scenario, hand_over);
    assert_eq!(case.run(KillPoint::Never), RunnerEnding::ByItself);
    case.assert_tidy();
    let events = case.lines().len() as u64;
    (case.outcome(), events)
}

/// Panics with the differences and the events.
fn check(case: &KillableRun, want: &RunResult, how: &str) {
    let found = case.outcome();
    if found != *want {
        let [want, found] = [want, &found].map(|outcome| format!("{outcome:#?}"));
        let missing = want.lines().filter(|line| !found.contains(line)).map(|line| format!("- {line}\n"));
        let new = found.lines().filter(|line| !want.contains(line)).map(|line| format!("+ {line}\n"));
        let differences: String = missing.chain(new).collect();
        panic!("{how}:\n{differences}{}", case.event_text());
    }
    case.assert_tidy();
}

/// Runs all cases, whatever the result of each; returns how often a runner was killed.
///
/// One after another: a run keeps about one core busy, and the test runner has a test for every core.
fn for_each<T>(all: impl IntoIterator<Item = T>, work: impl Fn(T) -> u32) -> u32 {
    let (mut kills, mut failed) = (0, 0);
    for one in all {
        match catch_unwind(AssertUnwindSafe(|| work(one))) {
            Ok(count) => kills += count,
            Err(_) => failed += 1,
        }
    }
    assert_eq!(failed, 0, "this many cases failed, see above");
    kills
}

/// Returns every point at which a run with this many events can be killed: before and after each event.
fn kill_points(events: u64) -> Vec<KillPoint> {
    (1..=events).flat_map(|seq| [KillPoint::Before(seq), KillPoint::After(seq)]).collect()
}

/// How often one run is killed: at points far from each other, so that every point is hit in a third of the runs.
const KILLS_IN_A_RUN: usize = 6;

/// Distributes kill points over runs: the points of each run are in order and far from each other.
fn kills_of_runs(kill_points: &[KillPoint]) -> Vec<Vec<KillPoint>> {
    let runs = kill_points.len().div_ceil(KILLS_IN_A_RUN);
    (0..runs).map(|run| kill_points.iter().skip(run).step_by(runs).copied().collect()).collect()
}

/// Kills fresh runs at these points, one list for each run, and resumes them.
fn at_each(scenario: CrashScenario, want: &RunResult, runs: Vec<Vec<KillPoint>>) -> u32 {
    for_each(runs, |kills| {
        let mut case = KillableRun::new(scenario, PushTarget::Here);
        for kill in &kills {
            let later = kill.later(case.resumes_after_start());
            assert_eq!(case.run(later), RunnerEnding::Killed, "{kill:?} of {kills:?}");
        }
        case.go_on();
        check(&case, want, &format!("killed {kills:?}"));
        case.kills
    })
}

fn at_every_event(scenario: CrashScenario) -> u32 {
    let (want, events) = run_undisturbed(scenario, PushTarget::Here);
    at_each(scenario, &want, kills_of_runs(&kill_points(events)))
}

/// Kills one run again and again: every process gets one event further.
fn step_by_step(scenario: CrashScenario, want: &RunResult, hand_over: PushTarget, kill: fn(u64) -> KillPoint) -> u32 {
    let mut case = KillableRun::new(scenario, hand_over);
    let mut processes = 0;
    while case.state().is_none_or(|state| state.status.is_active()) {
        // The first event of a process is that it resumes; the next must be progress.
        let last = case.state().map_or(0, |state| state.last_seq);
        case.run(kill(last));
        processes += 1;
        assert!(processes < 400, "the run does not end:\n{}", case.event_text());
    }
    check(&case, want, "killed at one event after another");
    case.kills
}

/// Pseudo-random numbers, the same every time.
struct SeededRandom(u64);

impl SeededRandom {
    fn below(&mut self, below: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % below
    }
}

/// Kills one run at random times inside its steps, a bounded number of times.
fn at_random(want: &RunResult, hand_over: PushTarget, seed: u64) -> u32 {
    let mut case = KillableRun::new(WORK, hand_over);
    let mut random = SeededRandom(0x9E37_79B9_7F4A_7C15 ^ (seed << 32 | seed));
    for _ in 0..24 {
        let last = match case.state() {
            Some(state) if !state.status.is_active() => break,
            state => state.map_or(0, |state| state.last_seq),
        };
        case.run_into(last + random.below(7), Duration::from_millis(random.below(150)));
    }
    case.go_on();
    check(&case, want, &format!("killed at random, seed {seed}"));
    case.kills
}

/// The least number of kills that each kind of test makes; a scenario that shrinks must not weaken the test.
const IN_EACH_SHARD: u32 = 30;
const AT_RANDOM: u32 = 15;

#[test]
fn an_undisturbed_run_covers_all_steps() {
    let (here, events) = run_undisturbed(WORK, PushTarget::Here);
    let branch = here.branch.as_ref().unwrap();
    let subjects = [
        "verified M1.2, M2.1",
        "by hand",
        "put back protected paths",
        "relax the check",
        "verified M1.1",
        "the first part",
        "the beginning",
    ];
    assert_eq!((here.status.as_str(), &branch.subjects[..]), ("Succeeded", &subjects.map(str::to_owned)[..]));
    assert_eq!((branch.steps.as_str(), branch.times, here.pushed), ("x\ny", 2, 2));
    assert_eq!((here.opened, here.pull_requests, branch.task.matches("[x]").count()), (1, 1, 3));
    assert_eq!(here.guardrails.matches("count twice").count(), 1);
    assert!(here.receipt.is_some() && events > 60, "{here:#?}");
    assert_eq!(run_undisturbed(WORK, PushTarget::Remote).0, here, "a remote gets the same");
}

/// Returns the runs of one shard.
fn shard_of(moments: &[KillPoint], shard: usize) -> Vec<Vec<KillPoint>> {
    kills_of_runs(moments).into_iter().skip(shard).step_by(SHARDS.len()).collect()
}

/// Defines one test per shard, and a list of all shards.
macro_rules! shards {
    ($($name:ident = $shard:literal),* $(,)?) => {
        const SHARDS: &[usize] = &[$($shard),*];
        mod killed_at_any_event {
            $(#[test]
            fn $name() {
                super::at_every_event_of_shard($shard);
            })*
        }
    };
}

// Minutes of work: separate tests, so that the test runner spreads them over the cores.
shards!(shard_0 = 0, shard_1 = 1, shard_2 = 2, shard_3 = 3);

fn at_every_event_of_shard(shard: usize) {
    let (want, events) = run_undisturbed(WORK, PushTarget::Here);
    let kills = at_each(WORK, &want, shard_of(&kill_points(events), shard));
    assert!(kills >= IN_EACH_SHARD, "only {kills} kills");
}

#[test]
fn the_shards_cover_every_event() {
    for events in [0, 1, 2, 7, 8, 9, 61, 70, 200] {
        let moments = kill_points(events);
        let mut covered: Vec<KillPoint> =
            SHARDS.iter().flat_map(|shard| shard_of(&moments, *shard)).flatten().collect();
        covered.sort_by_key(|kill| moments.iter().position(|moment| moment == kill));
        assert_eq!(covered, moments, "each once, with {events} events");
    }
}

#[test]
fn killed_at_any_event_of_a_run_that_asks() {
    at_every_event(ASKS);
}

#[test]
fn killed_at_any_event_of_a_run_that_gives_up() {
    at_every_event(GIVES_UP);
}

#[test]
fn killed_at_any_event_of_a_run_with_nothing_to_do() {
    at_every_event(VACUOUS);
}

/// The event at which a process that resumes after this many events is killed.
const KILL_POINTS: [fn(u64) -> KillPoint; 2] = [
    |last| KillPoint::After(if last == 0 { 1 } else { last + 2 }),
    |last| KillPoint::Before(if last == 0 { 2 } else { last + 3 }),
];

fn at_one_event_after_another(scenario: CrashScenario, hand_over: PushTarget) {
    let (want, events) = run_undisturbed(scenario, PushTarget::Here);
    assert_eq!(want.status, "Succeeded");
    let kills = for_each(KILL_POINTS, |kill| step_by_step(scenario, &want, hand_over, kill));
    // Each of the two ways is killed at about every event.
    assert!(u64::from(kills) >= events, "only {kills} kills in runs of {events} events");
}

// With a remote, which adds steps and leaves none out.
#[test]
fn killed_at_one_event_after_another_with_a_remote() {
    at_one_event_after_another(WORK, PushTarget::Remote);
}

#[test]
fn killed_at_one_event_after_another_of_a_run_that_forgets() {
    at_one_event_after_another(FORGETS, PushTarget::Here);
}

#[test]
fn killed_where_the_sandbox_is_spoilt() {
    let (want, events) = run_undisturbed(SPOILS, PushTarget::Here);
    assert_eq!(want.status, "Succeeded");
    let want = want.without_texts();
    // Before one event and after the next: both sides of every step are met elsewhere.
    let kill = |seq| if seq % 2 == 0 { KillPoint::Before(seq) } else { KillPoint::After(seq) };
    let moments = (4..=events / 2).map(kill);
    for_each(moments, |kill| {
        let mut case = KillableRun::new(SPOILS, PushTarget::Here);
        assert_eq!(case.run(kill), RunnerEnding::Killed, "{kill:?}");
        case.go_on();
        // At which step the damage is noticed depends on the kill point, and so do the texts.
        let found = case.outcome().without_texts();
        assert!(found == want, "killed {kill:?}: {found:#?}\n{}", case.event_text());
        case.kills
    });
}

fn at_random_of_seeds(seeds: [u64; 2], hand_over: PushTarget) {
    let (want, _) = run_undisturbed(WORK, PushTarget::Here);
    let kills = for_each(seeds, |seed| at_random(&want, hand_over, seed));
    assert!(kills >= AT_RANDOM, "only {kills} kills");
}

#[test]
fn killed_at_random() {
    at_random_of_seeds([2, 4], PushTarget::Here);
}

#[test]
fn killed_at_random_with_a_remote() {
    at_random_of_seeds([1, 3], PushTarget::Remote);
}

#[test]
fn a_run_that_died_before_its_first_event_is_not_listed() {
    let mut case = KillableRun::new(VACUOUS, PushTarget::Here);
    assert_eq!(case.run(KillPoint::Before(1)), RunnerEnding::Killed);
    assert!(case.folder().is_none(), "it is not listed");
    let left = std::fs::read_dir(case.home().runs_dir()).unwrap().next().unwrap().unwrap().path();
    // Killed in the middle of the first line.
    std::fs::write(left.join("events.jsonl"), "{\"seq\":1,\"at\":\"2024-").unwrap();
    assert!(case.folder().is_none(), "half a line is no event");
    let long_ago = std::time::SystemTime::now() - Duration::from_hours(1);
    std::fs::File::open(&left).unwrap().set_modified(long_ago).unwrap();
    case.go_on();
    assert!(!left.exists(), "the next run cleans it up");
    check(&case, &run_undisturbed(VACUOUS, PushTarget::Here).0, "begun again");
}

#[test]
fn leftovers_of_a_dead_process_do_not_disturb_a_resume() {
    let (want, events) = run_undisturbed(GIVES_UP, PushTarget::Here);
    let mut case = KillableRun::new(GIVES_UP, PushTarget::Here);
    // In the middle of the iteration, before its commit.
    let commit = 8;
    assert!(events > commit);
    assert_eq!(case.run(KillPoint::After(commit)), RunnerEnding::Killed);
    let folder = case.folder().unwrap();
    let (state, bare) = (case.state().unwrap(), folder.bare_path());
    let workspace = case.home().sandboxes_dir().join(&state.workplace.unwrap().sandbox).join("workspace");
    let branch = format!("refs/heads/{}.lock", state.started.branch);
    let left = [
        // Half a file write, and the locks of killed git processes.
        workspace.join(".ralph-0123456789abcdef.tmp"),
        workspace.join(".git/index.lock"),
        workspace.join(".git").join(&branch),
        bare.join(&branch),
        bare.join("objects/incoming-abc/pack/tmp_pack_xyz"),
        folder.path().join("seed.bundle"),
        folder.path().join("work.bundle"),
        folder.path().join("events.jsonl.new"),
    ];
    for path in &left {
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, "half of it").unwrap();
        let long_ago = std::time::SystemTime::now() - Duration::from_hours(1);
        std::fs::File::options().write(true).open(path).unwrap().set_modified(long_ago).unwrap();
    }
    // The last event was not written to its end.
    let mut whole = std::fs::read(folder.events_path()).unwrap();
    whole.extend(b"{\"seq\":9,\"at\":\"2024-01-01T00:00:00Z\",\"type\":\"log\",\"level\":\"in");
    std::fs::write(folder.events_path(), whole).unwrap();
    case.go_on();
    check(&case, &want, "among leftovers");
}

#[test]
fn a_push_that_already_arrived_counts() {
    // Simulates the push of a killed process that arrives during this one.
    let mut case = KillableRun::new(GIVES_UP, PushTarget::Remote);
    case.remote_hook("update", "git update-ref \"$1\" \"$3\"; exit 1");
    case.go_on();
    assert_eq!(case.outcome(), run_undisturbed(GIVES_UP, PushTarget::Remote).0);
}
