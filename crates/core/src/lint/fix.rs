//! Applies the fixes that are mechanical: missing limits, tabs, duplicate IDs.
//!
//! Each fix works on the current text and not on the finding's span, so that applying it twice changes nothing. A fix
//! that would make a readable front matter unreadable is discarded.

use std::collections::{BTreeMap, BTreeSet};

use super::finding::{LintFinding, LintRule};
use crate::task::{self, CheckboxForm};
use crate::text;

/// Returns the source with every mechanical finding fixed.
pub fn fix(source: &str, findings: &[LintFinding]) -> String {
    let mut rules: BTreeSet<LintRule> =
        findings.iter().map(|finding| finding.rule).filter(|rule| rule.is_mechanical()).collect();
    let mut fixed = source.to_owned();
    if rules.contains(&LintRule::TabInFrontMatter) {
        fixed = without_tabs(&fixed);
        // The tabs hid the other problems.
        rules.extend(LintRule::ALL.into_iter().filter(|rule| rule.is_mechanical()));
    }
    fixed = with_missing_keys(&fixed, &rules);
    if rules.contains(&LintRule::DuplicateId) {
        fixed = with_unique_ids(&fixed);
    }
    fixed
}

fn without_tabs(source: &str) -> String {
    let Some(front) = task::parse_partial(source).front else { return source.to_owned() };
    let mut out = String::with_capacity(source.len());
    out.push_str(source.get(..front.start).unwrap_or(""));
    for line in front.of(source).split_inclusive('\n') {
        let rest = line.trim_start_matches([' ', '\t']);
        let blanks = line.get(..line.len() - rest.len()).unwrap_or("");
        out.push_str(&blanks.replace('\t', "  "));
        out.push_str(rest);
    }
    out.push_str(source.get(front.end..).unwrap_or(""));
    out
}

fn with_missing_keys(source: &str, rules: &BTreeSet<LintRule>) -> String {
    let examined = task::parse_partial(source);
    let (Some(task), Some(front)) = (&examined.task, examined.front) else { return source.to_owned() };
    let slug = text::slug(&task.title, 63);
    let id = if slug.is_empty() { "task" } else { &slug };
    let keys = &task.front;
    let no_cap = keys.max_cost_usd_estimate.is_none() && keys.max_tokens_total.is_none();
    let defaults = [
        (LintRule::NoTaskId, keys.task_id.is_empty(), "task_id", id),
        (LintRule::NoMaxIterations, keys.max_iterations.is_none(), "max_iterations", "30"),
        (LintRule::NoMaxWallTime, keys.max_wall_time_minutes.is_none(), "max_wall_time_minutes", "120"),
        (LintRule::NoCostCap, no_cap, "max_cost_usd_estimate", "10"),
    ];
    let newline = if front.of(source).contains("\r\n") { "\r\n" } else { "\n" };
    let mut yaml = front.of(source).to_owned();
    for (rule, is_missing, key, default) in defaults {
        let has_problem = examined.problems.iter().any(|problem| problem.key.as_deref() == Some(key));
        if !rules.contains(&rule) || !is_missing || has_problem {
            continue;
        }
        // A key without a value would be duplicated by a new line.
        let start = format!("{key}:");
        yaml = yaml.split_inclusive('\n').filter(|line| !line.starts_with(&start)).collect();
        yaml.extend([key, ": ", default, newline]);
    }
    let fixed = [source.get(..front.start).unwrap_or(""), &yaml, source.get(front.end..).unwrap_or("")].concat();
    // A front matter in an unusual layout, such as `{a: 1}`, cannot take further lines.
    if task::parse_partial(&fixed).task.is_some() { fixed } else { source.to_owned() }
}

