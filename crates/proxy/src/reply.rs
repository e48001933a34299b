//! What a client is told when it cannot have its way: one line that says why, and how a person could change it.
//!
//! Few clients show the body of a refused `CONNECT`; many show the words beside its status, and some a header. So the line
//! stands in all three.

use std::net::IpAddr;

use bytes::Bytes;
use http_body_util::Full;
use hyper::header::{CONTENT_TYPE, HeaderValue};
use hyper::{Response, StatusCode};
use ralph_core::policy::argument;
use ralph_core::text;

use crate::head::Fault;
use crate::notice::{Requested, Why};
use crate::target::Target;

/// The header that tells a refusal.
const DENY: &str = "x-ralph-deny";
/// The longest line in a head: the longest host name, a path, a reason and a command fit into it.
const LINE: usize = 1200;
/// The longest path in it; a longer one has no command.
const PATH: usize = 200;

/// A short answer of our own.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Reply {
    pub(crate) status: StatusCode,
    text: String,
}

impl Reply {
    pub(crate) fn new(status: StatusCode, text: impl Into<String>) -> Self {
        Self { status, text: text.into() }
    }

    /// Says why a target cannot be reached, or asked for something, and by which command a person can allow it: in the
    /// run there is, or else in one that is to be started.
    pub(crate) fn refused(
        target: &Target,
        request: Option<&Requested>,
        why: &Why,
        address: Option<IpAddr>,
        run: Option<&str>,
    ) -> Self {
        let status = match why {
            Why::Unresolved | Why::Unreachable | Why::Untrusted => StatusCode::BAD_GATEWAY,
            Why::Crowded => StatusCode::SERVICE_UNAVAILABLE,
            Why::Host | Why::Malformed(_) | Why::Target(_) => StatusCode::BAD_REQUEST,
            Why::Slow => StatusCode::REQUEST_TIMEOUT,
            _ => StatusCode::FORBIDDEN,
        };
        let mut text = match (why, request) {
            (Why::Request | Why::Denied(_), Some(Requested { method, path })) => {
                let path = text::plain(text::head(path, PATH));
                format!("`{} {target}{path}` is refused: {why}", text::plain(text::head(method, 20)))
            }
            _ => format!("`{target}` cannot be reached: {why}"),
        };
        if let Some(rule) = why.remedy(target, request, address) {
            let rule = argument(&rule);
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

    /// Says why a text is no target.
    pub(crate) fn unreadable(why: &Why) -> Self {
        // A name that cannot be compared is refused like one that no rule names.
        let status = if matches!(why, Why::Target(_)) { StatusCode::FORBIDDEN } else { StatusCode::BAD_REQUEST };
        Self::new(status, why.to_string())
    }

    /// Says what is wrong with a request head; `None` if nobody is there to hear it.
    pub(crate) fn fault(fault: Fault) -> Option<Self> {
        let status = match fault {
            Fault::Malformed(_) => StatusCode::BAD_REQUEST,
            Fault::Long => StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE,
            Fault::Slow => StatusCode::REQUEST_TIMEOUT,
            Fault::Gone => return None,
        };
        fault.why().map(|why| Self::new(status, why.to_string()))
    }

    fn body(&self) -> String {
        format!("ralph: {}\n", self.text)
    }

    /// Returns the text as it can stand in a head: one bounded line of plain characters, whatever a client wrote.
    fn line(&self) -> String {
        let plain = |c: char| if matches!(c, ' '..='~') { c } else { '?' };
        text::head(&self.text, LINE).chars().map(plain).collect()
    }

    /// Writes the answer as it goes over the wire.
    pub(crate) fn bytes(&self) -> Vec<u8> {
        let (body, line) = (self.body(), self.line());
        let (status, length) = (self.status, body.len());
        format!(
            "HTTP/1.1 {status}; ralph: {line}\r\n{DENY}: {line}\r\nContent-Type: text/plain; charset=utf-8\r\n\
             Content-Length: {length}\r\nConnection: close\r\n\r\n{body}"
        )
        .into_bytes()
    }

    pub(crate) fn response(&self) -> Response<Full<Bytes>> {
        let mut response = Response::new(Full::new(Bytes::from(self.body())));
        *response.status_mut() = self.status;
        response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
        if let Ok(line) = HeaderValue::from_str(&self.line()) {
            response.headers_mut().insert(DENY, line);
        }
        response
    }
}

#[cfg(test)]
mod tests {
    use ralph_core::policy::Mode;

    use super::*;

    #[test]
    fn refusals_name_the_way_out() {
        let target = Target::new("x.io", 443).unwrap();
        let why = "`x.io:443` cannot be reached: no rule names it, and the network policy is `allowlist`";
        for (run, command) in
            [(Some("r-1"), "ralph policy allow x.io --run r-1"), (None, "ralph run --allow-host x.io")]
        {
            let line = format!("{why}; a person can allow it with `{command}`");
            let reply = Reply::refused(&target, None, &Why::Mode(Mode::Allowlist), None, run);
            assert_eq!(
                String::from_utf8(reply.bytes()).unwrap(),
                format!(
                    "HTTP/1.1 403 Forbidden; ralph: {line}\r\nx-ralph-deny: {line}\r\n\
                     Content-Type: text/plain; charset=utf-8\r\nContent-Length: {}\r\n\
                     Connection: close\r\n\r\nralph: {line}\n",
                    line.len() + 8
                )
            );
            assert_eq!(reply.response().headers().get(DENY).unwrap(), line.as_str());
        }
        assert_eq!(Reply::refused(&target, None, &Why::Unreachable, None, None).status, StatusCode::BAD_GATEWAY);
    }

    #[test]
    fn a_refused_request_is_named_and_no_more_than_it_is_offered() {
        #[track_caller]
        fn check(request: &Requested, why: &Why, want: &str) {
            let target = Target::new("x.io", 443).unwrap();
            assert_eq!(Reply::refused(&target, Some(request), why, None, Some("r-1")).text, want);
        }
        let push = Requested::new("POST", "/o/r/git-receive-pack");
        let others = "the rules for this host allow other requests, and none allows this one";
        check(
            &push,
            &Why::Request,
            &format!(
                "`POST x.io:443/o/r/git-receive-pack` is refused: {others}; a person can allow it with `ralph policy \
                 allow 'POST x.io/o/r/git-receive-pack' --run r-1`"
            ),
        );
        check(
            &push,
            &Why::Denied(Box::new("POST x.io".parse().unwrap())),
            "`POST x.io:443/o/r/git-receive-pack` is refused: it is denied by rule `POST x.io` of the network policy",
        );
        let long = format!("/{}", "a".repeat(5000));
        check(
            &Requested::new("GET", &long),
            &Why::Request,
            &format!("`GET x.io:443{}` is refused: {others}", &long[..PATH]),
        );
    }

    #[test]
    fn a_head_stays_a_head() {
        let reply = Reply::new(StatusCode::FORBIDDEN, format!("a\r\nx: y\u{1b}[31m\u{e9}{}", "z".repeat(2000)));
        let text = String::from_utf8(reply.bytes()).unwrap();
        let (head, _) = text.split_once("\r\n\r\n").unwrap();
        assert_eq!(head.split("\r\n").count(), 5, "{head}");
        assert!(head.starts_with("HTTP/1.1 403 Forbidden; ralph: a??x: y?[31m?zzz") && head.len() < 2800, "{head}");
        assert!(reply.response().headers().contains_key(DENY));
    }
}
