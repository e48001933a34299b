//! Records the samples of real loops for the loop score: scripted models in real runs, one trace each.
//!
//! `RALPH_BLESS=1 cargo nextest run -p ralph-engine -E 'test(traces::)'` records them again. Without it every loop is
//! run again and must leave the same shape; how the score rates them is tested in `core`.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use ralph_core::env_vars::Env;
use ralph_core::event::{Event, EventLine};
use ralph_core::gutter::{FailureSignature, IterationSample, LadderRung};
use ralph_engine::host_environment::HostContext;
use ralph_engine::run::{KeepSandbox, StopSignals, begin};
use ralph_engine::store::{AnnouncePhase, EventObserver};
use serde_json::{Value, json};
use tokio::time::timeout;

use crate::killable_run::{KillableRun, PushTarget};

struct TraceObserver;

impl EventObserver for TraceObserver {
    fn on_event(&self, _: AnnouncePhase, _: &EventLine) {}
}

const TASK: &str = r#"---
task_id: trace-001
test_command: "sh tests/suite.sh"
max_iterations: 14
max_wall_time_minutes: 10
max_cost_usd_estimate: 1
protected_paths: ["tests/"]
---

# Five words

- [ ] M1.1 There is an alpha
  - verify: `grep -q '^alpha$' words.txt`
- [ ] M1.2 There is a beta
  - verify: `grep -q '^beta$' words.txt`
- [ ] M1.3 There is a gamma
  - verify: `grep -q '^gamma$' words.txt`
- [ ] M1.4 There is a delta
  - verify: `grep -q '^delta$' words.txt`
"#;

const FILES: [(&str, &str); 7] = [
    // Prints TAP, like many test runners.
    (
        "tests/suite.sh",
        "n=0 bad=0; echo 1..4\nfor w in alpha beta gamma delta; do n=$((n+1))\n  if grep -q \"^$w\\$\" words.txt; then echo \"ok $n - $w\"; else echo \"not ok $n - $w\"; bad=1; fi\ndone\nexit $bad\n",
    ),
    // Fails in the same way with other times, numbers and folders in its message.
    (
        "tests/noisy.sh",
        "d=$(mktemp -d)\necho \"$(date +%Y-%m-%dT%H:%M:%S) [pid $$] $d/build.log:$$: error: no rule to make 'all' (took 0.$$s)\" >&2\nrm -rf \"$d\"\nexit 2\n",
    ),
    // Fails every second time, whatever is done.
    (
        "tests/flaky.sh",
        "f=.ralph/flake; n=$(cat $f 2>/dev/null || echo 0); echo $((n+1)) > $f\n[ $((n % 2)) = 1 ] || { echo 'connection reset by peer' >&2; exit 1; }\n",
    ),
    // Reports the first line of a program that it does not understand.
    (
        "tests/compile.sh",
        "n=0; while read -r line; do n=$((n+1)); case $line in ok*) ;; *) echo \"prog.txt:$n: syntax error near '$line'\" >&2; exit 1 ;; esac; done < prog.txt\n",
    ),
    ("words.txt", "none\n"),
    ("prog.txt", "ok\n"),
    ("README.md", "# Words\n"),
];

fn run(command: &str) -> Value {
    json!({"type": "run", "command": command, "timeout_s": 60})
}

fn wait(command: &str) -> Value {
    json!({"type": "run", "command": command, "timeout_s": 1})
}

fn write(path: &str, content: &str) -> Value {
    json!({"type": "write", "path": path, "content": content})
}

fn commit(message: &str) -> Value {
    json!({"type": "commit", "message": message})
}

/// The actions and claims of one iteration.
#[derive(Debug, Clone, Default)]
struct TraceStep {
    actions: Vec<Value>,
    claims: Vec<&'static str>,
    /// The model answers without any JSON, twice.
    nonsense: bool,
}