/// Gives every repeated ID the next free suffix: the second `M1.1` becomes `M1.1.2`.
fn with_unique_ids(source: &str) -> String {
    let Some(task) = task::parse_partial(source).task else { return source.to_owned() };
    let mut taken: BTreeSet<String> = task.boxes.iter().map(|checkbox| checkbox.id.clone()).collect();
    let mut seen = BTreeSet::new();
    let mut next = BTreeMap::new();
    let mut out = String::with_capacity(source.len());
    let mut at = 0;
    for checkbox in task.boxes.iter().filter(|checkbox| checkbox.form == CheckboxForm::Item) {
        let Some(span) = checkbox.id_span.filter(|_| !seen.insert(&checkbox.id)) else { continue };
        // Counting on from the last suffix keeps a thousand copies of one ID linear.
        let count = next.entry(&checkbox.id).or_insert(2_u32);
        let mut id = format!("{}.{count}", checkbox.id);
        while !taken.insert(id.clone()) {
            *count += 1;
            id = format!("{}.{count}", checkbox.id);
        }
        out.push_str(source.get(at..span.start).unwrap_or(""));
        out.push_str(&id);
        at = span.end;
    }
    out.push_str(source.get(at..).unwrap_or(""));
    out
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::lint::{LintContext, lint};

    #[track_caller]
    fn check(source: &str, want: &str) {
        let context = LintContext::default();
        let findings = lint(Some(source), &context);
        let fixed = fix(source, &findings);
        assert_eq!(fixed, want);
        let left: Vec<_> = lint(Some(&fixed), &context).into_iter().filter(|left| left.rule.is_mechanical()).collect();
        assert_eq!(left, []);
        assert_eq!(fix(&fixed, &findings), fixed, "a second time with the old findings");
        assert_eq!(fix(&fixed, &lint(Some(&fixed), &context)), fixed, "a second time with new findings");
    }

    const ADDED: &str = "max_iterations: 30\nmax_wall_time_minutes: 120\nmax_cost_usd_estimate: 10\n";

    #[test]
    fn missing_keys_are_added() {
        check("---\ntask_id: t\n---\nx\n", &format!("---\ntask_id: t\n{ADDED}---\nx\n"));
        check("---\n---\n# My Task\n", &format!("---\ntask_id: my-task\n{ADDED}---\n# My Task\n"));
        check("---\nmax_iterations:\ntask_id: t\n---\n", &format!("---\ntask_id: t\n{ADDED}---\n"));
        check(
            "\u{feff}---\r\ntask_id: t\r\nmax_tokens_total: 9\r\n---\r\n",
            "\u{feff}---\r\ntask_id: t\r\nmax_tokens_total: 9\r\nmax_iterations: 30\r\nmax_wall_time_minutes: 120\r\n---\r\n",
        );
    }

    #[test]
    fn tabs_become_spaces() {
        check(
            "---\ntask_id: t\npr:\n\tdraft: true\n---\n\tx\n",
            &format!("---\ntask_id: t\npr:\n  draft: true\n{ADDED}---\n\tx\n"),
        );
    }

    #[test]
    fn ids_become_unique() {
        let front = format!("---\ntask_id: t\n{ADDED}---\n");
        check(
            &format!("{front}- [ ] A-1 a\n- [x] **A-1** b\n- [ ] A-1.2 c\n- [ ] A-1 d\n"),
            &format!("{front}- [ ] A-1 a\n- [x] **A-1.3** b\n- [ ] A-1.2 c\n- [ ] A-1.4 d\n"),
        );
    }

    #[test]
    fn unfixable_sources_stay_unchanged() {
        for source in [
            "",
            "no front matter",
            "---\n{task_id: t}\n---\n",
            "---\na: [\n---\n",
            "---\ntask_id: t\nmax_iterations: x\n",
        ] {
            let findings = lint(Some(source), &LintContext::default());
            assert_eq!(fix(source, &findings), source);
        }
    }

    proptest! {
        #[test]
        fn fixing_is_idempotent(pieces in prop::collection::vec(prop::sample::select(vec![
            "task_id: t\n", "max_iterations: 3\n", "max_iterations:\n", "pr:\n", "\tdraft: true\n", "  draft: true\n", "{a: 1}\n",
            "---\n", "- [ ] A-1 a\n", "- [x] A-1 b\n", "- [ ] A-1.2 c\n", "\n", "\r\n", "# T\n", "zzz: 1\n", "max_tokens_total: 5\n",
        ]), 0..16)) {
            let source = format!("---\n{}", pieces.concat());
            let context = LintContext::default();
            let fixed = fix(&source, &lint(Some(&source), &context));
            let twice = fix(&fixed, &lint(Some(&fixed), &context));
            prop_assert_eq!(fix(&twice, &lint(Some(&twice), &context)), twice);
        }
    }
}
