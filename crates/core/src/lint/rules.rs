//! The lint rules that need only the text and the context.

use std::collections::{BTreeMap, BTreeSet};

use super::branch::{BranchFlaw, branch_flaw, is_ref};
use super::context::LintContext;
use super::dependency_graph::dependency_cycle;
use super::finding::{LintFinding, LintRule};
use super::shell_command;
use super::vague_words::first_vague_word;
use crate::source_span::Span;
use crate::task::{self, Checkbox, CheckboxForm, FrontMatter, PartialTask, Task, TaskProblemKind};
use crate::task_init::{ProjectFiles, placeholder_in, test_folders};
use crate::text;

const MANY_CHECKBOXES: usize = 40;

/// Lints a task file; `None` means that the file does not exist.
pub fn lint(source: Option<&str>, context: &LintContext) -> Vec<LintFinding> {
    let Some(source) = source else {
        return vec![LintFinding::error(
            LintRule::NoFile,
            None,
            "there is no task file",
            "run `ralph init`, or name the file: `ralph run PATH`",
        )];
    };
    let examined = task::parse_partial(source);
    let mut rules = LintPass::new(source, context, &examined);
    rules.parse_problems();
    if let Some(task) = &examined.task {
        rules.check_required_keys(&task.front);
        rules.checkbox_count(task, task.front.min_checkboxes.max(context.min_checkboxes) as usize);
        rules.branch(task);
        rules.common_rules(task);
        rules.placeholders();
        rules.protected_paths(&task.front);
    }
    rules.sorted()
}

/// Lints the body of an issue.
///
/// Limits and a test command may come from the project's config here, one step is enough, and `branch` may be any
/// branch git accepts except the base: the worker, not the text, decides what is pushed.
pub fn lint_issue(source: &str, context: &LintContext) -> Vec<LintFinding> {
    let (issue, examined) = task::parse_issue_partial(source);
    let mut rules = LintPass::new(source, context, &examined);
    rules.parse_problems();
    if let (Some(issue), Some(task)) = (&issue, &examined.task) {
        if task.front.test_command.is_none() && !context.has_test_command {
            rules.no_test_command();
        }
        rules.checkbox_count(task, 1);
        rules.common_rules(task);
        if let Some(branch) = &issue.branch {
            let base = task.front.base_branch.as_deref();
            if !is_ref(branch) || base == Some(branch) || matches!(branch.as_str(), "main" | "master") {
                let branch = excerpt(branch);
                rules.error(
                    LintRule::BadBranch,
                    "branch",
                    format!("`{branch}` cannot be the branch of an issue"),
                    "choose a new branch name",
                );
            }
        }
        let mut graph = context.dependencies.clone();
        if let Some(number) = context.issue {
            graph.insert(number, issue.depends.clone());
        }
        if let Some(cycle) = dependency_cycle(&graph) {
            let path = cycle.iter().map(|issue| format!("#{issue}")).collect::<Vec<_>>().join(" → ");
            rules.error(
                LintRule::DependencyCycle,
                "depends",
                format!("issues wait for each other: {path}"),
                "remove one of these from its `depends`",
            );
        }
    }
    rules.sorted()
}

/// One pass of the linter over one text.
pub(super) struct LintPass<'a> {
    source: &'a str,
    pub(super) context: &'a LintContext,
    examined: &'a PartialTask,
    findings: Vec<LintFinding>,
}

/// Shortens and sanitises a piece of the task for use in a message.
pub(super) fn excerpt(text: &str) -> String {
    text::strip_control(text::first_line(text, 60))
}

impl<'a> LintPass<'a> {
    fn new(source: &'a str, context: &'a LintContext, examined: &'a PartialTask) -> Self {
        Self { source, context, examined, findings: Vec::new() }
    }

    fn sorted(mut self) -> Vec<LintFinding> {
        self.findings.sort_by_key(|finding| (finding.span, finding.rule));
        self.findings
    }

