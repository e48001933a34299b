//! Writes refusals in the provider's own error format, so that a client's library stops instead of retrying.

use serde_json::{Value, json};

use super::endpoint::RouteApi;

/// Why a client gets no answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum GatewayRefusal {
    Budget(String),
    /// A rule of the network policy denies it.
    Policy(String),
    /// The configuration does not permit calls to the endpoint, and retrying changes nothing.
    Barred(String),
    Model(String),
    Endpoint(String),
    Credential(String),
    BadRequest(String),
    TooLarge(String),
    /// The request asked for another protocol.
    Upgrade(String),
    Upstream(String),
    Unavailable(String),
}

impl GatewayRefusal {
    /// Returns the reason as text.
    pub fn why(&self) -> &str {
        match self {
            Self::Budget(why)
            | Self::Policy(why)
            | Self::Barred(why)
            | Self::Model(why)
            | Self::Endpoint(why)
            | Self::Credential(why)
            | Self::BadRequest(why)
            | Self::TooLarge(why)
            | Self::Upgrade(why)
            | Self::Upstream(why)
            | Self::Unavailable(why) => why,
        }
    }

    /// Returns the kind of refusal, in one word.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Budget(_) => "budget",
            Self::Policy(_) => "rule",
            Self::Barred(_) => "barred",
            Self::Model(_) => "model",
            Self::Endpoint(_) => "endpoint",
            Self::Credential(_) => "credential",
            Self::BadRequest(_) => "request",
            Self::TooLarge(_) => "size",
            Self::Upgrade(_) => "protocol",
            Self::Upstream(_) => "upstream",
            Self::Unavailable(_) => "unavailable",
        }
    }

    /// Says whether the request was allowed and failed on its way.
    pub fn is_failure(&self) -> bool {
        matches!(self, Self::Upstream(_) | Self::Unavailable(_))
    }
}

/// A response in the provider's own format.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RefusalResponse {
    pub status: u16,
    /// JSON.
    pub body: String,
    /// Including `content-type`.
    pub headers: Vec<(&'static str, &'static str)>,
}

/// Writes a refusal in the format of a provider. The message begins with `ralph: `.
pub fn refusal_response(wire: RouteApi, refusal: &GatewayRefusal) -> RefusalResponse {
    let message = match refusal {
        GatewayRefusal::Budget(why) if why.starts_with("budget spent") => format!("ralph: {why}"),
        GatewayRefusal::Budget(why) => format!("ralph: budget spent: {why}"),
        other => format!("ralph: {}", other.why()),
    };
    let (status, body) = match wire {
        RouteApi::Anthropic => anthropic(refusal, &message),
        RouteApi::OpenAi => openai(refusal, &message),
        RouteApi::Gemini => gemini(refusal, &message),
    };
    let mut headers = vec![("content-type", "application/json")];
    if !refusal.is_failure() {
        headers.push(("x-should-retry", "false"));
    }
    if matches!(refusal, GatewayRefusal::Upgrade(_)) {
        // The status requires it: it names the supported protocol.
        headers.extend([("upgrade", "HTTP/1.1"), ("connection", "upgrade")]);
    }
    RefusalResponse { status, body: body.to_string(), headers }
}

fn anthropic(refusal: &GatewayRefusal, message: &str) -> (u16, Value) {
    let (status, kind) = match refusal {
        GatewayRefusal::Budget(_) => (402, "billing_error"),
        GatewayRefusal::Policy(_)
        | GatewayRefusal::Barred(_)
        | GatewayRefusal::Model(_)
        | GatewayRefusal::Endpoint(_) => (403, "permission_error"),
        GatewayRefusal::Credential(_) => (401, "authentication_error"),
        GatewayRefusal::BadRequest(_) => (400, "invalid_request_error"),
        GatewayRefusal::TooLarge(_) => (413, "request_too_large"),
        GatewayRefusal::Upgrade(_) => (426, "invalid_request_error"),
        GatewayRefusal::Upstream(_) => (502, "api_error"),
        GatewayRefusal::Unavailable(_) => (503, "api_error"),
    };
    (status, json!({"type": "error", "error": {"type": kind, "message": message}}))
}

fn openai(refusal: &GatewayRefusal, message: &str) -> (u16, Value) {
    let (status, kind, code) = match refusal {
        // A status that codex quotes and does not retry: for a 429 with this code some clients show a text of their
        // own, and a 402 or 403 is retried.
        GatewayRefusal::Budget(_) => (400, "invalid_request_error", "insufficient_quota"),
        GatewayRefusal::Policy(_) => (403, "permission_error", "host_not_allowed"),
        GatewayRefusal::Barred(_) => (403, "permission_error", "endpoint_not_usable"),
        GatewayRefusal::Model(_) => (403, "permission_error", "model_not_allowed"),
        GatewayRefusal::Endpoint(_) => (403, "permission_error", "endpoint_not_allowed"),
        GatewayRefusal::Credential(_) => (401, "authentication_error", "invalid_api_key"),
        GatewayRefusal::BadRequest(_) => (400, "invalid_request_error", "invalid_request"),
        GatewayRefusal::TooLarge(_) => (413, "invalid_request_error", "request_too_large"),
        // The one status on which codex continues with requests at once.
        GatewayRefusal::Upgrade(_) => (426, "invalid_request_error", "upgrade_not_supported"),
        GatewayRefusal::Upstream(_) => (502, "server_error", "bad_gateway"),
        GatewayRefusal::Unavailable(_) => (503, "server_error", "service_unavailable"),
    };
    (status, json!({"error": {"message": message, "type": kind, "param": null, "code": code}}))
}

