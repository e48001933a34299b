//! Finds private keys in PEM form, whole or cut off.
//!
//! One regular expression could say this too, but it would read to the end of the text for each beginning without an
//! end: a file made of nothing else would take minutes.

use std::ops::Range;
use std::sync::LazyLock;

use regex::Regex;

/// Shorter bodies belong to texts about keys.
const SHORTEST_BODY: usize = 40;

static BEGIN: LazyLock<Regex> = LazyLock::new(|| boundary("BEGIN"));
static END: LazyLock<Regex> = LazyLock::new(|| boundary("END"));

fn boundary(word: &str) -> Regex {
    let pattern = format!("-----{word} [A-Z0-9 ]{{0,40}}PRIVATE KEY(?: BLOCK)?-----");
    Regex::new(&pattern).expect("the pattern is a constant and tested")
}

/// Returns every block, in order: up to its end line, or as far as the text could be a key.
pub(super) fn private_key_blocks(text: &str) -> Vec<Range<usize>> {
    let mut blocks = Vec::new();
    let mut next = BEGIN.find(text);
    if next.is_none() {
        return blocks;
    }
    let mut ends = end_lines(text).into_iter().peekable();
    let (mut headed, mut plain) = (ClassRun::new(is_headed_body), ClassRun::new(is_plain_body));
    while let Some(begin) = next {
        let body = begin.end();
        let shortest = nth_char(text, body, SHORTEST_BODY);
        while ends.next_if(|end| shortest.is_none_or(|shortest| end.start < shortest)).is_some() {}
        let whole = ends.peek().filter(|end| end.start <= headed.end_from(text, body)).map(|end| end.end);
        let cut = || {
            let run = plain.end_from(text, body);
            shortest.is_some_and(|shortest| shortest <= run).then_some(run)
        };
        let from = match whole.or_else(cut) {
            Some(end) => {
                blocks.push(begin.start()..end);
                end
            }
            // The dashes that close one line may open the next.
            None => begin.start() + 1,
        };
        next = BEGIN.find_at(text, from);
    }
    blocks
}

fn end_lines(text: &str) -> Vec<Range<usize>> {
    let mut lines = Vec::new();
    let mut from = 0;
    while let Some(end) = END.find_at(text, from) {
        lines.push(end.range());
        from = end.start() + 1;
    }
    lines
}

/// Returns where the `n`th character after `from` ends; `None` if there are fewer.
fn nth_char(text: &str, from: usize, n: usize) -> Option<usize> {
    let (at, last) = text.get(from..)?.char_indices().nth(n.checked_sub(1)?)?;
    Some(from + at + last.len_utf8())
}

/// What stands between the lines of a whole block, headers in parentheses included.
fn is_headed_body(c: char) -> bool {
    is_plain_body(c) || matches!(c, '(' | ')')
}

/// What stands after the first line of a block that was cut off.
fn is_plain_body(c: char) -> bool {
    c.is_ascii_alphanumeric() || c.is_whitespace() || "+/=\\:,.-".contains(c)
}

/// Finds where runs of allowed characters end. Positions are asked for in order, so that no text is read twice.
struct ClassRun {
    is_allowed: fn(char) -> bool,
    end: Option<usize>,
}

impl ClassRun {
    fn new(is_allowed: fn(char) -> bool) -> Self {
        Self { is_allowed, end: None }
    }

    fn end_from(&mut self, text: &str, from: usize) -> usize {
        if let Some(end) = self.end.filter(|end| *end >= from) {
            return end;
        }
        let rest = text.get(from..).unwrap_or("");
        let end = rest.find(|c| !(self.is_allowed)(c)).map_or(text.len(), |length| from + length);
        self.end = Some(end);
        end
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The same as one regular expression: short, but quadratic.
    static WHOLE: LazyLock<Regex> = LazyLock::new(|| {
        Regex::new(concat!(
            r"-----BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----",
            r"(?:[A-Za-z0-9+/=\s\\:,.()-]{40,}?-----END [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----|",
            r"[A-Za-z0-9+/=\s\\:,.-]{40,})"
        ))
        .unwrap()
    });

    #[test]
    fn many_beginnings_are_read_once() {
        let piece = format!("-----BEGIN {}-----{}(", "PRIVATE KEY", "aaaa ".repeat(10));
        // One regular expression needs minutes for this.
        let text = piece.repeat((4 << 20) / piece.len());
        assert_eq!(private_key_blocks(&text).len(), (4 << 20) / piece.len());
    }

    proptest! {
        #[test]
        fn blocks_are_those_of_the_regular_expression(
            parts in proptest::collection::vec(
                proptest::sample::select(vec![
                    "-----BEGIN PRIVATE KEY-----", "-----BEGIN RSA PRIVATE KEY-----", "BEGIN PRIVATE KEY-----", "-----",
                    "-----END PRIVATE KEY-----", "-----END RSA PRIVATE KEY BLOCK-----", "END PRIVATE KEY-----", "(", "é",
                    "\u{2003}", "\n", "aaaaaaaaaaaaaaaaaaaa", "bbbb:\\+", "#", "-", "0123456789012345678901234567890123456",
                ]),
                0..14,
            )
        ) {
            let text = parts.concat();
            let want: Vec<Range<usize>> = WHOLE.find_iter(&text).map(|found| found.range()).collect();
            prop_assert_eq!(private_key_blocks(&text), want, "{}", text);
        }
    }
}
