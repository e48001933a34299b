//! Estimates token counts before a provider has counted them.
//!
//! A budget is reserved with this number, and the text may be written by an attacker who wants the estimate to be too
//! small. So it follows what tokenisers do with text they were not trained on. They know whole words of ordinary
//! English, but split random letters every second one, may give each digit and each symbol a token of its own, and
//! fall back to single bytes for a script they hardly know. English and code come out at two and a half to three bytes
//! per token, where providers count about four; noise comes out at what it costs.

use std::iter::Peekable;
use std::str::Chars;

/// The letters that commonly follow a letter within a word. Tokenisers split at rare pairs.
const FOLLOWERS: [&str; 26] = [
    "bcdgiklmnprstuvwxy",
    "aeijlorsuy",
    "acehiklortux",
    "abdeilorstu",
    "abcdefgilmnpqrstvwxy",
    "aefilnorstu",
    "aehilmnorsu",
    "aeiort",
    "abcdefglmnoprstvwxz",
    "e",
    "eis",
    "abdefilopstuy",
    "abeilmopsu",
    "acdefgiklnostuvy",
    "abcdfgiklmnoprstuvwx",
    "aehiloprstuy",
    "u",
    "acdegiklmnorstuvy",
    "acehiklopstuy",
    "acdehilmoprstuwy",
    "abcdefgilmnoprst",
    "aei",
    "aehinor",
    "eptx",
    "gnprstw",
    "e",
];

/// One bit for each letter that may follow.
const LETTER_PAIRS: [u32; 26] = letter_pairs();

/// Longer words are not treated as words.
const LONGEST_WORD: u64 = 16;

/// Returns a number of tokens that a text very rarely exceeds.
pub fn estimate_tokens(text: &str) -> u64 {
    let mut chars = text.chars().peekable();
    let mut tokens = 0u64;
    // East Asian characters, counted separately because their count per token is not whole.
    let mut wide = 0u64;
    // Letters of which some take two tokens.
    let mut odd = 0u64;
    while let Some(c) = chars.next() {
        tokens += match c {
            'a'..='z' => word_tokens(c, &mut chars),
            'A'..='Z' => match chars.peek() {
                Some('A'..='Z') => {
                    let run = 1 + run_length(&mut chars, |c| c.is_ascii_uppercase());
                    (run * 2).div_ceil(3)
                }
                _ => word_tokens(c.to_ascii_lowercase(), &mut chars),
            },
            ' ' | '\t' | '\n' | '\r' => match 1 + run_length(&mut chars, |next| next == c) {
                // A single space is part of the following word or symbol, but of nothing else.
                1 if c == ' ' => {
                    u64::from(!chars.peek().is_some_and(|next| next.is_ascii_graphic() && !next.is_ascii_digit()))
                }
                // Tokenisers know long runs of spaces and line feeds, only short runs of tabs, and none of carriage
                // returns.
                run if c == '\r' => run,
                run if c == '\t' => run.div_ceil(4),
                run => run.div_ceil(16),
            },
            _ if c.is_ascii_punctuation() => (1 + run_length(&mut chars, |next| next == c)).div_ceil(2),
            // Digits and invisible characters.
            '\0'..='\x7f' => 1,
            // Western European and Russian letters, dashes and quotes: most take one token, some two.
            '\u{c0}'..='\u{ff}' | '\u{410}'..='\u{44f}' | '\u{2010}'..='\u{2027}' => {
                odd += 1;
                1
            }
            '\u{3000}'..='\u{30ff}' | '\u{4e00}'..='\u{9fff}' | '\u{ac00}'..='\u{d7a3}' | '\u{ff00}'..='\u{ffdf}' => {
                wide += 1;
                0
            }
            // In the worst case each byte is a token.
            _ => u64::try_from(c.len_utf8()).unwrap_or(4),
        };
    }
    tokens + (wide * 13).div_ceil(5) + odd.div_ceil(2)
}

/// Counts a word: one token per four letters, and one more at every rare pair of letters.
fn word_tokens(first: char, chars: &mut Peekable<Chars<'_>>) -> u64 {
    let (mut letters, mut odd, mut last) = (1u64, 0u64, first);
    while let Some(letter) = chars.next_if(char::is_ascii_lowercase) {
        letters += 1;
        odd += u64::from(!is_common_pair(last, letter));
        last = letter;
    }
    let tokens = (letters.div_ceil(4) + odd).min(letters);
    if letters > LONGEST_WORD { tokens.max((letters * 2).div_ceil(3)) } else { tokens }
}

