//! Decides which paths of a model API may be called. Files, batches, keys and everything new are refused.

/// The API that a model route serves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RouteApi {
    Anthropic,
    OpenAi,
    Gemini,
}

/// What may be requested of a route. Everything else is refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RouteEndpoint {
    /// Costs money, so it is metered.
    Call(ModelCallKind),
    /// Costs nothing, and takes the same request as a call that does: counting its tokens.
    Count(ModelCallKind),
    /// Costs nothing: listing models.
    Free,
}

/// The kind of a model call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ModelCallKind {
    Messages,
    Chat,
    Responses,
    Gemini { model: String, stream: bool },
}

/// Returns the endpoint that a request asks for, or `None` if it must be refused.
///
/// `path` is what follows the route's prefix, without query, beginning with `/`. The version before it may be
/// omitted. Only the plain spelling is accepted: an escaped or doubled slash is another path.
pub fn classify_endpoint(wire: RouteApi, method: &str, path: &str) -> Option<RouteEndpoint> {
    let version = match wire {
        RouteApi::Anthropic | RouteApi::OpenAi => "/v1",
        RouteApi::Gemini => "/v1beta",
    };
    let path = path.strip_prefix(version).filter(|rest| rest.starts_with('/')).unwrap_or(path);
    match (wire, method) {
        (_, "GET") => model_list_endpoint(path),
        (RouteApi::Anthropic, "POST") => match path {
            "/messages" => Some(RouteEndpoint::Call(ModelCallKind::Messages)),
            "/messages/count_tokens" => Some(RouteEndpoint::Count(ModelCallKind::Messages)),
            _ => None,
        },
        (RouteApi::OpenAi, "POST") => match path {
            "/chat/completions" => Some(RouteEndpoint::Call(ModelCallKind::Chat)),
            "/responses" => Some(RouteEndpoint::Call(ModelCallKind::Responses)),
            _ => None,
        },
        (RouteApi::Gemini, "POST") => {
            let (model, verb) = path.strip_prefix("/models/")?.split_once(':')?;
            let model = Some(model).filter(|model| is_plain_segment(model))?.to_owned();
            match verb {
                "generateContent" => Some(RouteEndpoint::Call(ModelCallKind::Gemini { model, stream: false })),
                "streamGenerateContent" => Some(RouteEndpoint::Call(ModelCallKind::Gemini { model, stream: true })),
                "countTokens" => Some(RouteEndpoint::Count(ModelCallKind::Gemini { model, stream: false })),
                _ => None,
            }
        }
        _ => None,
    }
}

fn model_list_endpoint(path: &str) -> Option<RouteEndpoint> {
    let rest = path.strip_prefix("/models")?;
    // Model names may have several parts: `maker/model`.
    let named = || {
        rest.strip_prefix('/').is_some_and(|name| name.split('/').count() <= 3 && name.split('/').all(is_plain_segment))
    };
    (rest.is_empty() || named()).then_some(RouteEndpoint::Free)
}

