//! Writes the reply to a client that is refused: one line that says why, and how a person could change it.
//!
//! Few clients show the body of a refused `CONNECT`; many show its reason phrase, and some a header. So the line
//! stands in all three.

use std::net::IpAddr;

use bytes::Bytes;
use http_body_util::Full;
use hyper::header::{CONTENT_TYPE, HeaderValue};
use hyper::{Response, StatusCode};
use ralph_core::egress::EgressTarget;
use ralph_core::policy::shell_argument;
use ralph_core::text;

use crate::egress_events::{DecisionReason, RequestSummary};
use crate::parse::request_head::HeadError;

/// The header that carries the reason of a refusal.
const DENY_HEADER: &str = "x-ralph-deny";
/// The longest line in a head: the longest host name, a path, a reason and a command fit into it.
const MAX_LINE: usize = 1200;
/// The longest path in that line; with a longer one, no command is offered.
const MAX_PATH: usize = 200;

/// A short reply of the proxy itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ProxyReply {
    pub(crate) status: StatusCode,
    text: String,
}

impl ProxyReply {
    pub(crate) fn new(status: StatusCode, text: impl Into<String>) -> Self {
        Self { status, text: text.into() }
    }

    /// Says why a target cannot be reached, or why a request to it is refused, and which command lets a person allow
    /// it: in the current run if there is one, else in a run that is to be started.
    pub(crate) fn refusal(
        target: &EgressTarget,
        request: Option<&RequestSummary>,
        why: &DecisionReason,
        address: Option<IpAddr>,
        run: Option<&str>,
    ) -> Self {
        let status = match why {
            DecisionReason::Unresolved | DecisionReason::Unreachable | DecisionReason::Untrusted => {
                StatusCode::BAD_GATEWAY
            }
            DecisionReason::TooManyConnections => StatusCode::SERVICE_UNAVAILABLE,
            DecisionReason::HostMismatch | DecisionReason::Malformed(_) | DecisionReason::Target(_) => {
                StatusCode::BAD_REQUEST
            }
            DecisionReason::ClientTimeout => StatusCode::REQUEST_TIMEOUT,
            _ => StatusCode::FORBIDDEN,
        };
        let mut text = match (why, request) {
            (DecisionReason::RequestNotAllowed | DecisionReason::Denied(_), Some(RequestSummary { method, path })) => {
                let path = text::strip_control(text::head(path, MAX_PATH));
                format!("`{} {target}{path}` is refused: {why}", text::strip_control(text::head(method, 20)))
            }
            _ => format!("`{target}` cannot be reached: {why}"),
        };
        if let Some(rule) = why.suggested_rule(target, request, address) {
            let rule = shell_argument(&rule);
            let command = match run {
                Some(run) => format!("ralph policy allow {rule} --run {run}"),
                None => format!("ralph run --allow-host {rule}"),
            };
            text.push_str("; a person can allow it with `");
            text.push_str(&command);
            text.push('`');
        }
        Self { status, text }
    }

    /// Says why a text is not a valid target.
    pub(crate) fn bad_target(why: &DecisionReason) -> Self {
        // A name that cannot be compared is refused like one that no rule names.
        let status =
            if matches!(why, DecisionReason::Target(_)) { StatusCode::FORBIDDEN } else { StatusCode::BAD_REQUEST };
        Self::new(status, why.to_string())
    }

    /// Says what is wrong with a request head; `None` if the client is gone.
    pub(crate) fn head_error(fault: HeadError) -> Option<Self> {
        let status = match fault {
            HeadError::Malformed(_) => StatusCode::BAD_REQUEST,
            HeadError::TooLong => StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE,
            HeadError::TimedOut => StatusCode::REQUEST_TIMEOUT,
            HeadError::Disconnected => return None,
        };
        fault.reason().map(|why| Self::new(status, why.to_string()))
    }

    fn body(&self) -> String {
        format!("ralph: {}\n", self.text)
    }

    /// Returns the text in a form that fits into a head: one bounded line of printable characters, whatever a client
    /// wrote.
    fn header_line(&self) -> String {
        let plain = |c: char| if matches!(c, ' '..='~') { c } else { '?' };
        text::head(&self.text, MAX_LINE).chars().map(plain).collect()
    }

