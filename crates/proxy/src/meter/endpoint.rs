//! Which paths of a model's service may be asked for. Files, batches, keys and everything new stay shut.

/// The family of endpoints a reverse route speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wire {
    Anthropic,
    OpenAi,
    Gemini,
}

/// What may be asked of a route. Everything else is refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Endpoint {
    /// Costs money, so it is metered.
    Call(Call),
    /// Costs nothing, and is about a question like one that does: counting its tokens.
    Count(Call),
    /// Costs nothing: listing models.
    Free,
}

/// A question to a model.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Call {
    Messages,
    Chat,
    Responses,
    Gemini { model: String, stream: bool },
}

/// Returns what a request asks for, or `None` when it must be refused.
///
/// `path` is what follows the route's prefix, without query, beginning with `/`. The version before it may be left out.
/// Only the plain spelling is known: an escaped or doubled slash is another path.
pub fn endpoint(wire: Wire, method: &str, path: &str) -> Option<Endpoint> {
    let version = match wire {
        Wire::Anthropic | Wire::OpenAi => "/v1",
        Wire::Gemini => "/v1beta",
    };
    let path = path.strip_prefix(version).filter(|rest| rest.starts_with('/')).unwrap_or(path);
    match (wire, method) {
        (_, "GET") => models(path),
        (Wire::Anthropic, "POST") => match path {
            "/messages" => Some(Endpoint::Call(Call::Messages)),
            "/messages/count_tokens" => Some(Endpoint::Count(Call::Messages)),
            _ => None,
        },
        (Wire::OpenAi, "POST") => match path {
            "/chat/completions" => Some(Endpoint::Call(Call::Chat)),
            "/responses" => Some(Endpoint::Call(Call::Responses)),
            _ => None,
        },
        (Wire::Gemini, "POST") => {
            let (model, verb) = path.strip_prefix("/models/")?.split_once(':')?;
            let model = Some(model).filter(|model| segment(model))?.to_owned();
            match verb {
                "generateContent" => Some(Endpoint::Call(Call::Gemini { model, stream: false })),
                "streamGenerateContent" => Some(Endpoint::Call(Call::Gemini { model, stream: true })),
                "countTokens" => Some(Endpoint::Count(Call::Gemini { model, stream: false })),
                _ => None,
            }
        }
        _ => None,
    }
}

fn models(path: &str) -> Option<Endpoint> {
    let rest = path.strip_prefix("/models")?;
    // Names of models may have parts: `maker/model`.
    let named =
        || rest.strip_prefix('/').is_some_and(|name| name.split('/').count() <= 3 && name.split('/').all(segment));
    (rest.is_empty() || named()).then_some(Endpoint::Free)
}

/// Tells whether a text is one plain part of a path.
fn segment(text: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-');
    text.bytes().next().is_some_and(|first| first.is_ascii_alphanumeric()) && text.bytes().all(plain)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[track_caller]
    fn check(wire: Wire, asked: &str, want: Option<&Endpoint>) {
        let (method, path) = asked.split_once(' ').expect("a method and a path");
        assert_eq!(endpoint(wire, method, path).as_ref(), want, "{wire:?} {asked}");
    }

    #[test]
    fn doors() {
        let free = Some(&Endpoint::Free);
        check(Wire::Anthropic, "POST /v1/messages", Some(&Endpoint::Call(Call::Messages)));
        check(Wire::Anthropic, "POST /messages", Some(&Endpoint::Call(Call::Messages)));
        check(Wire::Anthropic, "POST /v1/messages/count_tokens", Some(&Endpoint::Count(Call::Messages)));
        check(Wire::Anthropic, "GET /v1/models", free);
        check(Wire::Anthropic, "GET /v1/models/claude-opus-4-5", free);
        check(Wire::OpenAi, "POST /v1/chat/completions", Some(&Endpoint::Call(Call::Chat)));
        check(Wire::OpenAi, "POST /chat/completions", Some(&Endpoint::Call(Call::Chat)));
        check(Wire::OpenAi, "POST /responses", Some(&Endpoint::Call(Call::Responses)));
        check(Wire::OpenAi, "GET /models/z-ai/glm-4.7", free);
        let gemini = |stream| Endpoint::Call(Call::Gemini { model: "gemini-2.5-pro".to_owned(), stream });
        check(Wire::Gemini, "POST /v1beta/models/gemini-2.5-pro:generateContent", Some(&gemini(false)));
        check(Wire::Gemini, "POST /models/gemini-2.5-pro:streamGenerateContent", Some(&gemini(true)));
        let count = Endpoint::Count(Call::Gemini { model: "gemini-2.5-pro".to_owned(), stream: false });
        check(Wire::Gemini, "POST /v1beta/models/gemini-2.5-pro:countTokens", Some(&count));
        check(Wire::Gemini, "GET /v1beta/models", free);
    }

    #[test]
    fn walls() {
        for (wire, asked) in [
            (Wire::Anthropic, "GET /v1/messages"),
            (Wire::Anthropic, "POST /v1/messages/"),
            (Wire::Anthropic, "POST /v1/messages/batches"),
            (Wire::Anthropic, "POST /v1//messages"),
            (Wire::Anthropic, "POST /v1/v1/messages"),
            (Wire::Anthropic, "POST /v1messages"),
            (Wire::Anthropic, "POST /v1/files"),
            (Wire::Anthropic, "POST /v1/chat/completions"),
            (Wire::Anthropic, "POST v1/messages"),
            (Wire::Anthropic, "post /v1/messages"),
            (Wire::OpenAi, "POST /v1/messages"),
            (Wire::OpenAi, "POST /v1/embeddings"),
            (Wire::OpenAi, "POST /v1/responses/resp_1/cancel"),
            (Wire::OpenAi, "GET /v1/responses"),
            (Wire::OpenAi, "GET /v1/models/../files"),
            (Wire::OpenAi, "GET /v1/models/%2e%2e/files"),
            (Wire::OpenAi, "GET /v1/models/"),
            (Wire::OpenAi, "GET /v1/modelsandmore"),
            (Wire::OpenAi, "DELETE /v1/models/mine"),
            (Wire::Gemini, "POST /v1beta/models/a/b:generateContent"),
            (Wire::Gemini, "POST /v1beta/models/..:generateContent"),
            (Wire::Gemini, "POST /v1beta/models/:generateContent"),
            (Wire::Gemini, "POST /v1beta/models/m:batchGenerateContent"),
            (Wire::Gemini, "POST /v1beta/models/m:generateContent:x"),
            (Wire::Gemini, "POST /v1beta/tunedModels/m:generateContent"),
            (Wire::Gemini, "POST /upload/v1beta/files"),
        ] {
            check(wire, asked, None);
        }
    }

    proptest! {
        #[test]
        fn never_panics_and_never_climbs(path in "\\PC{0,40}|(/|v1|v1beta|models|messages|[.:%]|\\.\\.){0,9}") {
            for wire in [Wire::Anthropic, Wire::OpenAi, Wire::Gemini] {
                for method in ["GET", "POST"] {
                    if endpoint(wire, method, &path).is_some() {
                        prop_assert!(!path.contains("..") || !path.contains("/.."), "{path}");
                        prop_assert!(!path.contains("//") && !path.contains('%') && path.starts_with('/'));
                    }
                }
            }
        }
    }
}
