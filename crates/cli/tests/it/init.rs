//! Tests `ralph init` in repositories of many kinds.

use insta::assert_snapshot;
use serde_json::json;

use crate::repo_fixture::RepoFixture;

#[test]
fn an_existing_task_is_kept() {
    let fixture = RepoFixture::new();
    fixture.repo.write("Makefile", "test:\n\ttrue\n");
    assert_snapshot!(fixture.ralph(&["init"]), @"
    exit 0
    --- stderr
    found Make: `make test` (Makefile has `test`)
    wrote ralph_task.md, tested by `make test`
    next: state in it what must be true, then ralph lint
    ");
    let written = std::fs::read_to_string(fixture.repo.path().join("ralph_task.md")).unwrap();
    assert_snapshot!(fixture.ralph(&["init"]), @"
    exit 2
    --- stderr
    ralph: `ralph_task.md` already exists

    hint: edit it, or `ralph init --force` to start over
    ");
    assert_eq!(std::fs::read_to_string(fixture.repo.path().join("ralph_task.md")).unwrap(), written);
    assert_eq!(fixture.ralph(&["init", "--force", "--template", "bugfix"]).code, 0);
    // A dangling link is not written through.
    std::fs::remove_file(fixture.repo.path().join("ralph_task.md")).unwrap();
    std::os::unix::fs::symlink("elsewhere.md", fixture.repo.path().join("ralph_task.md")).unwrap();
    assert_eq!(fixture.ralph(&["init"]).code, 2);
    assert!(!fixture.repo.path().join("elsewhere.md").exists());
}

#[test]
fn several_stacks_at_once() {
    let fixture = RepoFixture::new();
    fixture.repo.write("Cargo.toml", "[workspace]\nmembers = [\"crates/*\"]\n");
    fixture.repo.write("web/package.json", r#"{"scripts": {"test": "vitest run"}}"#);
    fixture.repo.write("web/pnpm-lock.yaml", "");
    fixture.repo.write("web/node_modules/left/package.json", r#"{"scripts": {"test": "x"}}"#);
    fixture.repo.write("tools/pyproject.toml", "[project]\nname = \"tools\"\n");
    assert_snapshot!(fixture.ralph(&["init", "--template", "minimal"]), @"
    exit 0
    --- stderr
    found Rust: `cargo test` (Cargo.toml is a workspace)
    found Node in web: `pnpm test` (package.json has the script `test` (vitest run), pnpm-lock.yaml)
    note: Python in tools: pyproject.toml exists, but there are no tests
    wrote ralph_task.md, tested by `cargo test && (cd web && pnpm test)`
    next: state in it what must be true, then ralph lint
    ");
    let json: serde_json::Value = serde_json::from_str(&fixture.ralph(&["init", "--force", "--json"]).stdout).unwrap();
    assert_eq!(json["stacks"].as_array().unwrap().len(), 2);
    assert_eq!(json["test_command"], "cargo test && (cd web && pnpm test)");
}

/// The linter has no findings for any template in any kind of repository; where no test command is detected, it asks
/// for that and nothing else.
#[test]
fn templates_wait_for_the_user() {
    let kinds: [&[(&str, &str)]; 4] = [
        &[("Cargo.toml", "[package]\nname = \"x\"\n"), ("tests/it.rs", "")],
        &[
            ("package.json", r#"{"scripts": {"test": "node --test 'a \"b\"'"}}"#),
            ("go.mod", "module x\n"),
            ("test/a.js", ""),
        ],
        &[("pyproject.toml", "[tool.pytest.ini_options]\n"), ("uv.lock", ""), ("tests/a.py", "")],
        &[("a/mix.exs", ""), ("b/pom.xml", ""), ("b/src/test/A.java", "")],
    ];
    for files in kinds {
        let fixture = RepoFixture::new();
        for (path, text) in files {
            fixture.repo.write(path, text);
        }
        fixture.repo.commit("what it is");
        for template in ["minimal", "feature", "bugfix"] {
            assert_eq!(fixture.ralph(&["init", "--force", "--template", template]).code, 0);
            let lint = fixture.ralph(&["lint", "--json"]);
            let value: serde_json::Value = serde_json::from_str(&lint.stdout).unwrap();
            // Only what the user has to write is missing.
            let rules: Vec<&serde_json::Value> =
                value["findings"].as_array().unwrap().iter().map(|finding| &finding["rule"]).collect();
            assert_eq!((lint.code, rules.as_slice()), (2, &[&json!("untouched-template")][..]), "{template}: {lint}");
        }
    }
    let fixture = RepoFixture::new();
    assert_snapshot!(fixture.ralph(&["init"]), @"
    exit 0
    --- stderr
    wrote ralph_task.md; no test command was found here
    next: set your command as `test_command`, state what must be true, then ralph lint
    ");
    let lint = fixture.ralph(&["lint", "--json"]);
    let value: serde_json::Value = serde_json::from_str(&lint.stdout).unwrap();
    let rules: Vec<&str> =
        value["findings"].as_array().unwrap().iter().map(|row| row["rule"].as_str().unwrap()).collect();
    assert_eq!((lint.code, rules), (2, vec!["no-test-command", "nothing-protected", "untouched-template"]));
}
