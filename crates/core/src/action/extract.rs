//! Finds the one JSON object in the text of a model, which may have prose, Markdown fences and examples around it.
//!
//! Looks at brackets and quotes only and does not validate the object; the time is linear in the length of the text.

/// How many opening brackets that are never closed are tried before giving up: each costs one pass over the text.
const MAX_OPEN: usize = 16;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ReplyExtraction<'a> {
    /// The only object that can be the reply.
    One(&'a str),
    /// An object that is never closed.
    Cut(&'a str),
    /// More than one object that looks like a reply.
    Several,
    /// An object that ends in the middle of the intended one.
    Broken,
    None,
}

/// Finds the object that is the reply.
pub(super) fn find_reply_object(text: &str) -> ReplyExtraction<'_> {
    let mut whole = Vec::new();
    let mut open = Vec::new();
    let mut at = 0;
    while let Some(start) = text.get(at..).and_then(|rest| rest.find('{')).map(|found| at + found) {
        let rest = &text[start..];
        if let Some(len) = end_of_object(rest) {
            whole.push((start, &rest[..len]));
            at = start + len;
        } else {
            open.push((start, rest));
            at = start + 1;
            if open.len() == MAX_OPEN {
                break;
            }
        }
    }
    let mut replies = whole.iter().filter(|(_, object)| names_actions(object));
    match (replies.next(), replies.next()) {
        (Some((start, object)), None) => {
            let cut_before = open.iter().any(|(at, _)| at < start && text.get(*at..*start).is_some_and(names_actions));
            // A second, truncated answer may have been meant to replace the first.
            let cut_after = open.iter().any(|(at, rest)| at > start && names_actions(rest));
            if cut_before || cut_after {
                ReplyExtraction::Several
            } else if has_unopened_bracket(text, start + object.len(), &whole) {
                ReplyExtraction::Broken
            } else {
                ReplyExtraction::One(object)
            }
        }
        (Some(_), Some(_)) => ReplyExtraction::Several,
        (None, _) => match (open.first(), whole.last()) {
            (Some((_, rest)), _) => ReplyExtraction::Cut(rest),
            // None of the objects is a reply: the last is most probably the answer, so its error is the one to report.
            (None, Some((_, last))) => ReplyExtraction::One(last),
            (None, None) => ReplyExtraction::None,
        },
    }
}

/// Returns whether an unopened bracket closes after `end`: then an unescaped quote ended a string too early, and the
/// object found is only a part of the intended one.
fn has_unopened_bracket(text: &str, end: usize, whole: &[(usize, &str)]) -> bool {
    let mut at = end;
    for (start, object) in whole.iter().filter(|(start, _)| *start >= end) {
        if text.get(at..*start).is_some_and(|gap| gap.contains('}')) {
            return true;
        }
        at = start + object.len();
    }
    text.get(at..).is_some_and(|gap| gap.contains('}'))
}

fn names_actions(object: &str) -> bool {
    ["\"actions\"", "'actions'", "actions:"].iter().any(|key| object.contains(key))
}

/// Returns the length of the object at the start of the text, if its brackets are closed.
fn end_of_object(text: &str) -> Option<usize> {
    let mut depth = 0_usize;
    let mut in_string = false;
    let mut escaped = false;
    for (at, byte) in text.bytes().enumerate() {
        match byte {
            _ if escaped => escaped = false,
            b'\\' if in_string => escaped = true,
            b'"' => in_string = !in_string,
            _ if in_string => (),
            b'{' | b'[' => depth += 1,
            b'}' | b']' => {
                depth = depth.saturating_sub(1);
                if depth == 0 {
                    return Some(at + 1);
                }
            }
            _ => (),
        }
    }
    None
}

/// Returns how deep brackets nest, quotes ignored: never less than what a parser would see.
pub(super) fn nesting_depth(text: &str) -> usize {
    let mut depth = 0_usize;
    let mut deepest = 0;
    for byte in text.bytes() {
        match byte {
            b'{' | b'[' | b'(' => {
                depth += 1;
                deepest = deepest.max(depth);
            }
            b'}' | b']' | b')' => depth = depth.saturating_sub(1),
            _ => (),
        }
    }
    deepest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_reply_object_is_found() {
        const REPLY: &str = r#"{"actions": [{"a": "}{"}]}"#;
        for (text, want) in [
            (REPLY.to_owned(), ReplyExtraction::One(REPLY)),
            (format!("```json\n{REPLY}\n```"), ReplyExtraction::One(REPLY)),
            (format!("I'll use {{x}} and \"{{y}}\".\n\n{REPLY}\nDone {{ok}}."), ReplyExtraction::One(REPLY)),
            (format!("A stray {{ here: {REPLY}"), ReplyExtraction::One(REPLY)),
            (format!("{REPLY}\n{REPLY}"), ReplyExtraction::Several),
            (format!("{REPLY}\nor rather\n{{\"actions\": [{{"), ReplyExtraction::Several),
            (format!("x {}", &REPLY[..REPLY.len() - 1]), ReplyExtraction::Cut(&REPLY[..REPLY.len() - 1])),
            // An answer truncated inside a file content that looks like an answer.
            (format!("{{\"actions\": [{{\"content\": \"{REPLY}"), ReplyExtraction::Several),
            // An unescaped quote.
            (r#"{"actions": [{"content": "say "}]}" now"}]}"#.to_owned(), ReplyExtraction::Broken),
            (format!("{REPLY} {{ok}} }}"), ReplyExtraction::Broken),
            ("{\"a\": 1} {\"b\": 2}".to_owned(), ReplyExtraction::One("{\"b\": 2}")),
            ("no braces".to_owned(), ReplyExtraction::None),
            ("}{".to_owned(), ReplyExtraction::Cut("{")),
            (String::new(), ReplyExtraction::None),
        ] {
            assert_eq!(find_reply_object(&text), want, "{text}");
        }
    }

    #[test]
    fn nesting_depths() {
        for (text, want) in [("", 0), ("{}", 1), ("[[(", 3), ("[] [] {[]}", 2), ("]]][", 1)] {
            assert_eq!(nesting_depth(text), want, "{text}");
        }
    }
}
