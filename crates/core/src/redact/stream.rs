//! Masks secrets in text that arrives in pieces, where a piece may end in the middle of a secret or of a character.
//!
//! Complete lines are released at once, since no secret but a private key spans several lines; the rest waits for
//! more. The waiting text is bounded, so a stream without line ends cannot fill the memory.

use super::redactor::Redactor;

/// Longer than any token that is recognised by its shape, except private keys.
const OVERLAP: usize = 4 * 1024;
/// Longer than any private key. A match that continues beyond this is released masked as far as it is known.
const MAX_HELD: usize = 64 * 1024;

/// A redactor for text that arrives in pieces.
#[derive(Debug)]
pub struct StreamRedactor {
    redactor: Redactor,
    held: String,
    /// The bytes of an incomplete character.
    partial: Vec<u8>,
}

impl StreamRedactor {
    pub fn new(redactor: &Redactor) -> Self {
        Self { redactor: redactor.clone(), held: String::new(), partial: Vec::new() }
    }

    /// Takes the next piece and returns what can be shown already; invalid UTF-8 becomes `\u{fffd}`.
    pub fn push(&mut self, piece: &[u8]) -> String {
        self.decode(piece);
        let cut = self.releasable_length();
        self.release(cut)
    }

    /// Returns the rest at the end of the stream.
    pub fn finish(mut self) -> String {
        if !self.partial.is_empty() {
            self.held.push(char::REPLACEMENT_CHARACTER);
        }
        let end = self.held.len();
        self.release(end)
    }

    fn decode(&mut self, piece: &[u8]) {
        self.partial.extend_from_slice(piece);
        let bytes = std::mem::take(&mut self.partial);
        let mut chunks = bytes.utf8_chunks().peekable();
        while let Some(chunk) = chunks.next() {
            self.held.push_str(chunk.valid());
            let invalid = chunk.invalid();
            // Bytes at the very end may be the start of a character.
            if chunks.peek().is_none() && is_partial_char(invalid) {
                self.partial = invalid.to_vec();
            } else if !invalid.is_empty() {
                self.held.push(char::REPLACEMENT_CHARACTER);
            }
        }
    }

    /// Returns how much of the held text can be released: nothing that is, or may still become, part of a secret.
    fn releasable_length(&self) -> usize {
        let len = self.held.len();
        let overlap = OVERLAP.max(self.redactor.longest_pattern());
        let mut cut = len.saturating_sub(overlap).max(self.complete_lines_end());
        while !self.held.is_char_boundary(cut) {
            cut -= 1;
        }
        let reasons = self.redactor.match_spans(&self.held);
        while let Some(reason) = reasons.iter().find(|reason| reason.start < cut && cut < reason.end) {
            if len > MAX_HELD.max(2 * overlap) {
                return len;
            }
            cut = reason.start;
        }
        cut
    }

    /// Returns the end of the complete lines that cannot be part of a secret of several lines.
    fn complete_lines_end(&self) -> usize {
        if self.redactor.has_multiline_secret() {
            return 0;
        }
        let end = self.held.rfind(['\n', '\r']).map_or(0, |at| at + 1);
        let lines = self.held.get(..end).unwrap_or("");
        let closed = lines.rfind("-----END ").unwrap_or(0);
        lines.get(closed..).and_then(|open| open.find("-----BEGIN ")).map_or(end, |open| closed + open)
    }

    fn release(&mut self, cut: usize) -> String {
        let rest = self.held.split_off(cut);
        let out = std::mem::replace(&mut self.held, rest);
        self.redactor.redact(&out).into_owned()
    }
}

/// Returns whether bytes at the end of a piece are the start of a character.
fn is_partial_char(bytes: &[u8]) -> bool {
    !bytes.is_empty() && std::str::from_utf8(bytes).is_err_and(|error| error.error_len().is_none())
}

#[cfg(test)]
mod tests {
    use std::sync::LazyLock;

    use proptest::prelude::*;

    use super::*;
    use crate::secret::Secret;

    fn redactor() -> Redactor {
        static SHARED: LazyLock<Redactor> =
            LazyLock::new(|| Redactor::new([("PAT".to_owned(), Secret::new("hunter2-hünter2"))]));
        SHARED.clone()
    }

    fn token() -> String {
        ["gh", "p_q8Wz7Xv6Cu5Tb4Sn3Rm2Pl1Kk0Jj9Ii8Hh7G"].concat()
    }

    fn key(lines: usize) -> String {
        let body = "MIIEowIBAAKCAQEAx3J0Zk9vYmFyQmF6UXV4Q29yZ2UK\n".repeat(lines);
        format!("-----BEGIN {}\n{body}-----END PRIVATE KEY-----", "PRIVATE KEY-----")
    }

