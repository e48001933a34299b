//! Stand-ins for credentials: shaped like the real one, random, and worth nothing anywhere but at our own door.
//!
//! Programs look at the shape of their keys before they use them, so a stand-in keeps the prefix, the length and the
//! kind of each character. Everything else of it is random: at least 128 bits, or it is made longer.

use std::fmt;

/// Beginnings that issuers gave their credentials. They say what a credential is, not what it is worth.
const PREFIXES: [&str; 24] = [
    "sk-ant-api03-",
    "sk-ant-oat01-",
    "sk-ant-ort01-",
    "sk-ant-admin01-",
    "sk-ant-",
    "sk-proj-",
    "sk-svcacct-",
    "sk-or-v1-",
    "sk-",
    "github_pat_",
    "ghp_",
    "gho_",
    "ghu_",
    "ghs_",
    "ghr_",
    "glpat-",
    "AIza",
    "xai-",
    "gsk_",
    "nvapi-",
    "pplx-",
    "hf_",
    "npm_",
    "xoxb-",
];

/// So many random characters hold 128 bits, even where each is one of ten digits.
const LEAST: usize = 39;

/// A stand-in for one credential in one sandbox.
#[derive(Clone, PartialEq, Eq)]
pub struct Phantom(String);

// It opens nothing, but a log is no place for it: whoever sees it could ask why it was there.
impl fmt::Debug for Phantom {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Phantom(…)")
    }
}

/// The machine gave no random bytes.
#[derive(Debug, thiserror::Error)]
#[error("the system has no random bytes to give")]
pub struct NoRandom;

impl Phantom {
    /// Makes a stand-in for a credential.
    pub fn shaped_like(real: &str) -> Result<Self, NoRandom> {
        let mut random = vec![0; real.len().max(LEAST) + LEAST];
        getrandom::fill(&mut random).map_err(|_| NoRandom)?;
        Ok(Self(shape(real.trim(), &random)))
    }

    /// Returns what goes into the sandbox.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// Replaces every character behind the prefix by a random one of its kind, and adds some where there are too few.
fn shape(real: &str, random: &[u8]) -> String {
    let prefix = PREFIXES.iter().find(|prefix| real.starts_with(**prefix)).copied().unwrap_or("");
    let rest = real.get(prefix.len()..).unwrap_or("");
    let mut random = random.iter().copied();
    let mut one = |digits: &[u8]| {
        let at = usize::from(random.next().unwrap_or(0)) % digits.len();
        char::from(digits.get(at).copied().unwrap_or(b'x'))
    };
    let (lower, upper, digit) =
        (&b"abcdefghijklmnopqrstuvwxyz"[..], &b"ABCDEFGHIJKLMNOPQRSTUVWXYZ"[..], &b"0123456789"[..]);
    let mut out = prefix.to_owned();
    let mut changed = 0;
    for c in rest.chars() {
        changed += 1;
        match c {
            'A'..='Z' => out.push(one(upper)),
            '0'..='9' => out.push(one(digit)),
            // Signs hold the shape; anything else, such as what cannot stand in a header, is replaced.
            '-' | '_' | '.' | '~' | '+' | '/' | '=' => {
                changed -= 1;
                out.push(c);
            }
            _ => out.push(one(lower)),
        }
    }
    for _ in changed..LEAST {
        out.push(one(lower));
    }
    out
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn shapes() {
        let random: Vec<u8> = (0..200).collect();
        let key = format!("sk-ant-api03-{}AA", "aB3-_".repeat(18));
        for (real, prefix, len) in [
            (key.as_str(), "sk-ant-api03-", key.len()),
            ("ghp_0123456789abcdefghijklmnopqrstuvwxyz", "ghp_", 43),
            ("short", "", 39),
            ("", "", 39),
            ("pa\"ss wörd", "", 39),
        ] {
            let made = shape(real, &random);
            assert!(made.starts_with(prefix) && made.len() == len && made.is_ascii(), "{real} {made}");
            assert!(made.bytes().all(|byte| byte.is_ascii_graphic()), "{made}");
        }
    }

    #[test]
    fn no_two_are_alike() {
        let one = Phantom::shaped_like("ghp_0123456789abcdefghijklmnopqrstuvwxyz").unwrap();
        let two = Phantom::shaped_like("ghp_0123456789abcdefghijklmnopqrstuvwxyz").unwrap();
        assert_ne!(one, two);
        assert_eq!(format!("{one:?}"), "Phantom(…)");
    }

    proptest! {
        #[test]
        fn nothing_of_the_real_one_is_left(real in "[A-Za-z0-9]{24,60}") {
            let made = Phantom::shaped_like(&real).unwrap();
            for at in 0..real.len() - 12 {
                prop_assert!(!made.as_str().contains(&real[at..at + 12]));
            }
        }
    }
}