/// Says whether a text is one plain segment of a path.
fn is_plain_segment(text: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-');
    text.bytes().next().is_some_and(|first| first.is_ascii_alphanumeric()) && text.bytes().all(plain)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[track_caller]
    fn check(wire: RouteApi, asked: &str, want: Option<&RouteEndpoint>) {
        let (method, path) = asked.split_once(' ').expect("a method and a path");
        assert_eq!(classify_endpoint(wire, method, path).as_ref(), want, "{wire:?} {asked}");
    }

    #[test]
    fn allowed_endpoints() {
        let free = Some(&RouteEndpoint::Free);
        check(RouteApi::Anthropic, "POST /v1/messages", Some(&RouteEndpoint::Call(ModelCallKind::Messages)));
        check(RouteApi::Anthropic, "POST /messages", Some(&RouteEndpoint::Call(ModelCallKind::Messages)));
        check(
            RouteApi::Anthropic,
            "POST /v1/messages/count_tokens",
            Some(&RouteEndpoint::Count(ModelCallKind::Messages)),
        );
        check(RouteApi::Anthropic, "GET /v1/models", free);
        check(RouteApi::Anthropic, "GET /v1/models/claude-opus-4-5", free);
        check(RouteApi::OpenAi, "POST /v1/chat/completions", Some(&RouteEndpoint::Call(ModelCallKind::Chat)));
        check(RouteApi::OpenAi, "POST /chat/completions", Some(&RouteEndpoint::Call(ModelCallKind::Chat)));
        check(RouteApi::OpenAi, "POST /responses", Some(&RouteEndpoint::Call(ModelCallKind::Responses)));
        check(RouteApi::OpenAi, "GET /models/z-ai/glm-4.7", free);
        let gemini = |stream| RouteEndpoint::Call(ModelCallKind::Gemini { model: "gemini-2.5-pro".to_owned(), stream });
        check(RouteApi::Gemini, "POST /v1beta/models/gemini-2.5-pro:generateContent", Some(&gemini(false)));
        check(RouteApi::Gemini, "POST /models/gemini-2.5-pro:streamGenerateContent", Some(&gemini(true)));
        let count = RouteEndpoint::Count(ModelCallKind::Gemini { model: "gemini-2.5-pro".to_owned(), stream: false });
        check(RouteApi::Gemini, "POST /v1beta/models/gemini-2.5-pro:countTokens", Some(&count));
        check(RouteApi::Gemini, "GET /v1beta/models", free);
    }

    #[test]
    fn refused_endpoints() {
        for (wire, asked) in [
            (RouteApi::Anthropic, "GET /v1/messages"),
            (RouteApi::Anthropic, "POST /v1/messages/"),
            (RouteApi::Anthropic, "POST /v1/messages/batches"),
            (RouteApi::Anthropic, "POST /v1//messages"),
            (RouteApi::Anthropic, "POST /v1/v1/messages"),
            (RouteApi::Anthropic, "POST /v1messages"),
            (RouteApi::Anthropic, "POST /v1/files"),
            (RouteApi::Anthropic, "POST /v1/chat/completions"),
            (RouteApi::Anthropic, "POST v1/messages"),
            (RouteApi::Anthropic, "post /v1/messages"),
            (RouteApi::OpenAi, "POST /v1/messages"),
            (RouteApi::OpenAi, "POST /v1/embeddings"),
            (RouteApi::OpenAi, "POST /v1/responses/resp_1/cancel"),
            (RouteApi::OpenAi, "GET /v1/responses"),
            (RouteApi::OpenAi, "GET /v1/models/../files"),
            (RouteApi::OpenAi, "GET /v1/models/%2e%2e/files"),
            (RouteApi::OpenAi, "GET /v1/models/"),
            (RouteApi::OpenAi, "GET /v1/modelsandmore"),
            (RouteApi::OpenAi, "DELETE /v1/models/mine"),
            (RouteApi::Gemini, "POST /v1beta/models/a/b:generateContent"),
            (RouteApi::Gemini, "POST /v1beta/models/..:generateContent"),
            (RouteApi::Gemini, "POST /v1beta/models/:generateContent"),
            (RouteApi::Gemini, "POST /v1beta/models/m:batchGenerateContent"),
            (RouteApi::Gemini, "POST /v1beta/models/m:generateContent:x"),
            (RouteApi::Gemini, "POST /v1beta/tunedModels/m:generateContent"),
            (RouteApi::Gemini, "POST /upload/v1beta/files"),
        ] {
            check(wire, asked, None);
        }
    }

    proptest! {
        #[test]
        fn never_allows_parent_segments(path in "\\PC{0,40}|(/|v1|v1beta|models|messages|[.:%]|\\.\\.){0,9}") {
            for wire in [RouteApi::Anthropic, RouteApi::OpenAi, RouteApi::Gemini] {
                for method in ["GET", "POST"] {
                    if classify_endpoint(wire, method, &path).is_some() {
                        prop_assert!(!path.contains("..") || !path.contains("/.."), "{path}");
                        prop_assert!(!path.contains("//") && !path.contains('%') && path.starts_with('/'));
                    }
                }
            }
        }
    }
}
