//! Plans of every shape, and the invariants of every import.

use proptest::prelude::*;

use super::*;
use crate::lint::{LintContext, LintRule, lint};
use crate::task;

fn plan_source<'a>(name: &'a str, text: &'a str) -> PlanSource<'a> {
    PlanSource { name, text, test_command: Some("make test") }
}

/// Each box as `id|proofs|text`.
fn shown(imported: &ImportedTask) -> Vec<String> {
    let task = task::parse(&imported.task).unwrap();
    task.boxes.iter().map(|one| format!("{}|{}|{}", one.id, one.proofs.join(" ; "), one.text)).collect()
}

#[track_caller]
fn check(name: &str, text: &str, want: &[&str]) -> ImportedTask {
    let imported = import(&plan_source(name, text)).unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(shown(&imported), want, "{}", imported.task);
    let rules: Vec<LintRule> =
        lint(Some(&imported.task), &LintContext::default()).iter().map(|found| found.rule).collect();
    // When no box has a proof of its own, all boxes share one, and the import has to say so.
    let rest: Vec<LintRule> = rules.into_iter().filter(|rule| *rule != LintRule::SharedProof).collect();
    assert_eq!(rest, [], "{}", imported.task);
    assert_invariants(text, &imported);
    imported
}

/// Checks the invariants of an imported plan.
#[track_caller]
fn assert_invariants(source: &str, imported: &ImportedTask) {
    let task = task::parse(&imported.task).unwrap();
    assert_eq!(task.boxes.len(), imported.items);
    assert!(task.boxes.iter().all(|one| !one.done), "nothing is ticked");
    let ids: std::collections::BTreeSet<&str> = task.boxes.iter().map(|one| one.id.as_str()).collect();
    assert_eq!(ids.len(), imported.items, "every ID is used once");
    if imported.kind != PlanKind::Stories {
        let words = |text: &str| -> Vec<String> {
            text.split(|c: char| !c.is_alphanumeric()).filter(|word| !word.is_empty()).map(str::to_owned).collect()
        };
        let kept: std::collections::BTreeSet<String> = words(&imported.task).into_iter().collect();
        // Only the marks of boxes are removed from the text.
        for word in words(&crate::text::strip_control(source))
            .into_iter()
            .filter(|word| !matches!(word.as_str(), "x" | "X" | "task" | "test_command" | "max_iterations"))
        {
            assert!(kept.contains(&word), "{word:?} was lost in\n{}", imported.task);
        }
    }
}

const STORIES: &str = r#"{
  "project": "MyApp",
  "branchName": "ralph/task-priority",
  "description": "Tasks have priorities",
  "qualityChecks": {"typecheck": "npm run typecheck"},
  "userStories": [
    {
      "id": "US-001",
      "title": "Add a priority column",
      "description": "As a developer, I need to store it.",
      "acceptanceCriteria": ["The column exists", "`npm run migrate` works", "`npm test -- priority` passes", "npm run lint passes"],
      "priority": 1,
      "passes": true,
      "notes": ""
    },
    {"id": 2, "title": "Show it", "acceptanceCriteria": ["[ ] Typecheck passes", "1. Verify in browser"], "passes": false, "notes": "see\nbelow"}
  ]
}"#;

