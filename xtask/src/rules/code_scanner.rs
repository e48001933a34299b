//! Blanks everything in Rust source that is not code, so that words can be searched for.
//!
//! This is a scanner for comments and literals, not a parser; lines keep their numbers.

/// Returns the text with comments and the content of strings and characters as spaces.
pub(super) fn blank_non_code(text: &str) -> String {
    let bytes = text.as_bytes();
    let mut out = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while at < bytes.len() {
        let rest = &bytes[at..];
        let named = out.last().is_some_and(|byte| is_name(*byte));
        let len = if rest.starts_with(b"//") {
            line_comment_len(rest)
        } else if rest.starts_with(b"/*") {
            block_comment_len(rest)
        } else if let Some(len) = if named { None } else { raw_string_len(rest) } {
            len
        } else if rest[0] == b'"' {
            quoted_len(rest, b'"')
        } else if rest[0] == b'\'' {
            char_literal_len(text, at)
        } else {
            0
        };
        if len == 0 {
            out.push(rest[0]);
            at += 1;
        } else {
            out.extend(rest[..len].iter().map(|byte| if *byte == b'\n' { b'\n' } else { b' ' }));
            at += len;
        }
    }
    String::from_utf8_lossy(&out).into_owned()
}

/// Returns code, as [`blank_non_code`] returns it, without the items behind `#[cfg(test)]`.
pub(super) fn without_tests(code: &str) -> String {
    const ATTRIBUTE: &str = "#[cfg(test)]";
    let mut out = String::with_capacity(code.len());
    let mut rest = code;
    while let Some((before, from)) = rest.split_once(ATTRIBUTE) {
        let end = item_end(from);
        let (item, after) = from.split_at(end);
        out.push_str(before);
        out.extend(item.chars().filter(|c| *c == '\n'));
        rest = after;
    }
    out.push_str(rest);
    out
}

/// Returns where an item ends: at its `;`, or at the brace that closes its first one.
fn item_end(code: &str) -> usize {
    let mut depth = 0_usize;
    for (at, c) in code.char_indices() {
        match c {
            ';' if depth == 0 => return at + 1,
            '{' | '(' | '[' => depth += 1,
            '}' | ')' | ']' => {
                depth = depth.saturating_sub(1);
                if depth == 0 && c == '}' {
                    // `use a::{b, c};` has one more byte.
                    return at + 1 + usize::from(code.as_bytes().get(at + 1) == Some(&b';'));
                }
            }
            _ => (),
        }
    }
    code.len()
}

fn line_comment_len(bytes: &[u8]) -> usize {
    bytes.iter().position(|byte| *byte == b'\n').unwrap_or(bytes.len())
}

/// Returns the length of a block comment; they nest.
fn block_comment_len(bytes: &[u8]) -> usize {
    let (mut depth, mut at) = (0, 0);
    while at < bytes.len() {
        let rest = &bytes[at..];
        if rest.starts_with(b"/*") {
            depth += 1;
            at += 2;
        } else if rest.starts_with(b"*/") {
            depth -= 1;
            at += 2;
            if depth == 0 {
                return at;
            }
        } else {
            at += 1;
        }
    }
    bytes.len()
}

/// Returns the length of `r"…"`, `br#"…"#` and the like, prefix included.
fn raw_string_len(bytes: &[u8]) -> Option<usize> {
    let prefix = [&b"br"[..], b"cr", b"r"].into_iter().find(|prefix| bytes.starts_with(prefix))?.len();
    let hashes = bytes[prefix..].iter().take_while(|byte| **byte == b'#').count();
    let open = prefix + hashes;
    if bytes.get(open) != Some(&b'"') {
        return None;
    }
    let close: Vec<u8> = std::iter::once(b'"').chain(std::iter::repeat_n(b'#', hashes)).collect();
    let body = &bytes[open + 1..];
    let end = body.windows(close.len()).position(|window| window == close);
    Some(end.map_or(bytes.len(), |end| open + 1 + end + close.len()))
}

fn quoted_len(bytes: &[u8], quote: u8) -> usize {
    let mut at = 1;
    while let Some(byte) = bytes.get(at) {
        match byte {
            b'\\' => at += 2,
            byte if *byte == quote => return at + 1,
            _ => at += 1,
        }
    }
    bytes.len()
}

/// Returns the length of a character, or 0 where the quote begins a lifetime.
fn char_literal_len(text: &str, at: usize) -> usize {
    let mut chars = text[at + 1..].chars();
    match (chars.next(), chars.next()) {
        (Some('\\'), _) => quoted_len(&text.as_bytes()[at..], b'\''),
        (Some(c), Some('\'')) => c.len_utf8() + 2,
        _ => 0,
    }
}

fn is_name(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_'
}

#[cfg(test)]
mod tests {
    use super::*;

    /// In `want`, a `~` is a byte that was blanked.
    #[track_caller]
    fn check(text: &str, want: &str) {
        assert_eq!(blank_non_code(text), want.replace('~', " "), "{text}");
    }

    #[test]
    fn comments() {
        check("a // b\nc", "a ~~~~\nc");
        check("a /* b /* c */ d\n */ e", "a ~~~~~~~~~~~~~~\n~~~ e");
        check("/* never closed", "~~~~~~~~~~~~~~~");
        check("a / b", "a / b");
    }

    #[test]
    fn literals() {
        check(r#"f("a \" // b") // c"#, r"f(~~~~~~~~~~~) ~~~~");
        check(r##"f(r#"a " b"#, br"\") + c"##, "f(~~~~~~~~~~, ~~~~~) + c");
        check("for r in \"r\" { r#type }", "for r in ~~~ { r#type }");
        check("bar\"x\"", "bar~~~");
        check(r"['a', '\'', '\u{1F600}', 'é', '/'] b", "[~~~, ~~~~, ~~~~~~~~~~~, ~~~~, ~~~] b");
        check("fn f<'a>(x: &'a str, y: &'static str) {}", "fn f<'a>(x: &'a str, y: &'static str) {}");
        check("\"never closed\\", "~~~~~~~~~~~~~~");
        check("a\"\n\"b", "a~\n~b");
    }

    #[track_caller]
    fn check_shipped(text: &str, want: &str) {
        assert_eq!(without_tests(&blank_non_code(text)), want, "{text}");
    }

    #[test]
    fn tests_are_not_shipped() {
        check_shipped("a;\n#[cfg(test)]\nmod tests {\n fn b() { }\n}\nc;", "a;\n\n\n\n\nc;");
        check_shipped("#[cfg(test)]\nmod tests;\nc;", "\n\nc;");
        check_shipped("#[cfg(test)] use a::{b, c};\nd", "\nd");
        check_shipped("#[cfg(test)]\n#[derive(Debug)]\nfn a(x: [u8; 3]) -> u8 { { } }\nb", "\n\n\nb");
        check_shipped("#[cfg(test)]\nmod tests { never closed", "\n");
        check_shipped("#[cfg(unix)]\nmod a {}", "#[cfg(unix)]\nmod a {}");
    }
}
