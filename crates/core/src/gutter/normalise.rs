//! Normalises error text, so that two outputs of the same failure are equal: removes what differs between attempts.
//!
//! Removed: escape sequences, directories, times, dates, durations, memory and network addresses, process ids, hex
//! ids, uuids, random seeds and runs of white space. A line (and column) number is removed only where it belongs to a
//! position in a file (`x.rs:12:5`, `x.ts(12,5)`, `line 12`, the margin of a quoted source line): an edit further up
//! changes it while the failure stays the same. Every other number stays, because `expected 3, found 4` and
//! `expected 3, found 5` are two failures.

use std::borrow::Cow;
use std::sync::LazyLock;

use regex::{Captures, Regex};

use crate::text;

/// How many characters of normalised error text make a signature.
pub const SIGNATURE_CHARS: usize = 2000;

/// How much raw text is read: more than a signature needs, because directories of different length must not change
/// where the signature ends.
const RAW_BYTES: usize = 16 * 1024;

/// Directories whose entries have random names.
const TEMP_DIRS: [&str; 7] =
    ["/tmp/", "/var/tmp/", "/private/tmp/", "/var/folders/", "/private/var/folders/", "/dev/shm/", "/run/user/"];

/// Returns the first [`SIGNATURE_CHARS`] characters of the text without accidental details.
pub fn normalise(text: &str) -> String {
    let unwound = text::head(text, RAW_BYTES).replace('\r', "\n");
    let mut text = text::strip_control(&unwound);
    text = replace(&PATH, &text, |found| {
        let (before, path) = (&found[1], &found[2]);
        match shorten_path(path) {
            Some(name) => format!("{before}{name}"),
            None => format!("{before}{path}"),
        }
    });
    for (pattern, with) in &*PATTERNS {
        if let Cow::Owned(changed) = pattern.replace_all(&text, *with) {
            text = changed;
        }
    }
    text = replace(&HEX, &text, |found| hex_id(&found[0]).to_owned());
    let mut out = String::with_capacity(text.len().min(SIGNATURE_CHARS));
    for word in text.split_whitespace() {
        if !out.is_empty() {
            out.push(' ');
        }
        out.push_str(word);
    }
    if let Some((end, _)) = out.char_indices().nth(SIGNATURE_CHARS) {
        out.truncate(end);
    }
    out
}

