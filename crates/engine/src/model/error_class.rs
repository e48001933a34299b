//! Classifies a provider's error answer by its status, headers and body.
//!
//! Providers agree on little: a status may be wrong, a code may be a number in quotes, a body may be a web page. The
//! most reliable sign wins: a code first, then the status, then the text.

use std::time::Duration;

use reqwest::header::HeaderMap;

use super::error_body::ProviderErrorBody;
use super::rate_limit_reset;

/// The class of a failed call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ModelErrorClass {
    /// Too many calls or tokens; `reset` is when the provider will answer again.
    RateLimited {
        reset: Option<Duration>,
    },
    /// The provider has no capacity.
    Overloaded {
        reset: Option<Duration>,
    },
    ServerError,
    Timeout,
    /// No connection, or one that broke before an answer began.
    Connect,
    Auth,
    /// No money left at the provider: a retry cannot help.
    Quota,
    ContextTooLong,
    BadRequest,
    /// The server's certificate is not trusted: a retry cannot help.
    Untrusted,
    /// The provider does not know the model or the address.
    NotFoundModel,
    /// A success status, but not the expected JSON, or a cut body.
    BadAnswer,
    /// A temporary error, but the provider says not to retry.
    Refused,
    ScriptEnded,
    /// Ralph stopped the call itself.
    Stopped,
}

impl ModelErrorClass {
    /// Returns the name used in events and logs.
    pub fn name(self) -> &'static str {
        match self {
            Self::RateLimited { .. } => "rate-limited",
            Self::Overloaded { .. } => "overloaded",
            Self::ServerError => "server-error",
            Self::Timeout => "timeout",
            Self::Connect => "connect",
            Self::Auth => "auth",
            Self::Quota => "quota",
            Self::ContextTooLong => "context-too-long",
            Self::BadRequest => "bad-request",
            Self::Untrusted => "untrusted",
            Self::NotFoundModel => "not-found-model",
            Self::BadAnswer => "bad-answer",
            Self::Refused => "refused",
            Self::ScriptEnded => "script-ended",
            Self::Stopped => "stopped",
        }
    }

    /// Returns what the user can do about it, if that is known.
    pub fn hint(self) -> Option<&'static str> {
        match self {
            Self::Auth => Some("check the key of the profile: `ralph help environment` lists the variables"),
            Self::Quota => Some("add credit at the provider, or choose another profile"),
            Self::Untrusted => Some("add the authority that signed its certificate to those this machine trusts"),
            Self::NotFoundModel => Some("check the model name and `base_url` of the profile in `models.yaml`"),
            Self::ContextTooLong => Some("choose a profile whose model takes a longer prompt"),
            Self::BadRequest => Some("check the fields of the profile in `models.yaml`"),
            Self::RateLimited { .. }
            | Self::Overloaded { .. }
            | Self::ServerError
            | Self::Timeout
            | Self::Connect
            | Self::BadAnswer
            | Self::Refused
            | Self::ScriptEnded
            | Self::Stopped => None,
        }
    }
}

/// Classifies an error answer.
pub fn classify(status: u16, headers: &HeaderMap, body: &str) -> ModelErrorClass {
    let error = ProviderErrorBody::parse(body);
    let reset = rate_limit_reset::stated_delay(headers, &error);
    let class = by_code(&error, reset).unwrap_or_else(|| by_status(status, &error, reset));
    match headers.get("x-should-retry").and_then(|value| value.to_str().ok()) {
        Some("true") if matches!(class, ModelErrorClass::BadRequest) => ModelErrorClass::ServerError,
        Some("false") => match class {
            // A limit that resets is worth waiting for, but not worth hammering: the policy waits for the reset.
            ModelErrorClass::RateLimited { reset: None } => ModelErrorClass::Quota,
            ModelErrorClass::Overloaded { reset: None } | ModelErrorClass::ServerError | ModelErrorClass::Timeout => {
                ModelErrorClass::Refused
            }
            class => class,
        },
        _ => class,
    }
}

