//! Writes the first task file.

use std::fmt::Write as _;

use super::detect::TestDetection;
use crate::text;

/// The kinds of task file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TaskTemplate {
    Minimal,
    Feature,
    Bugfix,
}

/// Writes the task file. It lints cleanly, except for a test command that could not be detected; the user fills in the
/// rest.
pub fn render_task(template: TaskTemplate, task_id: &str, found: &TestDetection) -> String {
    let mut front = format!("---\ntask_id: {task_id}\n\n");
    for stack in &found.stacks {
        let place = if stack.folder.is_empty() { String::new() } else { format!(" in {}", stack.folder) };
        push_comment(&mut front, &format!("{}{place}: `{}` ({})", stack.name, stack.command, stack.because));
    }
    for remark in &found.remarks {
        push_comment(&mut front, remark);
    }
    match &found.test_command {
        Some(command) => {
            push_comment(&mut front, "The command that must succeed for the task to succeed.");
            writeln!(front, "test_command: {}", yaml_string(command)).expect("writing to a String cannot fail");
        }
        None => {
            push_comment(
                &mut front,
                "Nothing here shows how the project is tested. Add the command that must succeed:",
            );
            push_comment(&mut front, "test_command: \"sh tests/all.sh\"");
        }
    }
    let (title, boxes) = match template {
        TaskTemplate::Minimal => ("Say what shall be true", MINIMAL),
        TaskTemplate::Feature => ("Add the thing", FEATURE),
        TaskTemplate::Bugfix => ("Fix the bug", BUGFIX),
    };
    let (passing, test) = match &found.test_command {
        Some(command) => ("The tests pass", command.as_str()),
        None => ("The tests in tests/all.sh pass", "sh tests/all.sh"),
    };
    let boxes = boxes.replace("{passing}", passing).replace("{test}", test);
    let folders: Vec<String> = found.test_folders.iter().map(|folder| yaml_string(folder)).collect();
    let protected = format!("{PROTECTED}protected_paths: [{}]\n", folders.join(", "));
    format!("{front}\n{}{protected}---\n\n# {title}\n\n{boxes}", default_limits())
}

/// Returns the first sentence of a template that a task still contains, which the user was meant to replace.
pub(crate) fn placeholder_in(text: &str) -> Option<&'static str> {
    PLACEHOLDERS.into_iter().find(|placeholder| {
        let is_title = placeholder.starts_with('#');
        text.lines().any(|line| if is_title { line.trim() == *placeholder } else { line.contains(placeholder) })
    })
}

/// Returns the limits every task must have, with comments that explain them.
pub(crate) fn default_limits() -> &'static str {
    "# Hard stops. The run ends when the first is reached.\n\
     max_iterations: 30\nmax_wall_time_minutes: 120\nmax_cost_usd_estimate: 10\n"
}

/// Writes any text as a YAML string.
pub(crate) fn yaml_string(text: &str) -> String {
    // JSON strings are valid double-quoted YAML strings.
    serde_json::Value::String(text.to_owned()).to_string()
}

/// Writes one YAML comment line.
fn push_comment(out: &mut String, words: &str) {
    let words = text::strip_control(words).split_whitespace().collect::<Vec<_>>().join(" ");
    writeln!(out, "# {words}").expect("writing to a String cannot fail");
}

const PROTECTED: &str = "\n\
# Files and folders the run must not change, such as the tests that judge it. Write the tests of this task first; remove\n\
# a folder from the list only if the run itself shall add tests there.\n";

/// Sentences of the templates that say nothing about a task.
const PLACEHOLDERS: [&str; 7] = [
    "# Say what shall be true",
    "# Add the thing",
    "# Fix the bug",
    "Two to four sentences: what it is, where it belongs, what it must not touch.",
    "Say one thing that can be observed from outside",
    "Say what happens with bad input",
    "What happens, what should happen, and how to see it.",
];

const MINIMAL: &str = "\
- [ ] M1.1 {passing}
  - verify: `{test}`
- [ ] M1.2 The file NOTES.md says what was done
  - verify: `test -s NOTES.md`
";

const FEATURE: &str = "\
Two to four sentences: what it is, where it belongs, what it must not touch.

## Milestone M1: behaviour

- [ ] M1.1 Say one thing that can be observed from outside; tests/accept.sh shows it
  - verify: `sh tests/accept.sh`
- [ ] M1.2 Say what happens with bad input; tests/accept-bad-input.sh shows it
  - verify: `sh tests/accept-bad-input.sh`

## Milestone M2: quality

- [ ] M2.1 {passing}
  - verify: `{test}`
";

const BUGFIX: &str = "\
What happens, what should happen, and how to see it.

- [ ] M1.1 The test tests/regression.sh shows the bug and passes now
  - verify: `sh tests/regression.sh`
- [ ] M1.2 {passing}: nothing else broke
  - verify: `{test}`
";

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::super::project_files::project;
    use super::super::{ProjectFiles, detect};
    use super::*;
    use crate::lint::{LintContext, LintRule, lint};

    /// Returns the rules a written file breaks, in a repository that holds nothing else.
    fn rules(template: TaskTemplate, project: &ProjectFiles) -> Vec<LintRule> {
        let text = render_task(template, "task-001", &detect(project));
        let context = LintContext { files: Some(BTreeSet::new()), ..LintContext::default() };
        lint(Some(&text), &context).into_iter().map(|finding| finding.rule).collect()
    }

    #[test]
    fn every_template_waits_for_the_user() {
        let known = project(&[
            ("Cargo.toml", "[workspace]\n"),
            ("package.json", r#"{"scripts": {"test": "a \"b\" 'c' # d: e"}}"#),
            ("api/go.mod", ""),
            ("tests/all.rs", ""),
        ]);
        for template in [TaskTemplate::Minimal, TaskTemplate::Feature, TaskTemplate::Bugfix] {
            // The linter asks only for what nobody but the user can know.
            assert_eq!(rules(template, &known), [LintRule::UntouchedTemplate], "{template:?}");
            let want = [LintRule::NoTestCommand, LintRule::NothingProtected, LintRule::UntouchedTemplate];
            assert_eq!(rules(template, &ProjectFiles::default()), want, "{template:?}");
        }
    }

    #[test]
    fn whole_file() {
        let files = [
            ("Cargo.toml", ""),
            ("Makefile", "test:\n"),
            ("tests/a.rs", ""),
            ("api/spec/x/y.rb", ""),
            ("target/tests/a", ""),
        ];
        let found = detect(&project(&files));
        insta::assert_snapshot!(render_task(TaskTemplate::Minimal, "shop-001", &found), @r#"
        ---
        task_id: shop-001

        # Rust: `cargo test` (Cargo.toml)
        # Make: `make test` (Makefile has `test`)
        # use `make test` instead if it does more than `cargo test`
        # The command that must succeed for the task to succeed.
        test_command: "cargo test"

        # Hard stops. The run ends when the first is reached.
        max_iterations: 30
        max_wall_time_minutes: 120
        max_cost_usd_estimate: 10

        # Files and folders the run must not change, such as the tests that judge it. Write the tests of this task first; remove
        # a folder from the list only if the run itself shall add tests there.
        protected_paths: ["api/spec/", "tests/"]
        ---

        # Say what shall be true

        - [ ] M1.1 The tests pass
          - verify: `cargo test`
        - [ ] M1.2 The file NOTES.md says what was done
          - verify: `test -s NOTES.md`
        "#);
    }
}
