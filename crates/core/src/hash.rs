//! Computes content hashes, written as lower-case hex.

use std::fmt::Write as _;

use sha2::{Digest, Sha256};

/// Returns the SHA-256 of the bytes as 64 hex digits.
pub fn sha256(bytes: &[u8]) -> String {
    hex(&Sha256::digest(bytes))
}

/// Hashes bytes that arrive piece by piece.
#[derive(Debug, Clone, Default)]
pub struct Sha256Hasher(Sha256);

impl Sha256Hasher {
    pub fn update(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    /// Returns the SHA-256 of everything so far as 64 hex digits.
    pub fn finish(self) -> String {
        hex(&self.0.finalize())
    }
}

/// Returns the first eight hex digits of the SHA-256: enough to tell names apart, never a proof.
pub fn short_sha256(bytes: &[u8]) -> String {
    hex(&Sha256::digest(bytes)[..4])
}

/// Writes bytes as lower-case hex.
pub fn hex(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len() * 2);
    for byte in bytes {
        write!(text, "{byte:02x}").expect("writing to a String cannot fail");
    }
    text
}

/// Reads lower- or upper-case hex; `None` when a digit is wrong or missing.
pub fn unhex(text: &str) -> Option<Vec<u8>> {
    let digits = text.as_bytes();
    if !digits.len().is_multiple_of(2) {
        return None;
    }
    let digit = |byte: u8| char::from(byte).to_digit(16).and_then(|value| u8::try_from(value).ok());
    digits.chunks_exact(2).map(|pair| Some(digit(pair[0])? << 4 | digit(pair[1])?)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_answers() {
        assert_eq!(sha256(b""), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
        assert_eq!(short_sha256(b""), "e3b0c442");
        assert_eq!(unhex("e3B0"), Some(vec![0xe3, 0xb0]));
        assert_eq!(unhex("e3b"), None);
        assert_eq!(unhex("zz"), None);
    }
}
