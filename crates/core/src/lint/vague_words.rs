//! Finds words that leave open whether a box is done.

/// Words that promise a quality without saying how much of it.
const VAGUE_WORDS: &[&str] = &[
    "appropriate",
    "appropriately",
    "as needed",
    "better",
    "clean",
    "cleaner",
    "easy",
    "efficient",
    "efficiently",
    "elegant",
    "fast",
    "faster",
    "flexible",
    "good",
    "graceful",
    "gracefully",
    "high-quality",
    "improve",
    "improved",
    "improves",
    "intuitive",
    "modern",
    "nice",
    "nicely",
    "optimal",
    "optimise",
    "optimised",
    "optimize",
    "optimized",
    "performant",
    "properly",
    "quick",
    "quickly",
    "reasonable",
    "reasonably",
    "reliable",
    "robust",
    "robustly",
    "scalable",
    "seamless",
    "seamlessly",
    "simple",
    "smooth",
    "smoothly",
    "stable",
    "user-friendly",
    "well",
];

/// Returns the first vague word of a text that has no number beside it.
pub(super) fn first_vague_word(text: &str) -> Option<&'static str> {
    if text.bytes().any(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let lower = text.to_lowercase();
    let words: Vec<&str> =
        lower.split(|c: char| !(c.is_alphanumeric() || c == '-' || c == '_')).filter(|word| !word.is_empty()).collect();
    words
        .iter()
        .find_map(|word| VAGUE_WORDS.iter().find(|vague| *vague == word))
        .or_else(|| words.windows(2).find(|pair| *pair == ["as", "needed"]).map(|_| &"as needed"))
        .copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn vague_words_without_a_number() {
        for (text, want) in [
            ("The page is Fast.", Some("fast")),
            ("The page loads fast, under 200 ms", None),
            ("add indexes as needed", Some("as needed")),
            ("breakfast is served", None),
            ("a user-friendly error", Some("user-friendly")),
            ("Foo endpoint returns an error for invalid input", None),
            ("", None),
        ] {
            assert_eq!(first_vague_word(text), want, "{text:?}");
        }
    }
}
