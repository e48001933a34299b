//! Small text helpers that several modules share: "did you mean", slugs, safe terminal text, tails.

/// Returns the candidate that a mistyped word most probably meant.
pub fn did_you_mean<'a>(word: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    candidates
        .into_iter()
        .map(|candidate| (similarity(word, candidate), candidate))
        .filter(|(score, _)| *score >= 0.8)
        .max_by(|a, b| a.0.total_cmp(&b.0))
        .map(|(_, candidate)| candidate)
}

fn similarity(word: &str, candidate: &str) -> f64 {
    let alike = strsim::jaro_winkler(word, candidate);
    // One typo in a short word weighs too much in the measure above: `rnu` means `run`.
    let slip = (3..=64).contains(&word.len()) && strsim::osa_distance(word, candidate) == 1;
    if slip { alike.max(0.9) } else { alike }
}

/// Turns a title into lower-case words joined by dashes, at most `max` bytes long.
pub fn slug(title: &str, max: usize) -> String {
    let mut slug = String::new();
    for word in title.split(|c: char| !c.is_ascii_alphanumeric()).filter(|word| !word.is_empty()) {
        let dash = usize::from(!slug.is_empty());
        if slug.len() + dash + word.len() > max {
            if slug.is_empty() {
                slug.extend(word.chars().take(max).map(|c| c.to_ascii_lowercase()));
            }
            break;
        }
        if dash == 1 {
            slug.push('-');
        }
        slug.push_str(&word.to_ascii_lowercase());
    }
    slug
}

/// Removes escape sequences and control characters, so that text written by an agent cannot control a terminal.
pub fn strip_control(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut chars = text.chars().peekable();
    while let Some(c) = chars.next() {
        match c {
            '\n' | '\t' => out.push(c),
            '\u{1b}' => skip_escape(&mut chars),
            // C1 controls are escape sequences written as one character.
            '\u{9b}' => skip_csi(&mut chars),
            c if c.is_control() => (),
            // Bidirectional overrides reorder what a person reads.
            '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' => (),
            c => out.push(c),
        }
    }
    out
}

fn skip_escape(chars: &mut std::iter::Peekable<std::str::Chars<'_>>) {
    match chars.peek() {
        Some('[') => {
            chars.next();
            skip_csi(chars);
        }
        // OSC, DCS, SOS, PM, APC: everything up to BEL or ST.
        Some(']' | 'P' | 'X' | '^' | '_') => {
            chars.next();
            while let Some(c) = chars.next() {
                if c == '\u{7}' || c == '\u{9c}' {
                    break;
                }
                if c == '\u{1b}' {
                    if chars.peek() == Some(&'\\') {
                        chars.next();
                    }
                    break;
                }
            }
        }
        Some(' '..='/') => {
            while chars.next_if(|c| (' '..='/').contains(c)).is_some() {}
            chars.next();
        }
        Some(_) => {
            chars.next();
        }
        None => (),
    }
}

fn skip_csi(chars: &mut std::iter::Peekable<std::str::Chars<'_>>) {
    while let Some(c) = chars.next_if(|c| (' '..='~').contains(c)) {
        if ('@'..='~').contains(&c) {
            break;
        }
    }
}

/// Returns the last `lines` lines of a text, and at most `bytes` bytes of them, cut at a character.
pub fn tail(text: &str, lines: usize, bytes: usize) -> &str {
    let body = text.strip_suffix('\n').unwrap_or(text);
    let by_lines =
        if lines == 0 { text.len() } else { body.rmatch_indices('\n').nth(lines - 1).map_or(0, |(at, _)| at + 1) };
    let mut start = by_lines.max(text.len().saturating_sub(bytes));
    while !text.is_char_boundary(start) {
        start += 1;
    }
    &text[start..]
}

/// Returns at most `bytes` bytes from the start of a text, cut at a character.
pub fn head(text: &str, bytes: usize) -> &str {
    let mut end = bytes.min(text.len());
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    &text[..end]
}

/// Returns the first line of a text, cut to `bytes` bytes: for messages that must stay one line.
pub fn first_line(text: &str, bytes: usize) -> &str {
    head(text.lines().next().unwrap_or(""), bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slugs() {
        for (title, max, want) in [
            ("Task: Implement Foo (task-001)", 40, "task-implement-foo-task-001"),
            ("Überlänge – ok", 40, "berl-nge-ok"),
            ("aaaa bbbb", 6, "aaaa"),
            ("aaaaaaaaaa", 4, "aaaa"),
            ("…", 9, ""),
        ] {
            assert_eq!(slug(title, max), want);
        }
    }

    #[test]
    fn control_sequences_are_removed() {
        for (text, want) in [
            ("a\u{1b}[31mred\u{1b}[0m b", "ared b"),
            ("x\u{1b}]0;title\u{7}y", "xy"),
            ("x\u{1b}]52;c;aGk=\u{1b}\\y", "xy"),
            ("\u{9b}6nz", "z"),
            ("a\rb\u{8}c\tok\n", "abc\tok\n"),
            ("\u{1b}(Bq\u{1b}", "q"),
            ("\u{202e}evil", "evil"),
        ] {
            assert_eq!(strip_control(text), want, "{text:?}");
        }
    }

    #[test]
    fn tails() {
        for (text, lines, bytes, want) in [
            ("a\nb\nc\n", 2, 99, "b\nc\n"),
            ("a\nb\nc", 1, 99, "c"),
            ("a", 5, 99, "a"),
            ("ññ", 9, 3, "ñ"),
            ("a\nb\n", 0, 99, ""),
            ("", 3, 3, ""),
        ] {
            assert_eq!(tail(text, lines, bytes), want);
        }
    }

    #[test]
    fn typos_are_corrected() {
        assert_eq!(did_you_mean("max_iteration", ["test_command", "max_iterations"]), Some("max_iterations"));
        assert_eq!(did_you_mean("rnu", ["resume", "run"]), Some("run"));
        assert_eq!(did_you_mean("zzz", ["test_command"]), None);
    }
}