fn by_code(error: &ProviderErrorBody, reset: Option<Duration>) -> Option<ModelErrorClass> {
    const QUOTA: &[&str] = &[
        "insufficient_quota",
        "billing_hard_limit_reached",
        "billing_not_active",
        "billing_error",
        "insufficient_balance",
        "payment_required",
        "budget_exceeded",
        "1113",
    ];
    const CONTEXT: &[&str] = &["context_length_exceeded", "context_window_exceeded", "request_too_large", "1261"];
    const RATE: &[&str] = &[
        "rate_limit_exceeded",
        "rate_limit_error",
        "throttling_error",
        "1302",
        "1303",
        "1305",
        "1308",
        "1310",
        "1316",
    ];
    const AUTH: &[&str] = &[
        "invalid_api_key",
        "authentication_error",
        "permission_error",
        "no_db_connection",
        "api_key_invalid",
        "unauthenticated",
        "permission_denied",
    ];
    let class = match error {
        error if error.has_code(QUOTA) => ModelErrorClass::Quota,
        error if error.has_code(CONTEXT) => ModelErrorClass::ContextTooLong,
        error if error.has_code(RATE) => ModelErrorClass::RateLimited { reset },
        error if error.has_code(&["overloaded_error", "overloaded"]) => ModelErrorClass::Overloaded { reset },
        error if error.has_code(&["timeout_error"]) => ModelErrorClass::Timeout,
        error if error.has_code(AUTH) => ModelErrorClass::Auth,
        error if error.has_code(&["model_not_found", "not_found_error"]) => ModelErrorClass::NotFoundModel,
        _ => return None,
    };
    Some(class)
}

fn by_status(status: u16, error: &ProviderErrorBody, reset: Option<Duration>) -> ModelErrorClass {
    match status {
        402 => ModelErrorClass::Quota,
        // "Exceeded your quota" beside a reset is a window that refills, not an empty account.
        429 if reset.is_none() && out_of_money(error) => ModelErrorClass::Quota,
        429 => ModelErrorClass::RateLimited { reset },
        401 | 403 => ModelErrorClass::Auth,
        // A redirect is not followed: its target is not the address that was configured.
        300..=399 | 404 | 410 => ModelErrorClass::NotFoundModel,
        408 | 504 | 524 => ModelErrorClass::Timeout,
        413 => ModelErrorClass::ContextTooLong,
        503 | 529 => ModelErrorClass::Overloaded { reset },
        500.. if error.mentions(&["overloaded"]) => ModelErrorClass::Overloaded { reset },
        409 | 425 | 500.. => ModelErrorClass::ServerError,
        _ if out_of_money(error) => ModelErrorClass::Quota,
        _ if error.mentions(&[
            "maximum context length",
            "context_length_exceeded",
            "contextwindowexceeded",
            "context window",
            "prompt is too long",
            "exceeds the maximum number of tokens",
            "exceed context limit",
        ]) =>
        {
            ModelErrorClass::ContextTooLong
        }
        _ if error.mentions(&["invalid model name", "unknown model", "model not found", "model does not exist"]) => {
            ModelErrorClass::NotFoundModel
        }
        _ => ModelErrorClass::BadRequest,
    }
}

