//! What a client is told when it cannot have its way: one line that says why, one that says who could change it.

use std::net::IpAddr;

use bytes::Bytes;
use http_body_util::Full;
use hyper::header::{CONTENT_TYPE, HeaderValue};
use hyper::{Response, StatusCode};

use crate::head::Fault;
use crate::notice::Why;
use crate::target::Target;

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

    /// Says why a target cannot be reached.
    pub(crate) fn refused(target: &Target, why: &Why, address: Option<IpAddr>) -> Self {
        let status = match why {
            Why::Unresolved | Why::Unreachable | Why::Untrusted => StatusCode::BAD_GATEWAY,
            Why::Crowded => StatusCode::SERVICE_UNAVAILABLE,
            Why::Host | Why::Malformed(_) | Why::Target(_) => StatusCode::BAD_REQUEST,
            Why::Slow => StatusCode::REQUEST_TIMEOUT,
            _ => StatusCode::FORBIDDEN,
        };
        let mut text = format!("`{target}` cannot be reached: {why}");
        if let Some(hint) = why.hint(Some(target), address) {
            text.push_str("\nhint: a person can allow it with `");
            text.push_str(&hint);
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

    /// Writes the answer as it goes over the wire.
    pub(crate) fn bytes(&self) -> Vec<u8> {
        let body = self.body();
        let (status, length) = (self.status, body.len());
        format!(
            "HTTP/1.1 {status}\r\nContent-Type: text/plain; charset=utf-8\r\nContent-Length: {length}\r\n\
             Connection: close\r\n\r\n{body}"
        )
        .into_bytes()
    }

    pub(crate) fn response(&self) -> Response<Full<Bytes>> {
        let mut response = Response::new(Full::new(Bytes::from(self.body())));
        *response.status_mut() = self.status;
        response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
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
        let reply = Reply::refused(&target, &Why::Mode(Mode::Allowlist), None);
        assert_eq!(
            String::from_utf8(reply.bytes()).unwrap(),
            "HTTP/1.1 403 Forbidden\r\nContent-Type: text/plain; charset=utf-8\r\nContent-Length: 156\r\n\
             Connection: close\r\n\r\n\
             ralph: `x.io:443` cannot be reached: no rule names it, and the network policy is `allowlist`\n\
             hint: a person can allow it with `ralph run --allow-host x.io`\n"
        );
        assert_eq!(Reply::refused(&target, &Why::Unreachable, None).status, StatusCode::BAD_GATEWAY);
    }
}
