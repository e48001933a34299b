//! Scans a stream for forbidden texts, holding back no more than what could be the beginning of one.

use std::fmt;
use std::sync::Arc;

use aho_corasick::AhoCorasick;
use bytes::{Bytes, BytesMut};

/// Forbidden texts, each with the name of its credential. Clones share them.
#[derive(Clone, Default)]
pub(crate) struct ForbiddenTexts(Option<Arc<ForbiddenMatcher>>);

struct ForbiddenMatcher {
    texts: Vec<(Vec<u8>, String)>,
    /// Matches all texts at once, as written and in small letters.
    plain: AhoCorasick,
    lowercase: AhoCorasick,
    /// The bytes with which a text begins.
    first: [bool; 256],
    longest: usize,
}

impl fmt::Debug for ForbiddenTexts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ForbiddenTexts(…)")
    }
}

impl ForbiddenMatcher {
    /// Returns the matchers; `None` if there are no texts.
    fn new(texts: Vec<(Vec<u8>, String)>) -> Option<Self> {
        let longest = texts.iter().map(|(text, _)| text.len()).max()?;
        let all = |text: fn(&[u8]) -> Vec<u8>| {
            AhoCorasick::new(texts.iter().map(|(known, _)| text(known))).expect("credentials are not gigabytes long")
        };
        let (plain, small) = (all(<[u8]>::to_vec), all(<[u8]>::to_ascii_lowercase));
        let mut first = [false; 256];
        for byte in texts.iter().filter_map(|(text, _)| text.first()) {
            if let Some(known) = first.get_mut(usize::from(*byte)) {
                *known = true;
            }
        }
        Some(Self { texts, plain, lowercase: small, first, longest })
    }

    fn name(&self, at: usize) -> Option<&str> {
        self.texts.get(at).map(|(_, name)| name.as_str())
    }

    /// Returns how many bytes at the end could be the beginning of one of the texts.
    fn partial_match_len(&self, bytes: &[u8]) -> usize {
        let tail = bytes.get(bytes.len().saturating_sub(self.longest - 1)..).unwrap_or_default();
        let begins = |byte: &u8| self.first.get(usize::from(*byte)).copied().unwrap_or(false);
        let mut from = 0;
        while let Some(at) = tail.get(from..).and_then(|rest| rest.iter().position(begins)) {
            let rest = tail.get(from + at..).unwrap_or_default();
            if self.texts.iter().any(|(text, _)| text.len() > rest.len() && text.starts_with(rest)) {
                return rest.len();
            }
            from += at + 1;
        }
        0
    }
}

impl ForbiddenTexts {
    pub(crate) fn new(texts: impl IntoIterator<Item = (String, String)>) -> Self {
        let named = texts.into_iter().filter(|(text, _)| !text.is_empty());
        Self(ForbiddenMatcher::new(named.map(|(text, name)| (text.into_bytes(), name)).collect()).map(Arc::new))
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_none()
    }

    /// Finds one of the texts and returns its name.
    pub(crate) fn find(&self, bytes: &[u8]) -> Option<&str> {
        let known = self.0.as_ref()?;
        known.plain.find(bytes).and_then(|found| known.name(found.pattern().as_usize()))
    }

    /// Finds one of the texts where capitals were lost, as in the name of a header.
    pub(crate) fn find_lowercase(&self, small: &str) -> Option<&str> {
        let known = self.0.as_ref()?;
        known.lowercase.find(small.as_bytes()).and_then(|found| known.name(found.pattern().as_usize()))
    }

    fn partial_match_len(&self, bytes: &[u8]) -> usize {
        self.0.as_ref().map_or(0, |known| known.partial_match_len(bytes))
    }
}

/// A forbidden text was found in a stream: its name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ForbiddenMatch(pub(crate) String);

/// The scan of one stream.
#[derive(Debug)]
pub(crate) struct LeakScanner {
    forbidden: ForbiddenTexts,
    held: BytesMut,
}

impl LeakScanner {
    pub(crate) fn new(forbidden: ForbiddenTexts) -> Self {
        Self { forbidden, held: BytesMut::new() }
    }

    /// Takes a piece and returns the bytes that may be passed on now.
    pub(crate) fn pass(&mut self, piece: Bytes) -> Result<Bytes, ForbiddenMatch> {
        if self.forbidden.is_empty() {
            return Ok(piece);
        }
        let mut whole = if self.held.is_empty() {
            piece
        } else {
            self.held.extend_from_slice(&piece);
            self.held.split().freeze()
        };
        if let Some(name) = self.forbidden.find(&whole) {
            return Err(ForbiddenMatch(name.to_owned()));
        }
        let kept = whole.split_off(whole.len() - self.forbidden.partial_match_len(&whole));
        self.held.extend_from_slice(&kept);
        Ok(whole)
    }

    /// Says whether nothing is held back.
    pub(crate) fn is_idle(&self) -> bool {
        self.held.is_empty()
    }

    /// Returns the bytes that were held back, at the end of the stream.
    pub(crate) fn finish(&mut self) -> Bytes {
        self.held.split().freeze()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn scan(texts: &[&str], pieces: &[&str]) -> Result<Vec<String>, ForbiddenMatch> {
        let mut scan =
            LeakScanner::new(ForbiddenTexts::new(texts.iter().map(|text| ((*text).to_owned(), "it".to_owned()))));
        let text = |bytes: Bytes| String::from_utf8(bytes.to_vec()).unwrap();
        let mut out = Vec::new();
        for piece in pieces {
            out.push(text(scan.pass(Bytes::copy_from_slice(piece.as_bytes()))?));
        }
        out.push(text(scan.finish()));
        Ok(out)
    }

    #[test]
    fn only_a_possible_match_is_held_back() {
        let secret = &["secret"][..];
        for (pieces, want) in [
            (&["data: x\n\n"][..], Ok(vec!["data: x\n\n", ""])),
            (&["a sec", "ond"], Ok(vec!["a ", "second", ""])),
            (&["a sec", "ret"], Err(ForbiddenMatch("it".to_owned()))),
            (&["s", "e", "c", "r", "e", "t"], Err(ForbiddenMatch("it".to_owned()))),
            (&["sesecret"], Err(ForbiddenMatch("it".to_owned()))),
            (&["s", "s", "ecre"], Ok(vec!["", "s", "", "secre"])),
        ] {
            let want = want.map(|pieces| pieces.into_iter().map(str::to_owned).collect());
            assert_eq!(scan(secret, pieces), want, "{pieces:?}");
        }
        assert_eq!(scan(&[], &["secret"]), Ok(vec!["secret".to_owned(), String::new()]));
    }

    proptest! {
        #[test]
        fn a_forbidden_text_never_passes_and_nothing_else_is_lost(
            pieces in proptest::collection::vec("[ab]{0,6}", 0..8),
            texts in proptest::collection::vec("[ab]{1,5}", 0..3),
        ) {
            let whole = pieces.concat();
            let names: Vec<&str> = texts.iter().map(String::as_str).collect();
            let parts: Vec<&str> = pieces.iter().map(String::as_str).collect();
            match scan(&names, &parts) {
                Ok(out) => {
                    prop_assert_eq!(out.concat(), whole.clone());
                    prop_assert!(!names.iter().any(|name| whole.contains(name)));
                }
                Err(ForbiddenMatch(_)) => prop_assert!(names.iter().any(|name| whole.contains(name))),
            }
        }
    }
}
