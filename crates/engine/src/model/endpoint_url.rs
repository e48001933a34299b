//! Builds the URL and authentication headers of a call: one rule per protocol.

use ralph_core::profile::ProviderProtocol;
use ralph_core::secret::Secret;
use reqwest::Url;
use reqwest::header::{AUTHORIZATION, HeaderMap, HeaderName, HeaderValue};

/// How a key is sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KeyScheme {
    /// In the protocol's own header for keys.
    Key,
    /// As a bearer token, whatever the protocol: for a gateway in front of a provider.
    Bearer,
}

/// Returns the URL to post to, and its host for display.
pub(super) fn request_url(
    wire: ProviderProtocol,
    base: &str,
    model: &str,
    api_version: Option<&str>,
) -> Result<(Url, String), &'static str> {
    let mut url = Url::parse(base.trim()).map_err(|_| "is not a URL")?;
    if !matches!(url.scheme(), "http" | "https") {
        return Err("must start with `https://` or `http://`");
    }
    if !url.username().is_empty() || url.password().is_some() {
        return Err("must not contain a name or password; store the key as a secret");
    }
    let host = url.host_str().ok_or("has no host")?.to_owned();
    let host = url.port().map_or_else(|| host.clone(), |port| format!("{host}:{port}"));
    url.set_fragment(None);
    let (below, versioned) = path_below_base(wire, url.path().trim_end_matches('/'), model);
    {
        let mut segments = url.path_segments_mut().map_err(|()| "has no path")?;
        segments.pop_if_empty().extend(below);
    }
    if let Some(version) = api_version.filter(|_| versioned)
        && !url.query_pairs().any(|(name, _)| name == "api-version")
    {
        url.query_pairs_mut().append_pair("api-version", version);
    }
    Ok((url, host))
}

/// Returns the path below the base's own path, and whether the API version is added too.
fn path_below_base(wire: ProviderProtocol, path: &str, model: &str) -> (Vec<String>, bool) {
    let parts = |text: &str| text.split('/').map(str::to_owned).collect::<Vec<_>>();
    // Many users paste the whole address.
    let rest = |end: &str| if path.ends_with(&format!("/{end}")) { Vec::new() } else { parts(end) };
    match wire {
        ProviderProtocol::Chat | ProviderProtocol::Scripted => (rest("chat/completions"), false),
        ProviderProtocol::Responses => (rest("responses"), false),
        ProviderProtocol::Anthropic if path.ends_with("/v1") => (parts("messages"), false),
        ProviderProtocol::Anthropic => (rest("v1/messages"), false),
        ProviderProtocol::Gemini => {
            let version = if path.is_empty() { parts("v1beta") } else { Vec::new() };
            // `tunedModels/…` is already a whole name.
            let name = if model.contains('/') { model.to_owned() } else { format!("models/{model}") };
            (version.into_iter().chain(parts(&format!("{name}:generateContent"))).collect(), false)
        }
        // The newer API is like that of other providers, without a version.
        ProviderProtocol::Azure if path.ends_with("/openai/v1") => (parts("chat/completions"), false),
        ProviderProtocol::Azure if path.contains("/deployments/") => (rest("chat/completions"), true),
        ProviderProtocol::Azure => {
            let root = if path.ends_with("/openai") { Vec::new() } else { parts("openai") };
            let deployment = ["deployments", model, "chat", "completions"].map(str::to_owned);
            (root.into_iter().chain(deployment).collect(), true)
        }
    }
}

