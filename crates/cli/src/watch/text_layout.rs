//! Formats text to fit: one safe line, measured in terminal columns, and numbers in short form.

use ralph_core::money::MicroUsd;
use ralph_core::text::{head, strip_control};
use ratatui::text::Span;

/// The most bytes of one text that are processed; no screen shows more.
const MAX_TEXT_BYTES: usize = 4096;

/// Makes one safe line of text that an agent may have written: no escapes, no line ends and no zero-width characters,
/// because terminals disagree about those.
pub(super) fn single_line(text: &str) -> String {
    let flat = strip_control(head(text, MAX_TEXT_BYTES));
    let mut out = String::with_capacity(flat.len());
    for c in flat.chars() {
        if c.is_whitespace() {
            out.push(' ');
        } else if char_width(c) > 0 {
            out.push(c);
        }
    }
    out.truncate(out.trim_end().len());
    out
}

/// Returns the number of columns that a text takes.
pub(super) fn display_width(text: &str) -> usize {
    text.chars().map(char_width).sum()
}

fn char_width(c: char) -> usize {
    if c.is_ascii() { usize::from(!c.is_ascii_control()) } else { Span::raw(&*c.encode_utf8(&mut [0; 4])).width() }
}

/// Cuts a text to at most `width` columns and marks the cut.
pub(super) fn truncate(text: &str, width: usize) -> String {
    if display_width(text) <= width {
        return text.to_owned();
    }
    let mut out = String::new();
    let mut used = 1;
    for c in text.chars() {
        used += char_width(c);
        if used > width {
            break;
        }
        out.push(c);
    }
    if width > 0 {
        out.push('…');
    }
    out
}

/// Keeps the end of a text, for a line that is being typed.
pub(super) fn truncate_start(text: &str, width: usize) -> String {
    let mut used = 0;
    let mut kept: Vec<char> = text.chars().rev().take_while(|c| fits(&mut used, char_width(*c), width)).collect();
    kept.reverse();
    kept.into_iter().collect()
}

fn fits(used: &mut usize, more: usize, width: usize) -> bool {
    *used += more;
    *used <= width
}

/// Wraps a text between words into at most `most` lines; the last one is cut.
pub(super) fn wrap(text: &str, width: usize, most: usize) -> Vec<String> {
    let mut lines = vec![String::new()];
    let mut words = text.split(' ').peekable();
    while let Some(word) = words.peek() {
        let last = lines.len() >= most;
        let Some(open) = lines.last_mut() else { break };
        let gap = usize::from(!open.is_empty());
        if open.is_empty() || display_width(open) + gap + display_width(word) <= width {
            open.push_str(if gap == 1 { " " } else { "" });
            open.push_str(word);
            words.next();
        } else if last {
            open.push(' ');
            open.push_str(&words.collect::<Vec<_>>().join(" "));
            break;
        } else {
            lines.push(String::new());
        }
    }
    lines.iter().map(|line| truncate(line, width)).collect()
}

/// Returns the filled part of a bar for a share between 0 and 1, in eighths of a column; a positive share is never
/// empty.
pub(super) fn bar(share: f64, width: usize) -> String {
    const PARTS: [&str; 8] = ["", "▏", "▎", "▍", "▌", "▋", "▊", "▉"];
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "clamped to a few columns")]
    let eighths = (share.clamp(0.0, 1.0) * width as f64 * 8.0).round() as usize;
    let eighths = if share > 0.0 { eighths.max(1) } else { 0 };
    "█".repeat(eighths / 8) + PARTS.get(eighths % 8).copied().unwrap_or("")
}

/// Cuts or pads a text to exactly `width` columns.
pub(super) fn align_left(text: &str, width: usize) -> String {
    let cut = truncate(text, width);
    let pad = width.saturating_sub(display_width(&cut));
    cut + &" ".repeat(pad)
}

/// Cuts or pads a text to exactly `width` columns, with the text at the right.
pub(super) fn align_right(text: &str, width: usize) -> String {
    let cut = truncate(text, width);
    " ".repeat(width.saturating_sub(display_width(&cut))) + &cut
}

/// Formats a duration in at most six characters.
pub(super) fn format_duration(ms: u64) -> String {
    let seconds = ms / 1000;
    match seconds {
        0..60 => format!("{seconds}s"),
        60..3600 => format!("{}m{:02}s", seconds / 60, seconds % 60),
        3600..360_000 => format!("{}h{:02}m", seconds / 3600, seconds % 3600 / 60),
        _ => format!("{}d", seconds / 86_400),
    }
}

