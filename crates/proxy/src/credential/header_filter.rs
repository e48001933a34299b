//! Removes headers that must not pass from one connection to the other.

use hyper::Version;
use hyper::header::{CONNECTION, CONTENT_ENCODING, CONTENT_LENGTH, HeaderMap, HeaderName, TRANSFER_ENCODING, UPGRADE};

use super::leak_scan::ForbiddenTexts;

/// Headers that belong to one connection, and those that a proxy keeps to itself.
const HOP_BY_HOP_HEADERS: [HeaderName; 11] = [
    CONNECTION,
    HeaderName::from_static("expect"),
    HeaderName::from_static("http2-settings"),
    HeaderName::from_static("keep-alive"),
    HeaderName::from_static("proxy-authenticate"),
    HeaderName::from_static("proxy-authorization"),
    HeaderName::from_static("proxy-connection"),
    HeaderName::from_static("te"),
    HeaderName::from_static("trailer"),
    TRANSFER_ENCODING,
    UPGRADE,
];

/// Headers by which a server issues credentials of its own, which must not enter the sandbox.
const SERVER_CREDENTIAL_HEADERS: [&str; 4] =
    ["authentication-info", "proxy-authentication-info", "set-cookie", "set-cookie2"];

/// Headers by which a request asks for something else than its first line says, or for a part of the answer.
const OVERRIDE_HEADERS: [&str; 12] = [
    "x-forwarded-method",
    "x-forwarded-path",
    "x-forwarded-prefix",
    "x-forwarded-uri",
    "x-goog-fieldmask",
    "x-http-method",
    "x-http-method-override",
    "x-method-override",
    "x-original-method",
    "x-original-uri",
    "x-original-url",
    "x-rewrite-url",
];

/// Removes headers, in any spelling, that would make a server do something else than what was checked.
pub(crate) fn remove_override_headers(headers: &mut HeaderMap) {
    let steers = |name: &&HeaderName| OVERRIDE_HEADERS.iter().any(|known| matches_header_name(name, known));
    let named: Vec<HeaderName> = headers.keys().filter(steers).cloned().collect();
    for name in named {
        headers.remove(name);
    }
}

/// Says whether an answer has a content encoding in which it can be neither metered nor inspected.
pub(crate) fn is_encoded(headers: &HeaderMap) -> bool {
    headers.get_all(CONTENT_ENCODING).iter().any(|coding| coding != "identity")
}

/// Says whether a server could read a header as this name, which is written with dashes.
pub(crate) fn matches_header_name(name: &HeaderName, known: &str) -> bool {
    let dashes = |byte: u8| if matches!(byte, b'_' | b'.') { b'-' } else { byte };
    name.as_str().len() == known.len() && name.as_str().bytes().map(dashes).eq(known.bytes())
}

/// The headers that a model call may have beside its body: those that the providers' own libraries and known agents
/// send. Other headers can make a gateway send the call, and the key with it, somewhere else, or tell a provider
/// which account pays.
const CALL_HEADERS: [&str; 19] = [
    "accept",
    "accept-language",
    "anthropic-beta",
    "anthropic-dangerous-direct-browser-access",
    "anthropic-version",
    "content-type",
    "conversation_id",
    "idempotency-key",
    "openai-beta",
    "originator",
    "session_id",
    "traceparent",
    "user-agent",
    "version",
    "x-api-key",
    "x-app",
    "x-client-request-id",
    "x-goog-api-client",
    "x-goog-api-key",
];
const CALL_HEADER_PREFIXES: [&str; 3] = ["x-claude-code-", "x-codex-", "x-stainless-"];

/// Keeps only the headers that a model call may have; `authorization` is the proxy's own by then.
pub(crate) fn retain_call_headers(headers: &mut HeaderMap) {
    let known = |name: &str| {
        name == "authorization"
            || CALL_HEADERS.contains(&name)
            || CALL_HEADER_PREFIXES.iter().any(|begin| name.starts_with(begin))
    };
    let others: Vec<HeaderName> = headers.keys().filter(|name| !known(name.as_str())).cloned().collect();
    for name in others {
        headers.remove(name);
    }
}

/// Removes headers that belong to the connection by which the message came, not to the message.
pub(crate) fn remove_hop_by_hop(headers: &mut HeaderMap) {
    let named: Vec<HeaderName> = headers
        .get_all(CONNECTION)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .filter_map(|name| name.trim().parse().ok())
        .collect();
    // A message must not use this to remove the headers by which it is checked.
    let kept = ["host", "content-length"];
    let ours: Vec<HeaderName> = headers.keys().filter(|name| HOP_BY_HOP_HEADERS.contains(name)).cloned().collect();
    for name in named.iter().filter(|name| !kept.contains(&name.as_str())).chain(&ours) {
        headers.remove(name);
    }
}