#[test]
fn user_stories_become_boxes() {
    let imported = check(
        "scripts/ralph/prd.json",
        STORIES,
        &["US-001|npm test -- priority ; npm run lint|(claimed done) Add a priority column", "S-2||Show it"],
    );
    assert_eq!((imported.kind, imported.items, imported.claimed, imported.proved), (PlanKind::Stories, 2, 1, 1));
    assert_eq!(imported.task_id, "task-priority");
    assert_eq!(imported.test_command.as_deref(), Some("make test"));
    insta::assert_snapshot!(imported.task, @r#"
    ---
    task_id: task-priority
    # Made from prd.json.
    # A box marked (claimed done) is done according to prd.json. None of this is proved yet.

    # The command that must succeed for the task to succeed.
    test_command: "make test"
    # These prove the boxes without a proof of their own. A proof that fails today is worth more.
    verify_commands: ["npm run typecheck", "make test"]

    # Hard stops. The run ends when the first is reached.
    max_iterations: 30
    max_wall_time_minutes: 120
    max_cost_usd_estimate: 10
    ---

    # MyApp

    branchName: ralph/task-priority

    Tasks have priorities

    qualityChecks: typecheck: npm run typecheck

    - [ ] US-001 (claimed done) Add a priority column
      - As a developer, I need to store it.
      - The column exists
      - `npm run migrate` works
      - `npm test -- priority` passes
      - npm run lint passes
      - priority: 1
      - verify: `npm test -- priority`
      - verify: `npm run lint`
    - [ ] S-2 Show it
      - id: 2
      - \[ ] Typecheck passes
      - 1\. Verify in browser
      - notes: see below
    "#);
}

#[test]
fn bare_lists_of_stories_are_accepted() {
    let list = r#"[{"category": "functional", "description": "User can send a message", "steps": ["Open chat", "Send"], "passes": false},
        {"id": "ui-7", "description": "It is blue", "status": "done"}, "Only words"]"#;
    let imported = check(
        "plans/prd.json",
        list,
        &["S-1||User can send a message", "UI-7||(claimed done) It is blue", "S-3||Only words"],
    );
    assert!(imported.task.contains("  - category: functional\n  - Open chat\n  - Send\n"), "{}", imported.task);
    check(
        "prd.json",
        r#"{"stories": [{"id": "A-1", "title": "a"}, {"id": "A-1", "title": "b"}]}"#,
        &["A-1||a", "S-2||b"],
    );
    let one = check("prd.json", r#"{"features": [{"title": "a"}]}"#, &["S-1||a"]);
    assert!(one.task.contains("min_checkboxes: 1\n"));
}

#[test]
fn fix_plans() {
    let plan = "# Ralph Fix Plan\n\n## High Priority\n- [ ] Set up the build\n- [x] Parse `a.b`\n  and go on\n\n## Medium Priority\n- [ ] `cargo test parser` passes\n\n## Notes\n- Focus on the core\n";
    let imported = check(
        "@fix_plan.md",
        plan,
        &[
            "M1.1||Set up the build",
            "M1.2||(claimed done) Parse a.b and go on",
            "M2.1|cargo test parser|cargo test parser passes",
        ],
    );
    assert_eq!((imported.kind, imported.claimed, imported.proved), (PlanKind::FixPlan, 1, 1));
    insta::assert_snapshot!(imported.task, @r#"
    ---
    task_id: ralph-fix-plan
    # Made from @fix_plan.md.
    # A box marked (claimed done) is done according to @fix_plan.md. None of this is proved yet.

    # The command that must succeed for the task to succeed.
    test_command: "make test"
    # These prove the boxes without a proof of their own. A proof that fails today is worth more.
    verify_commands: ["make test"]

    # Hard stops. The run ends when the first is reached.
    max_iterations: 30
    max_wall_time_minutes: 120
    max_cost_usd_estimate: 10
    ---

    # Ralph Fix Plan

    ## High Priority
    - [ ] M1.1 Set up the build
    - [ ] M1.2 (claimed done) Parse `a.b`
      and go on

    ## Medium Priority
    - [ ] M2.1 `cargo test parser` passes
      verify: `cargo test parser`

    ## Notes
    - Focus on the core
    "#);
    let bare = "# Plan\n\n1. Do this\n2. Do that\n   - with care\n\n## Completed\n* Begun\n\n## Notes\n- A remark\n";
    check("fix_plan.md", bare, &["M1.1||Do this", "M1.2||Do that", "M2.1||(claimed done) Begun"]);
    let headed = "# Fix Plan\n\n### 1. [ ] First thing\n\n**Why**: because\n\n### 2. [x] Second thing\n";
    check("fix_plan.md", headed, &["M1.1||First thing", "M2.1||(claimed done) Second thing"]);
}

#[test]
fn ralph_tasks() {
    let source = "---\ntask: Build a REST API\ntest_command: \"npm test\"\nmax_iterations: 12\nbrowser_validation: true\n---\n\n# Task: REST API\n\n## Success Criteria\n\n1. [ ] GET /health returns 200\n2. [x] POST /users creates a user\n";
    let imported = check(
        "RALPH_TASK.md",
        source,
        &["M1.1||GET /health returns 200", "M1.2||(claimed done) POST /users creates a user"],
    );
    assert_eq!(imported.test_command.as_deref(), Some("npm test"));
    assert_eq!(imported.remarks, ["a front-matter line has no equivalent in a task and is kept as a comment"]);
    assert!(imported.task.contains("verify_commands: [\"npm test\"]\n"), "{}", imported.task);
    assert!(imported.task.contains("#   browser_validation: true\n") && imported.task.contains("max_iterations: 12\n"));
}

#[test]
fn plans() {
    let old = "# Widget Implementation Plan\n\n> **For agents:** do it.\n\n**Goal:** Widgets\n\n---\n\n### Task 1: Model\n\n**Files:**\n- Create: `src/a.py`\n\n**Step 1: Write the failing test**\n\n```python\ndef test_a(): ...\n```\n\n**Step 2: Run test to verify it fails**\n\nRun: `pytest tests/a.py -v`\nExpected: FAIL\n\n**Step 4: Run it again**\n\nRun: `pytest tests/a.py::ok -v`\nExpected: PASS\n\n### Task 2: View\n\nWords.\n";
    let imported = check(
        "docs/plans/2026-01-02-widget.md",
        old,
        &["M1.1|pytest tests/a.py::ok -v|Task 1: Model", "M2.1||Task 2: View"],
    );
    assert_eq!(imported.kind, PlanKind::Plan);
    let new = "# P\n\n### Task 1: Model\n\n- [ ] **Step 1: Write the failing test**\n\n```python\nx\n```\n\n- [ ] **Step 2: Run test to verify it fails**\n\nRun: `pytest tests/a.py`\nExpected: FAIL\n\n- [ ] **Step 4: Run test to verify it passes**\n\nRun: `pytest tests/a.py`\nExpected: PASS\n\n- [ ] **Step 5: Commit**\n\n```bash\ngit commit\n```\n";
    check(
        "plan.md",
        new,
        &[
            "M1.1||Step 1: Write the failing test",
            "M1.2||Step 2: Run test to verify it fails",
            "M1.3|pytest tests/a.py|Step 4: Run test to verify it passes",
            "M1.4||Step 5: Commit",
        ],
    );
    let named = "- [ ] T1.1: one\n- [x] T1.1: again\n- [ ] M1.1 taken\n  - verify: `make x`\n";
    check("todo.md", named, &["T1.1||one", "M1.2||(claimed done) T1.1: again", "M1.1|make x|taken"]);
}

#[test]
fn imports_are_deterministic() {
    let plan = "## A\n- [ ] one\n## B\n- [ ] two\n";
    let longer = "## A\n- [ ] one\n- [ ] more\n## B\n- [ ] two\n- [ ] last\n";
    let first = import(&plan_source("plan.md", plan)).unwrap();
    assert_eq!(first, import(&plan_source("plan.md", plan)).unwrap());
    assert_eq!(shown(&first), ["M1.1||one", "M2.1||two"]);
    assert_eq!(
        shown(&import(&plan_source("plan.md", longer)).unwrap()),
        ["M1.1||one", "M1.2||more", "M2.1||two", "M2.2||last"]
    );
}

#[track_caller]
fn refused(name: &str, text: &str, want: &str) {
    let error = import(&plan_source(name, text)).unwrap_err();
    assert_eq!(error.to_string(), want);
    assert!(!error.hint().is_empty());
}

#[test]
fn unusable_plans_are_refused() {
    refused("a.md", "Only words.\n", "`a.md` contains no work items: it has no checkbox, no task heading and no list");
    refused("a.md", "", "`a.md` contains no work items: it has no checkbox, no task heading and no list");
    refused("prd.json", "{", "`prd.json` is not JSON: EOF while parsing an object at line 1 column 1");
    refused("prd.json", "3", "`prd.json` contains no list of stories");
    refused("prd.json", "{\"userStories\": []}", "`prd.json` contains no list of stories");
    let deep = "[".repeat(5000);
    refused("prd.json", &deep, "`prd.json` is not JSON: recursion limit exceeded at line 1 column 128");
    let large = "- [ ] x\n".repeat(MAX_BYTES / 8 + 1);
    refused("a.md", &large, &format!("`a.md` has {} bytes, more than {MAX_BYTES}", large.len()));
    let nested = format!("{}- [ ] x\n", "  ".repeat(300));
    refused(
        "a.md",
        &format!("- [ ] a\n{nested}"),
        "`a.md` is too large a task: line 5, column 1: this line is nested more than 100 lists or quotes deep",
    );
    let ours = "---\ntask_id: a\n---\n- [ ] x\n";
    refused("ralph_task.md", ours, "`ralph_task.md` is already a task file");
}

#[test]
fn many_items_are_refused_quickly() {
    for (text, count) in [("- [x] a\n", 24_576), ("# a\n", 49_152), ("* a\n", 49_152)] {
        let many = text.repeat(MAX_BYTES / text.len());
        let want = format!("`a.md` is too large a task: it has {count} items or headings, more than 2000");
        refused("a.md", &many, &want);
    }
    let many = format!("[{}1]", "1,".repeat(3000));
    refused("prd.json", &many, "`prd.json` is too large a task: it has 3001 stories, more than 2000");
    let most = "- [x] a `npm test` `cargo test`\n".repeat(2000);
    assert_eq!(import(&plan_source("a.md", &most)).unwrap().items, 2000);
}

proptest! {
    #[test]
    fn any_page_keeps_the_invariants(text in "((?s).|- \\[ \\] |- \\[x\\] |\\* |1\\. |\n|\n\n|  |# |### Task 1: |---\n|test_command: |verify: |`|```|`npm test`|<!--|-->|> |M1\\.1 |\\[|\\]\\(x\\)|\\*\\*|\t){0,40}") {
        match import(&plan_source("plan.md", &text)) {
            Ok(imported) => assert_invariants(&text, &imported),
            Err(error) => prop_assert!(!error.to_string().is_empty()),
        }
    }

    #[test]
    fn any_story_keeps_the_invariants(title in "((?s).|\\[ \\]|- |`|#|\n|verify: ){0,20}", criterion in "((?s).|\\[ \\]|- |`|```|#|\n|verify: |<!--|`npm test`){0,20}", id in "[A-Z]{0,3}-?[0-9.]{0,4}", passes: bool) {
        let source = serde_json::json!({"project": &title, "notes": &criterion, "userStories": [
            {"id": &id, "title": &title, "acceptanceCriteria": [&criterion, &title], "passes": passes, "more": {"a": [&criterion]}},
            {"id": &id, "description": &criterion},
        ]});
        let imported = import(&plan_source("prd.json", &source.to_string())).unwrap();
        assert_invariants("", &imported);
        prop_assert_eq!(imported.items, 2);
        let kept: std::collections::BTreeSet<&str> = imported.task.split(|c: char| !c.is_alphanumeric()).collect();
        let plain = crate::text::strip_control(&criterion);
        for word in plain.split(|c: char| !c.is_alphanumeric()) {
            prop_assert!(kept.contains(word), "{:?} was lost in\n{}", word, imported.task);
        }
    }
}
