//! The only edits ralph makes to a task: one character per checkbox, one marker per step.
//!
//! The front matter need not be valid for this: a box is found by its position in the Markdown alone.

use std::collections::{BTreeMap, BTreeSet};

use super::checkbox::{Checkbox, CheckboxForm};
use super::front_matter_split::{self, TaskSourceKind};
use super::markdown_scan;
use crate::source_span::Span;
use crate::text;

/// The progress of a step or checkbox.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CheckboxMark {
    Open,
    Done,
    /// Only a step can show why it is blocked; a list item is left unticked.
    Blocked(String),
}

/// Returns the task with exactly the boxes in `ids` ticked and all others not, and not one other byte changed.
///
/// A text that cannot be split into front matter and body is returned unchanged.
pub fn tick(source: &str, ids: &BTreeSet<String>) -> String {
    let edits = scan_boxes(source, TaskSourceKind::Task).into_iter().filter_map(|checkbox| {
        let want = if ids.contains(&checkbox.id) { CheckboxMark::Done } else { CheckboxMark::Open };
        mark_edit(source, &checkbox, &want)
    });
    apply_edits(source, edits)
}

/// Returns the boxes that are ticked in a text, by ralph or by anyone else.
pub fn ticked_boxes(source: &str) -> BTreeSet<String> {
    scan_boxes(source, TaskSourceKind::Task)
        .into_iter()
        .filter(|checkbox| checkbox.done)
        .map(|checkbox| checkbox.id)
        .collect()
}

/// Returns the issue body with the named steps and checkboxes marked, and not one other byte changed.
pub fn mark_issue(source: &str, marks: &BTreeMap<String, CheckboxMark>) -> String {
    let edits = scan_boxes(source, TaskSourceKind::Issue)
        .into_iter()
        .filter_map(|checkbox| marks.get(&checkbox.id).and_then(|want| mark_edit(source, &checkbox, want)));
    apply_edits(source, edits)
}

fn scan_boxes(source: &str, opening: TaskSourceKind) -> Vec<Checkbox> {
    front_matter_split::split(source, opening)
        .map_or_else(|_| Vec::new(), |frame| markdown_scan::scan(source, frame.body, opening).boxes)
}

fn mark_edit(source: &str, checkbox: &Checkbox, want: &CheckboxMark) -> Option<(Span, String)> {
    let reason = match want {
        CheckboxMark::Blocked(reason) => Some(one_line(reason)),
        CheckboxMark::Open | CheckboxMark::Done => None,
    };
    let done = *want == CheckboxMark::Done;
    match checkbox.form {
        CheckboxForm::Item if done == checkbox.done => None,
        CheckboxForm::Item => Some((checkbox.mark, if done { "x" } else { " " }.to_owned())),
        CheckboxForm::Step if done == checkbox.done && reason == checkbox.blocked => None,
        CheckboxForm::Step => {
            let marker = match (done, reason) {
                (true, _) => "[done]".to_owned(),
                (false, Some(reason)) => format!("[blocked: {reason}]"),
                (false, None) => return Some((with_leading_blanks(source, checkbox.mark), String::new())),
            };
            let gap = if checkbox.mark.start == checkbox.mark.end { " " } else { "" };
            Some((checkbox.mark, format!("{gap}{marker}")))
        }
    }
}

/// Extends a marker over the blanks before it, so that removing it undoes exactly what adding it did.
fn with_leading_blanks(source: &str, marker: Span) -> Span {
    let before = source.get(..marker.start).unwrap_or("");
    Span::new(before.trim_end_matches([' ', '\t']).len(), marker.end)
}

/// Returns a reason that fits between the brackets of a heading.
fn one_line(reason: &str) -> String {
    let plain = text::strip_control(reason).replace('[', "(").replace(']', ")");
    let words = plain.split_whitespace().collect::<Vec<_>>().join(" ");
    text::head(&words, 200).trim_end().to_owned()
}

