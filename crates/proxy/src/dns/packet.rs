//! Parses and writes DNS messages, as far as a server needs them that answers one question about one name.
//!
//! Only the header and the question are read. A question comes first, so a compression pointer in it has nothing
//! before it to point at: it is refused, and no pointer loop is possible. Additional records (EDNS) are not read; a
//! server that does not know them may omit them.

use std::net::Ipv4Addr;

/// The longest message that is read or written.
pub(crate) const MAX_MESSAGE: usize = 4096;

const HEADER: usize = 12;
const RESPONSE: u8 = 0x80;
const TRUNCATED: u8 = 0x02;
const RECURSION_DESIRED: u8 = 0x01;
const RECURSION_AVAILABLE: u8 = 0x80;
const OPCODE: u8 = 0x78;
const INTERNET: u16 = 1;
/// Short, because the policy may change; the address stays the same as long as the name is asked for.
const TTL: u32 = 60;

/// The kind of address that is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum DnsQueryKind {
    V4,
    V6,
}

/// The response codes of answers without an address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum DnsResponseCode {
    /// The name exists.
    NoError = 0,
    Malformed = 1,
    NoSuchName = 3,
    NotImplemented = 4,
}

/// A question that can be answered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct DnsQuestion {
    /// The labels, joined by dots; `None` if one of them has a byte that no host name has.
    pub(super) name: Option<String>,
    pub(super) kind: DnsQueryKind,
    /// Where the question ends.
    end: usize,
}

/// The result of parsing a message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum DnsMessage {
    Question(DnsQuestion),
    /// A message that can only be answered with this error.
    Invalid(DnsResponseCode),
    /// A message that must not be answered at all: two servers could answer each other forever.
    Ignored,
}

pub(super) fn parse(message: &[u8]) -> DnsMessage {
    let Some((header, _)) = message.split_first_chunk::<HEADER>() else { return DnsMessage::Ignored };
    let [_, _, flags, _, counts @ ..] = header;
    if flags & RESPONSE != 0 {
        return DnsMessage::Ignored;
    }
    if flags & OPCODE != 0 {
        return DnsMessage::Invalid(DnsResponseCode::NotImplemented);
    }
    let [0, 1, 0, 0, 0, 0, _, _] = counts else { return DnsMessage::Invalid(DnsResponseCode::Malformed) };
    if flags & TRUNCATED != 0 || message.len() > MAX_MESSAGE {
        return DnsMessage::Invalid(DnsResponseCode::Malformed);
    }
    parse_question(message).unwrap_or(DnsMessage::Invalid(DnsResponseCode::Malformed))
}

fn parse_question(message: &[u8]) -> Option<DnsMessage> {
    let (name, after) = parse_name(message)?;
    let [kind_high, kind_low, class_high, class_low] = *message.get(after..)?.first_chunk()?;
    let kind = match u16::from_be_bytes([kind_high, kind_low]) {
        1 => DnsQueryKind::V4,
        28 => DnsQueryKind::V6,
        _ => return Some(DnsMessage::Invalid(DnsResponseCode::NotImplemented)),
    };
    if u16::from_be_bytes([class_high, class_low]) != INTERNET {
        return Some(DnsMessage::Invalid(DnsResponseCode::NotImplemented));
    }
    Some(DnsMessage::Question(DnsQuestion { name, kind, end: after + 4 }))
}

/// Parses the name in the question; `None` if it is malformed.
fn parse_name(message: &[u8]) -> Option<(Option<String>, usize)> {
    let mut at = HEADER;
    let mut labels = Vec::new();
    loop {
        let length = usize::from(*message.get(at)?);
        at += 1;
        // 255 is the longest name; two high bits are a pointer or an unused form.
        if length > 63 || at - HEADER + length > 255 {
            return None;
        }
        if length == 0 {
            break;
        }
        labels.push(message.get(at..at + length)?);
        at += length;
    }
    // A dot inside a label would become a separator of labels.
    let plain = |byte: &u8| byte.is_ascii_alphanumeric() || *byte == b'-' || *byte == b'_';
    let text = labels.iter().all(|label| label.iter().all(plain)).then(|| labels.join(&b'.'));
    Some((text.and_then(|text| String::from_utf8(text).ok()), at))
}

/// Answers any message as if every name were allowed. Returns the name in the question, if there is one, and the
/// answer.
pub fn answer_any(message: &[u8]) -> Option<(Option<String>, Vec<u8>)> {
    match parse(message) {
        DnsMessage::Question(question) if question.kind == DnsQueryKind::V4 => {
            let answer = address_response(message, &question, Ipv4Addr::new(198, 18, 1, 0));
            Some((question.name, answer))
        }
        DnsMessage::Question(question) => Some((question.name, response(message, DnsResponseCode::NoError))),
        DnsMessage::Invalid(code) => Some((None, response(message, code))),
        DnsMessage::Ignored => None,
    }
}

/// Writes an answer without an address.
pub(super) fn response(message: &[u8], code: DnsResponseCode) -> Vec<u8> {
    // Only a question that was parsed can be repeated.
    let end = match parse(message) {
        DnsMessage::Question(question) => question.end,
        DnsMessage::Invalid(_) | DnsMessage::Ignored => HEADER,
    };
    response_bytes(message, end, code, 0)
}

/// Writes an answer with the address.
pub(super) fn address_response(message: &[u8], question: &DnsQuestion, address: Ipv4Addr) -> Vec<u8> {
    let mut answer = response_bytes(message, question.end, DnsResponseCode::NoError, 1);
    // A pointer to the name in the question, which follows the header directly.
    answer.extend_from_slice(&[0xc0, 12, 0, 1, 0, 1]);
    answer.extend_from_slice(&TTL.to_be_bytes());
    answer.extend_from_slice(&[0, 4]);
    answer.extend_from_slice(&address.octets());
    answer
}

