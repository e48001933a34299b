//! Parses the digests that images contain, and hashes what is read through a reader.

use std::fmt;
use std::io::{self, Read};

use ralph_core::hash::Sha256Hasher;
use serde::{Deserialize, Serialize};

/// The SHA-256 of some content. It is always plain hex, which makes it safe as a file name.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub(super) struct Digest(String);

impl Digest {
    /// Parses `sha256:` and 64 lower-case hex digits; other algorithms are not supported.
    pub(super) fn parse(text: &str) -> Option<Self> {
        Self::from_hex(text.strip_prefix("sha256:")?)
    }

    pub(super) fn from_hex(hex: &str) -> Option<Self> {
        let plain = hex.len() == 64 && hex.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
        plain.then(|| Self(hex.to_owned()))
    }

    pub(super) fn of(bytes: &[u8]) -> Self {
        Self(ralph_core::hash::sha256(bytes))
    }

    pub(super) fn hex(&self) -> &str {
        &self.0
    }

    /// Returns the path of the content in an image layout.
    pub(super) fn blob_path(&self) -> String {
        format!("blobs/sha256/{}", self.0)
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "sha256:{}", self.0)
    }
}

impl TryFrom<String> for Digest {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        Self::parse(&text)
            .ok_or_else(|| format!("`{}` is not a sha256 digest", super::error::printable(text.as_bytes())))
    }
}

impl From<Digest> for String {
    fn from(digest: Digest) -> Self {
        digest.to_string()
    }
}

/// A reader that hashes what is read through it.
pub(super) struct HashingReader<R> {
    inner: R,
    hasher: Sha256Hasher,
}

impl<R: Read> HashingReader<R> {
    pub(super) fn new(inner: R) -> Self {
        Self { inner, hasher: Sha256Hasher::default() }
    }

    /// Reads the rest of the input, because a digest covers all of it, including bytes the consumer did not need.
    pub(super) fn finish(mut self) -> io::Result<Digest> {
        io::copy(&mut self, &mut io::sink())?;
        Ok(Digest(self.hasher.finish()))
    }
}

impl<R: Read> Read for HashingReader<R> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let read = self.inner.read(into)?;
        self.hasher.update(into.get(..read).unwrap_or_default());
        Ok(read)
    }
}

impl<R: Read> super::tar_reader::SkipRead for &mut HashingReader<R> {}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, want: bool) {
        assert_eq!(Digest::parse(text).map(|digest| digest.to_string()), want.then(|| text.to_owned()), "{text:?}");
    }

    #[test]
    fn digests() {
        let hex = "0123456789abcdef".repeat(4);
        check(&format!("sha256:{hex}"), true);
        check(&hex, false);
        check(&format!("sha512:{hex}{hex}"), false);
        check(&format!("sha256:{}", hex.to_uppercase()), false);
        check(&format!("sha256:{}", &hex[1..]), false);
        check(&format!("sha256:{hex}0"), false);
        check("sha256:../../etc/passwd", false);
        check(&format!("sha256:../{}", &hex[3..]), false);
        check("", false);
    }

    #[test]
    fn a_digest_covers_unread_bytes() {
        let mut hashing = HashingReader::new(&b"abcdef"[..]);
        hashing.read_exact(&mut [0; 2]).unwrap();
        assert_eq!(hashing.finish().unwrap(), Digest::of(b"abcdef"));
    }
}