/// Formats a time limit without its zero parts.
pub(super) fn format_time_limit(ms: u64) -> String {
    let minutes = ms / 60_000;
    match (ms % 60_000, minutes % 60) {
        (0, 0) if minutes > 0 => format!("{}h", minutes / 60),
        (0, _) if minutes < 60 => format!("{minutes}m"),
        _ => format_duration(ms),
    }
}

/// Formats money in at most seven characters where that is possible.
pub(super) fn format_money(amount: MicroUsd) -> String {
    match amount.0 {
        0 => "$0".to_owned(),
        1..50 => "<$.0001".to_owned(),
        50..10_000 => format!("${:.4}", amount.as_usd()),
        10_000..1_000_000_000 => format!("${:.2}", amount.as_usd()).trim_end_matches(".00").to_owned(),
        _ => format!("${:.0}", amount.as_usd()),
    }
}

/// Formats a count in at most five characters where that is possible.
pub(super) fn format_count(count: u64) -> String {
    match count {
        0..10_000 => count.to_string(),
        10_000..1_000_000 => format!("{}k", count / 1000),
        _ => format!("{:.1}M", count as f64 / 1e6),
    }
}

/// Formats a count with its noun: `1 box`, `2 boxes`.
pub(super) fn pluralize(count: usize, one: &str, many: &str) -> String {
    if count == 1 { format!("1 {one}") } else { format!("{count} {many}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_safe() {
        for (text, want) in [
            ("plain", "plain"),
            ("  two\n\tlines  ", "  two  lines"),
            ("\u{1b}[31mred\u{1b}[0m \u{1b}]0;title\u{7}done", "red done"),
            ("zero\u{200b}width\u{200d} e\u{301}", "zerowidth e"),
            ("turn\u{202e}ed\u{2028}line", "turned line"),
        ] {
            assert_eq!(single_line(text), want, "{text:?}");
        }
    }

    #[test]
    fn fits() {
        for (text, width, want) in [
            ("abc", 3, "abc"),
            ("abcd", 3, "ab…"),
            ("日本語", 5, "日本…"),
            ("日本語", 4, "日…"),
            ("a", 0, ""),
            ("", 0, ""),
        ] {
            assert_eq!(truncate(text, width), want, "{text} in {width}");
        }
        assert_eq!((align_left("ab", 4), align_right("ab", 4)), ("ab  ".to_owned(), "  ab".to_owned()));
        assert_eq!((truncate_start("abcdef", 3), truncate_start("日本", 3)), ("def".to_owned(), "本".to_owned()));
    }

    #[test]
    fn wraps() {
        for (text, width, most, want) in [
            ("one two three", 20, 2, vec!["one two three"]),
            ("one two three", 8, 2, vec!["one two", "three"]),
            ("one two three four", 8, 2, vec!["one two", "three f…"]),
            ("one two three", 8, 1, vec!["one two…"]),
            ("unbreakable", 4, 3, vec!["unb…"]),
            ("", 4, 3, vec![""]),
        ] {
            assert_eq!(wrap(text, width, most), want, "{text} in {width}");
        }
    }

    #[test]
    fn bars() {
        for (share, want) in [(0.0, ""), (0.0001, "▏"), (0.5, "██"), (0.53, "██▏"), (1.0, "████"), (7.0, "████")]
        {
            assert_eq!(bar(share, 4), want, "{share}");
        }
    }

    #[test]
    fn numbers() {
        for (ms, want) in [(999, "0s"), (41_000, "41s"), (72_000, "1m12s"), (3_900_000, "1h05m"), (400_000_000, "4d")] {
            assert_eq!(format_duration(ms), want);
        }
        for (ms, want) in [(7_200_000, "2h"), (1_800_000, "30m"), (5_400_000, "1h30m"), (1500, "1s"), (0, "0m")] {
            assert_eq!(format_time_limit(ms), want);
        }
        for (micros, want) in [
            (0, "$0"),
            (12, "<$.0001"),
            (1604, "$0.0016"),
            (1_840_000, "$1.84"),
            (10_000_000, "$10"),
            (2_000_000_000, "$2000"),
        ] {
            assert_eq!(format_money(MicroUsd(micros)), want);
        }
        for (number, want) in [(9999, "9999"), (12_345, "12k"), (2_500_000, "2.5M")] {
            assert_eq!(format_count(number), want);
        }
    }
}
