//! Parses the head of an HTTP/1 request strictly, before any other parser sees it.
//!
//! The HTTP library behind it accepts what servers have learnt to accept (bare line feeds, two equal lengths, a
//! length beside chunks). A proxy must not: whatever two programs could read differently is refused here. Only the
//! form is checked here, not the meaning.

use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::time::timeout;

use crate::egress_events::DecisionReason;
use crate::limits::ProxyLimits;

const MAX_HEADERS: usize = 96;

/// A well-formed request head.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct RequestHead {
    pub(crate) method: String,
    /// The request target as it was written.
    pub(crate) target: String,
    /// The one `Host` header.
    pub(crate) host: Option<String>,
    pub(crate) framing: BodyFraming,
    /// Whether a body is announced, even an empty one.
    pub(crate) has_body: bool,
}

/// How the end of a body is determined.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum BodyFraming {
    Length(u64),
    Chunked,
}

/// Why no head could be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum HeadError {
    Malformed(&'static str),
    TooLong,
    TimedOut,
    /// The client hung up.
    Disconnected,
}

impl HeadError {
    /// Returns why the head was refused; `None` if the client hung up, since nothing was refused then.
    pub(crate) fn reason(self) -> Option<DecisionReason> {
        match self {
            Self::Malformed(why) => Some(DecisionReason::Malformed(why)),
            Self::TooLong => Some(DecisionReason::Malformed("its head is too long")),
            Self::TimedOut => Some(DecisionReason::ClientTimeout),
            Self::Disconnected => None,
        }
    }
}

/// Reads a whole head into `bytes`, which may hold the beginning of it and afterwards also holds what followed it.
/// Returns the head and its length.
pub(crate) async fn read(
    client: &mut (impl AsyncRead + Unpin),
    bytes: &mut Vec<u8>,
    limits: &ProxyLimits,
) -> Result<(RequestHead, usize), HeadError> {
    let whole = async {
        let mut seen = 0;
        loop {
            if bytes.first().is_some_and(|byte| !byte.is_ascii_uppercase()) {
                return Err(HeadError::Malformed("it is not HTTP"));
            }
            if let Some(end) = find_head_end(bytes, seen)? {
                return if end <= limits.head_bytes { Ok(end) } else { Err(HeadError::TooLong) };
            }
            if bytes.len() > limits.head_bytes {
                return Err(HeadError::TooLong);
            }
            seen = bytes.len();
            match client.read_buf(bytes).await {
                Ok(0) | Err(_) => return Err(HeadError::Disconnected),
                Ok(_) => (),
            }
        }
    };
    let end = timeout(limits.head_time, whole).await.unwrap_or(Err(HeadError::TimedOut))?;
    let head = parse(bytes.get(..end).unwrap_or_default()).map_err(HeadError::Malformed)?;
    Ok((head, end))
}

/// Finds the end of the head, looking only at bytes not seen before. A bare line feed is refused at once: waiting for
/// a proper one would only cost time.
pub(crate) fn find_head_end(bytes: &[u8], seen: usize) -> Result<Option<usize>, HeadError> {
    for (at, _) in bytes.iter().enumerate().skip(seen).filter(|(_, byte)| **byte == b'\n') {
        let line = bytes.get(..at).unwrap_or_default();
        if !line.ends_with(b"\r") {
            return Err(HeadError::Malformed("a line does not end in CR LF"));
        }
        if line.ends_with(b"\r\n\r") {
            return Ok(Some(at + 1));
        }
    }
    Ok(None)
}

pub(crate) fn parse(head: &[u8]) -> Result<RequestHead, &'static str> {
    let text = head.strip_suffix(b"\r\n\r\n").ok_or("it has no end")?;
    let mut lines = text.split(|byte| *byte == b'\n').map(|line| line.strip_suffix(b"\r").unwrap_or(line));
    let (method, target, old) = parse_request_line(lines.next().unwrap_or_default())?;
    let (mut host, mut length, mut chunked) = (None, None, None);
    for (n, line) in lines.enumerate() {
        if n >= MAX_HEADERS {
            return Err("it has too many headers");
        }
        let (name, value) = parse_header(line)?;
        let is = |known: &str| name.eq_ignore_ascii_case(known);
        let slot = match () {
            () if is("host") => &mut host,
            () if is("content-length") => &mut length,
            () if is("transfer-encoding") => &mut chunked,
            () => continue,
        };
        let value = std::str::from_utf8(value).map_err(|_| "a header is not text")?;
        if slot.replace(value.to_owned()).is_some() {
            return Err("`Host`, `Content-Length` or `Transfer-Encoding` comes twice");
        }
    }
    if let Some(length) = &length
        && (length.is_empty() || length.len() > 18 || !length.bytes().all(|byte| byte.is_ascii_digit()))
    {
        return Err("`Content-Length` is not a number");
    }
    if let Some(coding) = &chunked
        && (old || length.is_some() || !coding.eq_ignore_ascii_case("chunked"))
    {
        return Err("`Transfer-Encoding` is not just `chunked`, or not alone");
    }
    let framing = match &length {
        _ if chunked.is_some() => BodyFraming::Chunked,
        Some(length) => BodyFraming::Length(length.parse().map_err(|_| "`Content-Length` is not a number")?),
        None => BodyFraming::Length(0),
    };
    Ok(RequestHead { method, target, host, framing, has_body: length.is_some() || chunked.is_some() })
}

