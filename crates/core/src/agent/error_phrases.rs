//! Classifies the error texts that agents print when a model call fails. Used only if the egress proxy observed no
//! call.

/// The kind of error that a text reports.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum AgentErrorClass {
    Limit,
    Overload,
    Auth,
    /// No credit left at the provider.
    NoProviderCredit,
}

/// How many bytes of a text are searched.
const MAX_SCAN_BYTES: usize = 16 << 10;

/// The most certain phrases first: exhausted credit is often reported as a limit.
const PHRASES: [(AgentErrorClass, &[&str]); 4] = [
    (
        AgentErrorClass::NoProviderCredit,
        &[
            "credit balance is too low",
            "insufficient balance",
            "insufficient_balance",
            "insufficient_quota",
            "insufficient credit",
            "insufficient funds",
            "exceeded your current quota, please check your plan and billing",
            "quota exceeded. check your plan and billing",
            "billing_hard_limit_reached",
            "billing_not_active",
            "billing_error",
            "payment required",
            "credits exhausted",
            "out of credits",
            "purchase more credits",
            "spend limit",
            "budget has been exceeded",
        ],
    ),
    (
        AgentErrorClass::Auth,
        &[
            "not logged in",
            "please run /login",
            "invalid api key",
            "invalid x-api-key",
            "incorrect api key",
            "api key not valid",
            "api_key_invalid",
            "invalid_api_key",
            "invalid bearer token",
            "authentication_error",
            "authenticationerror",
            "authentication failed",
            "authentication error",
            "authentication required",
            "oauth token has expired",
            "oauth token revoked",
            "token has been revoked",
            "please set an auth method",
            "no authentication information found",
            "missing environment variable",
            "unauthorized",
            "permission_error",
        ],
    ),
    (
        AgentErrorClass::Limit,
        &[
            "usage limit",
            "rate limit",
            "rate_limit",
            "ratelimiterror",
            "hit your limit",
            "limit reached",
            "too many requests",
            "resource_exhausted",
            "resource has been exhausted",
            "exhausted your capacity",
            "exhausted your daily quota",
            "exceeded your current quota",
            "quota exceeded",
            "quota increase",
            "throttling",
        ],
    ),
    (
        AgentErrorClass::Overload,
        &[
            "overloaded",
            "at capacity",
            "high demand",
            "service unavailable",
            "server is busy",
            "internal server error",
            "bad gateway",
            "gateway timeout",
            "stream disconnected before completion",
            "serviceunavailableerror",
            "internalservererror",
        ],
    ),
];

/// Returns the kind of error that a text reports: by the status it quotes, unless its words are more certain.
pub(super) fn classify_text(text: &str) -> Option<AgentErrorClass> {
    let lower = crate::text::head(text, MAX_SCAN_BYTES).to_ascii_lowercase();
    let by_words =
        PHRASES.iter().find(|(_, words)| words.iter().any(|word| lower.contains(word))).map(|(class, _)| *class);
    match by_words {
        Some(AgentErrorClass::NoProviderCredit) => by_words,
        _ => quoted_status(text).and_then(classify_status).or(by_words),
    }
}

/// Returns the kind of error a status means; `None` if it says nothing about the provider.
pub(super) fn classify_status(status: u16) -> Option<AgentErrorClass> {
    match status {
        401 | 403 => Some(AgentErrorClass::Auth),
        402 => Some(AgentErrorClass::NoProviderCredit),
        429 => Some(AgentErrorClass::Limit),
        408 | 500..=599 => Some(AgentErrorClass::Overload),
        _ => None,
    }
}

