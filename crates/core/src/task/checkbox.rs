//! One checkbox, and how its ID is recognised.

use serde::{Deserialize, Serialize};

use crate::source_span::Span;

/// One item to be done and proved.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Checkbox {
    /// The first word if it looks like `M1.2`, `A-3` or `1.4`; `step-N` for a step; otherwise `c1`, `c2`… in order.
    pub id: String,
    /// Its text, without its ID and its proof.
    pub text: String,
    pub done: bool,
    /// Why a step is blocked; a list item never is.
    pub blocked: Option<String>,
    pub form: CheckboxForm,
    /// A list item: the one character between the brackets. A step: its marker, or the position where one would go.
    pub mark: Span,
    /// The line it is on.
    pub span: Span,
    /// The ID as written, if there is one.
    pub id_span: Option<Span>,
    /// The milestone or step it belongs to.
    pub milestone: Option<String>,
    /// The commands that prove it.
    pub proofs: Vec<String>,
    /// The span of each proof.
    pub proof_spans: Vec<Span>,
    /// A `verify:` line that names no command in backticks, so that the linter can point at it.
    pub bare_verify: Option<Span>,
}

/// How a checkbox is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum CheckboxForm {
    Item,
    Step,
}

/// Splits `M1.2 the rest` into the ID and the rest; punctuation after the ID belongs to neither.
pub(super) fn split_id(text: &str) -> Option<(&str, &str)> {
    let text = text.trim_start();
    let end = text.find(char::is_whitespace).unwrap_or(text.len());
    let (word, rest) = text.split_at(end);
    let word = word.trim_end_matches([':', '.', ',', ')', ';']);
    looks_like_id(word).then(|| (word, rest.trim()))
}

/// `M1.2`, `1.4`, `M1.2.3`: up to four letters, then numbers with dots. `A-3`, `PROJ-12`: capitals, a dash, numbers.
fn looks_like_id(word: &str) -> bool {
    if word.len() > 40 {
        return false;
    }
    let numbers = |text: &str, least: usize| {
        text.split('.').count() >= least
            && text.split('.').all(|part| !part.is_empty() && part.bytes().all(|b| b.is_ascii_digit()))
    };
    if let Some((letters, rest)) = word.split_once('-') {
        return (1..=10).contains(&letters.len())
            && letters.bytes().all(|b| b.is_ascii_uppercase())
            && numbers(rest, 1);
    }
    let letters = word.bytes().take_while(u8::is_ascii_alphabetic).count();
    letters <= 4 && numbers(word.get(letters..).unwrap_or(""), 2)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids() {
        for (text, want) in [
            ("M1.1 Foo", Some(("M1.1", "Foo"))),
            ("A-3 x", Some(("A-3", "x"))),
            ("PROJ-12: x", Some(("PROJ-12", "x"))),
            ("1.4 x", Some(("1.4", "x"))),
            ("M2.10.3) x", Some(("M2.10.3", "x"))),
            ("A-3.2 x", Some(("A-3.2", "x"))),
            ("M1.1", Some(("M1.1", ""))),
            ("1. x", None),
            ("Foo returns 200", None),
            ("well-3 known", None),
            ("M1 x", None),
            ("3 apples", None),
            ("M1..2 x", None),
            ("-3 x", None),
            ("", None),
            ("ü1.2 x", None),
        ] {
            assert_eq!(split_id(text), want, "{text:?}");
        }
    }
}