    /// Returns the span of a key's value, or of the front matter's first line if the key is missing.
    fn span_of_key(&self, key: &str) -> Option<Span> {
        let start = self.examined.front.map(|front| front.start);
        self.examined.spans.get(key).copied().or_else(|| start.map(|start| Span::new(start, start)))
    }

    pub(super) fn error(&mut self, rule: LintRule, key: &str, message: String, fix: impl Into<String>) {
        let finding = LintFinding::error(rule, self.span_of_key(key), message, fix);
        self.findings.push(finding);
    }

    fn parse_problems(&mut self) {
        for problem in &self.examined.problems {
            let rule = match problem.kind {
                TaskProblemKind::Syntax if self.tab_in_front_matter().is_some() => continue,
                TaskProblemKind::UnknownKey => LintRule::UnknownKey,
                TaskProblemKind::BadValue => LintRule::BadValue,
                TaskProblemKind::NoTaskId => LintRule::NoTaskId,
                TaskProblemKind::TooLarge
                | TaskProblemKind::TooDeep
                | TaskProblemKind::NoFrontMatter
                | TaskProblemKind::Unclosed
                | TaskProblemKind::Syntax => LintRule::FrontMatter,
            };
            let fix = problem
                .hint
                .clone()
                .unwrap_or_else(|| "correct it; `ralph help task-file` shows the format".to_owned());
            self.findings.push(LintFinding::error(rule, Some(problem.span), problem.message.clone(), fix));
        }
        if self.examined.problems.iter().any(|problem| problem.kind == TaskProblemKind::Syntax)
            && let Some(span) = self.tab_in_front_matter()
        {
            self.findings.push(LintFinding::error(
                LintRule::TabInFrontMatter,
                Some(span),
                "YAML allows no tabs at the start of a line".to_owned(),
                "indent with spaces; `ralph lint --fix` does it",
            ));
        }
    }

    fn tab_in_front_matter(&self) -> Option<Span> {
        let front = self.examined.front?;
        let mut at = front.start;
        for line in front.of(self.source).split_inclusive('\n') {
            let blanks = line.len() - line.trim_start_matches([' ', '\t']).len();
            if let Some(tab) = line.get(..blanks).and_then(|blanks| blanks.find('\t')) {
                return Some(Span::new(at + tab, at + blanks));
            }
            at += line.len();
        }
        None
    }

    fn no_test_command(&mut self) {
        self.error(
            LintRule::NoTestCommand,
            "test_command",
            "`test_command` is missing: no command would prove success".to_owned(),
            "add `test_command:` with the command that must exit 0",
        );
    }

    fn check_required_keys(&mut self, front: &FrontMatter) {
        // A key with a bad value has its own finding; also reporting it as missing would be noise.
        let absent = |key: &str| !self.examined.problems.iter().any(|problem| problem.key.as_deref() == Some(key));
        let missing = [
            (
                front.max_iterations.is_none() && absent("max_iterations"),
                LintRule::NoMaxIterations,
                "max_iterations",
                "30",
            ),
            (
                front.max_wall_time_minutes.is_none() && absent("max_wall_time_minutes"),
                LintRule::NoMaxWallTime,
                "max_wall_time_minutes",
                "120",
            ),
        ];
        let no_cap = front.max_cost_usd_estimate.is_none()
            && front.max_tokens_total.is_none()
            && absent("max_cost_usd_estimate")
            && absent("max_tokens_total");
        if front.test_command.is_none() && absent("test_command") {
            self.no_test_command();
        }
        for (is_missing, rule, key, default) in missing {
            if is_missing {
                self.error(rule, key, format!("`{key}` is missing"), format!("add `{key}: {default}`"));
            }
        }
        if no_cap {
            self.error(
                LintRule::NoCostCap,
                "max_cost_usd_estimate",
                "neither `max_cost_usd_estimate` nor `max_tokens_total` is set".to_owned(),
                "add `max_cost_usd_estimate: 10`",
            );
        }
    }