    /// Serializes the reply as an HTTP/1.1 response.
    pub(crate) fn bytes(&self) -> Vec<u8> {
        let (body, line) = (self.body(), self.header_line());
        let (status, length) = (self.status, body.len());
        format!(
            "HTTP/1.1 {status}; ralph: {line}\r\n{DENY_HEADER}: {line}\r\nContent-Type: text/plain; charset=utf-8\r\n\
             Content-Length: {length}\r\nConnection: close\r\n\r\n{body}"
        )
        .into_bytes()
    }

    pub(crate) fn response(&self) -> Response<Full<Bytes>> {
        let mut response = Response::new(Full::new(Bytes::from(self.body())));
        *response.status_mut() = self.status;
        response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
        if let Ok(line) = HeaderValue::from_str(&self.header_line()) {
            response.headers_mut().insert(DENY_HEADER, line);
        }
        response
    }
}

#[cfg(test)]
mod tests {
    use ralph_core::policy::PolicyMode;

    use super::*;

    #[test]
    fn refusals_name_the_allow_command() {
        let target = EgressTarget::new("x.io", 443).unwrap();
        let why = "`x.io:443` cannot be reached: no rule names it, and the network policy is `allowlist`";
        for (run, command) in
            [(Some("r-1"), "ralph policy allow x.io --run r-1"), (None, "ralph run --allow-host x.io")]
        {
            let line = format!("{why}; a person can allow it with `{command}`");
            let reply = ProxyReply::refusal(&target, None, &DecisionReason::Mode(PolicyMode::Allowlist), None, run);
            assert_eq!(
                String::from_utf8(reply.bytes()).unwrap(),
                format!(
                    "HTTP/1.1 403 Forbidden; ralph: {line}\r\nx-ralph-deny: {line}\r\n\
                     Content-Type: text/plain; charset=utf-8\r\nContent-Length: {}\r\n\
                     Connection: close\r\n\r\nralph: {line}\n",
                    line.len() + 8
                )
            );
            assert_eq!(reply.response().headers().get(DENY_HEADER).unwrap(), line.as_str());
        }
        assert_eq!(
            ProxyReply::refusal(&target, None, &DecisionReason::Unreachable, None, None).status,
            StatusCode::BAD_GATEWAY
        );
    }

    #[test]
    fn a_refusal_names_the_request_and_offers_a_rule_for_it_alone() {
        #[track_caller]
        fn check(request: &RequestSummary, why: &DecisionReason, want: &str) {
            let target = EgressTarget::new("x.io", 443).unwrap();
            assert_eq!(ProxyReply::refusal(&target, Some(request), why, None, Some("r-1")).text, want);
        }
        let push = RequestSummary::new("POST", "/o/r/git-receive-pack");
        let others = "the rules for this host allow other requests, and none allows this one";
        check(
            &push,
            &DecisionReason::RequestNotAllowed,
            &format!(
                "`POST x.io:443/o/r/git-receive-pack` is refused: {others}; a person can allow it with `ralph policy \
                 allow 'POST x.io/o/r/git-receive-pack' --run r-1`"
            ),
        );
        check(
            &push,
            &DecisionReason::Denied(Box::new("POST x.io".parse().unwrap())),
            "`POST x.io:443/o/r/git-receive-pack` is refused: it is denied by rule `POST x.io` of the network policy",
        );
        let long = format!("/{}", "a".repeat(5000));
        check(
            &RequestSummary::new("GET", &long),
            &DecisionReason::RequestNotAllowed,
            &format!("`GET x.io:443{}` is refused: {others}", &long[..MAX_PATH]),
        );
    }

    #[test]
    fn a_hostile_text_cannot_break_the_head() {
        let reply = ProxyReply::new(StatusCode::FORBIDDEN, format!("a\r\nx: y\u{1b}[31m\u{e9}{}", "z".repeat(2000)));
        let text = String::from_utf8(reply.bytes()).unwrap();
        let (head, _) = text.split_once("\r\n\r\n").unwrap();
        assert_eq!(head.split("\r\n").count(), 5, "{head}");
        assert!(head.starts_with("HTTP/1.1 403 Forbidden; ralph: a??x: y?[31m?zzz") && head.len() < 2800, "{head}");
        assert!(reply.response().headers().contains_key(DENY_HEADER));
    }
}
