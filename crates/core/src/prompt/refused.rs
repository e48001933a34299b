//! What the way out refused, as the next prompt tells it: without repeats, in the order in which it began, and bounded,
//! because an agent can ask for as many names as it likes.

use std::fmt::Write as _;

use serde::{Deserialize, Serialize};

use crate::text;

/// So many different things are told apart.
const APART: usize = 12;
/// The longest that is told of each.
const WORDS: usize = 120;

/// Things that were refused since the prompt before.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Refusals {
    told: Vec<Refused>,
    /// How many refusals of other things there were.
    others: u64,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Refused {
    what: String,
    why: String,
    times: u64,
}

impl Refusals {
    /// Takes one refusal: what was asked for, and why it was refused.
    pub fn add(&mut self, what: &str, why: &str) {
        let (what, why) = (short(what), short(why));
        if let Some(known) = self.told.iter_mut().find(|known| known.what == what && known.why == why) {
            known.times = known.times.saturating_add(1);
        } else if self.told.len() < APART {
            self.told.push(Refused { what, why, times: 1 });
        } else {
            self.others = self.others.saturating_add(1);
        }
    }

    /// Writes one line for each, or nothing where nothing was refused.
    pub fn text(&self) -> String {
        let mut out = String::new();
        for Refused { what, why, times } in &self.told {
            let times = if *times > 1 { format!(" ({times} times)") } else { String::new() };
            writeln!(out, "- {what}{times}: {why}").expect("writing to a String cannot fail");
        }
        if self.others > 0 {
            writeln!(out, "- and {} refusals of other things", self.others).expect("writing to a String cannot fail");
        }
        out
    }
}

fn short(text: &str) -> String {
    let line = text::plain(text).split_whitespace().collect::<Vec<_>>().join(" ");
    if line.len() <= WORDS { line } else { format!("{}…", text::head(&line, WORDS)) }
}

#[cfg(test)]
mod tests {
    use super::super::Part;
    use super::*;

    #[test]
    fn repeats_are_counted_in_the_order_they_began() {
        let mut refusals = Refusals::default();
        assert_eq!(refusals.text(), "");
        for (what, why) in [("b.io", "no rule"), ("a.io", "no rule"), ("b.io", "no rule"), ("b.io", "rule `b.io`")] {
            refusals.add(what, why);
        }
        assert_eq!(refusals.text(), "- b.io (2 times): no rule\n- a.io: no rule\n- b.io: rule `b.io`\n");
    }

    #[test]
    fn whatever_is_asked_for_it_fits() {
        let mut refusals = Refusals::default();
        for n in 0..10_000 {
            refusals.add(&format!("{n}\n{}\u{1b}[31m", "ü".repeat(500)), &"why ".repeat(500));
        }
        let text = refusals.text();
        assert_eq!(text.lines().count(), APART + 1);
        assert!(text.ends_with("- and 9988 refusals of other things\n") && !text.contains('\u{1b}'), "{text}");
        assert!(text.len() <= Part::Refused.cap(), "{}", text.len());
    }
}
