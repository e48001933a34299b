//! Collects the refusals of the egress proxy for the next prompt: without repeats, in the order of their first
//! occurrence, and bounded, because an agent can request any number of names.

use std::fmt::Write as _;

use serde::{Deserialize, Serialize};

use crate::text;

/// The maximum number of distinct refusals.
const MAX_DISTINCT: usize = 12;
/// The maximum length of each.
const MAX_LINE_BYTES: usize = 120;

/// The refusals since the previous prompt.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct EgressRefusals {
    told: Vec<EgressRefusal>,
    /// The number of refusals beyond the distinct ones.
    others: u64,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct EgressRefusal {
    what: String,
    why: String,
    times: u64,
}

impl EgressRefusals {
    /// Adds one refusal: what was requested, and why it was refused.
    pub fn add(&mut self, what: &str, why: &str) {
        let (what, why) = (excerpt(what), excerpt(why));
        if let Some(known) = self.told.iter_mut().find(|known| known.what == what && known.why == why) {
            known.times = known.times.saturating_add(1);
        } else if self.told.len() < MAX_DISTINCT {
            self.told.push(EgressRefusal { what, why, times: 1 });
        } else {
            self.others = self.others.saturating_add(1);
        }
    }

    /// Returns one line for each, or nothing where nothing was refused.
    pub fn text(&self) -> String {
        let mut out = String::new();
        for EgressRefusal { what, why, times } in &self.told {
            let times = if *times > 1 { format!(" ({times} times)") } else { String::new() };
            writeln!(out, "- {what}{times}: {why}").expect("writing to a String cannot fail");
        }
        if self.others > 0 {
            writeln!(out, "- and {} refusals of other things", self.others).expect("writing to a String cannot fail");
        }
        out
    }
}

fn excerpt(text: &str) -> String {
    let line = text::strip_control(text).split_whitespace().collect::<Vec<_>>().join(" ");
    if line.len() <= MAX_LINE_BYTES { line } else { format!("{}…", text::head(&line, MAX_LINE_BYTES)) }
}

#[cfg(test)]
mod tests {
    use super::super::PromptPart;
    use super::*;

    #[test]
    fn repeats_are_counted_in_order_of_first_occurrence() {
        let mut refusals = EgressRefusals::default();
        assert_eq!(refusals.text(), "");
        for (what, why) in [("b.io", "no rule"), ("a.io", "no rule"), ("b.io", "no rule"), ("b.io", "rule `b.io`")] {
            refusals.add(what, why);
        }
        assert_eq!(refusals.text(), "- b.io (2 times): no rule\n- a.io: no rule\n- b.io: rule `b.io`\n");
    }

    #[test]
    fn the_text_is_bounded() {
        let mut refusals = EgressRefusals::default();
        for n in 0..10_000 {
            refusals.add(&format!("{n}\n{}\u{1b}[31m", "ü".repeat(500)), &"why ".repeat(500));
        }
        let text = refusals.text();
        assert_eq!(text.lines().count(), MAX_DISTINCT + 1);
        assert!(text.ends_with("- and 9988 refusals of other things\n") && !text.contains('\u{1b}'), "{text}");
        assert!(text.len() <= PromptPart::Refused.cap(), "{}", text.len());
    }
}