fn out_of_money(error: &ProviderErrorBody) -> bool {
    error.mentions(&[
        "insufficient balance",
        "insufficient credit",
        "credit balance is too low",
        "exceeded your current quota",
        "budget has been exceeded",
    ])
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use reqwest::header::{HeaderName, HeaderValue};

    use super::*;

    fn map(headers: &[(&'static str, &'static str)]) -> HeaderMap {
        headers.iter().map(|(name, value)| (HeaderName::from_static(name), HeaderValue::from_static(value))).collect()
    }

    #[track_caller]
    fn check(status: u16, headers: &[(&'static str, &'static str)], body: &str, want: ModelErrorClass) {
        assert_eq!(classify(status, &map(headers), body), want, "{status} {headers:?} {body}");
    }

    const fn rate(seconds: u64) -> ModelErrorClass {
        ModelErrorClass::RateLimited { reset: Some(Duration::from_secs(seconds)) }
    }

    #[test]
    fn openai() {
        check(
            401,
            &[],
            r#"{"error":{"message":"Incorrect API key provided: sk-abc***xyz.","type":"invalid_request_error","param":null,"code":"invalid_api_key"}}"#,
            ModelErrorClass::Auth,
        );
        check(
            429,
            &[("retry-after", "7")],
            r#"{"error":{"message":"Rate limit reached for gpt-4o","type":"tokens","param":null,"code":"rate_limit_exceeded"}}"#,
            rate(7),
        );
        check(
            429,
            &[],
            r#"{"error":{"message":"Rate limit reached. Please try again in 6m0s.","type":"requests","code":"rate_limit_exceeded"}}"#,
            rate(360),
        );
        check(
            429,
            &[("x-ratelimit-reset-requests", "6m0s"), ("x-ratelimit-remaining-requests", "0")],
            r#"{"error":{"message":"slow down","type":"requests","code":null}}"#,
            rate(360),
        );
        check(
            429,
            &[("retry-after", "7")],
            r#"{"error":{"message":"You exceeded your current quota, please check your plan","type":"insufficient_quota","param":null,"code":"insufficient_quota"}}"#,
            ModelErrorClass::Quota,
        );
        check(
            400,
            &[],
            r#"{"error":{"message":"This model's maximum context length is 128000 tokens.","type":"invalid_request_error","param":"messages","code":"context_length_exceeded"}}"#,
            ModelErrorClass::ContextTooLong,
        );
        check(
            404,
            &[],
            r#"{"error":{"message":"The model `gpt-9` does not exist","type":"invalid_request_error","param":null,"code":"model_not_found"}}"#,
            ModelErrorClass::NotFoundModel,
        );
        check(
            400,
            &[],
            r#"{"error":{"message":"Unsupported value","type":"invalid_request_error","param":"temperature","code":"unsupported_value"}}"#,
            ModelErrorClass::BadRequest,
        );
        check(500, &[], r#"{"error":{"message":"oops","type":"server_error"}}"#, ModelErrorClass::ServerError);
        check(
            503,
            &[],
            r#"{"error":{"message":"The engine is currently overloaded"}}"#,
            ModelErrorClass::Overloaded { reset: None },
        );
        check(503, &[("retry-after", "20")], "", ModelErrorClass::Overloaded { reset: Some(Duration::from_secs(20)) });
    }

    #[test]
    fn zai() {
        for (status, code, message, want) in [
            (429, "1113", "Insufficient balance or no resource package. Please recharge.", ModelErrorClass::Quota),
            (429, "1302", "High concurrency usage of this API", ModelErrorClass::RateLimited { reset: None }),
            (429, "1305", "Too many requests", ModelErrorClass::RateLimited { reset: None }),
            (
                429,
                "1308",
                "Usage limit reached for 5 hour. Your limit will reset soon",
                ModelErrorClass::RateLimited { reset: None },
            ),
            (400, "1261", "Prompt too long", ModelErrorClass::ContextTooLong),
            (401, "1000", "Authentication Failed", ModelErrorClass::Auth),
            (400, "1214", "The messages parameter is illegal", ModelErrorClass::BadRequest),
            (500, "1234", "Network error", ModelErrorClass::ServerError),
        ] {
            check(status, &[], &format!(r#"{{"error":{{"code":"{code}","message":"{message}"}}}}"#), want);
        }
        check(429, &[], r#"{"error":{"code":1113,"message":"x"}}"#, ModelErrorClass::Quota);
        let now = ("date", "Sun, 15 Nov 2026 10:00:00 GMT");
        for (code, message) in [
            ("1310", "Weekly/Monthly Limit Exhausted. Your limit will reset at 2026-11-15T11:00:00Z"),
            // Without a zone it is the provider's own.
            ("1308", "Usage limit reached for 5 hour. Your limit will reset at 2026-11-15 19:00:00"),
        ] {
            let body = format!(r#"{{"error":{{"code":"{code}","message":"{message}"}}}}"#);
            check(429, &[now], &body, rate(3600));
        }
    }

    #[test]
    fn litellm() {
        for (status, kind, code, message, want) in [
            (
                429,
                "throttling_error",
                "429",
                "litellm.RateLimitError: slow",
                ModelErrorClass::RateLimited { reset: None },
            ),
            (
                400,
                "None",
                "400",
                "litellm.ContextWindowExceededError: litellm.BadRequestError: too big",
                ModelErrorClass::ContextTooLong,
            ),
            (400, "no_db_connection", "400", "No connected db.", ModelErrorClass::Auth),
            (
                400,
                "invalid_request_error",
                "400",
                "/chat/completions: Invalid model name passed in model=nope. Call `/v1/models`",
                ModelErrorClass::NotFoundModel,
            ),
            (400, "budget_exceeded", "400", "Budget has been exceeded!", ModelErrorClass::Quota),
            (500, "None", "500", "litellm.InternalServerError: mock", ModelErrorClass::ServerError),
            (408, "None", "408", "litellm.Timeout: Connection timed out", ModelErrorClass::Timeout),
        ] {
            let body = format!(r#"{{"error":{{"message":"{message}","type":"{kind}","param":null,"code":"{code}"}}}}"#);
            check(status, &[], &body, want);
        }
    }

    #[test]
    fn others() {
        let anthropic = |kind: &str, message: &str| {
            format!(r#"{{"type":"error","error":{{"type":"{kind}","message":"{message}"}},"request_id":"req_1"}}"#)
        };
        let free = ModelErrorClass::Overloaded { reset: None };
        check(529, &[], &anthropic("overloaded_error", "Overloaded"), free);
        check(200, &[], &anthropic("overloaded_error", "Overloaded"), free);
        check(402, &[], &anthropic("billing_error", "pay"), ModelErrorClass::Quota);
        check(
            400,
            &[],
            &anthropic("invalid_request_error", "prompt is too long: 210000 tokens > 200000 maximum"),
            ModelErrorClass::ContextTooLong,
        );
        check(
            400,
            &[],
            &anthropic("invalid_request_error", "Your credit balance is too low to access the API"),
            ModelErrorClass::Quota,
        );
        check(
            400,
            &[],
            &anthropic(
                "invalid_request_error",
                "input length and `max_tokens` exceed context limit: 190000 + 64000 > 200000",
            ),
            ModelErrorClass::ContextTooLong,
        );
        check(
            429,
            &[
                ("date", "Sun, 15 Nov 2026 10:00:00 GMT"),
                ("anthropic-ratelimit-input-tokens-remaining", "0"),
                ("anthropic-ratelimit-input-tokens-reset", "2026-11-15T10:20:00Z"),
                ("anthropic-ratelimit-requests-remaining", "49"),
                ("anthropic-ratelimit-requests-reset", "2026-11-15T11:00:00Z"),
            ],
            &anthropic("rate_limit_error", "This request would exceed your organization's rate limit"),
            rate(1200),
        );
        check(504, &[], &anthropic("timeout_error", "late"), ModelErrorClass::Timeout);
        check(404, &[], &anthropic("not_found_error", "model: claude-x"), ModelErrorClass::NotFoundModel);
        check(
            429,
            &[],
            r#"[{"error":{"code":429,"message":"You exceeded your current quota","status":"RESOURCE_EXHAUSTED","details":[{"@type":"x"},{"retryDelay":"34s"}]}}]"#,
            rate(34),
        );
        check(
            400,
            &[],
            r#"{"error":{"code":400,"message":"API key not valid. Please pass a valid API key.","status":"INVALID_ARGUMENT","details":[{"@type":"type.googleapis.com/google.rpc.ErrorInfo","reason":"API_KEY_INVALID"}]}}"#,
            ModelErrorClass::Auth,
        );
        check(
            400,
            &[],
            r#"{"error":{"code":400,"message":"The input token count (1200000) exceeds the maximum number of tokens allowed (1048576).","status":"INVALID_ARGUMENT"}}"#,
            ModelErrorClass::ContextTooLong,
        );
        check(
            503,
            &[],
            r#"{"error":{"code":503,"message":"The model is overloaded. Please try again later.","status":"UNAVAILABLE"}}"#,
            free,
        );
        check(
            404,
            &[],
            r#"{"error":{"code":404,"message":"models/gemini-9 is not found for API version v1beta","status":"NOT_FOUND"}}"#,
            ModelErrorClass::NotFoundModel,
        );
        check(502, &[], "<html><head><title>502 Bad Gateway</title></head></html>", ModelErrorClass::ServerError);
        check(504, &[], "<html></html>", ModelErrorClass::Timeout);
        check(404, &[], "<!DOCTYPE html>", ModelErrorClass::NotFoundModel);
        check(403, &[], "<!DOCTYPE html>", ModelErrorClass::Auth);
        check(413, &[], "", ModelErrorClass::ContextTooLong);
        check(418, &[], "", ModelErrorClass::BadRequest);
        check(301, &[], "", ModelErrorClass::NotFoundModel);
        check(999, &[], "", ModelErrorClass::ServerError);
    }

    #[test]
    fn should_retry_header() {
        const YES: (&str, &str) = ("x-should-retry", "true");
        const NO: (&str, &str) = ("x-should-retry", "false");
        check(418, &[YES], "", ModelErrorClass::ServerError);
        check(401, &[YES], "", ModelErrorClass::Auth);
        check(500, &[NO], "", ModelErrorClass::Refused);
        check(529, &[NO], "", ModelErrorClass::Refused);
        check(429, &[NO], "", ModelErrorClass::Quota);
        check(429, &[NO, ("retry-after", "900")], "", rate(900));
        check(500, &[("x-should-retry", "maybe")], "", ModelErrorClass::ServerError);
    }

    proptest! {
        #[test]
        fn any_body_parses_without_panic(status: u16, body in "\\PC{0,200}") {
            classify(status, &HeaderMap::new(), &body);
        }

        #[test]
        fn any_json_error_parses_without_panic(status: u16, code in "\\PC{0,12}", message in ".{0,80}") {
            let body = serde_json::json!({"error": {"code": code, "message": message}}).to_string();
            classify(status, &HeaderMap::new(), &body);
        }
    }
}