fn step(actions: &[Value]) -> TraceStep {
    TraceStep { actions: actions.to_vec(), ..TraceStep::default() }
}

fn claims(actions: &[Value], claims: &[&'static str]) -> TraceStep {
    TraceStep { actions: actions.to_vec(), claims: claims.to_vec(), nonsense: false }
}

fn nonsense() -> TraceStep {
    TraceStep { nonsense: true, ..TraceStep::default() }
}

struct RecordedLoop {
    name: &'static str,
    kind: &'static str,
    /// One sentence: why a person would say so.
    why: &'static str,
    /// From which iteration on a person would say that it goes in circles.
    gutter_from: Option<u32>,
    steps: Vec<TraceStep>,
}

fn healthy(name: &'static str, kind: &'static str, why: &'static str, steps: Vec<TraceStep>) -> RecordedLoop {
    RecordedLoop { name, kind, why, gutter_from: None, steps }
}

fn stuck(name: &'static str, kind: &'static str, from: u32, why: &'static str, steps: Vec<TraceStep>) -> RecordedLoop {
    RecordedLoop { name, kind, why, gutter_from: Some(from), steps }
}

/// A file with the first `count` words.
fn words(count: usize) -> Value {
    let words = ["alpha", "beta", "gamma", "delta"];
    write("words.txt", &(words.get(..count).unwrap_or(&words).join("\n") + "\n"))
}

fn suite() -> Value {
    run("sh tests/suite.sh")
}

fn read_only_step(command: &str) -> TraceStep {
    step(&[run(command)])
}

fn times(step: &TraceStep, count: usize) -> Vec<TraceStep> {
    vec![step.clone(); count]
}

fn healthy_loops() -> Vec<RecordedLoop> {
    vec![
        healthy(
            "straight",
            "healthy",
            "every iteration proves one more box",
            vec![
                claims(&[words(1), commit("alpha")], &["M1.1"]),
                claims(&[words(2), commit("beta")], &["M1.2"]),
                claims(&[words(3), commit("gamma")], &["M1.3"]),
            ],
        ),
        healthy(
            "looks-first",
            "healthy",
            "it reads before it writes, each time something else",
            vec![
                read_only_step("ls"),
                read_only_step("cat words.txt"),
                read_only_step("cat tests/suite.sh"),
                claims(&[words(2), commit("two")], &["M1.1", "M1.2"]),
            ],
        ),
        healthy(
            "documents",
            "healthy",
            "it writes what was asked for, piece by piece",
            vec![
                step(&[write("README.md", "# Words\nOne.\n"), commit("one")]),
                step(&[write("README.md", "# Words\nOne.\nTwo.\n"), commit("two")]),
                step(&[write("README.md", "# Words\nOne.\nTwo.\nThree.\n"), commit("three")]),
            ],
        ),
        healthy(
            "one-slip",
            "healthy",
            "one nonsense answer among good ones is an accident",
            vec![
                claims(&[words(1)], &["M1.1"]),
                nonsense(),
                claims(&[words(2)], &["M1.2"]),
                claims(&[words(3)], &["M1.3"]),
            ],
        ),
        healthy(
            "one-cheat",
            "healthy",
            "it touches a protected file once, is told, and goes on honestly",
            vec![
                step(&[write("tests/suite.sh", "exit 0\n")]),
                claims(&[words(2)], &["M1.1", "M1.2"]),
                claims(&[words(3)], &["M1.3"]),
            ],
        ),
        healthy(
            "changes-its-mind",
            "healthy",
            "one wrong approach is undone once and a third one is taken",
            vec![
                step(&[write("plan.txt", "a\n"), suite()]),
                step(&[write("plan.txt", "b\n"), suite()]),
                step(&[write("plan.txt", "a\n"), words(1), suite()]),
                claims(&[write("plan.txt", "c\n"), words(3)], &["M1.1", "M1.2", "M1.3"]),
            ],
        ),
        healthy(
            "moving-error",
            "healthy",
            "the compiler complains about another line each time: it gets further",
            vec![
                step(&[write("prog.txt", "ok 1\nx\n"), run("sh tests/compile.sh")]),
                step(&[write("prog.txt", "ok 1\nok 2\ny\n"), run("sh tests/compile.sh")]),
                step(&[write("prog.txt", "ok 1\nok 2\nok 3\nz\n"), run("sh tests/compile.sh")]),
                step(&[write("prog.txt", "ok 1\nok 2\nok 3\nok 4\nw\n"), run("sh tests/compile.sh")]),
            ],
        ),
        healthy(
            "converges",
            "slow",
            "one test more passes in every iteration, though the suite stays red",
            vec![
                step(&[words(1), suite()]),
                step(&[words(2), suite()]),
                step(&[words(3), suite()]),
                claims(&[words(4), suite()], &["M1.1", "M1.2", "M1.3", "M1.4"]),
            ],
        ),
        healthy(
            "every-other",
            "slow",
            "it looks in one iteration and mends in the next",
            vec![
                step(&[words(1), suite()]),
                step(&[suite()]),
                step(&[words(2), suite()]),
                step(&[suite()]),
                step(&[words(3), suite()]),
                step(&[suite()]),
            ],
        ),
        healthy(
            "groundwork",
            "slow",
            "the test stays red while the groundwork is laid, file by file",
            vec![
                step(&[write("a.txt", "1\n"), suite()]),
                step(&[write("b.txt", "1\n"), suite()]),
                step(&[write("c.txt", "1\n"), suite()]),
                step(&[write("d.txt", "1\n"), suite()]),
                claims(&[words(2), suite()], &["M1.1", "M1.2"]),
            ],
        ),
        healthy(
            "boxes-without-tests",
            "slow",
            "the suite fails all along and box after box is proved",
            vec![
                claims(&[words(1), suite()], &["M1.1"]),
                claims(&[words(2), suite()], &["M1.2"]),
                claims(&[words(3), suite()], &["M1.3"]),
            ],
        ),
        healthy(
            "waits",
            "wait",
            "it waits for one long command and comes back to it",
            vec![
                step(&[words(1)]),
                step(&[wait("sleep 30")]),
                step(&[wait("sleep 30")]),
                step(&[wait("sleep 30")]),
                claims(&[words(2)], &["M1.1", "M1.2"]),
            ],
        ),
        healthy(
            "waits-five-times",
            "wait",
            "five tries at a slow command, and then it does something else",
            [times(&step(&[wait("sleep 30")]), 5), vec![claims(&[words(2)], &["M1.1", "M1.2"])]].concat(),
        ),
        healthy(
            "waits-between-failures",
            "wait",
            "two red runs with a wait between them are no circle",
            vec![
                step(&[run("sh tests/noisy.sh")]),
                step(&[wait("sleep 30")]),
                step(&[run("sh tests/noisy.sh")]),
                step(&[wait("sleep 30")]),
                claims(&[words(1)], &["M1.1"]),
            ],
        ),
        healthy(
            "proves-again",
            "success",
            "it runs what passes again and again, changes nothing and breaks nothing",
            vec![
                claims(&[words(4), suite(), commit("all")], &["M1.1", "M1.2"]),
                claims(&[suite()], &["M1.1"]),
                claims(&[suite()], &["M1.2"]),
                claims(&[suite()], &["M1.1"]),
                claims(&[suite()], &["M1.2"]),
            ],
        ),
        healthy(
            "green-looks",
            "success",
            "read-only looks that all succeed while it plans",
            vec![
                claims(&[words(2)], &["M1.1", "M1.2"]),
                read_only_step("git log --oneline"),
                read_only_step("git diff HEAD"),
                read_only_step("cat README.md"),
                claims(&[words(3)], &["M1.3"]),
            ],
        ),
        healthy(
            "flaky-beside-work",
            "flaky",
            "a flaky command fails now and then while the work goes on",
            vec![
                claims(&[words(1), run("sh tests/flaky.sh")], &["M1.1"]),
                claims(&[words(2), run("sh tests/flaky.sh")], &["M1.2"]),
                claims(&[words(3), run("sh tests/flaky.sh")], &["M1.3"]),
                step(&[write("a.txt", "1\n"), run("sh tests/flaky.sh")]),
            ],
        ),
        healthy(
            "flaky-tried-again",
            "flaky",
            "a flaky command is tried once more, and then it passes",
            vec![
                read_only_step("sh tests/flaky.sh"),
                read_only_step("sh tests/flaky.sh"),
                claims(&[words(1)], &["M1.1"]),
                read_only_step("sh tests/flaky.sh"),
                claims(&[words(2)], &["M1.2"]),
            ],
        ),
        healthy(
            "tries-things",
            "wandering",
            "one idea after another, each with another error, and it learns from each",
            vec![
                step(&[write("a.txt", "1\n"), run("cat missing-1")]),
                step(&[write("b.txt", "2\n"), run("cat missing-2")]),
                step(&[write("c.txt", "3\n"), run("grep -q nothing README.md")]),
                step(&[write("d.txt", "4\n"), run("sh tests/compile.sh && false")]),
                claims(&[words(1)], &["M1.1"]),
            ],
        ),
        healthy(
            "two-tries",
            "healthy",
            "the same failure twice, and the third try is another one",
            vec![
                read_only_step("sh tests/noisy.sh"),
                read_only_step("sh tests/noisy.sh"),
                claims(&[words(1)], &["M1.1"]),
                step(&[words(2), suite()]),
            ],
        ),
        healthy(
            "cleans-up",
            "healthy",
            "files come and go in a tidy refactoring",
            vec![
                step(&[write("old.txt", "1\n2\n3\n"), commit("old")]),
                step(&[run("git mv old.txt new.txt"), commit("rename")]),
                step(&[run("git rm -q new.txt"), write("newest.txt", "1\n2\n3\n"), commit("again")]),
                claims(&[words(1)], &["M1.1"]),
            ],
        ),
    ]
}

fn stuck_loops() -> Vec<RecordedLoop> {
    let again = step(&[suite()]);
    vec![
        stuck("same-failure", "same", 3, "the same red command, unchanged, again and again", times(&again, 5)),
        stuck(
            "same-failure-other-words",
            "same",
            3,
            "only times, numbers and folders differ in what it prints",
            times(&read_only_step("sh tests/noisy.sh"), 5),
        ),
        stuck(
            "a-timeout-of-its-own",
            "same",
            3,
            "the command ends itself with the code of a timeout: that is a failure, and nobody waited",
            times(&read_only_step("timeout 0.1 sleep 5"), 5),
        ),
        stuck(
            "waits-for-ever",
            "wait",
            6,
            "the same command is ended at its timeout, unchanged, again and again",
            times(&step(&[wait("sleep 30")]), 7),
        ),
        stuck(
            "missing-tool",
            "same",
            3,
            "the tool is not there and will not be there",
            times(&read_only_step("frobnicate --all"), 4),
        ),
        stuck(
            "late",
            "same",
            5,
            "a good start, and then the same red command for ever",
            vec![
                claims(&[words(1)], &["M1.1"]),
                claims(&[words(2)], &["M1.2"]),
                read_only_step("sh tests/noisy.sh"),
                read_only_step("sh tests/noisy.sh"),
                read_only_step("sh tests/noisy.sh"),
                read_only_step("sh tests/noisy.sh"),
            ],
        ),
        stuck(
            "claims-only",
            "same",
            3,
            "it claims what is not so and does nothing for it",
            times(&claims(&[], &["M1.1"]), 4),
        ),
        stuck(
            "patch-that-never-fits",
            "same",
            3,
            "the same patch is refused every time",
            times(
                &step(&[
                    json!({"type": "patch", "path": "words.txt", "patch": "@@ -1 +1 @@\n-nothing of it\n+alpha\n"}),
                ]),
                4,
            ),
        ),
        stuck(
            "forbidden-path",
            "same",
            3,
            "it writes where it may not, over and over",
            times(&step(&[write("../outside.txt", "x\n")]), 4),
        ),
        stuck(
            "two-failures-in-turn",
            "same",
            5,
            "two red commands in turn, and nothing changes",
            vec![
                read_only_step("sh tests/noisy.sh"),
                read_only_step("cat missing"),
                read_only_step("sh tests/noisy.sh"),
                read_only_step("cat missing"),
                read_only_step("sh tests/noisy.sh"),
            ],
        ),
        stuck(
            "to-and-fro",
            "abab",
            4,
            "one content, then the other, then the first again, and red all along",
            vec![
                step(&[write("words.txt", "x\n"), run("sh tests/noisy.sh")]),
                step(&[write("words.txt", "y\n"), run("sh tests/noisy.sh")]),
                step(&[write("words.txt", "x\n"), run("sh tests/noisy.sh")]),
                step(&[write("words.txt", "y\n"), run("sh tests/noisy.sh")]),
                step(&[write("words.txt", "x\n"), run("sh tests/noisy.sh")]),
            ],
        ),
        stuck(
            "to-and-fro-with-commits",
            "abab",
            4,
            "commit and revert in turn",
            vec![
                step(&[write("a.txt", "x\n"), commit("x"), run("sh tests/noisy.sh")]),
                step(&[write("a.txt", "y\n"), commit("y"), run("sh tests/noisy.sh")]),
                step(&[write("a.txt", "x\n"), commit("x again"), run("sh tests/noisy.sh")]),
                step(&[write("a.txt", "y\n"), commit("y again"), run("sh tests/noisy.sh")]),
            ],
        ),
        stuck(
            "there-and-back",
            "noop",
            3,
            "it edits and takes the edit back before the iteration ends",
            times(&step(&[run("echo x >> words.txt; sh tests/noisy.sh; git checkout -q words.txt; exit 1")]), 4),
        ),
        stuck("nothing-at-all", "noop", 3, "answers without a single action", times(&step(&[]), 4)),
        stuck(
            "only-rotates",
            "noop",
            3,
            "it asks for a fresh session every time and does nothing",
            times(&step(&[json!({"type": "rotate", "reason": "a fresh look"})]), 4),
        ),
        stuck("nonsense", "noop", 3, "no answer can be used", times(&nonsense(), 4)),
        stuck(
            "reads-for-ever",
            "noop",
            6,
            "it reads the same file for ever and never writes",
            times(&read_only_step("cat words.txt"), 8),
        ),
        stuck(
            "paints-while-it-burns",
            "wandering",
            6,
            "something changes each time, the failure never does",
            (1..=8).map(|n| step(&[write("notes.txt", &format!("idea {n}\n")), run("sh tests/noisy.sh")])).collect(),
        ),
    ]
}

/// Runs a loop and returns the sample of each iteration.
async fn record(one: &RecordedLoop) -> Vec<IterationSample> {
    let mut script = json!({"format": 1}).to_string();
    for (n, step) in (1_u32..).zip(&one.steps) {
        let answer = if step.nonsense {
            json!({"text": "I will do it.", "when": {"iteration": n}})
        } else {
            json!({"when": {"iteration": n}, "json": {"summary": "a step", "actions": step.actions,
                "claims": {"checkboxes_checked": step.claims}}})
        };
        script.push('\n');
        script.push_str(&answer.to_string());
    }
    let case = KillableRun::with(&FILES, TASK, &script, PushTarget::Here);
    let env = [("PATH", std::env::var("PATH").unwrap()), ("HOME", case.home().state_dir().display().to_string())];
    let host =
        HostContext::open(case.home(), Env::new(env.map(|(name, value)| (name.to_owned(), value)))).await.unwrap();
    let mut request = case.run_request();
    request.baseline = false;
    request.budget.iterations = u32::try_from(one.steps.len()).unwrap();
    request.budget.consecutive_gutter = 99;
    request.ladder = vec![LadderRung::Rotate];
    let mut runner = begin(&host, request, Box::new(TraceObserver), StopSignals::default(), KeepSandbox::Always)
        .await
        .unwrap()
        .runner;
    timeout(Duration::from_mins(2), runner.drive()).await.expect("the run ends").unwrap();
    let samples: Vec<IterationSample> = case
        .lines()
        .into_iter()
        .filter_map(|line| match line.event {
            Event::IterationFinished { sample, .. } => Some(sample),
            _ => None,
        })
        .collect();
    assert_eq!(samples.len(), one.steps.len(), "{}\n{}", one.name, case.event_text());
    samples
}

fn folder() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../core/tests/corpus/recorded")
}

