//! Properties that must hold for any text, shared by the targets that test the same parser in two ways.

use std::collections::BTreeSet;

use ralph_core::source_span::Span;
use ralph_core::task::{self, TaskError};

/// Checks that ticking boxes keeps a task intact: nothing but the ticks changes, whichever boxes are ticked.
pub fn task(source: &str) {
    let task = match task::parse(source) {
        Ok(task) => task,
        Err(error) => {
            problems(source, &error);
            // A task that can no longer be parsed can still be ticked.
            let _ = task::tick(source, &BTreeSet::from(["c1".to_owned()]));
            return;
        }
    };
    within(source, task.body);
    for checkbox in &task.boxes {
        within(source, checkbox.mark);
        within(source, checkbox.span);
    }
    let ids: Vec<&str> = task.boxes.iter().map(|checkbox| checkbox.id.as_str()).collect();
    let all: BTreeSet<String> = ids.iter().map(|id| (*id).to_owned()).collect();
    let half = all.iter().step_by(2).cloned().collect();
    for wanted in [BTreeSet::new(), half, all] {
        let ticked = task::tick(source, &wanted);
        let again = task::parse(&ticked).expect("a task that was ticked is still a task");
        let names: Vec<&str> = again.boxes.iter().map(|checkbox| checkbox.id.as_str()).collect();
        assert_eq!(names, ids, "ticking changed the names");
        for checkbox in &again.boxes {
            assert_eq!(checkbox.done, wanted.contains(&checkbox.id), "box `{}`", checkbox.id);
        }
        assert_eq!(task::tick(&ticked, &wanted), ticked, "ticking twice is ticking once");
    }
}

/// Checks that an error has a message, at a position that exists.
pub fn problems(source: &str, error: &TaskError) {
    assert!(!error.problems.is_empty(), "refused without a reason");
    for problem in &error.problems {
        within(source, problem.span);
    }
}

/// Checks that a span lies within its text.
pub fn within(source: &str, span: Span) {
    assert!(source.get(span.start..span.end).is_some(), "{span:?} is not in a text of {} bytes", source.len());
}

/// Returns the two texts around the first NUL, or `None` if there is none.
pub fn pair(input: &str) -> Option<(&str, &str)> {
    input.split_once('\0')
}
