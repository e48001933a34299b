//! A first task file for a repository: what its files say about how it is tested.

use std::collections::BTreeSet;

/// What kind of task is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Template {
    Minimal,
    Feature,
    Bugfix,
}

/// How a project is tested, and what said so.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stack {
    pub name: &'static str,
    pub test_command: String,
    /// The file it was seen by.
    pub seen: &'static str,
}

/// Tells how a repository is tested from the files at its top; `makefile` and `package` are the texts of `Makefile` and
/// `package.json`.
pub fn detect(files: &BTreeSet<String>, makefile: Option<&str>, package: Option<&str>) -> Option<Stack> {
    let has = |name: &str| files.contains(name);
    let stack = |name, command: &str, seen| Some(Stack { name, test_command: command.to_owned(), seen });
    if has("Cargo.toml") {
        return stack("Rust", "cargo test", "Cargo.toml");
    }
    if package.is_some_and(|text| text.contains("\"test\"")) {
        let runner =
            [("pnpm-lock.yaml", "pnpm"), ("yarn.lock", "yarn"), ("bun.lockb", "bun run"), ("bun.lock", "bun run")];
        let runner = runner.iter().find(|(lock, _)| has(lock)).map_or("npm", |(_, runner)| runner);
        return stack("Node", &format!("{runner} test"), "package.json");
    }
    if has("go.mod") {
        return stack("Go", "go test ./...", "go.mod");
    }
    let python = ["pytest.ini", "tox.ini", "pyproject.toml", "setup.py", "requirements.txt"];
    if let Some(seen) = python.into_iter().find(|name| has(name)) {
        return stack("Python", "python3 -m pytest", seen);
    }
    if has("mix.exs") {
        return stack("Elixir", "mix test", "mix.exs");
    }
    if has("pom.xml") {
        return stack("Java", "mvn -q test", "pom.xml");
    }
    if has("build.gradle") || has("build.gradle.kts") {
        return stack("Java", "./gradlew test", "build.gradle");
    }
    if has("Gemfile") {
        return stack("Ruby", "bundle exec rake test", "Gemfile");
    }
    let target = makefile.and_then(|text| {
        ["test", "check"].into_iter().find(|target| text.lines().any(|line| line.starts_with(&format!("{target}:"))))
    });
    target.and_then(|target| stack("Make", &format!("make {target}"), "Makefile"))
}

/// Writes the task file.
pub fn task(template: Template, task_id: &str, stack: Option<&Stack>) -> String {
    let test = stack.map_or("make test", |stack| stack.test_command.as_str());
    let said = match stack {
        Some(stack) => format!("# {} project, seen by {}.", stack.name, stack.seen),
        None => "# Nothing here said how the project is tested: put your own command in.".to_owned(),
    };
    let (title, boxes) = match template {
        Template::Minimal => ("Say what shall be true", MINIMAL),
        Template::Feature => ("Add the thing", FEATURE),
        Template::Bugfix => ("Fix the bug", BUGFIX),
    };
    let boxes = boxes.replace("{test}", test);
    format!(
        "---\ntask_id: {task_id}\n{said}\ntest_command: \"{test}\"\n\n# Hard stops. The run ends when the first is reached.\nmax_iterations: 30\nmax_wall_time_minutes: 120\nmax_cost_usd_estimate: 10\n\n# Files the run must not change, such as the tests that judge it.\nprotected_paths: []\n---\n\n# {title}\n\n{boxes}"
    )
}

const MINIMAL: &str = "\
- [ ] M1.1 The tests pass
  - verify: `{test}`
- [ ] M1.2 The file NOTES.md says what was done
  - verify: `test -s NOTES.md`
";

const FEATURE: &str = "\
Two to four sentences: what it is, where it belongs, what it must not touch.

## Milestone M1: behaviour

- [ ] M1.1 Say one thing that can be observed from outside
  - verify: `sh tests/accept.sh`
- [ ] M1.2 Say what happens with bad input
  - verify: `sh tests/accept-bad-input.sh`

## Milestone M2: quality

- [ ] M2.1 The tests pass
  - verify: `{test}`
";

const BUGFIX: &str = "\
What happens, what should happen, and how to see it.

- [ ] M1.1 A test shows the bug and passes now
  - verify: `sh tests/regression.sh`
- [ ] M1.2 Nothing else broke
  - verify: `{test}`
";

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(files: &[&str], makefile: Option<&str>, package: Option<&str>, want: Option<&str>) {
        let files = files.iter().map(|name| (*name).to_owned()).collect();
        assert_eq!(detect(&files, makefile, package).map(|stack| stack.test_command).as_deref(), want);
    }

    #[test]
    fn stacks() {
        let package = Some("{\"scripts\": {\"test\": \"vitest\"}}");
        check(&["Cargo.toml", "package.json"], None, package, Some("cargo test"));
        check(&["package.json"], None, package, Some("npm test"));
        check(&["package.json", "pnpm-lock.yaml"], None, package, Some("pnpm test"));
        check(&["package.json"], None, Some("{}"), None);
        check(&["go.mod"], None, None, Some("go test ./..."));
        check(&["pyproject.toml"], None, None, Some("python3 -m pytest"));
        check(&["Makefile"], Some("all:\n\ncheck: all\n"), None, Some("make check"));
        check(&["README.md"], None, None, None);
    }

    #[test]
    fn every_template_is_a_task_without_errors() {
        for template in [Template::Minimal, Template::Feature, Template::Bugfix] {
            let text = task(template, "task-001", None);
            let errors: Vec<_> = crate::lint::lint(Some(&text), &crate::lint::Context::default())
                .into_iter()
                .filter(|finding| finding.severity == crate::lint::Severity::Error)
                .collect();
            assert_eq!(errors, [], "{template:?}");
        }
    }
}
