//! Parses any text as an issue: its steps keep their names however they are marked, and report what they were marked
//! with.
#![no_main]

use std::collections::BTreeMap;

use libfuzzer_sys::fuzz_target;
use ralph_core::task::{self, CheckboxForm, CheckboxMark};
use ralph_fuzz::{problems, within};

const REASON: &str = "waits for 3";

fuzz_target!(|source: &str| {
    let issue = match task::parse_issue(source) {
        Ok(issue) => issue,
        Err(error) => return problems(source, &error),
    };
    within(source, issue.body);
    let ids: Vec<&str> = issue.boxes.iter().map(|checkbox| checkbox.id.as_str()).collect();
    let marks: [&[CheckboxMark]; 4] = [
        &[CheckboxMark::Done],
        &[CheckboxMark::Open],
        &[CheckboxMark::Blocked(REASON.to_owned())],
        &[CheckboxMark::Open, CheckboxMark::Blocked(REASON.to_owned()), CheckboxMark::Done],
    ];
    for marks in marks {
        let wanted: BTreeMap<String, CheckboxMark> =
            ids.iter().zip(marks.iter().cycle()).map(|(id, mark)| ((*id).to_owned(), mark.clone())).collect();
        let marked = task::mark_issue(source, &wanted);
        let again = task::parse_issue(&marked).expect("an issue that was marked is still an issue");
        let names: Vec<&str> = again.boxes.iter().map(|checkbox| checkbox.id.as_str()).collect();
        assert_eq!(names, ids, "marking changed the names");
        for checkbox in &again.boxes {
            let blocked = match (&wanted[&checkbox.id], checkbox.form) {
                (CheckboxMark::Blocked(reason), CheckboxForm::Step) => Some(reason.clone()),
                _ => None,
            };
            let want = (wanted[&checkbox.id] == CheckboxMark::Done, blocked);
            assert_eq!((checkbox.done, checkbox.blocked.clone()), want, "box `{}`", checkbox.id);
        }
        assert_eq!(task::mark_issue(&marked, &wanted), marked, "marking twice is marking once");
    }
});
