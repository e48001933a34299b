//! Imports any text as a plan of another tool: the resulting task can be parsed, has no box ticked that was not
//! proved, and contains every word of a page.
#![no_main]

use std::collections::BTreeSet;

use libfuzzer_sys::fuzz_target;
use ralph_core::import::{PlanKind, PlanSource, import};
use ralph_core::{task, text};

fn words(source: &str) -> impl Iterator<Item = &str> {
    source.split(|c: char| !c.is_alphanumeric()).filter(|word| !word.is_empty())
}

fuzz_target!(|source: &str| {
    for name in ["plan.md", "prd.json"] {
        let imported = match import(&PlanSource { name, text: source, test_command: None }) {
            Ok(imported) => imported,
            Err(error) => {
                assert!(!error.to_string().contains('\n') && !error.hint().is_empty(), "{error}");
                continue;
            }
        };
        let read = task::parse(&imported.task).expect("what was imported is a task");
        assert!(read.boxes.iter().all(|one| !one.done), "nothing is ticked");
        let ids: BTreeSet<&str> = read.boxes.iter().map(|one| one.id.as_str()).collect();
        assert_eq!((read.boxes.len(), ids.len()), (imported.items, imported.items));
        if imported.kind == PlanKind::Stories {
            continue;
        }
        let kept: BTreeSet<&str> = words(&imported.task).collect();
        // The mark of a box is removed, and so are the names of keys that were taken over.
        let marks = ["x", "X", "task", "test_command", "max_iterations"];
        for word in words(&text::strip_control(source)).filter(|word| !marks.contains(word)) {
            assert!(kept.contains(word), "{word:?} was lost in\n{}", imported.task);
        }
    }
});
