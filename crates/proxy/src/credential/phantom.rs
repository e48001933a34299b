//! Makes phantoms of credentials: random, shaped like the real one, and worth nothing except at ralph's own proxy.
//!
//! Programs check the shape of their keys before they use them, so a phantom keeps the prefix, the length and the
//! class of each character. Everything else in it is random: at least 128 bits. A credential that is too short for
//! that gets a longer phantom.

use std::fmt;

use ralph_core::redact::ISSUER_PREFIXES;

/// The entropy that a phantom must have, in thousandths of a bit.
const MIN_ENTROPY: usize = 128_000;
/// The most characters that are added: enough even for an empty credential.
const MAX_PADDING: usize = MIN_ENTROPY.div_ceil(LOWER.entropy);

/// A class of characters, and the entropy of one that a random byte selects, in thousandths of a bit and rounded
/// down: 256 is not a multiple of most sizes, so some characters come up slightly more often.
#[derive(Debug)]
struct PhantomAlphabet {
    characters: &'static [u8],
    entropy: usize,
}

const LOWER: PhantomAlphabet = PhantomAlphabet { characters: b"abcdefghijklmnopqrstuvwxyz", entropy: 4_678 };
const UPPER: PhantomAlphabet = PhantomAlphabet { characters: b"ABCDEFGHIJKLMNOPQRSTUVWXYZ", entropy: 4_678 };
const DIGIT: PhantomAlphabet = PhantomAlphabet { characters: b"0123456789", entropy: 3_299 };
const HEX: PhantomAlphabet = PhantomAlphabet { characters: b"0123456789abcdef", entropy: 4_000 };
const LETTER: PhantomAlphabet =
    PhantomAlphabet { characters: b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ", entropy: 5_678 };
const LOWER_DIGIT: PhantomAlphabet =
    PhantomAlphabet { characters: b"abcdefghijklmnopqrstuvwxyz0123456789", entropy: 5_000 };
const UPPER_DIGIT: PhantomAlphabet =
    PhantomAlphabet { characters: b"ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789", entropy: 5_000 };
const ANY: PhantomAlphabet =
    PhantomAlphabet { characters: b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789", entropy: 5_678 };

/// A phantom of one credential in one sandbox.
#[derive(Clone, PartialEq, Eq)]
pub struct PhantomCredential(String);

// It is worth nothing, but it does not belong in a log: a reader would have to ask why it was there.
impl fmt::Debug for PhantomCredential {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("PhantomCredential(…)")
    }
}

/// The system provided no random bytes.
#[derive(Debug, thiserror::Error)]
#[error("the system provided no random bytes")]
pub struct RandomSourceError;

impl PhantomCredential {
    /// Makes a phantom of a credential.
    pub fn shaped_like(real: &str) -> Result<Self, RandomSourceError> {
        let mut random = vec![0; real.len() + MAX_PADDING];
        getrandom::fill(&mut random).map_err(|_| RandomSourceError)?;
        Ok(Self(shape(real.trim(), &random)))
    }

    /// Returns the text that goes into the sandbox.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// Replaces every character after the prefix by a random one of its class, and adds some if there are too few.
fn shape(real: &str, random: &[u8]) -> String {
    let prefix = ISSUER_PREFIXES.iter().find(|prefix| real.starts_with(**prefix)).copied().unwrap_or("");
    let rest = real.get(prefix.len()..).unwrap_or("");
    let close = plan_chars(rest, narrow_alphabet);
    let wide = || plan_chars(rest, |_, piece| wide_alphabet(piece));
    let plan = if entropy(&close) >= MIN_ENTROPY {
        close
    } else {
        Some(wide()).filter(|wide| entropy(wide) >= MIN_ENTROPY).unwrap_or(close)
    };
    let added = MIN_ENTROPY.saturating_sub(entropy(&plan)).div_ceil(LOWER.entropy);
    let mut random = random.iter().copied();
    let places = plan.into_iter().chain(std::iter::repeat_n(PhantomChar::Random(&LOWER), added));
    let chosen = places.map(|place| match place {
        PhantomChar::Separator(c) => c,
        PhantomChar::Random(PhantomAlphabet { characters, .. }) => {
            let at = usize::from(random.next().unwrap_or(0)) % characters.len();
            char::from(characters.get(at).copied().unwrap_or(b'x'))
        }
    });
    prefix.chars().chain(chosen).collect()
}

/// One position of a phantom.
#[derive(Debug, Clone, Copy)]
enum PhantomChar {
    /// Separators are kept, since they make the shape.
    Separator(char),
    Random(&'static PhantomAlphabet),
}

fn entropy(plan: &[PhantomChar]) -> usize {
    let worths = plan.iter().map(|place| match place {
        PhantomChar::Separator(_) => 0,
        PhantomChar::Random(alphabet) => alphabet.entropy,
    });
    worths.sum()
}

/// Chooses an alphabet for each character, from the character and the segment between separators that it is in.
fn plan_chars(text: &str, alphabet: impl Fn(char, &str) -> &'static PhantomAlphabet) -> Vec<PhantomChar> {
    let hexadecimal = is_hexadecimal(text);
    let mut plan = Vec::new();
    for piece in text.split_inclusive(is_separator) {
        let letters = piece.trim_end_matches(is_separator);
        let of = |c| if hexadecimal { &HEX } else { alphabet(c, letters) };
        plan.extend(letters.chars().map(|c| PhantomChar::Random(of(c))));
        plan.extend(piece.chars().last().filter(|c| is_separator(*c)).map(PhantomChar::Separator));
    }
    plan
}

/// Returns the closest alphabet: each character keeps its class. What cannot be sent in a header becomes a letter.
fn narrow_alphabet(c: char, _: &str) -> &'static PhantomAlphabet {
    match c {
        'A'..='Z' => &UPPER,
        '0'..='9' => &DIGIT,
        _ => &LOWER,
    }
}

/// Returns the alphabet with more entropy: each character may be of any class that its segment has.
fn wide_alphabet(piece: &str) -> &'static PhantomAlphabet {
    let upper = piece.contains(|c: char| c.is_ascii_uppercase());
    let digit = piece.contains(|c: char| c.is_ascii_digit());
    let lower = piece.contains(|c: char| !c.is_ascii_uppercase() && !c.is_ascii_digit());
    match (lower, upper, digit) {
        (true, true, true) => &ANY,
        (true, true, false) => &LETTER,
        (true, false, true) => &LOWER_DIGIT,
        (false, true, true) => &UPPER_DIGIT,
        (false, true, false) => &UPPER,
        (false, false, true) => &DIGIT,
        (_, false, false) => &LOWER,
    }
}

fn is_separator(c: char) -> bool {
    matches!(c, '-' | '_' | '.' | '~' | '+' | '/' | '=')
}

/// Says whether all letters are hexadecimal digits and the text has both letters and digits: then any hexadecimal
/// digit may be used in any position.
fn is_hexadecimal(text: &str) -> bool {
    let mut characters = text.chars().filter(|c| !is_separator(*c));
    characters.clone().all(|c| matches!(c, '0'..='9' | 'a'..='f'))
        && characters.clone().any(|c| c.is_ascii_digit())
        && characters.any(|c| c.is_ascii_lowercase())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Checks the shapes that the issuers document for their credentials.
    #[test]
    fn phantoms_keep_the_shape_of_known_credentials() {
        let random: Vec<u8> = (0..=255).collect();
        let anthropic = format!("sk-ant-api03-{}AA", "aB3-_".repeat(18));
        let openrouter = format!("sk-or-v1-{}", "0f".repeat(32));
        for (real, prefix, len, rest) in [
            (anthropic.as_str(), "sk-ant-api03-", anthropic.len(), "lud-_"),
            (openrouter.as_str(), "sk-or-v1-", openrouter.len(), "h"),
            ("ghp_0123456789abcdefghijklmnopqrstuvwxyz", "ghp_", 40, "ld"),
            ("ghp_q8Wz7Xv6Cu5Tb4Sn3Rm2Pl1Kk0Jj9Ii8Hh7G", "ghp_", 40, "lud"),
            ("AIzaSyD3X4mpl3K3yQ8Wz7Xv6Cu5Tb4Sn3Rm2Pl", "AIza", 39, "lud"),
            // With so many digits, only the mixture of all classes has enough entropy.
            ("npm_0123456789012345678901234567abAB", "npm_", 36, "lud"),
            ("q8Wz7Xv6Cu5Tb4Sn3Rm2a-1234567", "", 29, "lud-"),
            // 32 hexadecimal digits are 128 bits, in one segment or in several.
            ("0123456789abcdef0123456789abcdef", "", 32, "h"),
            ("123e4567-e89b-12d3-a456-426614174000", "", 36, "h-"),
            ("xoxb-123456789012-1234567890123-AbCdEfGhIjKlMnOpQrStUvWx", "xoxb-", 56, "lud-"),
            // Too short for 128 bits, so the phantom is longer.
            ("glpat-q8Wz7Xv6Cu5Tb4Sn3Rm2", "glpat-", 36, "lud"),
            ("0123456789abcdef0123456789abcde", "", 32, "hl"),
            ("01234567890123456789012345678901234567", "", 39, "ld"),
            ("short", "", 28, "l"),
            ("", "", 28, "l"),
            ("pa\"ss wörd", "", 28, "l"),
        ] {
            let made = shape(real, &random);
            assert_eq!((made.get(..prefix.len()), made.len()), (Some(prefix), len), "{real} {made}");
            let kind = |c: char| match c {
                _ if rest.contains('h') && matches!(c, '0'..='9' | 'a'..='f') => 'h',
                'a'..='z' => 'l',
                'A'..='Z' => 'u',
                '0'..='9' => 'd',
                c => c,
            };
            let strange = made.chars().skip(prefix.len()).find(|c| !rest.contains(kind(*c)));
            assert_eq!(strange, None, "{real} {made}");
            let signs = |text: &str| text.char_indices().filter(|(_, c)| is_separator(*c)).collect::<Vec<_>>();
            assert_eq!(signs(&made), signs(real), "{real} {made}");
        }
    }

    /// No alphabet is credited with more entropy than it has.
    #[test]
    fn entropies_are_not_overestimated() {
        for alphabet in [LOWER, UPPER, DIGIT, HEX, LETTER, LOWER_DIGIT, UPPER_DIGIT, ANY] {
            let most = 256_usize.div_ceil(alphabet.characters.len());
            let bits = (256.0 / f64::from(u32::try_from(most).unwrap())).log2();
            let declared = f64::from(u32::try_from(alphabet.entropy).unwrap()) / 1000.0;
            assert!(declared <= bits && bits - declared < 0.001, "{declared} {bits}");
        }
    }

    #[test]
    fn phantoms_differ() {
        let one = PhantomCredential::shaped_like("ghp_0123456789abcdefghijklmnopqrstuvwxyz").unwrap();
        let two = PhantomCredential::shaped_like("ghp_0123456789abcdefghijklmnopqrstuvwxyz").unwrap();
        assert_ne!(one, two);
        assert_eq!(format!("{one:?}"), "PhantomCredential(…)");
    }

    proptest! {
        #[test]
        fn a_phantom_keeps_no_part_of_the_real_credential(real in "[A-Za-z0-9]{24,60}") {
            let made = PhantomCredential::shaped_like(&real).unwrap();
            for at in 0..real.len() - 12 {
                prop_assert!(!made.as_str().contains(&real[at..at + 12]));
            }
        }
    }
}