    fn checkbox_count(&mut self, task: &Task, least: usize) {
        let count = task.boxes.len();
        let place = task.boxes.first().map_or(Span::new(task.body.start, task.body.start), |checkbox| checkbox.span);
        if count < least {
            self.findings.push(LintFinding::error(
                LintRule::TooFewCheckboxes,
                Some(place),
                format!("the task has {count} checkboxes, fewer than {least}"),
                "split the work into checkboxes `- [ ] M1.1 …`, each with a nested `- verify: `command``",
            ));
        }
        if count > MANY_CHECKBOXES {
            self.findings.push(LintFinding::warning(
                LintRule::TooManyCheckboxes,
                Some(place),
                format!("the task has {count} checkboxes, more than {MANY_CHECKBOXES}"),
                "split it into several tasks",
            ));
        }
    }

    fn branch(&mut self, task: &Task) {
        let prefix = task.front.branch_prefix();
        let branch = task.branch();
        let key = if task.front.target_branch_prefix.is_some() { "target_branch_prefix" } else { "target_branch_slug" };
        if !prefix.starts_with("ralph/") {
            let fix = format!("write `target_branch_prefix: ralph/{}/`", task.front.task_id);
            self.error(
                LintRule::BranchOutsideRalph,
                key,
                format!("branch `{}` is outside `ralph/`", excerpt(&branch)),
                fix,
            );
        } else if !task.front.task_id.is_empty() && branch_flaw(&branch) == Some(BranchFlaw::NotARef) {
            let fix = "use letters, digits, `-` and `/` in `target_branch_prefix` and `target_branch_slug`";
            self.error(
                LintRule::BadBranch,
                key,
                format!("`{}` is not a branch name git accepts", excerpt(&branch)),
                fix,
            );
        }
    }

    fn common_rules(&mut self, task: &Task) {
        self.profiles(&task.front);
        self.backend(&task.front);
        self.agent(&task.front);
        self.templates(&task.front);
        self.duplicate_ids(&task.boxes);
        self.proofs(task);
        self.shared_proofs(task);
        self.missing_files(task);
        for checkbox in &task.boxes {
            if let Some(word) = first_vague_word(&checkbox.text) {
                self.findings.push(LintFinding::warning(
                    LintRule::VagueWords,
                    Some(checkbox.span),
                    format!("`{}` says \"{word}\" without a number", checkbox.id),
                    "say how much, or name what can be observed",
                ));
            }
        }
    }

    /// Reports text of a template: a model would invent the task and its proofs.
    fn placeholders(&mut self) {
        let Some(placeholder) = placeholder_in(self.source) else { return };
        let start = self.source.find(placeholder).unwrap_or(0);
        let shown = placeholder.trim().trim_start_matches("# ");
        self.findings.push(LintFinding::error(
            LintRule::UntouchedTemplate,
            Some(Span::new(start, start + placeholder.trim_end().len())),
            format!("\"{shown}\" is still the text of the template"),
            "write what shall be done and how it is proved, then start the run",
        ));
    }

    /// Warns when the run may change everything that decides about it.
    fn protected_paths(&mut self, front: &FrontMatter) {
        let Some(files) = &self.context.files else { return };
        if front.protected_paths.iter().any(|path| !path.starts_with('!')) {
            return;
        }
        let project = ProjectFiles { files: files.clone(), texts: BTreeMap::new() };
        let folders: Vec<String> = test_folders(&project).iter().map(|folder| format!("{folder:?}")).collect();
        let (message, fix) = if folders.is_empty() {
            let message = "no path is protected: the run itself writes the tests that judge it";
            (message.to_owned(), "write the tests first, and add them to `protected_paths`".to_owned())
        } else {
            let message = format!("no path is protected, not even the tests in {}", folders.join(", "));
            (message, format!("add `protected_paths: [{}]`", folders.join(", ")))
        };
        let finding =
            LintFinding::warning(LintRule::NothingProtected, self.span_of_key("protected_paths"), message, fix);
        self.findings.push(finding);
    }