fn is_common_pair(first: char, second: char) -> bool {
    let place = |letter: char| u32::from(letter).wrapping_sub(u32::from('a'));
    let followers = usize::try_from(place(first)).ok().and_then(|row| LETTER_PAIRS.get(row)).unwrap_or(&0);
    followers.checked_shr(place(second)).is_some_and(|bits| bits & 1 == 1)
}

fn run_length(chars: &mut Peekable<Chars<'_>>, same: impl Fn(char) -> bool) -> u64 {
    let mut length = 0;
    while chars.next_if(|c| same(*c)).is_some() {
        length += 1;
    }
    length
}

const fn letter_pairs() -> [u32; 26] {
    let mut pairs = [0; 26];
    let mut row = 0;
    while row < 26 {
        let letters = FOLLOWERS[row].as_bytes();
        let mut at = 0;
        while at < letters.len() {
            pairs[row] |= 1 << (letters[at] - b'a');
            at += 1;
        }
        row += 1;
    }
    pairs
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[track_caller]
    fn check(text: &str, want: u64) {
        assert_eq!(estimate_tokens(text), want, "{text:?}");
    }

    /// Two real tokenisers never counted more tokens for these.
    #[test]
    fn runs_of_white_space() {
        check(&"\r".repeat(3200), 3200);
        check(&"\t".repeat(3200), 800);
        check(&"\n".repeat(3200), 200);
        check(&"\u{e9}".repeat(100), 150);
    }

    #[test]
    fn words() {
        check("", 0);
        check("a", 1);
        check("the cat sat", 3);
        check("understand", 3);
        check("getUserName", 3);
        check("snake_case_name", 7);
        check("MAX_TOKENS", 7);
        // Not words.
        check("xqzjkv", 6);
        check("aaaaaaaaaaaaaaaaaaaaaaaaaaaaaa", 30);
        check("internationalization", 14);
    }

    #[test]
    fn signs() {
        check("1234567", 7);
        check("a 1", 3);
        check("a + b", 3);
        check("();{}", 5);
        check("==========", 5);
        check("\n\n\n    x", 3);
        check(&" ".repeat(160), 10);
        check("\r\n", 2);
        check("\0\0\x1b[0m", 6);
    }

    #[test]
    fn scripts() {
        check("größer", 5);
        check("Привет", 9);
        check("Բարեւ", 10);
        check("日本語の文字", 16);
        check("🙂", 4);
        check("“a”—b…", 8);
        check("สวัสดี", 18);
    }

    #[test]
    fn english_and_code_stay_near_three_bytes() {
        let english = "The only way out of a sandbox: every entry brings a target to one pipeline, which is judged by \
                       name, resolved once and filtered by address before anything is dialled.";
        let code = "    fn hold(&self, held: Spend) -> Reservation {\n        Reservation { ledger: self.clone(), held: \
                    Some(held) }\n    }\n\n    /// No code under the lock can panic.\n    fn lock(&self) -> Guard {\n";
        for (text, least) in [(english, 2.8), (code, 2.3)] {
            let bytes = text.len() as f64 / estimate_tokens(text) as f64;
            assert!((least..3.5).contains(&bytes), "{bytes} bytes a token: {text}");
        }
    }

    /// Noise, and the maximum that two public tokenisers (cl100k and Anthropic's first) counted for it.
    #[test]
    fn noise_is_not_underestimated() {
        for (text, tokens) in [
            ("wvzcq jxkp ghtrm qqzl vbnx", 15),
            ("QXZJKVWP TRBN", 8),
            ("aGVsbG8gd29ybGQhIQ9xKz7+Qw==", 21),
            ("3f9a1c0be77d42", 11),
            ("!@#$%^&*()~`", 9),
        ] {
            assert!(estimate_tokens(text) >= tokens, "{text}: {}", estimate_tokens(text));
        }
    }

    proptest! {
        #[test]
        fn between_a_sixteenth_of_the_bytes_and_all_of_them(text in "\\PC{0,40}|[ \n\taAzZ09(=]{0,40}") {
            let bytes = text.len() as u64;
            let tokens = estimate_tokens(&text);
            prop_assert!(tokens <= bytes, "{tokens} of {bytes}");
            prop_assert!(tokens + 1 >= bytes / 16 , "{tokens} of {bytes}");
        }

        #[test]
        fn estimates_are_nearly_additive(left in "\\PC{0,40}", right in "\\PC{0,40}") {
            let apart = estimate_tokens(&left) + estimate_tokens(&right);
            let together = estimate_tokens(&format!("{left}{right}"));
            prop_assert!(together <= apart + 16, "{together} > {apart}");
        }
    }
}
