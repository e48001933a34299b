//! A guess at tokens before a provider has counted them.

/// Returns a number of tokens that a text very rarely exceeds: a third of its bytes, rounded up.
///
/// English and code run at about four bytes a token; the margin is there because a budget is reserved with this number.
pub fn estimate_tokens(text: &str) -> u64 {
    u64::try_from(text.len()).unwrap_or(u64::MAX).div_ceil(3)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_third_rounded_up() {
        for (text, want) in [("", 0), ("a", 1), ("abc", 1), ("abcd", 2), ("ñññ", 2)] {
            assert_eq!(estimate_tokens(text), want, "{text}");
        }
    }
}