    fn duplicate_ids(&mut self, boxes: &[Checkbox]) {
        let mut seen = BTreeSet::new();
        for checkbox in boxes {
            if !seen.insert(checkbox.id.as_str()) {
                let fix = match checkbox.form {
                    CheckboxForm::Item => "give it another ID; `ralph lint --fix` does it",
                    CheckboxForm::Step => "give the step another number",
                };
                let span = checkbox.id_span.unwrap_or(checkbox.span);
                let message = format!("the ID `{}` is used twice", checkbox.id);
                self.findings.push(LintFinding::error(LintRule::DuplicateId, Some(span), message, fix));
            }
        }
    }

    fn proofs(&mut self, task: &Task) {
        let covered = !task.front.verify_commands.is_empty();
        for checkbox in task.boxes.iter().filter(|checkbox| checkbox.proofs.is_empty() && !covered) {
            let (span, fix) = match checkbox.bare_verify {
                Some(span) => (span, "put the command in backticks".to_owned()),
                None => (checkbox.span, "nest `- verify: `command`` under it, or add `verify_commands`".to_owned()),
            };
            self.findings.push(LintFinding::error(
                LintRule::NoProof,
                Some(span),
                format!("`{}` has no proof", checkbox.id),
                fix,
            ));
        }
        let mut empty = Vec::new();
        for (command, span) in self.commands(task) {
            if shell_command::cannot_fail(command) {
                empty.push(LintFinding::warning(
                    LintRule::EmptyProof,
                    span,
                    format!("`{}` succeeds whatever the code does", excerpt(command)),
                    "use a command that fails as long as the work is not done",
                ));
            }
        }
        self.findings.append(&mut empty);
    }

    /// Reports boxes that are all proved by the same gate and nothing else: when it turns green, all of them are
    /// ticked.
    fn shared_proofs(&mut self, task: &Task) {
        let front = &task.front;
        let is_gate =
            |command: &String| front.verify_commands.contains(command) || front.test_command.as_ref() == Some(command);
        let mut alike: BTreeMap<BTreeSet<&String>, Vec<&Checkbox>> = BTreeMap::new();
        for checkbox in &task.boxes {
            let own = if checkbox.proofs.is_empty() { &front.verify_commands } else { &checkbox.proofs };
            if !own.is_empty() && own.iter().all(is_gate) {
                alike.entry(own.iter().collect()).or_default().push(checkbox);
            }
        }
        for (commands, boxes) in alike {
            if let [first, _, ..] = boxes.as_slice() {
                let ids: Vec<String> =
                    boxes.iter().take(8).map(|checkbox| format!("`{}`", excerpt(&checkbox.id))).collect();
                let more = if boxes.len() > ids.len() { ", …" } else { "" };
                let commands: Vec<String> =
                    commands.into_iter().take(3).map(|command| format!("`{}`", excerpt(command))).collect();
                self.findings.push(LintFinding::warning(
                    LintRule::SharedProof,
                    Some(first.span),
                    format!("{}{more} are all proved by {} and nothing else", ids.join(", "), commands.join(" and ")),
                    "nest a `- verify: `command`` of its own under each",
                ));
            }
        }
    }

