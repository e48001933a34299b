//! Parses a whole task or issue from its text.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::checkbox::Checkbox;
use super::error::{TaskError, TaskProblem, TaskProblemKind};
use super::front_matter::FrontMatter;
use super::front_matter_reader::{self, IssueFrontMatter};
use super::front_matter_split::{self, TaskSourceKind};
use super::{markdown_scan, yaml};
use crate::source_span::Span;
use crate::text;

/// A task as the user wrote it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Task {
    pub front: FrontMatter,
    /// The first heading of level 1, else the first heading, else the task's ID.
    pub title: String,
    pub boxes: Vec<Checkbox>,
    /// The Markdown after the front matter.
    pub body: Span,
}

impl Task {
    /// Returns the branch of the first run; a rerun adds `-v2`, `-v3`…
    pub fn branch(&self) -> String {
        let slug = self.front.target_branch_slug.clone().unwrap_or_else(|| text::slug(&self.title, 50));
        let slug = if slug.is_empty() { "work".to_owned() } else { slug };
        format!("{}{slug}", self.front.branch_prefix())
    }
}

/// An issue whose body is a task.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct IssueSpec {
    /// `task_id` may be empty; `base` is its `base_branch`.
    pub front: FrontMatter,
    pub branch: Option<String>,
    /// Issue numbers, sorted, each once.
    pub depends: Vec<u64>,
    /// The first heading; empty where the issue has only its own title.
    pub title: String,
    /// Steps and checkboxes in the order of the text.
    pub boxes: Vec<Checkbox>,
    pub body: Span,
}

/// Parses a task file.
pub fn parse(source: &str) -> Result<Task, TaskError> {
    let examined = parse_partial(source);
    match examined.task {
        Some(task) if examined.problems.is_empty() => Ok(task),
        _ => Err(TaskError { problems: examined.problems }),
    }
}

/// Parses the body of an issue.
pub fn parse_issue(source: &str) -> Result<IssueSpec, TaskError> {
    let (issue, examined) = parse_issue_partial(source);
    match issue {
        Some(issue) if examined.problems.is_empty() => Ok(issue),
        _ => Err(TaskError { problems: examined.problems }),
    }
}

/// What could be parsed of a text, and its problems: the linter reports both at once.
#[derive(Debug)]
pub(crate) struct PartialTask {
    pub task: Option<Task>,
    pub problems: Vec<TaskProblem>,
    /// The span of each key's value; `pr.title_template` and the like for nested ones.
    pub spans: BTreeMap<String, Span>,
    /// The span of the front matter, for findings about what is missing in it.
    pub front: Option<Span>,
}

pub(crate) fn parse_partial(source: &str) -> PartialTask {
    let (_, mut examined) = parse_source(source, TaskSourceKind::Task);
    if let Some(task) = &examined.task
        && task.front.task_id.is_empty()
        && !examined.problems.iter().any(|problem| problem.key.as_deref() == Some("task_id"))
    {
        let start = examined.front.map_or(0, |front| front.start);
        examined.problems.push(
            TaskProblem::new(TaskProblemKind::NoTaskId, source, Span::new(start, start), "`task_id` is missing")
                .with_hint("add `task_id: a-short-name`"),
        );
    }
    examined
}

pub(crate) fn parse_issue_partial(source: &str) -> (Option<IssueSpec>, PartialTask) {
    let (read, examined) = parse_source(source, TaskSourceKind::Issue);
    let issue = examined.task.as_ref().zip(read).map(|(task, read)| IssueSpec {
        front: task.front.clone(),
        branch: read.branch,
        depends: read.depends,
        title: task.title.clone(),
        boxes: task.boxes.clone(),
        body: task.body,
    });
    (issue, examined)
}