fn gemini(refusal: &GatewayRefusal, message: &str) -> (u16, Value) {
    let (code, status) = match refusal {
        GatewayRefusal::Budget(_) => (429, "RESOURCE_EXHAUSTED"),
        GatewayRefusal::Policy(_)
        | GatewayRefusal::Barred(_)
        | GatewayRefusal::Model(_)
        | GatewayRefusal::Endpoint(_) => (403, "PERMISSION_DENIED"),
        GatewayRefusal::Credential(_) => (401, "UNAUTHENTICATED"),
        GatewayRefusal::BadRequest(_) => (400, "INVALID_ARGUMENT"),
        GatewayRefusal::TooLarge(_) => (413, "INVALID_ARGUMENT"),
        GatewayRefusal::Upgrade(_) => (426, "FAILED_PRECONDITION"),
        GatewayRefusal::Upstream(_) => (502, "INTERNAL"),
        GatewayRefusal::Unavailable(_) => (503, "UNAVAILABLE"),
    };
    (code, json!({"error": {"code": code, "message": message, "status": status}}))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(wire: RouteApi, why: &GatewayRefusal, status: u16, body: &Value) {
        let said = refusal_response(wire, why);
        let mut headers = vec![("content-type", "application/json")];
        if status < 500 {
            headers.push(("x-should-retry", "false"));
        }
        if status == 426 {
            headers.extend([("upgrade", "HTTP/1.1"), ("connection", "upgrade")]);
        }
        assert_eq!(said, RefusalResponse { status, body: body.to_string(), headers });
    }

    #[test]
    fn a_spent_budget_is_refused_in_each_format() {
        let spent = GatewayRefusal::Budget("$1.00 of $1.00".into());
        let message = "ralph: budget spent: $1.00 of $1.00";
        let said = json!({"type": "error", "error": {"type": "billing_error", "message": message}});
        check(RouteApi::Anthropic, &spent, 402, &said);
        // The ledger's own message already says it.
        check(RouteApi::Anthropic, &GatewayRefusal::Budget("budget spent: $1.00 of $1.00".into()), 402, &said);
        let (kind, code) = ("invalid_request_error", "insufficient_quota");
        let said = json!({"error": {"message": message, "type": kind, "param": null, "code": code}});
        check(RouteApi::OpenAi, &spent, 400, &said);
        let said = json!({"error": {"code": 429, "message": message, "status": "RESOURCE_EXHAUSTED"}});
        check(RouteApi::Gemini, &spent, 429, &said);
    }

    #[test]
    fn other_refusals_have_their_own_status_and_code() {
        let text = || "no \"such\"\nthing".to_owned();
        for (why, status, anthropic, openai, gemini) in [
            (
                GatewayRefusal::Policy(text()),
                403,
                "permission_error",
                ["permission_error", "host_not_allowed"],
                "PERMISSION_DENIED",
            ),
            (
                GatewayRefusal::Barred(text()),
                403,
                "permission_error",
                ["permission_error", "endpoint_not_usable"],
                "PERMISSION_DENIED",
            ),
            (
                GatewayRefusal::Model(text()),
                403,
                "permission_error",
                ["permission_error", "model_not_allowed"],
                "PERMISSION_DENIED",
            ),
            (
                GatewayRefusal::Endpoint(text()),
                403,
                "permission_error",
                ["permission_error", "endpoint_not_allowed"],
                "PERMISSION_DENIED",
            ),
            (
                GatewayRefusal::Credential(text()),
                401,
                "authentication_error",
                ["authentication_error", "invalid_api_key"],
                "UNAUTHENTICATED",
            ),
            (
                GatewayRefusal::BadRequest(text()),
                400,
                "invalid_request_error",
                ["invalid_request_error", "invalid_request"],
                "INVALID_ARGUMENT",
            ),
            (
                GatewayRefusal::TooLarge(text()),
                413,
                "request_too_large",
                ["invalid_request_error", "request_too_large"],
                "INVALID_ARGUMENT",
            ),
            (
                GatewayRefusal::Upgrade(text()),
                426,
                "invalid_request_error",
                ["invalid_request_error", "upgrade_not_supported"],
                "FAILED_PRECONDITION",
            ),
            (GatewayRefusal::Upstream(text()), 502, "api_error", ["server_error", "bad_gateway"], "INTERNAL"),
            (
                GatewayRefusal::Unavailable(text()),
                503,
                "api_error",
                ["server_error", "service_unavailable"],
                "UNAVAILABLE",
            ),
        ] {
            let message = format!("ralph: {}", text());
            let [kind, code] = openai;
            let said = json!({"type": "error", "error": {"type": anthropic, "message": message}});
            check(RouteApi::Anthropic, &why, status, &said);
            let said = json!({"error": {"message": message, "type": kind, "param": null, "code": code}});
            check(RouteApi::OpenAi, &why, status, &said);
            let said = json!({"error": {"code": status, "message": message, "status": gemini}});
            check(RouteApi::Gemini, &why, status, &said);
        }
    }
}