/// Reduces samples to what does not depend on the shell's wording: which failures are the same stays.
fn shape(samples: &[IterationSample]) -> Vec<Value> {
    let mut known: BTreeMap<&FailureSignature, usize> = BTreeMap::new();
    let mut shapes = Vec::new();
    for sample in samples {
        let mut failures = Vec::new();
        for failure in &sample.failures {
            let next = known.len();
            failures.push(*known.entry(failure).or_insert(next));
        }
        shapes.push(json!({
            "n": sample.n, "failures": failures, "changed_lines": sample.changed_lines,
            "files": sample.files, "newly_verified": sample.newly_verified, "tests": sample.tests,
            "waiting": sample.waiting,
        }));
    }
    shapes
}

fn check(one: &RecordedLoop, samples: &[IterationSample]) -> Result<(), String> {
    let path = folder().join(format!("{}.json", one.name));
    if std::env::var_os("RALPH_BLESS").is_some() {
        let label = if one.gutter_from.is_some() { "gutter" } else { "healthy" };
        let trace = json!({
            "name": one.name, "kind": one.kind, "why": one.why, "label": label, "gutter_from": one.gutter_from,
            "samples": samples,
        });
        std::fs::create_dir_all(folder()).unwrap();
        std::fs::write(path, serde_json::to_string_pretty(&trace).unwrap() + "\n").unwrap();
        return Ok(());
    }
    let text = std::fs::read_to_string(&path).map_err(|error| format!("{}: {error}", one.name))?;
    let trace: Value = serde_json::from_str(&text).unwrap();
    let kept: Vec<IterationSample> = serde_json::from_value(trace["samples"].clone()).unwrap();
    let (kept, found) = (shape(&kept), shape(samples));
    if kept == found { Ok(()) } else { Err(format!("{}: recorded {kept:?}\nnow {found:?}", one.name)) }
}

#[test]
fn real_loops_match_the_recorded_traces() {
    const AT_ONCE: usize = 3;
    let loops: Vec<RecordedLoop> = healthy_loops().into_iter().chain(stuck_loops()).collect();
    let next = AtomicUsize::new(0);
    let wrong: Vec<String> = std::thread::scope(|scope| {
        let worker = || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            let mut wrong = Vec::new();
            while let Some(one) = loops.get(next.fetch_add(1, Ordering::Relaxed)) {
                let samples = runtime.block_on(record(one));
                wrong.extend(check(one, &samples).err());
            }
            wrong
        };
        let workers: Vec<_> = (0..AT_ONCE).map(|_| scope.spawn(worker)).collect();
        workers.into_iter().flat_map(|worker| worker.join().unwrap()).collect()
    });
    assert_eq!(wrong, Vec::<String>::new());
    let names = std::fs::read_dir(folder()).unwrap().count();
    assert_eq!(names, loops.len(), "there is a trace without a loop");
}
