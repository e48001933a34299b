//! Decides whether the model that answered is the requested one.
//!
//! Providers answer with a date appended to a model's name, gateways with the maker before it or in another order. A
//! model of another size, generation or family has other words in its name, and may have another price.

/// Words that say where a model runs, who sells it or in what format it is, and not which one it is.
const NEUTRAL_WORDS: &[&str] = &[
    // Versions and price tiers.
    "latest",
    "preview",
    "exp",
    "experimental",
    "beta",
    "stable",
    "free",
    "instruct",
    // Regions.
    "us",
    "eu",
    "apac",
    "global",
    "jp",
    "au",
    // Makers.
    "amazon",
    "anthropic",
    "deepseek",
    "google",
    "meta",
    "mistral",
    "moonshotai",
    "openai",
    "qwen",
    "xai",
    "zai",
];

/// Says whether the model that says it answered can be the requested one: the same name, with a date, a maker or a
/// region more or less. An empty name is taken for the same.
pub fn is_same_model(asked: &str, said: &str) -> bool {
    if asked == said || said.trim().is_empty() {
        return true;
    }
    let (asked, mut said) = (name_words(asked), name_words(said));
    let mut rest = Vec::new();
    for word in asked {
        match said.iter().position(|other| other.eq_ignore_ascii_case(word)) {
            Some(at) => drop(said.remove(at)),
            None => rest.push(word),
        }
    }
    are_neutral(&rest) && are_neutral(&said)
}

/// Returns the words of a name, without the path before it.
fn name_words(name: &str) -> Vec<&str> {
    let name = name.rsplit('/').next().unwrap_or(name);
    name.split(|c: char| !c.is_alphanumeric()).filter(|word| !word.is_empty()).collect()
}

/// Says whether words that only one of two names has leave both the same model.
fn are_neutral(rest: &[&str]) -> bool {
    let number = |word: &str| word.bytes().all(|byte| byte.is_ascii_digit());
    let long = |word: &str| word.len() >= 3 && number(word);
    let version = |word: &str| word.strip_prefix(['v', 'V']).is_some_and(|rest| !rest.is_empty() && number(rest));
    let known = |word: &str| NEUTRAL_WORDS.iter().any(|known| known.eq_ignore_ascii_case(word));
    // A month and a day stand beside a year, and a second number beside a version.
    let dated = rest.iter().any(|word| long(word) || word.eq_ignore_ascii_case("preview"));
    let versioned = rest.iter().any(|word| version(word));
    let part = |word: &str| number(word) && ((dated && word.len() == 2) || (versioned && word == "0"));
    rest.iter().all(|word| long(word) || version(word) || known(word) || part(word))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[track_caller]
    fn check(asked: &str, said: &str, want: bool) {
        assert_eq!(is_same_model(asked, said), want, "{asked} {said}");
        assert_eq!(is_same_model(said, asked), want, "{said} {asked}");
    }

    #[test]
    fn variants_of_a_name_are_the_same_model() {
        for (asked, said) in [
            ("gpt-5", "gpt-5-2025-08-07"),
            ("gpt-4o", "GPT-4o-2024-08-06"),
            ("claude-sonnet-4-5", "claude-sonnet-4-5-20250929"),
            ("claude-sonnet-4-5-20250929", "claude-sonnet-4-5@20250929"),
            ("claude-sonnet-4-5", "us.anthropic.claude-sonnet-4-5-20250929-v1:0"),
            ("anthropic/claude-sonnet-4.5", "anthropic/claude-4.5-sonnet-20250929"),
            ("gemini-2.5-pro", "models/gemini-2.5-pro"),
            ("gemini-2.5-flash", "gemini-2.5-flash-preview-09-2025"),
            ("gemini-2.0-flash", "gemini-2.0-flash-001"),
            ("z-ai/glm-4.7:free", "glm-4.7"),
            ("kimi-k2", "moonshotai/kimi-k2-0905"),
            ("grok-4", "grok-4-latest"),
        ] {
            check(asked, said, true);
        }
        // An empty name does not contradict.
        assert!(is_same_model("m", "") && is_same_model("m", " "));
    }

    #[test]
    fn other_models_are_told_apart() {
        for (asked, said) in [
            ("gpt-5", "gpt-5-mini"),
            ("gpt-5", "gpt-5-pro-2025-10-06"),
            ("gpt-5", "gpt-5.2"),
            ("o3", "o3-mini"),
            ("openai/gpt-oss-120b", "anthropic/claude-opus-4.5"),
            ("claude-sonnet-4-20250514", "claude-sonnet-4-5-20250929"),
            ("claude-opus-4", "claude-opus-4-1-20250805"),
            ("gemini-2.5-flash", "gemini-2.5-flash-lite"),
            ("glm-4.7", "glm-4.6"),
            ("gpt-4", "gpt-4-32k"),
            ("my-alias", "gpt-5-2025-08-07"),
        ] {
            check(asked, said, false);
        }
    }

    proptest! {
        #[test]
        fn never_panics_and_is_symmetric(one in "\\PC{0,20}", other in "([a-z0-9]{1,4}[-./: ]){0,6}") {
            prop_assert!(is_same_model(&one, &one));
            if !one.trim().is_empty() && !other.trim().is_empty() {
                prop_assert_eq!(is_same_model(&one, &other), is_same_model(&other, &one));
            }
        }
    }
}
