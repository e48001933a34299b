//! Finds and masks the secrets of a run in a complete text.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::fmt::{self, Write as _};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use aho_corasick::AhoCorasick;

use super::encodings::{SHORTEST, encodings};
use super::secret_shape::{self, SecretShape};
use crate::secret::Secret;
use crate::source_span::Span;

/// The position of a secret in a text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SecretMatch {
    pub shape: SecretShape,
    pub span: Span,
}

/// Holds the secrets of a run; cheap to clone, and reveals nothing about them when printed.
#[derive(Clone)]
pub struct Redactor(Arc<RedactorState>);

struct RedactorState {
    search: AhoCorasick,
    /// The secret's name for each pattern of the search.
    names: Vec<String>,
    longest: usize,
    several_lines: bool,
    sightings: Mutex<SecretSightings>,
}

/// Which secrets were seen in which places: at most the number of names times the number of places the code names.
#[derive(Default)]
struct SecretSightings {
    known: BTreeSet<(String, &'static str)>,
    /// Those that were not reported yet.
    fresh: Vec<(String, &'static str)>,
}

impl fmt::Debug for Redactor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Redactor(…)")
    }
}

impl Redactor {
    /// Builds a redactor for the named secrets; those shorter than eight characters are not searched for.
    pub fn new(secrets: impl IntoIterator<Item = (String, Secret)>) -> Self {
        let (mut names, mut patterns) = (Vec::new(), Vec::new());
        for (name, secret) in secrets {
            for form in encodings(secret.expose()) {
                names.push(name.clone());
                patterns.push(form);
            }
        }
        let longest = patterns.iter().map(String::len).max().unwrap_or(0);
        let several_lines = patterns.iter().any(|pattern| pattern.contains(['\n', '\r']));
        let search =
            AhoCorasick::new(&patterns).expect("a run has a handful of secrets, far below the limit of states");
        Self(Arc::new(RedactorState { search, names, longest, several_lines, sightings: Mutex::default() }))
    }

    /// Replaces every secret by `[redacted:NAME]`, with the name of the secret or of its shape.
    pub fn redact<'t>(&self, text: &'t str) -> Cow<'t, str> {
        let found = self.find(text);
        if found.is_empty() {
            return Cow::Borrowed(text);
        }
        let mut out = String::with_capacity(text.len());
        let mut at = 0;
        for SecretMatch { shape, span } in found {
            out.push_str(text.get(at..span.start).unwrap_or(""));
            write!(out, "[redacted:{shape}]").expect("writing to a String cannot fail");
            at = span.end;
        }
        out.push_str(text.get(at..).unwrap_or(""));
        Cow::Owned(out)
    }

    /// As [`Self::redact`], for a text that should never contain a secret of the run. A secret found in it is
    /// recorded, once for each name and place, for the caller that raises the alarm.
    pub fn redact_and_report<'t>(&self, place: &'static str, text: &'t str) -> Cow<'t, str> {
        let masked = self.redact(text);
        if matches!(masked, Cow::Owned(_)) {
            for found in self.find(text) {
                if let SecretShape::Known(name) = found.shape {
                    let (seen, mut sightings) = ((name, place), self.sightings());
                    if sightings.known.insert(seen.clone()) {
                        sightings.fresh.push(seen);
                    }
                }
            }
        }
        masked
    }

    /// Returns the secrets that were seen in such texts since the last call, and where.
    pub fn take_sightings(&self) -> Vec<(String, &'static str)> {
        std::mem::take(&mut self.sightings().fresh)
    }

    fn sightings(&self) -> MutexGuard<'_, SecretSightings> {
        self.0.sightings.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Finds every secret, in order; overlapping matches are merged and named after a known secret if there is one.
    pub fn find(&self, text: &str) -> Vec<SecretMatch> {
        let mut all: Vec<SecretMatch> = self
            .0
            .search
            .find_overlapping_iter(text)
            .filter_map(|hit| {
                let name = self.0.names.get(hit.pattern().as_usize())?;
                Some(SecretMatch { shape: SecretShape::Known(name.clone()), span: Span::new(hit.start(), hit.end()) })
            })
            .collect();
        secret_shape::each_match(text, |shape, span, _| all.push(SecretMatch { shape: shape.clone(), span }));
        // The longer of two that start together comes first, and names the match.
        all.sort_by_key(|found| (found.span.start, usize::MAX - found.span.end));
        let mut merged: Vec<SecretMatch> = Vec::new();
        for found in all {
            match merged.last_mut().filter(|last| found.span.start < last.span.end) {
                Some(last) => {
                    last.span.end = last.span.end.max(found.span.end);
                    if !matches!(last.shape, SecretShape::Known(_)) && matches!(found.shape, SecretShape::Known(_)) {
                        last.shape = found.shape;
                    }
                }
                None => merged.push(found),
            }
        }
        merged
    }

    /// Returns what the first secret in a file looks like. Parts that are no text are passed over.
    pub fn first_in_file(&self, bytes: &[u8]) -> Option<SecretShape> {
        self.find(&searchable_text(bytes)).into_iter().next().map(|found| found.shape)
    }

    /// Returns the texts by which the matches were recognised, in no order: splitting one would lose the match.
    pub(super) fn match_spans(&self, text: &str) -> Vec<Span> {
        let known = self.0.search.find_overlapping_iter(text);
        let mut spans: Vec<Span> = known.map(|hit| Span::new(hit.start(), hit.end())).collect();
        secret_shape::each_match(text, |_, span, start| spans.push(Span::new(start, span.end)));
        spans
    }

    /// Returns the length of the longest encoding of a known secret, in bytes.
    pub(super) fn longest_pattern(&self) -> usize {
        self.0.longest
    }

    /// Returns whether a known secret has several lines.
    pub(super) fn has_multiline_secret(&self) -> bool {
        self.0.several_lines
    }
}