fn parse_source(source: &str, opening: TaskSourceKind) -> (Option<IssueFrontMatter>, PartialTask) {
    let mut examined = PartialTask { task: None, problems: Vec::new(), spans: BTreeMap::new(), front: None };
    let frame = match front_matter_split::split(source, opening) {
        Ok(frame) => frame,
        Err(problem) => {
            examined.problems.push(problem);
            return (None, examined);
        }
    };
    examined.front = frame.front;
    let entries = match frame.front.map_or(Ok(Vec::new()), |front| yaml::parse(source, front)) {
        Ok(entries) => entries,
        Err(problem) => {
            examined.problems.push(problem);
            return (None, examined);
        }
    };
    let mut read = front_matter_reader::read(source, &entries, opening);
    let scanned = markdown_scan::scan(source, frame.body, opening);
    examined.problems = std::mem::take(&mut read.problems);
    examined.problems.sort_by_key(|problem| problem.span);
    examined.spans.clone_from(&read.spans);
    examined.task = Some(Task {
        title: scanned.title.unwrap_or_else(|| read.front.task_id.clone()),
        front: read.front.clone(),
        boxes: scanned.boxes,
        body: frame.body,
    });
    (Some(read), examined)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::gutter::LadderRung;
    use crate::money::MicroUsd;
    use crate::task::{
        ApplyMode, DiagnoseSettings, EngineKind, ISSUE_KEYS, PullRequestSettings, TASK_KEYS, TaskNetwork,
        TaskResources, TaskTestFrequency,
    };

    const FULL: &str = r#"---
format: 1
task_id: t-1
repo_url: https://example.com/r.git
base_branch: 1.10
target_branch_prefix: ralph/t-1
target_branch_slug: foo
engine: agent
agent: codex
sandbox_provider: docker
sandbox_image: img
sandbox_resources: {vcpu: 2, memory_gib: 4, disk_gib: 20}
sandbox_network: {policy: deny, allow: []}
model_profile_default: a
model_profile_fallback: b
model_profile_doctor: c
max_iterations: 5
max_wall_time_minutes: 6
max_cost_usd_estimate: 1.5
max_tokens_total: 7000000000
max_consecutive_gutter: 2
ladder: [rotate, rotate, give-up]
test_command: "true"
verify_commands: [x, 'y z']
test_every: claim
proof_timeout_s: 9
min_checkboxes: 0
min_changed_lines: 3
protected_paths: ["tests/**"]
may_change: ["tests/own/**"]
commit_state: true
diagnose: {apply: auto, every: 4}
pr:
  draft: false
  labels: [l]
  title_template: "{title}"
  body_template: |
    one
    two
---
# Title
"#;

    #[test]
    fn every_key_is_read() {
        let some = |text: &str| Some(text.to_owned());
        let want = FrontMatter {
            task_id: "t-1".into(),
            repo_url: some("https://example.com/r.git"),
            base_branch: some("1.10"),
            target_branch_prefix: some("ralph/t-1"),
            target_branch_slug: some("foo"),
            engine: EngineKind::Agent,
            agent: some("codex"),
            sandbox_provider: some("docker"),
            sandbox_image: some("img"),
            sandbox_resources: TaskResources { vcpu: Some(2), memory_gib: Some(4), disk_gib: Some(20) },
            sandbox_network: TaskNetwork { policy: Some(crate::policy::PolicyMode::Deny), allow: Some(vec![]) },
            model_profile_default: some("a"),
            model_profile_fallback: some("b"),
            model_profile_doctor: some("c"),
            max_iterations: Some(5),
            max_wall_time_minutes: Some(6),
            max_cost_usd_estimate: Some(MicroUsd(1_500_000)),
            max_tokens_total: Some(7_000_000_000),
            max_consecutive_gutter: Some(2),
            ladder: Some(vec![LadderRung::Rotate, LadderRung::Rotate, LadderRung::GiveUp]),
            test_command: some("true"),
            verify_commands: vec!["x".into(), "y z".into()],
            test_every: TaskTestFrequency::Claim,
            proof_timeout_s: 9,
            min_checkboxes: 0,
            min_changed_lines: 3,
            protected_paths: vec!["tests/**".into()],
            may_change: vec!["tests/own/**".into()],
            commit_state: true,
            diagnose: DiagnoseSettings { apply: ApplyMode::Auto, every: 4 },
            pr: PullRequestSettings {
                draft: false,
                labels: vec!["l".into()],
                title_template: some("{title}"),
                body_template: some("one\ntwo"),
            },
        };
        let task = parse(FULL).unwrap();
        assert_eq!(task.front, want);
        assert_eq!(task.branch(), "ralph/t-1/foo");
        let written: Vec<_> = FULL.lines().filter_map(|line| line.split_once(':')).map(|(key, _)| key).collect();
        for key in TASK_KEYS {
            assert!(written.contains(&key.name), "the test does not cover `{}`", key.name);
        }
    }

    #[test]
    fn defaults() {
        let task = parse("---\ntask_id: t\ntest_command:\n---\n").unwrap();
        assert_eq!(task.front, FrontMatter { task_id: "t".into(), ..FrontMatter::default() });
        let front = &task.front;
        assert_eq!(
            (front.max_iterations(), front.max_wall_time_minutes(), front.max_cost_usd_estimate()),
            (30, 120, MicroUsd(10_000_000))
        );
        assert_eq!((front.max_tokens_total(), front.max_consecutive_gutter(), front.agent()), (None, 3, "claude"));
        assert_eq!((task.title.as_str(), task.branch().as_str()), ("t", "ralph/t/t"));
    }

    /// Checks the problems of a front matter as `line:column message / hint`.
    #[track_caller]
    fn wrong(front: &str, want: &[&str]) {
        for source in
            [format!("---\n{front}\n---\n"), format!("\u{feff}---\r\n{}\r\n---\r\n", front.replace('\n', "\r\n"))]
        {
            let problems = parse(&source).map_or_else(|error| error.problems, |_| Vec::new());
            let got: Vec<_> = problems
                .iter()
                .map(|p| {
                    let hint = p.hint.as_ref().map(|hint| format!(" / {hint}")).unwrap_or_default();
                    format!("{}:{} {}{hint}", p.line, p.column, p.message)
                })
                .collect();
            assert_eq!(got, want, "{source:?}");
        }
    }

    #[test]
    fn mistakes_have_a_position() {
        wrong(
            "task_id: t\nmax_iteration: 3\nzzz: 1",
            &[
                "3:1 unknown key `max_iteration` / did you mean `max_iterations`?",
                "4:1 unknown key `zzz` / remove it; `ralph help task-file` lists the keys",
            ],
        );
        wrong(
            "task_id: t\nmax_iterations: many",
            &["3:17 `max_iterations` must be a whole number of at least 1, not `many`"],
        );
        wrong(
            "task_id: t\nmax_iterations: 0",
            &["3:17 `max_iterations` must be a whole number of at least 1, not `0`"],
        );
        wrong(
            "task_id: t\nmax_iterations: 5000000000",
            &["3:17 `max_iterations` must be at most 4294967295, not `5000000000`"],
        );
        wrong(
            "task_id: t\nmax_cost_usd_estimate: -1",
            &["3:24 `max_cost_usd_estimate` must be an amount of dollars above 0, not `-1`"],
        );
        wrong("task_id: t\ntest_command: [a]", &["3:15 `test_command` must be text, not a list"]);
        wrong(
            "task_id: t\nverify_commands: npm test",
            &["3:18 `verify_commands` must be a list, not `npm test` / write `verify_commands: [\"…\"]`"],
        );
        wrong(
            "task_id: t\nmode: debug",
            &[
                "3:1 `mode` would have no effect: every run is autonomous; `ralph pause`, `ralph note` and `ralph stop` steer it / remove it",
            ],
        );
        wrong(
            "task_id: t\npr: {wait_for_ci: true}",
            &[
                "3:6 `wait_for_ci` would have no effect: a run ends with its own proofs and does not wait for CI / remove it",
            ],
        );
        wrong(
            "task_id: t\nsandbox_network: {policy: nonsense}",
            &["3:27 `policy` must be `deny` or `allowlist` or `open`, not `nonsense`"],
        );
        let rungs = "`rotate` or `fallback` or `diagnose` or `pause` or `give-up`";
        wrong(
            "task_id: t\nladder: [rotate, pauze]",
            &[&format!("3:18 `ladder` must be {rungs}, not `pauze` / did you mean `pause`?")],
        );
        wrong("task_id: t\nladder: []", &["3:9 `ladder` must be a list of 1 to 16 rungs, not a list"]);
        wrong(
            "task_id: t\nladder: pause",
            &["3:9 `ladder` must be a list of rungs, not `pause` / write `ladder: [rotate, pause]`"],
        );
        wrong("task_id: t\npr:\n  drafts: true", &["4:3 unknown key `drafts` / did you mean `draft`?"]);
        wrong("task_id: t\npr: {draft: maybe}", &["3:13 `draft` must be true or false, not `maybe`"]);
        wrong(
            "task_id: t\nsandbox_resources: 4",
            &["3:20 `sandbox_resources` must be a map of vcpu, memory_gib, disk_gib, not `4`"],
        );
        wrong(
            "task_id: t\nprotected_paths: ['a[']",
            &["3:18 `protected_paths` must be a list of valid globs, not a list"],
        );
        wrong(
            "task_id: t\ntest_command: \"a\\0b\"",
            &["3:15 `test_command` must be text without NUL characters, not `ab`"],
        );
        wrong("test_command: a", &["2:1 `task_id` is missing / add `task_id: a-short-name`"]);
        wrong(
            "task_id: My Task",
            &[
                "2:10 `task_id` must be at most 63 of a-z, 0-9 and `-`, not starting with `-`, not `My Task` / write `task_id: my-task`",
            ],
        );
        wrong(
            "format: 2\ntask_id: t",
            &[
                "2:9 `format` must be `1`, not `2` / a newer ralph may read it: `ralph --version` says which one this is",
            ],
        );
        wrong(
            "task_id: t\nbranch: x",
            &["3:1 unknown key `branch` / remove it; `ralph help task-file` lists the keys"],
        );
    }

    #[test]
    fn broken_yaml_has_a_line() {
        let error = parse("---\ntask_id: t\nfoo: [\n---\n").unwrap_err();
        assert_eq!((error.problems.len(), error.problems[0].kind), (1, TaskProblemKind::Syntax));
        assert!((3..=4).contains(&error.problems[0].line), "{error}");
        let error = parse("---\ntask_id: t\nzzz: 1\nyyy: 1\n---\n").unwrap_err();
        assert_eq!(error.to_string(), "line 3, column 1: unknown key `zzz` (and 1 more)");
    }

    #[test]
    fn issues() {
        let source =
            "branch: docker-sandbox\ndepends: [25, 24, '#24']\nbase: dev\n# Spec\n### Step 1: A [DONE]\nVerify: `x`\n";
        let issue = parse_issue(source).unwrap();
        assert_eq!(
            (
                issue.branch.as_deref(),
                issue.depends.as_slice(),
                issue.front.base_branch.as_deref(),
                issue.title.as_str()
            ),
            (Some("docker-sandbox"), [24, 25].as_slice(), Some("dev"), "Spec")
        );
        assert_eq!(issue.boxes.iter().map(|b| (b.id.as_str(), b.done)).collect::<Vec<_>>(), [("step-1", true)]);
        assert_eq!(parse_issue("").map(|issue| issue.boxes), Ok(vec![]));
        let hint = |source: &str| parse_issue(source).unwrap_err().hint().map(str::to_owned);
        assert_eq!(hint("Branch: x\n").as_deref(), Some("did you mean `branch`?"));
        assert_eq!(
            parse_issue("depends: [a]\n").unwrap_err().to_string(),
            "line 1, column 11: `depends` must be a list of issue numbers, not `a`"
        );
        assert_eq!(ISSUE_KEYS.len(), 3);
    }

    fn hostile() -> impl Strategy<Value = String> {
        let word = prop::sample::select(vec![
            "---\n",
            "task_id: t\n",
            "- [ ] ",
            "* [x] ",
            "M1.1 ",
            "verify: ",
            "`x`",
            "```\n",
            "\r\n",
            "\n",
            "  ",
            "\t",
            "> ",
            "<!--",
            "-->",
            "\0",
            "ü",
            "\u{feff}",
            "### Step 1: a",
            " [done]",
            "[blocked: ",
            "]",
            "[",
            "# ",
            "branch: x\n",
            "depends: [1]\n",
            "&a ",
            "*a",
            "{",
            "}",
            "|",
            ": ",
            "verify:\n",
            "1. ",
            "\\",
            "![",
            "](",
            "<a",
            "&amp;",
            "===\n",
        ]);
        prop::collection::vec(word, 0..40).prop_map(|words| words.concat())
    }

    proptest! {
        #[test]
        fn never_panics_and_spans_fit(source in hostile(), raw in ".{0,80}") {
            for source in [source.clone(), format!("---\n{source}"), format!("---\ntask_id: t\n---\n{source}"), raw] {
                let results = [parse(&source).map(|t| (t.boxes, t.body)), parse_issue(&source).map(|i| (i.boxes, i.body))];
                for result in results {
                    match result {
                        Ok((boxes, body)) => {
                            prop_assert!(source.get(body.start..body.end).is_some());
                            for b in boxes {
                                prop_assert!(source.get(b.mark.start..b.mark.end).is_some());
                                prop_assert!(source.get(b.span.start..b.span.end).is_some());
                                prop_assert_eq!(b.proofs.len(), b.proof_spans.len());
                            }
                        }
                        Err(error) => {
                            prop_assert!(!error.problems.is_empty());
                            for problem in error.problems {
                                prop_assert!(source.get(problem.span.start..problem.span.end).is_some());
                            }
                        }
                    }
                }
            }
        }
    }

    /// Each text is the worst of its kind, large enough that a parser that walks its own depth for each line, or looks
    /// back for each bracket, would need minutes for one of them.
    #[test]
    fn hostile_sizes_parse_quickly() {
        let front = "---\ntask_id: t\n---\n";
        let room = crate::task::MAX_BYTES / 4;
        let deep_then_wide = format!("{}x\n", "- ".repeat(crate::task::MAX_NESTING));
        for unit in [
            "[",
            "]",
            "![",
            "[](",
            "`",
            "*",
            "_",
            "<",
            "<!--",
            "\n",
            "- [ ] a\n",
            "&",
            "\\",
            "[a]: b\n",
            "> \n",
            "``` \n",
            "\0",
            "- [ ] verify: `x` ",
            "\r",
            "- a\n  - b\n",
            "*a_ ",
            "a**b",
            "[a](<",
            "<a ",
            "$",
            "~",
            "|",
            "\t- x\n",
            deep_then_wide.as_str(),
        ] {
            let body = unit.repeat(room / unit.len());
            let source = format!("{front}{body}");
            assert!(parse(&source).is_ok(), "{unit:?}");
        }
        let stairs = (0..100).map(|depth| "  ".repeat(depth) + "- a\n").collect::<String>();
        let ticks = (1..700).map(|run| "`".repeat(run) + " ").collect::<String>();
        let code = stairs.clone() + &"  ".repeat(100) + "```\n" + &"\n".repeat(50_000);
        for body in [stairs + &"x\n".repeat(50_000), ticks, code] {
            assert!(parse(&format!("{front}{body}")).is_ok());
        }
        assert!(parse(&"[".repeat(5 << 20)).is_err());
        assert!(parse(&format!("{front}{}", "> ".repeat(300_000))).is_err());
    }
}