    /// Returns every command of the task with its span.
    fn commands<'t>(&self, task: &'t Task) -> Vec<(&'t str, Option<Span>)> {
        let front = &task.front;
        let gates = front.test_command.iter().map(|command| (command.as_str(), self.span_of_key("test_command")));
        let verify =
            front.verify_commands.iter().map(|command| (command.as_str(), self.span_of_key("verify_commands")));
        let own = task.boxes.iter().flat_map(|checkbox| checkbox.proofs.iter().zip(&checkbox.proof_spans));
        gates.chain(verify).chain(own.map(|(command, span)| (command.as_str(), Some(*span)))).collect()
    }

    fn missing_files(&mut self, task: &Task) {
        let Some(files) = &self.context.files else { return };
        // One set of all words keeps this linear: whether some box mentions a path is a lookup.
        let mut spoken = BTreeSet::new();
        for checkbox in &task.boxes {
            for word in
                checkbox.text.split(|c: char| c.is_whitespace() || matches!(c, '`' | '"' | '\'' | '(' | ')' | ','))
            {
                let word = word.trim_end_matches(['.', ':', ';']).trim_start_matches("./");
                spoken.insert(word);
                spoken.insert(word.rsplit('/').next().unwrap_or(word));
            }
        }
        let mut missing = Vec::new();
        for (command, span) in self.commands(task) {
            for path in shell_command::files(command) {
                let name = path.rsplit('/').next().unwrap_or(&path);
                if files.contains(&path) || spoken.contains(path.as_str()) || spoken.contains(name) {
                    continue;
                }
                missing.push(LintFinding::warning(
                    LintRule::MissingFile,
                    span,
                    format!("`{}` is not in the repo and no checkbox creates it", excerpt(&path)),
                    "correct the path, or say in a checkbox that the file is to be created",
                ));
            }
        }
        self.findings.append(&mut missing);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lint::{BackendMaxima, PriceStatus, Severity, has_errors};

    const GOOD: &str = "---\ntask_id: t-1\nprotected_paths: [a.js]\ntest_command: npm test\nmax_iterations: 30\nmax_wall_time_minutes: 120\n\
                        max_cost_usd_estimate: 10\n---\n# Do it\n- [ ] M1.1 Foo returns 200\n  - verify: `node a.js`\n\
                        - [ ] M1.2 Foo returns 400\n  - verify: `node b.js`\n";

    fn context() -> LintContext {
        LintContext {
            profiles: Some(BTreeMap::from([
                ("cheap".into(), PriceStatus::Known),
                ("free".into(), PriceStatus::Unknown),
            ])),
            default_profile: Some("cheap".into()),
            backends: Some(BTreeMap::from([
                ("docker".into(), BackendMaxima::default()),
                ("daytona".into(), BackendMaxima { vcpu: Some(4), memory_gib: Some(8), disk_gib: Some(10) }),
            ])),
            default_backend: Some("docker".into()),
            agents: Some(BTreeSet::from(["claude".into(), "codex".into()])),
            files: Some(BTreeSet::from(["a.js".into(), "b.js".into()])),
            ..LintContext::default()
        }
    }

    /// Shows findings as `E code: source text`.
    fn shown(findings: &[LintFinding], source: &str) -> Vec<String> {
        findings
            .iter()
            .map(|finding| {
                let mark = if finding.severity == Severity::Error { "E" } else { "W" };
                assert!(!finding.message.is_empty() && !finding.fix.is_empty());
                format!("{mark} {}: {}", finding.rule.code(), finding.span.map_or("", |span| span.of(source)))
            })
            .collect()
    }

    #[track_caller]
    fn check(source: &str, want: &[&str]) {
        assert_eq!(shown(&lint(Some(source), &context()), source), want, "{source}");
    }

    /// Lints the good task with one thing replaced.
    #[track_caller]
    fn check_replaced(from: &str, to: &str, want: &[&str]) {
        assert!(GOOD.contains(from), "{from}");
        check(&GOOD.replace(from, to), want);
    }

    /// Lints the good task with more front matter.
    #[track_caller]
    fn check_with_front_matter(front: &str, want: &[&str]) {
        check_replaced("task_id: t-1\n", &format!("task_id: t-1\n{front}\n"), want);
    }

    #[test]
    fn untouched_templates() {
        for (line, shown) in [
            ("# Say what shall be true\n", "# Say what shall be true"),
            ("# Fix the bug\n", "# Fix the bug"),
            (
                "# Do it\n\nWhat happens, what should happen, and how to see it.\n",
                "What happens, what should happen, and how to see it.",
            ),
        ] {
            check_replaced("# Do it\n", line, &[&format!("E untouched-template: {shown}")]);
        }
        check_replaced("# Do it\n", "# Fix the bug in the parser\n", &[]);
    }

    #[test]
    fn a_task_that_protects_nothing() {
        check_replaced("protected_paths: [a.js]\n", "", &["W nothing-protected: "]);
        check_replaced("protected_paths: [a.js]", "protected_paths: []", &["W nothing-protected: ["]);
        check_replaced("protected_paths: [a.js]", "protected_paths: [\"!a.js\"]", &["W nothing-protected: ["]);
        let source = GOOD.replace("protected_paths: [a.js]\n", "");
        let mut context = context();
        context.files.as_mut().unwrap().extend(["tests/a.sh", "web/__tests__/x/y.js"].map(str::to_owned));
        let fix = lint(Some(&source), &context).into_iter().map(|finding| finding.fix).collect::<Vec<_>>();
        assert_eq!(fix, ["add `protected_paths: [\"tests/\", \"web/__tests__/\"]`"]);
    }

    #[test]
    fn a_good_task_has_no_findings() {
        check(GOOD, &[]);
        assert_eq!(lint(Some(GOOD), &LintContext::default()), []);
    }

    #[test]
    fn no_file() {
        let findings = lint(None, &context());
        assert_eq!(shown(&findings, ""), ["E no-file: "]);
        assert!(has_errors(&findings));
    }

    #[test]
    fn front_matter() {
        check("hello", &["E front-matter: hello"]);
        check("---\ntask_id: t\n", &["E front-matter: ---"]);
        check("---\ntask_id: t\npr:\n\tdraft: true\n---\n", &["E tab-in-front-matter: \t"]);
        let findings = lint(Some("---\na: 'x\n---\n"), &context());
        assert!(findings[0].span.is_some(), "{findings:?}");
        check_replaced(
            "max_iterations: 30",
            "max_iteration: 30",
            &["E no-max-iterations: ", "E unknown-key: max_iteration"],
        );
        check_replaced("max_iterations: 30", "max_iterations: x", &["E bad-value: x"]);
        check_replaced("task_id: t-1\n", "", &["E no-task-id: "]);
    }

    #[test]
    fn required_keys() {
        check_replaced("test_command: npm test\n", "", &["E no-test-command: "]);
        check_replaced("max_iterations: 30\n", "", &["E no-max-iterations: "]);
        check_replaced("max_wall_time_minutes: 120\n", "", &["E no-max-wall-time: "]);
        check_replaced("max_cost_usd_estimate: 10\n", "", &["E no-cost-cap: "]);
        check_replaced("max_cost_usd_estimate: 10\n", "max_tokens_total: 9\n", &[]);
    }

    #[test]
    fn checkboxes() {
        check_replaced("- [ ] M1.2", "- M1.2", &["E too-few-checkboxes: - [ ] M1.1 Foo returns 200"]);
        check_replaced("  - verify: `node b.js`\n", "", &["E no-proof: - [ ] M1.2 Foo returns 400"]);
        check_replaced("`node b.js`", "node b.js", &["E no-proof: verify: node b.js"]);
        check_replaced("M1.2", "M1.1", &["E duplicate-id: M1.1"]);
        check_replaced("returns 400", "is fast", &["W vague-words: - [ ] M1.2 Foo is fast"]);
        check_replaced("node b.js", "echo ok", &["W empty-proof: `echo ok`"]);
        check_replaced("node b.js", "node c.js", &["W missing-file: `node c.js`"]);
    }

    #[test]
    fn coverage_and_files_created_by_the_task() {
        let covered = GOOD
            .replace("  - verify: `node b.js`\n", "")
            .replace("test_command", "verify_commands: [make]\ntest_command");
        check(&covered, &[]);
        let made = GOOD.replace("Foo returns 400", "`tools/c.js` checks 400").replace("node b.js", "node tools/c.js");
        check(&made, &[]);
        let many = (3..=41).map(|n| format!("- [ ] M1.{n} x\n  - verify: `make`\n")).collect::<Vec<_>>().concat();
        check(&format!("{GOOD}{many}"), &["W too-many-checkboxes: - [ ] M1.1 Foo returns 200"]);
    }

    #[test]
    fn one_command_for_many_boxes() {
        let bare = GOOD.replace("  - verify: `node a.js`\n", "").replace("  - verify: `node b.js`\n", "");
        let covered = |gates: &str| bare.replace("test_command", &format!("verify_commands: [{gates}]\ntest_command"));
        check(&covered("npm test"), &["W shared-proof: - [ ] M1.1 Foo returns 200"]);
        check(&covered("npm test, make"), &["W shared-proof: - [ ] M1.1 Foo returns 200"]);
        check_replaced("node a.js", "npm test", &[]);
        check(
            &GOOD.replace("node a.js", "npm test").replace("node b.js", "npm test"),
            &["W shared-proof: - [ ] M1.1 Foo returns 200"],
        );
        let findings = lint(Some(&covered("npm test")), &context());
        assert_eq!(findings[0].message, "`M1.1`, `M1.2` are all proved by `npm test` and nothing else");
    }

    #[test]
    fn names_only_the_host_knows() {
        check_with_front_matter("model_profile_default: chaep", &["E unknown-profile: chaep"]);
        check_with_front_matter("model_profile_default: free", &["E unknown-price: free"]);
        check_with_front_matter("model_profile_fallback: free", &["E unknown-price: free"]);
        check_with_front_matter("model_profile_default: free\nmax_tokens_total: 5", &[]);
        // A profile named by a flag or the config is checked like one named by the task.
        let (cheap, free) = (|| Some("cheap".to_owned()), || Some("free".to_owned()));
        for (case, context, want) in [
            ("a flag", LintContext { wanted_profile: free(), ..context() }, true),
            ("a default", LintContext { default_profile: free(), ..context() }, true),
            ("a fallback", LintContext { fallback_profile: free(), ..context() }, true),
            ("a doctor", LintContext { doctor_profile: free(), ..context() }, true),
            ("a cap", LintContext { doctor_profile: free(), has_token_cap: true, ..context() }, false),
            ("all priced", LintContext { wanted_profile: cheap(), fallback_profile: cheap(), ..context() }, false),
        ] {
            for engine in ["actions", "agent"] {
                let source = GOOD.replace("task_id: t-1\n", &format!("task_id: t-1\nengine: {engine}\n"));
                let found = lint(Some(&source), &context);
                let want: &[&str] = if want { &["E unknown-price: "] } else { &[] };
                assert_eq!(shown(&found, &source), want, "{case}, {engine}");
            }
        }
        let flagged = LintContext { wanted_profile: cheap(), ..context() };
        let source = GOOD.replace("task_id: t-1\n", "task_id: t-1\nmodel_profile_default: free\n");
        assert_eq!(lint(Some(&source), &flagged), [], "a flag beats the task");
        check_with_front_matter("sandbox_provider: dokcer", &["E unknown-backend: dokcer"]);
        check_with_front_matter("engine: agent\nagent: cluade", &["E unknown-agent: cluade"]);
        check_with_front_matter("engine: agent", &[]);
        let source = GOOD.replace(
            "task_id: t-1\n",
            "task_id: t-1\nsandbox_provider: daytona\nsandbox_resources: {vcpu: 8, memory_gib: 8, disk_gib: 20}\n",
        );
        let findings = lint(Some(&source), &context());
        let fixes: Vec<_> = findings.iter().map(|f| (f.rule, f.fix.as_str())).collect();
        assert_eq!(
            fixes,
            [
                (LintRule::ResourcesOverMaximum, "request at most `vcpu: 4`"),
                (LintRule::ResourcesOverMaximum, "request at most `disk_gib: 10`")
            ]
        );
    }

    #[test]
    fn templates() {
        check_with_front_matter(
            "pr: {title_template: '{title} {task_id} {branch} {summary} {verification} {cost}'}",
            &[],
        );
        check_with_front_matter(
            "pr: {title_template: '{titel} { x } {} {\"a\": 1}'}",
            &["E unknown-template-variable: '{titel} { x } {} {\"a\": 1}'"],
        );
    }

    #[test]
    fn branches() {
        check_with_front_matter("target_branch_prefix: feature/", &["E branch-outside-ralph: feature/"]);
        check_with_front_matter("target_branch_prefix: ralph/x", &[]);
        check_with_front_matter("target_branch_prefix: ralph/../", &["E bad-branch: ralph/../"]);
        check_with_front_matter("target_branch_slug: a b", &["E bad-branch: a b"]);
    }

    #[test]
    fn issues() {
        let check = |source: &str, context: &LintContext, want: &[&str]| {
            assert_eq!(shown(&lint_issue(source, context), source), want, "{source}");
        };
        let base = LintContext { has_test_command: true, issue: Some(7), ..context() };
        let good = "branch: x\ndepends: [8]\n\n### Step 1: Do 1 thing\nVerify: `make`\n";
        check(good, &base, &[]);
        check(good, &context(), &["E no-test-command: "]);
        check("branch: x\n", &base, &["E too-few-checkboxes: "]);
        check(
            "### Step 1: a\n### Step 1: b\nVerify: `make`\n",
            &base,
            &["E no-proof: ### Step 1: a", "E duplicate-id: ### Step 1: b"],
        );
        check(&good.replace("branch: x", "branch: main"), &base, &["E bad-branch: main"]);
        let cyclic = LintContext { dependencies: BTreeMap::from([(8, vec![7])]), ..base };
        let findings = lint_issue(good, &cyclic);
        assert_eq!(
            findings.iter().map(|f| (f.rule, f.message.as_str())).collect::<Vec<_>>(),
            [(LintRule::DependencyCycle, "issues wait for each other: #7 → #8 → #7")]
        );
    }

    /// The layout that people start from: comments, quotes, a block of text, hard breaks, remarks after a proof.
    const STARTER: &str = r#"---
task_id: "task-001"
repo_url: "https://github.com/ORG/REPO.git"
base_branch: "main"

# Branch
target_branch_prefix: "ralph/task-001/"
target_branch_slug: "add-foo"   # gives ralph/task-001/add-foo

sandbox_provider: "daytona"     # or local
sandbox_resources:
  vcpu: 2
  memory_gib: 4
  disk_gib: 20

model_profile_default: "default-cheap"
max_iterations: 30
max_wall_time_minutes: 120
max_cost_usd_estimate: 10
max_consecutive_gutter: 3

test_command: "npm test"
verify_commands:
  - "npm test"
  - "npm run lint"

pr:
  draft: true
  labels: ["ralph"]
  title_template: "[Ralph] Add Foo: task-001"
  body_template: |
    ## What
    Adds Foo.

    - `npm test`
---

# Task: Add Foo (task-001)

## Success criteria (checkboxes)
> NOTE: - [ ] in a quote is not one of them.

### Milestone M1 — Behaviour
- [ ] M1.1 Foo answers 200 to good input  
  - verify: `node scripts/verify-foo.js` (or a curl command)
- [ ] M1.2 Foo answers 400 to bad input  
  - verify: `node scripts/verify-foo-invalid.js`

### Milestone M2 — Gates
- [ ] M2.1 Unit tests cover Foo  
  - verify: `npm test`
- [ ] M2.2 Lint passes  
  - verify: `npm run lint`
- [ ] M2.3 Types pass  
  - verify: `npm run typecheck`

## Notes
- Files:
  - `src/foo/*`
"#;

    #[test]
    fn the_starter_template_parses() {
        let source = STARTER;
        let task = task::parse(source).unwrap();
        let ids: Vec<_> =
            task.boxes.iter().map(|b| (b.id.as_str(), b.milestone.as_deref(), b.proofs.join(";"))).collect();
        let want = [
            ("M1.1", Some("M1"), "node scripts/verify-foo.js"),
            ("M1.2", Some("M1"), "node scripts/verify-foo-invalid.js"),
            ("M2.1", Some("M2"), "npm test"),
            ("M2.2", Some("M2"), "npm run lint"),
            ("M2.3", Some("M2"), "npm run typecheck"),
        ];
        assert_eq!(ids, want.map(|(id, milestone, proof)| (id, milestone, proof.to_owned())));
        assert_eq!(lint(Some(source), &LintContext::default()), []);
    }

    #[test]
    fn large_tasks_lint_quickly() {
        let boxes = "- [ ] M1.1 make `x/y.js` fast\n  - verify: `node z/q.js`\n".repeat(8_000);
        let source = GOOD.replace("# Do it\n", &format!("# Do it\n{boxes}"));
        assert!(lint(Some(&source), &context()).len() > 20_000);
    }
}