fn parse_request_line(line: &[u8]) -> Result<(String, String, bool), &'static str> {
    let line = std::str::from_utf8(line).map_err(|_| "the request line is not text")?;
    let mut words = line.split(' ');
    let (Some(method), Some(target), Some(version), None) = (words.next(), words.next(), words.next(), words.next())
    else {
        return Err("the request line is not three words");
    };
    let old = match version {
        "HTTP/1.1" => false,
        "HTTP/1.0" => true,
        _ => return Err("it is not HTTP/1"),
    };
    // Some servers treat a method in small letters as another method, others as the same.
    if method.is_empty() || method.len() > 32 || !method.bytes().all(|byte| byte.is_ascii_uppercase() || byte == b'-') {
        return Err("the method is not a word in capitals");
    }
    if target.is_empty() || !target.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'#') {
        return Err("the target has a character that is not allowed in a URL");
    }
    Ok((method.to_owned(), target.to_owned(), old))
}

fn parse_header(line: &[u8]) -> Result<(&str, &[u8]), &'static str> {
    if line.starts_with(b" ") || line.starts_with(b"\t") {
        return Err("a header is folded");
    }
    let colon = line.iter().position(|byte| *byte == b':').ok_or("a header has no colon")?;
    let (name, value) = (line.get(..colon).unwrap_or_default(), line.get(colon + 1..).unwrap_or_default());
    let token = |byte: &u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(byte);
    if name.is_empty() || !name.iter().all(token) {
        return Err("a header has an invalid name");
    }
    if !value.iter().all(|byte| matches!(byte, b'\t' | b' '..=b'~' | 0x80..)) {
        return Err("a header has a control character in it");
    }
    Ok((std::str::from_utf8(name).unwrap_or_default(), value.trim_ascii()))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use proptest::prelude::*;

    use super::*;

    fn lines(lines: &[&str]) -> Vec<u8> {
        format!("{}\r\n\r\n", lines.join("\r\n")).into_bytes()
    }

    #[track_caller]
    fn good(text: &[&str], want: (&str, &str, Option<&str>, bool)) {
        let head = parse(&lines(text)).unwrap();
        let got = (head.method.as_str(), head.target.as_str(), head.host.as_deref(), head.has_body);
        assert_eq!(got, want);
    }

    #[test]
    fn well_formed_heads_are_parsed() {
        good(&["GET http://x.io/ HTTP/1.1", "Host: x.io"], ("GET", "http://x.io/", Some("x.io"), false));
        good(&["CONNECT x.io:443 HTTP/1.0"], ("CONNECT", "x.io:443", None, false));
        good(&["POST / HTTP/1.1", "host:x.io ", "Content-Length: 5"], ("POST", "/", Some("x.io"), true));
        good(&["PUT / HTTP/1.1", "Transfer-Encoding: Chunked", "X-Empty:"], ("PUT", "/", None, true));
    }

    #[test]
    fn malformed_heads_are_refused() {
        for (text, want) in [
            (&["GET  / HTTP/1.1"][..], "the request line is not three words"),
            (&["GET /"], "the request line is not three words"),
            (&["GET / HTTP/2.0"], "it is not HTTP/1"),
            (&["get / HTTP/1.1"], "the method is not a word in capitals"),
            (&["GET /#x HTTP/1.1"], "the target has a character that is not allowed in a URL"),
            (&["GET /\u{e9} HTTP/1.1"], "the target has a character that is not allowed in a URL"),
            (&["GET /\0 HTTP/1.1"], "the target has a character that is not allowed in a URL"),
            (&["GET / HTTP/1.1", "A: b", " c"], "a header is folded"),
            (&["GET / HTTP/1.1", "\tA: b"], "a header is folded"),
            (&["GET / HTTP/1.1", "Host : x.io"], "a header has an invalid name"),
            (&["GET / HTTP/1.1", ": x"], "a header has an invalid name"),
            (&["GET / HTTP/1.1", "Host"], "a header has no colon"),
            (&["GET / HTTP/1.1", "A: b\0"], "a header has a control character in it"),
            (&["GET / HTTP/1.1", "A: b\rC: d"], "a header has a control character in it"),
            (&["GET / HTTP/1.1", "Content-Length: +5"], "`Content-Length` is not a number"),
            (&["GET / HTTP/1.1", "Content-Length: 5, 5"], "`Content-Length` is not a number"),
            (&["GET / HTTP/1.1", "Content-Length:"], "`Content-Length` is not a number"),
        ] {
            assert_eq!(parse(&lines(text)), Err(want), "{text:?}");
        }
        let twice = Err("`Host`, `Content-Length` or `Transfer-Encoding` comes twice");
        for header in ["Host: x.io", "Content-Length: 5", "Transfer-Encoding: chunked"] {
            assert_eq!(parse(&lines(&["GET / HTTP/1.1", header, &header.to_ascii_uppercase()])), twice);
        }
        let coding = Err("`Transfer-Encoding` is not just `chunked`, or not alone");
        for text in [
            &["GET / HTTP/1.1", "Content-Length: 5", "Transfer-Encoding: chunked"][..],
            &["GET / HTTP/1.1", "Transfer-Encoding: chunked", "Content-Length: 5"],
            &["GET / HTTP/1.1", "Transfer-Encoding: chunked, x"],
            &["GET / HTTP/1.1", "Transfer-Encoding: x, chunked"],
            &["GET / HTTP/1.1", "Transfer-Encoding: identity"],
            &["GET / HTTP/1.0", "Transfer-Encoding: chunked"],
        ] {
            assert_eq!(parse(&lines(text)), coding, "{text:?}");
        }
        let many: Vec<&str> = std::iter::once("GET / HTTP/1.1").chain(std::iter::repeat_n("A: b", 97)).collect();
        assert_eq!(parse(&lines(&many)), Err("it has too many headers"));
    }

    #[tokio::test]
    async fn heads_are_read_in_pieces() {
        let limits = ProxyLimits { head_bytes: 40, head_time: Duration::from_millis(20), ..ProxyLimits::default() };
        let get = b"GET / HTTP/1.1\r\nHost: x\r\n\r\nbody".as_slice();
        for split in 0..get.len() - 4 {
            let (mut bytes, mut rest) = (get[..split].to_vec(), &get[split..]);
            let (head, end) = read(&mut rest, &mut bytes, &limits).await.unwrap();
            assert_eq!((head.host.as_deref(), end), (Some("x"), 27));
            assert_eq!(bytes, get);
        }
        for (text, want) in [
            (&b"GET / HTTP/1.1\nHost: x\r\n\r\n"[..], HeadError::Malformed("a line does not end in CR LF")),
            (b"GET / HTTP/1.1\r\n\n", HeadError::Malformed("a line does not end in CR LF")),
            (b"GET / HTTP/1.1\r\nA: 123456789012345678901234567890", HeadError::TooLong),
            (b"GET / HTTP/1.1\r\nA: 123456789012345678901234567890\r\n\r\n", HeadError::TooLong),
            (b"GET / HTTP/1.1\r\n", HeadError::Disconnected),
            (&[22, 3, 1], HeadError::Malformed("it is not HTTP")),
        ] {
            assert_eq!(read(&mut &text[..], &mut Vec::new(), &limits).await, Err(want));
        }
        let (_silent, mut client) = tokio::io::duplex(8);
        assert_eq!(read(&mut client, &mut Vec::new(), &limits).await, Err(HeadError::TimedOut));
    }

    proptest! {
        #[test]
        fn never_panics(bytes in proptest::collection::vec(any::<u8>(), 0..200), text in "[GET /:A-c\r\n]{0,60}") {
            for bytes in [bytes, text.into_bytes()] {
                drop(parse(&bytes));
                drop(parse(&[&bytes[..], b"\r\n\r\n"].concat()));
                drop(parse(&[b"GET / HTTP/1.1\r\n", &bytes[..], b"\r\n\r\n"].concat()));
                find_head_end(&bytes, 0).ok();
            }
        }
    }
}