/// Returns the headers with the credential and the protocol version.
pub(super) fn auth_headers(wire: ProviderProtocol, key: Option<&Secret>, scheme: KeyScheme) -> Result<HeaderMap, ()> {
    let mut headers = HeaderMap::new();
    if wire == ProviderProtocol::Anthropic {
        headers.insert("anthropic-version", HeaderValue::from_static("2023-06-01"));
    }
    let Some(key) = key else { return Ok(headers) };
    let name = match (wire, scheme) {
        (ProviderProtocol::Anthropic, KeyScheme::Key) => HeaderName::from_static("x-api-key"),
        (ProviderProtocol::Gemini, KeyScheme::Key) => HeaderName::from_static("x-goog-api-key"),
        (ProviderProtocol::Azure, KeyScheme::Key) => HeaderName::from_static("api-key"),
        (ProviderProtocol::Chat | ProviderProtocol::Responses | ProviderProtocol::Scripted, _)
        | (_, KeyScheme::Bearer) => AUTHORIZATION,
    };
    // Keys read from files end with a line break.
    let key = key.expose().trim();
    let value = if name == AUTHORIZATION { format!("Bearer {key}") } else { key.to_owned() };
    let mut value = HeaderValue::from_str(&value).map_err(|_| ())?;
    value.set_sensitive(true);
    headers.insert(name, value);
    Ok(headers)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[track_caller]
    fn check(wire: ProviderProtocol, base: &str, want: Result<(&str, &str), &'static str>) {
        let got = request_url(wire, base, "m-1", Some("2024-10-21"));
        assert_eq!(got.as_ref().map(|(url, host)| (url.as_str(), host.as_str())).map_err(|p| *p), want, "{base}");
    }

    #[test]
    fn chat() {
        const Z: &str = "https://api.z.ai/api/paas/v4/chat/completions";
        check(ProviderProtocol::Chat, "https://api.z.ai/api/paas/v4", Ok((Z, "api.z.ai")));
        check(ProviderProtocol::Chat, " https://api.z.ai/api/paas/v4/\n", Ok((Z, "api.z.ai")));
        check(ProviderProtocol::Chat, Z, Ok((Z, "api.z.ai")));
        check(
            ProviderProtocol::Chat,
            "http://127.0.0.1:4000",
            Ok(("http://127.0.0.1:4000/chat/completions", "127.0.0.1:4000")),
        );
        check(ProviderProtocol::Chat, "https://x.io/d?k=1#f", Ok(("https://x.io/d/chat/completions?k=1", "x.io")));
        check(
            ProviderProtocol::Chat,
            "https://sk-1@x.io/",
            Err("must not contain a name or password; store the key as a secret"),
        );
        check(ProviderProtocol::Chat, "ftp://x.io", Err("must start with `https://` or `http://`"));
        check(ProviderProtocol::Chat, "api.z.ai/v4", Err("is not a URL"));
        check(ProviderProtocol::Chat, "", Err("is not a URL"));
    }

    #[test]
    fn other_protocols() {
        check(ProviderProtocol::Responses, "https://x.io/v1", Ok(("https://x.io/v1/responses", "x.io")));
        check(ProviderProtocol::Responses, "https://x.io/v1/responses/", Ok(("https://x.io/v1/responses", "x.io")));
        for base in ["https://x.io", "https://x.io/v1", "https://x.io/v1/messages"] {
            check(ProviderProtocol::Anthropic, base, Ok(("https://x.io/v1/messages", "x.io")));
        }
        check(
            ProviderProtocol::Anthropic,
            "https://x.io/api/anthropic",
            Ok(("https://x.io/api/anthropic/v1/messages", "x.io")),
        );
        for base in ["https://x.io", "https://x.io/", "https://x.io/v1beta"] {
            check(ProviderProtocol::Gemini, base, Ok(("https://x.io/v1beta/models/m-1:generateContent", "x.io")));
        }
        const AZURE: &str = "https://x.io/openai/deployments/m-1/chat/completions?api-version=2024-10-21";
        for base in ["https://x.io", "https://x.io/openai/", "https://x.io/openai/deployments/m-1"] {
            check(ProviderProtocol::Azure, base, Ok((AZURE, "x.io")));
        }
        check(
            ProviderProtocol::Azure,
            "https://x.io/openai/v1",
            Ok(("https://x.io/openai/v1/chat/completions", "x.io")),
        );
        let tuned = request_url(ProviderProtocol::Gemini, "https://x.io/v1beta", "tunedModels/t", None);
        assert_eq!(tuned.map(|(url, _)| url.path().to_owned()), Ok("/v1beta/tunedModels/t:generateContent".to_owned()));
        // A name cannot lead out of its path.
        let odd =
            request_url(ProviderProtocol::Azure, "https://x.io", "../../a?b#c", None).map(|(url, _)| url.to_string());
        assert_eq!(odd.as_deref(), Ok("https://x.io/openai/deployments/..%2F..%2Fa%3Fb%23c/chat/completions"));
    }

    #[test]
    fn keys() {
        #[track_caller]
        fn check(wire: ProviderProtocol, scheme: KeyScheme, want: &[(&str, &str)]) {
            let headers = auth_headers(wire, Some(&Secret::new("k\n")), scheme).expect("a key that can be sent");
            let got: Vec<(&str, &str)> =
                headers.iter().map(|(name, value)| (name.as_str(), value.to_str().expect("plain"))).collect();
            assert_eq!(got, want);
            assert!(headers.iter().all(|(name, value)| value.is_sensitive() || name == "anthropic-version"));
        }
        check(ProviderProtocol::Chat, KeyScheme::Key, &[("authorization", "Bearer k")]);
        check(ProviderProtocol::Responses, KeyScheme::Key, &[("authorization", "Bearer k")]);
        check(ProviderProtocol::Azure, KeyScheme::Key, &[("api-key", "k")]);
        check(ProviderProtocol::Gemini, KeyScheme::Key, &[("x-goog-api-key", "k")]);
        check(ProviderProtocol::Anthropic, KeyScheme::Key, &[("anthropic-version", "2023-06-01"), ("x-api-key", "k")]);
        check(
            ProviderProtocol::Anthropic,
            KeyScheme::Bearer,
            &[("anthropic-version", "2023-06-01"), ("authorization", "Bearer k")],
        );
        assert_eq!(auth_headers(ProviderProtocol::Chat, Some(&Secret::new("a\nb")), KeyScheme::Key), Err(()));
        assert_eq!(auth_headers(ProviderProtocol::Chat, None, KeyScheme::Key), Ok(HeaderMap::new()));
    }

    proptest! {
        #[test]
        fn hostile_bases_and_names_never_panic(base in "\\PC{0,40}|https?://[a-z.:/?#@%]{0,30}", model in "\\PC{0,20}") {
            for wire in [ProviderProtocol::Chat, ProviderProtocol::Responses, ProviderProtocol::Anthropic, ProviderProtocol::Gemini, ProviderProtocol::Azure] {
                let _ = request_url(wire, &base, &model, Some("v"));
            }
        }
    }
}