/// Returns the text of a file without the pieces that are too short for any secret: most bytes of binary data are in
/// such pieces, and replacing each of them would make the text longer than the data.
fn searchable_text(bytes: &[u8]) -> Cow<'_, str> {
    if let Ok(text) = str::from_utf8(bytes) {
        return Cow::Borrowed(text);
    }
    let mut text = String::new();
    for chunk in bytes.utf8_chunks() {
        if chunk.valid().len() >= SHORTEST {
            // What is no text separates words, as it does everywhere else.
            text.push(char::REPLACEMENT_CHARACTER);
            text.push_str(chunk.valid());
        }
    }
    text.push(char::REPLACEMENT_CHARACTER);
    Cow::Owned(text)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn redactor() -> Redactor {
        let secret = |name: &str, value: &str| (name.to_owned(), Secret::new(value));
        Redactor::new([
            secret("PAT", "hunter2-hunter2"),
            secret("ODD", "pa\"ss/wörd+1"),
            secret("TAIL", "hunter2-and-more"),
            secret("SHORT", "abc"),
        ])
    }

    #[test]
    fn masks() {
        let shaped = ["gh", "p_q8Wz7Xv6Cu5Tb4Sn3Rm2Pl1Kk0Jj9Ii8Hh7G"].concat();
        for (text, want) in [
            ("nothing abc here", "nothing abc here"),
            ("x hunter2-hunter2 y hunter2-hunter2", "x [redacted:PAT] y [redacted:PAT]"),
            ("hunter2-hunter2-and-more!", "[redacted:PAT]!"),
            ("url?p=pa%22ss%2Fw%C3%B6rd%2B1&q", "url?p=[redacted:ODD]&q"),
            ("{\"p\":\"pa\\\"ss/wörd+1\"}", "{\"p\":\"[redacted:ODD]\"}"),
            // `user:hunter2-hunter2` in base64; the last digit holds half a character and may have neighbours.
            ("Basic dXNlcjpodW50ZXIyLWh1bnRlcjI=", "Basic dXNlcjp[redacted:PAT]I="),
            (&format!("a {shaped} b"), "a [redacted:github-token] b"),
            (&format!("Bearer {shaped}"), "Bearer [redacted:github-token]"),
            ("Bearer hunter2-hunter2-1234567890", "Bearer [redacted:PAT]"),
            ("Bearer 1234567890.hunter2-hunter2.abcdef", "Bearer [redacted:PAT]"),
        ] {
            let masked = redactor().redact(text);
            assert_eq!(masked, want);
            assert_eq!(redactor().redact(&masked), masked, "masking twice changes nothing");
            assert_eq!(redactor().find(text).is_empty(), text == want);
        }
    }

    #[test]
    fn an_unexpected_secret_is_reported_once() {
        let redactor = redactor();
        let shaped = ["gh", "p_q8Wz7Xv6Cu5Tb4Sn3Rm2Pl1Kk0Jj9Ii8Hh7G"].concat();
        for _ in 0..3 {
            assert_eq!(redactor.redact("hunter2-hunter2"), "[redacted:PAT]");
            assert_eq!(redactor.redact_and_report("the diff", &shaped), "[redacted:github-token]");
            assert_eq!(redactor.redact_and_report("the diff", "a hunter2-hunter2"), "a [redacted:PAT]");
            redactor.clone().redact_and_report("a log", "hunter2-hunter2 pa\"ss/wörd+1 hunter2-hunter2");
        }
        let pair = |name: &str, place| (name.to_owned(), place);
        assert_eq!(redactor.take_sightings(), [pair("PAT", "the diff"), pair("PAT", "a log"), pair("ODD", "a log")]);
        redactor.redact_and_report("a log", "hunter2-hunter2");
        assert_eq!(redactor.take_sightings(), []);
    }

    #[test]
    fn debug_output_has_no_secrets() {
        assert_eq!(format!("{:?}", redactor()), "Redactor(…)");
    }

    #[test]
    fn matches_have_positions() {
        assert_eq!(
            redactor().find("é hunter2-hunter2"),
            vec![SecretMatch { shape: SecretShape::Known("PAT".to_owned()), span: Span::new(3, 18) }]
        );
    }

    #[test]
    fn files_are_searched_like_their_text() {
        let shaped = ["gh", "p_q8Wz7Xv6Cu5Tb4Sn3Rm2Pl1Kk0Jj9Ii8Hh7G"].concat();
        for pieces in [
            vec![b"".as_slice()],
            vec![b"\xff\xfe"],
            vec![b"hunter2-hunter2"],
            vec![b"hunter2-\xffhunter2 hunter2"],
            vec![b"\xff\x00", b"hunter2-hunter2", b"\xc3"],
            vec![b"\xf0\x9f", shaped.as_bytes(), b"\xff\xff", b"hunter2-hunter2"],
            vec![b"x", shaped.as_bytes(), b"\xff"],
            vec![b"\xff", shaped.as_bytes()],
            vec![b"\xffAKIAQ3ZTH7PLMN5", b"\xe9", b"WXYR2"],
        ] {
            let bytes = pieces.concat();
            let want = redactor().find(&String::from_utf8_lossy(&bytes)).into_iter().next().map(|found| found.shape);
            assert_eq!(redactor().first_in_file(&bytes), want, "{}", bytes.escape_ascii());
        }
    }

    fn base64(bytes: &[u8]) -> String {
        const DIGITS: &[u8] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
        let mut out = String::new();
        for chunk in bytes.chunks(3) {
            let n = chunk.iter().fold(0_u32, |n, byte| n << 8 | u32::from(*byte)) << (8 * (3 - chunk.len()));
            for place in 0..=chunk.len() {
                out.push(char::from(DIGITS[(n >> (18 - 6 * place) & 63) as usize]));
            }
            out.extend(std::iter::repeat_n('=', 3 - chunk.len()));
        }
        out
    }

    proptest! {
        #[test]
        fn a_planted_secret_never_survives(before in ".{0,20}", secret in "[!-~]{9,40}", after in ".{0,20}") {
            let redactor = Redactor::new([("S".to_owned(), Secret::new(secret.clone()))]);
            let json = serde_json::to_string(&format!("{before}{secret}{after}")).unwrap();
            for text in [format!("{before}{secret}{after}"), json] {
                let masked = redactor.redact(&text);
                prop_assert!(!masked.contains(&secret));
                prop_assert!(masked.contains("[redacted:S]"), "{}", masked);
            }
            let encoded = base64(format!("{before}{secret}{after}").as_bytes());
            prop_assert!(redactor.redact(&encoded).contains("[redacted:S]"), "{}", encoded);
        }

        #[test]
        fn arbitrary_text_never_panics(text in "(?s).{0,200}") {
            let _masked = redactor().redact(&text);
        }
    }
}