    fn streamed(redactor: &Redactor, pieces: &[&[u8]]) -> String {
        let mut stream = StreamRedactor::new(redactor);
        let mut out: String = pieces.iter().map(|piece| stream.push(piece)).collect();
        out.push_str(&stream.finish());
        out
    }

    #[test]
    fn complete_lines_are_released_at_once() {
        let mut stream = StreamRedactor::new(&redactor());
        for (piece, want) in [
            ("one\ntw", "one\n"),
            ("o\n", "two\n"),
            ("50%\r", "50%\r"),
            ("x hunter2-h", ""),
            ("ünter2 y\n", "x [redacted:PAT] y\n"),
            ("-----BEGIN PRIVATE", ""),
            (" KEY-----\nMIIEowIBAAKCAQEAx3J0Zk9vYmFyQm", ""),
            ("F6UXV4Q29yZ2UK\n-----END PRIVATE KEY-----\nz\n", "[redacted:private-key]\nz\n"),
            ("hunter2-", ""),
        ] {
            assert_eq!(stream.push(piece.as_bytes()), want, "{piece:?}");
        }
        assert_eq!(stream.finish(), "hunter2-");
    }

    #[test]
    fn long_secrets_and_long_lines() {
        let filler = " x".repeat(5000);
        let text = format!("{filler} {}{filler} {}{filler} Bearer q8Wz7Xv6Cu5Tb4Sn3Rm2{filler}", key(200), token());
        let want = format!(
            "{filler} [redacted:private-key]{filler} [redacted:github-token]{filler} Bearer [redacted:bearer-token]{filler}"
        );
        let bytes = text.as_bytes();
        for size in [4096, 7777] {
            let pieces: Vec<&[u8]> = bytes.chunks(size).collect();
            assert_eq!(streamed(&redactor(), &pieces), redactor().redact(&text), "{size}");
        }
        assert_eq!(redactor().redact(&text), want);
    }

    #[test]
    fn secrets_of_several_lines() {
        let redactor = Redactor::new([("K".to_owned(), Secret::new("first line\nsecond line\n"))]);
        assert_eq!(streamed(&redactor, &[b"a\nfirst line\n", b"second", b" line\nb\n"]), "a\n[redacted:K]\nb\n");
    }

    #[test]
    fn held_text_is_bounded() {
        let mut stream = StreamRedactor::new(&redactor());
        let piece = token().repeat(20);
        for _ in 0..120 {
            stream.push(piece.as_bytes());
            assert!(stream.held.len() <= MAX_HELD + piece.len());
        }
    }

    #[test]
    fn invalid_utf8() {
        for (pieces, want) in [
            (&[&b"a\xc3"[..], b"\xa9b"][..], "aéb"),
            (&[b"a\xf0\x9f", b"\x98", b"\x80"], "a😀"),
            (&[b"a\xff\n", b"b"], "a\u{fffd}\nb"),
            (&[b"a\xc3", b"b"], "a\u{fffd}b"),
            (&[b"a\xe2\x82"], "a\u{fffd}"),
        ] {
            assert_eq!(streamed(&redactor(), pieces), want, "{pieces:?}");
        }
    }

    proptest! {
        #[test]
        fn pieces_are_masked_like_the_whole(
            parts in proptest::collection::vec(
                prop_oneof![
                    Just("hunter2-hünter2".to_owned()),
                    Just(token()),
                    Just(format!("{}\n", key(3))),
                    Just("-----BEGIN PRIVATE KEY-----\n".to_owned()),
                    Just("Bearer q8Wz7Xv6Cu5Tb4Sn3Rm2Pl1".to_owned()),
                    Just("\n".to_owned()),
                    Just("\r\n".to_owned()),
                    Just(" ".to_owned()),
                    "[a-zé -]{0,8}",
                ],
                0..12,
            ),
            size in 1_usize..40,
        ) {
            let text = parts.concat();
            let pieces: Vec<&[u8]> = text.as_bytes().chunks(size).collect();
            prop_assert_eq!(streamed(&redactor(), &pieces), redactor().redact(&text));
        }

        #[test]
        fn arbitrary_bytes_never_panic(pieces in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..9), 0..9)) {
            let all = pieces.concat();
            let pieces: Vec<&[u8]> = pieces.iter().map(Vec::as_slice).collect();
            let text = String::from_utf8_lossy(&all);
            prop_assert_eq!(streamed(&redactor(), &pieces), redactor().redact(&text));
        }
    }
}