fn replace(pattern: &Regex, text: &str, with: impl Fn(&Captures<'_>) -> String) -> String {
    pattern.replace_all(text, with).into_owned()
}

/// Returns the file name of an absolute path, or a placeholder for one in a temporary directory; `None` if it is not a
/// path.
fn shorten_path(path: &str) -> Option<String> {
    // `file:///a/b` arrives here as `///a/b`, and `https://host/a` as `//host/a`.
    let path = match path.strip_prefix("//") {
        Some(rest) if rest.starts_with('/') => rest,
        Some(_) => return None,
        None => path,
    };
    let mut parts = path.split(['/', '\\']).filter(|part| !part.is_empty());
    let name = parts.next_back()?;
    let below = TEMP_DIRS
        .iter()
        .find_map(|scratch| path.strip_prefix(scratch))
        .or_else(|| path.split_once("\\Temp\\").map(|(_, rest)| rest));
    let Some(below) = below else { return Some(name.to_owned()) };
    let is_file = name.rfind('.').is_some_and(|at| at > 0);
    Some(if is_file && below != name { format!("<tmp>/{name}") } else { "<tmp>".to_owned() })
}

/// Replaces hex ids. Words such as `defaced` and plain numbers are no ids; a number as long as a timestamp is one.
fn hex_id(word: &str) -> &str {
    let digit = word.bytes().any(|byte| byte.is_ascii_digit());
    let letter = word.bytes().any(|byte| byte.is_ascii_alphabetic());
    match (digit, letter) {
        (true, true) => "<hex>",
        (true, false) if word.len() >= 10 => "<time>",
        (false, true) if word.len() >= 32 => "<hex>",
        _ => word,
    }
}

static PATH: LazyLock<Regex> = LazyLock::new(|| {
    compile(r#"(?m)(^|[\s"'`(\[{<>=,;|:@])((?:[A-Za-z]:\\|~?/)[^\s"'`()\[\]{}<>,;|:]+)"#) //
});

static HEX: LazyLock<Regex> = LazyLock::new(|| compile(r"\b[0-9a-fA-F]{7,}\b"));

/// Applied in this order: a date with a time before a time, a time before a position in a file.
static PATTERNS: LazyLock<Vec<(Regex, &'static str)>> = LazyLock::new(|| {
    const UNIT: &str = "(?:ns|µs|us|ms|msecs?|s|secs?|seconds?|m|mins?|minutes?|h|hrs?|hours?)";
    let duration = format!(r"\b[0-9]+(?:\.[0-9]+)?\s?{UNIT}(?:\s?[0-9]+(?:\.[0-9]+)?\s?{UNIT})*\b");
    [
        (r"\b[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}\b", "<uuid>"),
        (
            r"\b[0-9]{4}[-/][0-9]{2}[-/][0-9]{2}(?:[T _][0-9]{2}:[0-9]{2}(?::[0-9]{2})?(?:[.,][0-9]+)?(?:\s?(?:Z|UTC|[+-][0-9]{2}:?[0-9]{2}))?)?",
            "<time>",
        ),
        (
            r"\b(?:(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun)[a-z]*,?\s+)?(?:(?:[0-9]{1,2}\s+)?(?:Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec)[a-z]*(?:\s+[0-9]{1,2})?,?)(?:\s+[0-9]{4})?\s+[0-9]{1,2}:[0-9]{2}(?::[0-9]{2})?(?:\s+[A-Z]{3,4})?(?:\s+[0-9]{4})?\b",
            "<time>",
        ),
        (r"\b[0-9]{1,2}:[0-9]{2}:[0-9]{2}(?:[.,][0-9]+)?\b", "<time>"),
        (r"\b0[xX][0-9a-fA-F]+\b", "<addr>"),
        (r"\b[0-9]{1,3}(?:\.[0-9]{1,3}){3}(?::[0-9]+)?\b", "<ip>"),
        (r"\b(localhost|port|\[::1?\])([ :=]\s?)[0-9]+\b", "$1$2<port>"),
        (r"\[(::1?)\]:[0-9]+", "[$1]:<port>"),
        (r"\b([Pp]id|PID|[Pp]rocess|[Ss]eed)(\s?[=:#]?\s?)[0-9]+\b", "$1$2<n>"),
        (r"==[0-9]+==", "==<n>=="),
        (r"\((node|python|ruby|java):[0-9]+\)", "($1:<n>)"),
        (r"\b([A-Za-z][\w.-]*)\[[0-9]+\]:", "$1[<n>]:"),
        (r"(thread '[^'\n]*') \([0-9]+\)", "$1"),
        (&duration, "<duration>"),
        (r"(?m)^\s*>?\s*[0-9]+\s*\|", "|"),
        (r"(\w\.[A-Za-z]\w{0,7}):[0-9]+(?::[0-9]+)?", "$1:<line>"),
        (r"(\w\.[A-Za-z]\w{0,7})\([0-9]+,[0-9]+\)", "$1:<line>"),
        (r"\b(lines?|column|col|char)\s[0-9]+\b", "$1 <line>"),
    ]
    .into_iter()
    .map(|(pattern, with)| (compile(pattern), with))
    .collect()
});

fn compile(pattern: &str) -> Regex {
    Regex::new(pattern).expect("the patterns are constants, and the tests use each of them")
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[track_caller]
    fn check(text: &str, want: &str) {
        assert_eq!(normalise(text), want, "{text:?}");
    }

    #[test]
    fn accidental_details_are_removed() {
        check("\u{1b}[31merror\u{1b}[0m:\t bad \r\n\n thing ", "error: bad thing");
        check("open /home/dev/repo/src/lib.rs: denied", "open lib.rs: denied");
        check("(/usr/lib/python3/site.py)", "(site.py)");
        check("PATH=/usr/bin:/opt/tools/bin", "PATH=bin:bin");
        check("in /tmp/tmp8x_k2/out.txt", "in <tmp>/out.txt");
        check("in /tmp/tmp8x_k2", "in <tmp>");
        check("mv '/var/folders/zz/q1/T/a.b' /tmp/x.log", "mv '<tmp>/a.b' <tmp>");
        check(r"C:\Users\me\AppData\Local\Temp\k3\a.txt C:\src\a.rs", "<tmp>/a.txt a.rs");
        check("file:///srv/app/main.js", "file:main.js");
        check("https://example.com/a/b is down", "https://example.com/a/b is down");
        check("2026-01-29T10:11:12.345Z boot", "<time> boot");
        check("2026-01-29 10:11:12,345 boot 2026/01/29", "<time> boot <time>");
        check("Thu Jan 29 10:11:12 UTC 2026: no", "<time>: no");
        check("Thu, 29 Jan 2026 10:11:12 GMT no", "<time> no");
        check("at 10:11:12.5 and 1769681472", "at <time> and <time>");
        check("Marching on, May be", "Marching on, May be");
        check("took 0.42s, 12 ms, 1m 3s and 2 minutes", "took <duration>, <duration>, <duration> and <duration>");
        check("<Foo object at 0x7f3a10> 127.0.0.1:41233", "<Foo object at <addr>> <ip>");
        check("connect localhost:3321, port 8123, [::1]:90", "connect localhost:<port>, port <port>, [::1]:<port>");
        check("pid 4312, PID=7, process 99, seed: 5", "pid <n>, PID=<n>, process <n>, seed: <n>");
        check("(node:771) ==881== sshd[412]: no", "(node:<n>) ==<n>== sshd[<n>]: no");
        check("thread 'main' (5511) panicked", "thread 'main' panicked");
        check("commit 3f2a9bc in 67e55044-10b1-426f-9247-bb680e5fe0c8", "commit <hex> in <uuid>");
    }

    #[test]
    fn line_numbers_are_removed() {
        check(" --> src/lib.rs:12:5", "--> src/lib.rs:<line>");
        check("12 |     let x = 1;\n   |         ^", "| let x = 1; | ^");
        check("  > 7 | expect(a)", "| expect(a)");
        check("src/a.ts(7,12): error TS2304", "src/a.ts:<line>: error TS2304");
        check("File \"/w/t.py\", line 31, in go", "File \"t.py\", line <line>, in go");
    }

    #[test]
    fn meaningful_text_is_kept() {
        check("expected 3, found 4", "expected 3, found 4");
        check("error[E0308]: the defaced facade 1234567", "error[E0308]: the defaced facade 1234567");
        check("and/or src/main.rs v1.2.3", "and/or src/main.rs v1.2.3");
        check("", "");
    }

    #[test]
    fn the_end_does_not_depend_on_directories() {
        let body = "wörds ".repeat(600);
        let one = normalise(&format!("/a/x.py {body}"));
        let two = normalise(&format!("/a/very/much/longer/place/x.py {body}"));
        assert_eq!(one, two);
        assert_eq!(one.chars().count(), SIGNATURE_CHARS);
    }

    proptest! {
        #[test]
        fn any_text_is_normalised(text in "(?s).{0,400}") {
            let once = normalise(&text);
            prop_assert!(once.chars().count() <= SIGNATURE_CHARS);
            prop_assert_eq!(normalise(&format!("  \u{1b}[1m{text}\n")), once);
        }

        #[test]
        fn path_like_text_is_normalised(text in "[/\\\\:~<>0-9a-f.x \\[\\](|)'s-]{0,200}") {
            prop_assert!(normalise(&text).chars().count() <= SIGNATURE_CHARS);
        }
    }
}
