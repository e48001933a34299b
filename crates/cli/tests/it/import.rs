//! Tests `ralph import` of other tools' plans.

use insta::assert_snapshot;

use crate::repo_fixture::RepoFixture;

const STORIES: &str = r#"{"project": "Shop", "branchName": "ralph/cart", "userStories": [
  {"id": "US-001", "title": "Add to cart", "acceptanceCriteria": ["`npm test -- cart` passes"], "passes": true},
  {"id": "US-002", "title": "Empty the cart", "acceptanceCriteria": ["The cart is empty"], "passes": false}
]}"#;

#[test]
fn stories() {
    let fixture = RepoFixture::new();
    fixture.repo.write("package.json", r#"{"scripts": {"test": "vitest run"}}"#);
    fixture.repo.write("prd.json", STORIES);
    assert_snapshot!(fixture.ralph(&["import", "prd.json"]), @"
    exit 0
    --- stderr
    wrote ralph_task.md from user stories: 2 boxes
    note: 1 box marked as done in the plan; none is proved yet, so they are open
    note: 1 box without a check of their own, proved by `npm test`
    note: the branch `ralph/cart` is not used: every run creates its own under `ralph/`
    next: read it, give each box a proof that fails today, then ralph lint
    ");
    let lint = fixture.ralph(&["lint"]);
    assert_eq!(lint.code, 0, "{lint}");
    assert_snapshot!(fixture.ralph(&["import", "prd.json"]), @"
    exit 2
    --- stderr
    ralph: `ralph_task.md` already exists

    hint: name another with `--to`, or: ralph import prd.json --force
    ");
    let output = fixture.ralph(&["import", "prd.json", "--to", "tasks/cart.md", "--json"]);
    let value: serde_json::Value = serde_json::from_str(&output.stdout).unwrap();
    assert_eq!(
        (value["kind"].as_str(), value["items"].as_u64(), value["claimed"].as_u64()),
        (Some("stories"), Some(2), Some(1))
    );
    let written = |name: &str| std::fs::read_to_string(fixture.repo.path().join(name)).unwrap();
    assert_eq!(written("tasks/cart.md"), written("ralph_task.md"));
}

#[test]
fn pages() {
    let fixture = RepoFixture::new();
    fixture
        .repo
        .write("RALPH_TASK.md", "---\ntask: x\ntest_command: \"sh t.sh\"\n---\n# X\n\n1. [x] one\n2. [ ] two\n");
    fixture.repo.write("t.sh", "exit 1\n");
    fixture.repo.commit("a plan");
    assert_snapshot!(fixture.ralph(&["import", "RALPH_TASK.md"]), @"
    exit 0
    --- stderr
    wrote ralph_task.md from a RALPH_TASK: 2 boxes
    note: 1 box marked as done in the plan; none is proved yet, so they are open
    note: 2 boxes without a check of their own, proved by `sh t.sh`
    next: read it, give each box a proof that fails today, then ralph lint
    ");
    assert_eq!(fixture.ralph(&["lint"]).code, 0);
    fixture.repo.write("docs/plans/a.md", "# A\n\n### Task 1: One\n\n### Task 2: Two\n");
    let output = fixture.ralph(&["import", "docs/plans/a.md", "--to", "tasks/a.md"]);
    assert_snapshot!(output, @"
    exit 0
    --- stderr
    wrote tasks/a.md from a plan: 2 boxes
    note: nothing shows how the project is tested: add a `test_command`
    next: read it, give each box a proof that fails today, then ralph lint tasks/a.md
    ");
}

#[test]
fn unsupported_plans() {
    let fixture = RepoFixture::with_task();
    fixture.repo.write("words.md", "Only words.\n");
    fixture.repo.write("large.md", "- [ ] x\n".repeat(100_000));
    fixture.repo.write("binary.md", "- [ ] \u{0}\n");
    std::fs::write(fixture.repo.path().join("latin.md"), b"- [ ] \xff\n").unwrap();
    fixture.repo.write("deep.json", "[".repeat(10_000));
    let refused = |args: &[&str]| {
        let output = fixture.ralph(args);
        assert_eq!(output.code, 2, "{output}");
        output.stderr
    };
    assert_snapshot!(refused(&["import", "words.md", "--to", "x.md"]), @"
    ralph: `words.md` contains no work items: it has no checkbox, no task heading and no list

    hint: write each item as `- [ ] what shall be true`, or start with a new task: ralph init
    ");
    assert_snapshot!(refused(&["import", "large.md", "--to", "x.md"]), @"
    ralph: `large.md` has 800000 bytes, more than 196608

    hint: split it: one task file for each piece of work that can be reviewed alone
    ");
    assert_snapshot!(refused(&["import", "deep.json", "--to", "x.md"]), @"
    ralph: `deep.json` is not JSON: recursion limit exceeded at line 1 column 128

    hint: correct it, or give the file a name that ends in `.md` if it is a page
    ");
    assert_snapshot!(refused(&["import", "latin.md", "--to", "x.md"]), @"
    ralph: could not read `latin.md`
      caused by: invalid utf-8 sequence of 1 bytes from index 6

    hint: name a plan in UTF-8: ralph import docs/plans/PLAN.md
    ");
    assert_snapshot!(refused(&["import", "ralph_task.md", "--to", "x.md"]), @"
    ralph: `ralph_task.md` is already a task file

    hint: ralph lint ralph_task.md
    ");
    assert_snapshot!(refused(&["import", "tests", "--to", "x.md"]), @"
    ralph: `tests` is not a file

    hint: name a plan in UTF-8: ralph import docs/plans/PLAN.md
    ");
    assert_snapshot!(refused(&["import", "words.md", "--to", "words.md", "--force"]), @"
    ralph: `words.md` would be overwritten by the imported task

    hint: ralph import words.md --to tasks/imported.md
    ");
    assert!(!fixture.repo.path().join("x.md").exists());
}
