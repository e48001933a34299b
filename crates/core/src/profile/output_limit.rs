//! Selects the request field that limits the output: it has two names, and few chat servers accept both.

/// The field in which a chat server expects the maximum output.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OutputLimitField {
    MaxTokens,
    MaxCompletionTokens,
}

impl OutputLimitField {
    /// Guesses from the model's name: OpenAI's reasoning models refuse `max_tokens`, and most servers of other models
    /// accept nothing else.
    pub fn of(model: &str) -> Self {
        if is_reasoning_model(model) { Self::MaxCompletionTokens } else { Self::MaxTokens }
    }

    pub fn name(self) -> &'static str {
        match self {
            Self::MaxTokens => "max_tokens",
            Self::MaxCompletionTokens => "max_completion_tokens",
        }
    }
}

/// Returns whether a model is one of OpenAI's reasoning models: `gpt-5` and later, and the `o` series.
pub fn is_reasoning_model(model: &str) -> bool {
    let name = model.rsplit('/').next().unwrap_or(model).to_ascii_lowercase();
    if let Some(version) = name.strip_prefix("gpt-") {
        let digits = version.split(|c: char| !c.is_ascii_digit()).next().unwrap_or_default();
        return digits.parse::<u32>().is_ok_and(|major| major >= 5);
    }
    name.strip_prefix('o').is_some_and(|rest| {
        let digits = rest.trim_start_matches(|c: char| c.is_ascii_digit());
        digits.len() < rest.len() && (digits.is_empty() || digits.starts_with('-'))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reasoning_models() {
        for (model, want) in [
            ("gpt-5", true),
            ("gpt-5.2-mini", true),
            ("openai/gpt-5-nano", true),
            ("gpt-10", true),
            ("o1", true),
            ("o3-mini", true),
            ("O4-mini", true),
            ("gpt-4o", false),
            ("gpt-4.1", false),
            ("gpt-oss-120b", false),
            ("glm-4.7", false),
            ("olmo-2", false),
            ("o", false),
            ("", false),
        ] {
            assert_eq!(is_reasoning_model(model), want, "{model}");
            let field = if want { "max_completion_tokens" } else { "max_tokens" };
            assert_eq!(OutputLimitField::of(model).name(), field, "{model}");
        }
    }
}