fn apply_edits(source: &str, edits: impl Iterator<Item = (Span, String)>) -> String {
    let mut out = String::with_capacity(source.len());
    let mut at = 0;
    for (span, with) in edits {
        out.push_str(source.get(at..span.start).unwrap_or(""));
        out.push_str(&with);
        at = span.end;
    }
    out.push_str(source.get(at..).unwrap_or(""));
    out
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn ids(names: &[&str]) -> BTreeSet<String> {
        names.iter().map(|name| (*name).to_owned()).collect()
    }

    #[track_caller]
    fn check(source: &str, names: &[&str], want: &str) {
        assert_eq!(tick(source, &ids(names)), want);
    }

    #[test]
    fn ticking() {
        let source = "\u{feff}---\r\nbroken: [\r\n---\r\n- [ ] M1.1 a\r\n- [X] M1.2 b\r\n- [x] c\r\n";
        check(source, &["M1.1", "M1.2"], &source.replace("[ ] M1.1", "[x] M1.1").replace("[x] c", "[ ] c"));
        check(source, &["M1.2", "c1"], source);
        check(source, &[], &source.replace("[X]", "[ ]").replace("[x]", "[ ]"));
        check("no front matter\n- [x] a\n", &[], "no front matter\n- [x] a\n");
        check("---\n---\n- [\t] a\n", &[], "---\n---\n- [\t] a\n");
    }

    #[track_caller]
    fn marks(source: &str, id: &str, want: &CheckboxMark, result: &str) {
        assert_eq!(mark_issue(source, &BTreeMap::from([(id.to_owned(), want.clone())])), result);
    }

    #[test]
    fn marking() {
        let open = "### Step 1: a\n### Step 2: b ##\n- [ ] c\n";
        marks(open, "step-1", &CheckboxMark::Done, "### Step 1: a [done]\n### Step 2: b ##\n- [ ] c\n");
        marks(open, "step-2", &CheckboxMark::Done, "### Step 1: a\n### Step 2: b [done] ##\n- [ ] c\n");
        marks(open, "c1", &CheckboxMark::Done, "### Step 1: a\n### Step 2: b ##\n- [x] c\n");
        marks(open, "c1", &CheckboxMark::Blocked("x".into()), open);
        marks(open, "step-9", &CheckboxMark::Done, open);
        let done = "### Step 1: a [DONE]\n";
        marks(done, "step-1", &CheckboxMark::Done, done);
        marks(done, "step-1", &CheckboxMark::Open, "### Step 1: a\n");
        marks(done, "step-1", &CheckboxMark::Blocked("no\nkey [x]".into()), "### Step 1: a [blocked: no key (x)]\n");
        marks("### Step 1: a [blocked: x]\r\n", "step-1", &CheckboxMark::Done, "### Step 1: a [done]\r\n");
    }

    fn body() -> impl Strategy<Value = String> {
        let piece = prop::sample::select(vec![
            "- [ ] M1.1 a\n",
            "- [x] b\n",
            "  - [X] A-3 c\n",
            "  - verify: `x`\n",
            "```\n",
            "> - [ ] q\n",
            "<!-- \n",
            "-->\n",
            "# T\n",
            "\n",
            "text\r\n",
            "- [ ] d\r\n",
            "1. [x] e\n",
            "[x]: u\n",
            "- [x](u)\n",
            "ü\n",
            "* [\t] f\n",
            "    - [ ] g\n",
            "### Step 1: s\n",
            "### Step 2: s [done]\n",
            "## Step 3: s [blocked: r] ##\r\n",
            "- [ ] [x] h\n",
            "  [ ] i\n",
            "- \n",
        ]);
        prop::collection::vec(piece, 0..24).prop_map(|pieces| pieces.concat())
    }

    proptest! {
        /// Ticking one box changes one byte, and the text then parses the same but for that box.
        #[test]
        fn ticking_changes_one_byte(body in body(), pick in any::<prop::sample::Index>()) {
            let source = format!("---\ntask_id: t\n---\n{body}");
            let before = scan_boxes(&source, TaskSourceKind::Task);
            // `tick` treats two boxes with one ID as one; the linter refuses such texts.
            let names: BTreeSet<_> = before.iter().map(|b| &b.id).collect();
            if before.is_empty() || names.len() < before.len() {
                return Ok(());
            }
            let mut wanted = before.clone();
            let index = pick.index(before.len());
            wanted[index].done = !before[index].done;
            let ids: BTreeSet<_> = wanted.iter().filter(|b| b.done).map(|b| b.id.clone()).collect();
            let after = tick(&source, &ids);
            prop_assert_eq!(scan_boxes(&after, TaskSourceKind::Task), wanted);
            let differing = source.bytes().zip(after.bytes()).filter(|(a, b)| a != b).count();
            prop_assert_eq!((after.len(), differing), (source.len(), 1));
            prop_assert_eq!(tick(&after, &ids), after);
        }

        /// Marking one step changes only what is between its title and the end of its line.
        #[test]
        fn marking_changes_one_marker(body in body(), reason in "\\PC{0,12}", kind in 0..3) {
            let want = [CheckboxMark::Open, CheckboxMark::Done, CheckboxMark::Blocked(reason)][usize::try_from(kind).unwrap()].clone();
            let before = scan_boxes(&body, TaskSourceKind::Issue);
            let marks = BTreeMap::from([("step-1".to_owned(), want.clone())]);
            let after = mark_issue(&body, &marks);
            let read = scan_boxes(&after, TaskSourceKind::Issue);
            let state = |b: &Checkbox| (b.id.clone(), b.text.clone(), b.milestone.clone(), b.proofs.clone());
            prop_assert_eq!(before.iter().map(state).collect::<Vec<_>>(), read.iter().map(state).collect::<Vec<_>>());
            for (old, new) in before.iter().zip(&read) {
                if old.id == "step-1" {
                    prop_assert_eq!(new.done, want == CheckboxMark::Done);
                    prop_assert_eq!(new.blocked.is_some(), matches!(want, CheckboxMark::Blocked(_)));
                } else {
                    prop_assert_eq!((old.done, &old.blocked), (new.done, &new.blocked));
                }
            }
            let lines = |text: &str| text.split('\n').filter(|l| !l.contains("Step 1")).map(str::to_owned).collect::<Vec<_>>();
            prop_assert_eq!(lines(&body), lines(&after));
            prop_assert_eq!(mark_issue(&after, &marks), after);
        }
    }
}