/// Filters an answer to a request into which a credential was injected.
pub(crate) fn filter_credentialed_response(headers: &mut HeaderMap, version: Version) {
    filter_response(headers, version);
    for name in SERVER_CREDENTIAL_HEADERS {
        headers.remove(name);
    }
}

/// Filters an answer.
pub(crate) fn filter_response(headers: &mut HeaderMap, version: Version) {
    if version != Version::HTTP_2 && headers.contains_key(TRANSFER_ENCODING) {
        // The proxy decodes the chunks itself; a length beside them was never valid.
        headers.remove(CONTENT_LENGTH);
    }
    remove_hop_by_hop(headers);
}

/// Finds a forbidden text in the headers of an answer, in values or names, and returns its name.
pub(crate) fn find_leak<'f>(headers: &HeaderMap, forbidden: &'f ForbiddenTexts) -> Option<&'f str> {
    if forbidden.is_empty() {
        return None;
    }
    let names = || headers.keys().find_map(|name| forbidden.find_lowercase(name.as_str()));
    headers.iter().find_map(|(_, value)| forbidden.find(value.as_bytes())).or_else(names)
}

#[cfg(test)]
mod tests {
    use hyper::header::HeaderValue;

    use super::*;

    fn headers(pairs: &[(&'static str, &'static str)]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, value) in pairs {
            headers.append(HeaderName::from_static(name), HeaderValue::from_static(value));
        }
        headers
    }

    fn remaining(headers: &HeaderMap) -> Vec<&str> {
        let mut left: Vec<&str> = headers.keys().map(HeaderName::as_str).collect();
        left.sort_unstable();
        left
    }

    #[test]
    fn hop_by_hop_headers_are_removed() {
        let mut headers = headers(&[
            ("connection", "X-One, close"),
            ("connection", "x-two, Host, content-length"),
            ("x-one", "1"),
            ("x-two", "2"),
            ("x-three", "3"),
            ("host", "x.io"),
            ("content-length", "5"),
            ("proxy-authorization", "Basic eDp5"),
            ("proxy-connection", "keep-alive"),
            ("keep-alive", "5"),
            ("te", "trailers"),
            ("upgrade", "websocket"),
            ("transfer-encoding", "chunked"),
        ]);
        remove_hop_by_hop(&mut headers);
        assert_eq!(remaining(&headers), ["content-length", "host", "x-three"]);
    }

    #[test]
    fn override_headers_are_removed() {
        let mut headers = headers(&[
            ("x-http-method-override", "DELETE"),
            ("x_http_method_override", "DELETE"),
            ("x-goog-fieldmask", "candidates"),
            ("x-original-url", "/admin/users"),
            ("x_rewrite.url", "/admin/users"),
            ("x-original-uri", "/admin/users"),
            ("x-forwarded-uri", "/admin/users"),
            ("x-forwarded-prefix", "/admin"),
            ("x-forwarded-method", "DELETE"),
            ("x-one", "1"),
        ]);
        remove_override_headers(&mut headers);
        assert_eq!(remaining(&headers), ["x-one"]);
    }

    #[test]
    fn only_known_call_headers_pass() {
        let mut headers = headers(&[
            ("x-portkey-custom-host", "https://evil.test"),
            ("x-litellm-timeout", "1"),
            ("openai-organization", "org-other"),
            ("anthropic-workspace-id", "wrkspc_other"),
            ("anthropic-version", "2023-06-01"),
            ("anthropic-beta", "x"),
            ("x-stainless-retry-count", "0"),
            ("content-type", "application/json"),
        ]);
        retain_call_headers(&mut headers);
        assert_eq!(
            remaining(&headers),
            ["anthropic-beta", "anthropic-version", "content-type", "x-stainless-retry-count"]
        );
    }

    #[test]
    fn credentials_in_answer_headers_are_removed_or_found() {
        let mut both =
            headers(&[("set-cookie", "a=b"), ("content-length", "5"), ("transfer-encoding", "chunked"), ("x", "1")]);
        filter_credentialed_response(&mut both, Version::HTTP_11);
        assert_eq!(remaining(&both), ["x"]);
        let forbidden = ForbiddenTexts::new([("real-key".to_owned(), "KEY".to_owned())]);
        assert_eq!(find_leak(&headers(&[("x", "a real-key b")]), &forbidden), Some("KEY"));
        assert_eq!(find_leak(&headers(&[("x", "a key b")]), &forbidden), None);
        // Header names arrive in small letters, whatever they were before.
        let capitals = ForbiddenTexts::new([("Real-KEY".to_owned(), "KEY".to_owned())]);
        assert_eq!(find_leak(&headers(&[("x-real-key", "a")]), &capitals), Some("KEY"));
        assert_eq!(find_leak(&headers(&[("x-key", "a")]), &capitals), None);
    }
}