/// Returns the status that a text quotes.
pub(super) fn quoted_status(text: &str) -> Option<u16> {
    const STATUS_PREFIXES: [&str; 12] = [
        "last status: ",
        "unexpected status ",
        "got status: ",
        "status code: ",
        "status code ",
        "statuscode: ",
        "status: ",
        "api error: ",
        "http error ",
        "http ",
        "\"code\":",
        "\"code\": ",
    ];
    let lower = crate::text::head(text, MAX_SCAN_BYTES).to_ascii_lowercase();
    let quoted = |lead: &&str| {
        lower.match_indices(*lead).find_map(|(at, _)| {
            let rest = lower.get(at + lead.len()..)?;
            let digits = rest.split(|c: char| !c.is_ascii_digit()).next()?;
            digits.parse::<u16>().ok().filter(|status| digits.len() == 3 && (400..600).contains(status))
        })
    };
    let leading = || {
        // `402 ralph: …`, the format of OpenAI's libraries.
        let digits = lower.get(..4)?.strip_suffix(' ')?;
        digits.parse::<u16>().ok().filter(|status| (400..600).contains(status))
    };
    STATUS_PREFIXES.iter().find_map(quoted).or_else(leading)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn texts_are_classified() {
        let (limit, overload, auth, spend) = (
            Some(AgentErrorClass::Limit),
            Some(AgentErrorClass::Overload),
            Some(AgentErrorClass::Auth),
            Some(AgentErrorClass::NoProviderCredit),
        );
        for (text, want) in [
            // claude
            ("Not logged in · Please run /login", auth),
            ("Invalid API key · Fix external API key", auth),
            ("API Error: 429 {\"type\":\"error\",\"error\":{\"type\":\"rate_limit_error\"}}", limit),
            ("API Error: 529 Overloaded", overload),
            ("API Error: Repeated 529 Overloaded errors", overload),
            ("Claude AI usage limit reached|1767355200", limit),
            ("You've hit your limit · resets 3pm (UTC)", limit),
            ("Credit balance is too low", spend),
            // codex
            ("exceeded retry limit, last status: 429 Too Many Requests", limit),
            ("unexpected status 401 Unauthorized: Incorrect API key provided", auth),
            ("unexpected status 503 Service Unavailable: x", overload),
            ("You've hit your usage limit. Upgrade to Pro or try again in 3 hours.", limit),
            ("Quota exceeded. Check your plan and billing details.", spend),
            ("Missing environment variable: `OPENAI_API_KEY`.", auth),
            ("Selected model is at capacity. Please try a different model.", overload),
            ("stream disconnected before completion: error sending request", overload),
            // gemini
            ("[API Error: got status: 429 Too Many Requests. {\"error\":{\"code\":429}}]", limit),
            ("You have exhausted your daily quota on this model.", limit),
            ("API key not valid. Please pass a valid API key.", auth),
            ("[API Error: The model is overloaded. Please try again later. (Status: UNAVAILABLE)]", overload),
            ("Please set an Auth method in your settings.json", auth),
            // qwen and other users of OpenAI's libraries
            ("[API Error: 401 Incorrect API key provided]", auth),
            ("429 Rate limit reached for m", limit),
            ("402 Insufficient Balance", spend),
            // aider
            ("litellm.RateLimitError: RateLimitError: OpenAIException - slow", limit),
            ("litellm.AuthenticationError: AuthenticationError", auth),
            ("litellm.InternalServerError: AnthropicException - Overloaded", overload),
            // copilot
            ("Error: No authentication information found.", auth),
            // no provider error
            ("the tests fail with exit status 1", None),
            ("Prompt is too long", None),
            ("API Error: 400 bad", None),
            ("", None),
        ] {
            assert_eq!(classify_text(text), want, "{text}");
        }
    }

    #[test]
    fn quoted_statuses_are_found() {
        for (text, want) in [
            ("API Error: 529 x", Some(529)),
            ("exceeded retry limit, last status: 429 Too Many Requests", Some(429)),
            ("402 ralph: budget spent", Some(402)),
            ("http 4290", None),
            ("status: 200", None),
            ("4290 lines", None),
        ] {
            assert_eq!(quoted_status(text), want, "{text}");
        }
    }

    proptest! {
        #[test]
        fn no_text_panics(text in "(.{0,20}(status: |api error: |http )?[0-9]{0,5}){0,4}") {
            classify_text(&text);
        }
    }
}