fn response_bytes(message: &[u8], end: usize, code: DnsResponseCode, answers: u8) -> Vec<u8> {
    let byte = |at: usize| message.get(at).copied().unwrap_or(0);
    let flags = byte(2) & (OPCODE | RECURSION_DESIRED) | RESPONSE;
    let questions = u8::from(end > HEADER);
    let mut reply =
        vec![byte(0), byte(1), flags, RECURSION_AVAILABLE | code as u8, 0, questions, 0, answers, 0, 0, 0, 0];
    reply.extend_from_slice(message.get(HEADER..end).unwrap_or_default());
    reply
}

#[cfg(test)]
pub(crate) mod tests {
    use proptest::prelude::*;

    use super::*;

    /// A query as a resolver sends it.
    pub(crate) fn query(labels: &[&[u8]], kind: u16) -> Vec<u8> {
        let mut query = vec![7, 9, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0];
        for label in labels {
            query.push(u8::try_from(label.len()).unwrap());
            query.extend_from_slice(label);
        }
        query.push(0);
        query.extend_from_slice(&kind.to_be_bytes());
        query.extend_from_slice(&[0, 1]);
        query
    }

    fn with(mut message: Vec<u8>, at: usize, byte: u8) -> Vec<u8> {
        message[at] = byte;
        message
    }

    #[track_caller]
    fn check(message: &[u8], want: &DnsMessage) {
        assert_eq!(parse(message), *want, "{message:?}");
    }

    fn asked(name: Option<&str>, kind: DnsQueryKind, end: usize) -> DnsMessage {
        DnsMessage::Question(DnsQuestion { name: name.map(str::to_owned), kind, end })
    }

    #[test]
    fn questions_are_parsed() {
        check(&query(&[b"X", b"io"], 1), &asked(Some("X.io"), DnsQueryKind::V4, 22));
        check(&query(&[b"x", b"io"], 28), &asked(Some("x.io"), DnsQueryKind::V6, 22));
        check(&query(&[], 1), &asked(Some(""), DnsQueryKind::V4, 17));
        check(&query(&[b"evil.x", b"io"], 1), &asked(None, DnsQueryKind::V4, 27));
        check(&query(&[b"evil\0", b"io"], 1), &asked(None, DnsQueryKind::V4, 26));
        check(&query(&[b"\xfc", b"io"], 1), &asked(None, DnsQueryKind::V4, 22));
        let edns = [&with(query(&[b"x", b"io"], 1), 11, 1)[..], &[0, 0, 41, 16, 0, 0, 0, 0, 0, 0, 0]].concat();
        check(&edns, &asked(Some("x.io"), DnsQueryKind::V4, 22));
    }

    #[test]
    fn invalid_messages_are_refused() {
        let fine = query(&[b"x", b"io"], 1);
        let malformed = DnsMessage::Invalid(DnsResponseCode::Malformed);
        let unknown = DnsMessage::Invalid(DnsResponseCode::NotImplemented);
        for kind in [2, 5, 15, 16, 33, 64, 65, 252, 255] {
            check(&query(&[b"x", b"io"], kind), &unknown);
        }
        check(&with(fine.clone(), 21, 3), &unknown);
        check(&with(fine.clone(), 2, 0x29), &unknown);
        check(&with(fine.clone(), 2, 0x81), &DnsMessage::Ignored);
        check(&fine[..11], &DnsMessage::Ignored);
        check(&with(fine.clone(), 2, 3), &malformed);
        for (at, count) in [(5, 0), (5, 2), (4, 1), (7, 1), (9, 1)] {
            check(&with(fine.clone(), at, count), &malformed);
        }
        for n in 12..fine.len() {
            check(&fine[..n], &malformed);
        }
        // Pointers: to itself, to the header, and an unused form.
        for pointer in [&[0xc0, 12][..], &[0xc0, 0], &[0x40, 1]] {
            check(&[&fine[..12], pointer, &[0, 1, 0, 1]].concat(), &malformed);
        }
        let long = [0; 63].map(|_| b'a');
        check(&query(&[&long, &long, &long, &long], 1), &malformed);
        let huge = [&fine[..], &[0; MAX_MESSAGE]].concat();
        check(&huge, &malformed);
    }

    #[test]
    fn answers_repeat_the_question() {
        let message = query(&[b"X", b"io"], 1);
        let DnsMessage::Question(question) = parse(&message) else { panic!("a question") };
        let head = [7, 9, 0x81, 0x80, 0, 1, 0, 1, 0, 0, 0, 0];
        let tail = [0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 60, 0, 4, 198, 18, 1, 0];
        let got = address_response(&message, &question, Ipv4Addr::new(198, 18, 1, 0));
        assert_eq!(got, [&head[..], &message[12..], &tail].concat());
        let none = [&[7, 9, 0x81, 0x83, 0, 1, 0, 0, 0, 0, 0, 0], &message[12..]].concat();
        assert_eq!(response(&message, DnsResponseCode::NoSuchName), none);
        assert_eq!(
            response(&with(message, 5, 2), DnsResponseCode::Malformed),
            [7, 9, 0x81, 0x81, 0, 0, 0, 0, 0, 0, 0, 0]
        );
    }

    proptest! {
        #[test]
        fn never_panics(bytes in proptest::collection::vec(any::<u8>(), 0..600)) {
            parse(&bytes);
            response(&bytes, DnsResponseCode::Malformed);
            let question = [&[7, 9, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0][..], &bytes].concat();
            if let DnsMessage::Question(question_) = parse(&question) {
                prop_assert!(question_.end <= question.len());
                address_response(&question, &question_, Ipv4Addr::UNSPECIFIED);
            }
        }
    }
}
