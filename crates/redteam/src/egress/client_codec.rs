//! Encodes and decodes for the attacking client: escaped bytes, DNS queries, and short forms of answers.

/// Decodes a text in which `\r`, `\n`, `\t`, `\\` and `\xHH` stand for bytes.
pub(super) fn unescape(text: &str) -> Vec<u8> {
    let mut out = Vec::with_capacity(text.len());
    let mut bytes = text.bytes();
    while let Some(byte) = bytes.next() {
        if byte != b'\\' {
            out.push(byte);
            continue;
        }
        match bytes.next() {
            Some(b'r') => out.push(b'\r'),
            Some(b'n') => out.push(b'\n'),
            Some(b't') => out.push(b'\t'),
            Some(b'x') => {
                let digit = |byte: Option<u8>| byte.and_then(|byte| char::from(byte).to_digit(16)).unwrap_or(0);
                let (high, low) = (digit(bytes.next()), digit(bytes.next()));
                out.push(u8::try_from(high * 16 + low).unwrap_or(0));
            }
            Some(other) => out.push(other),
            None => (),
        }
    }
    out
}

/// Encodes bytes in one line, so that [`unescape`] decodes them.
pub(super) fn escape(bytes: &[u8]) -> String {
    use std::fmt::Write as _;
    let mut out = String::with_capacity(bytes.len() * 4);
    for byte in bytes {
        // Writing to a string cannot fail.
        let _ = write!(out, "\\x{byte:02x}");
    }
    out
}

/// Formats bytes as one readable line.
pub(super) fn printable(bytes: &[u8]) -> String {
    bytes.escape_ascii().to_string()
}

/// Returns whether bytes are a complete answer.
pub(super) fn is_complete_answer(bytes: &[u8]) -> bool {
    if !bytes.starts_with(b"HTTP/1.") {
        // The whole answer of a recorder to anything but a request.
        return bytes == b"received";
    }
    let Some(end) = bytes.windows(4).position(|four| four == b"\r\n\r\n") else { return false };
    let head = String::from_utf8_lossy(bytes.get(..end).unwrap_or_default()).to_ascii_lowercase();
    let body = bytes.get(end + 4..).unwrap_or_default();
    if head.starts_with("http/1.1 10") {
        return is_complete_answer(body);
    }
    if head.contains("transfer-encoding: chunked") {
        // Headers may follow the last chunk.
        let last = body.starts_with(b"0\r\n") || body.windows(5).any(|five| five == b"\r\n0\r\n");
        return last && body.ends_with(b"\r\n\r\n");
    }
    let length = head.lines().find_map(|line| line.strip_prefix("content-length: ")?.trim().parse::<usize>().ok());
    length.is_some_and(|length| body.len() >= length)
}

/// Encodes a DNS query, as resolvers do. Dots separate labels, whatever the labels contain.
pub(super) fn dns_query(kind: u16, name: &[u8]) -> Vec<u8> {
    let mut message = vec![0x12, 0x34, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0];
    for label in name.split(|byte| *byte == b'.').filter(|label| !label.is_empty()) {
        message.push(u8::try_from(label.len()).unwrap_or(u8::MAX));
        message.extend_from_slice(label);
    }
    message.push(0);
    message.extend(kind.to_be_bytes());
    message.extend([0, 1]);
    message
}

/// Summarises the answer of a name server in a line: its code, the number of answers, and its length.
pub(super) fn dns_answer_summary(answer: &[u8]) -> String {
    match answer {
        [_, _, _, flags, _, _, _, answers, ..] => {
            let address = match answer {
                [.., 198, 18 | 19, _, _] if *answers > 0 => " synthetic".to_owned(),
                [.., a, b, c, d] if *answers > 0 => format!(" {a}.{b}.{c}.{d}"),
                _ => String::new(),
            };
            format!("code {} answers {answers}{address}", flags & 15)
        }
        _ => "no answer".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn bytes_are_escaped() {
        for (text, want) in
            [(r"a\r\n\t\\b", &b"a\r\n\t\\b"[..]), (r"\x00\xff", &[0, 255]), (r"\x0", &[0]), (r"\", &[]), (r"\q", b"q")]
        {
            assert_eq!(unescape(text), want, "{text}");
        }
    }

    #[test]
    fn complete_answers_are_recognised() {
        for (text, want) in [
            ("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok", true),
            ("HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nok", false),
            ("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n", true),
            ("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\nx: y\r\n\r\n", true),
            ("HTTP/1.1 103 Early\r\n\r\n", false),
            ("HTTP/1.1 103 Early\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", true),
            ("HTTP/1.1 200 OK\r\n\r\nok", false),
            ("", false),
        ] {
            assert_eq!(is_complete_answer(text.as_bytes()), want, "{text}");
        }
    }

    #[test]
    fn dns_queries_and_answers() {
        let asked = dns_query(1, b"x.io");
        assert_eq!(asked.get(12..), Some(&b"\x01x\x02io\0\0\x01\0\x01"[..]));
        assert_eq!(dns_answer_summary(&[0, 0, 0x81, 0x83, 0, 1, 0, 0, 0, 0, 0, 0]), "code 3 answers 0");
        assert_eq!(dns_answer_summary(&[0, 0, 0x81, 0x80, 0, 1, 0, 1, 198, 18, 1, 0]), "code 0 answers 1 synthetic");
        assert_eq!(dns_answer_summary(&[0, 0, 0x81, 0x80, 0, 1, 0, 1, 10, 0, 0, 1]), "code 0 answers 1 10.0.0.1");
        assert_eq!(dns_answer_summary(&[]), "no answer");
    }

    proptest! {
        #[test]
        fn escaping_round_trips(bytes in proptest::collection::vec(any::<u8>(), 0..60), text in "\\PC{0,40}") {
            prop_assert_eq!(unescape(&escape(&bytes)), bytes.clone());
            unescape(&text);
            is_complete_answer(&bytes);
            dns_answer_summary(&bytes);
        }
    }
}
