//! Attacks with DNS messages that no resolver sends. Each must get the right answer, cause no traffic, and leave the
//! name server able to answer the next query.

use super::super::case::EgressCase;
use super::super::case::EgressControl::Says;
use super::super::policies::PolicyPreset::Strict;

const GIVEN: &str = "code 0 answers 1 synthetic";
const UDP: &[&str] = &["udp:127.0.0.53:53", "ask:1:allowed.test"];
const TCP: &[&str] = &["tcp:127.0.0.53:53", "ask:1:allowed.test"];

/// A message over UDP and over TCP, followed by a valid query over the same socket: the first answer must be the
/// expected one, and the valid query must be answered.
macro_rules! sent {
    ($($id:literal $name:literal $word:expr, $code:literal,)*) => {
        &[$(
            EgressCase::blocked(concat!("DN-08.udp-", $id), concat!($name, " over UDP"),
                &["udp:127.0.0.53:53", $word, "udp:127.0.0.53:53", "ask:1:allowed.test"],
                concat!($code, "\ncode 0 answers 1 synthetic"), Says(Strict, UDP, GIVEN)),
            EgressCase::blocked(concat!("DN-08.tcp-", $id), concat!($name, " over TCP"),
                &["tcp:127.0.0.53:53", $word, "tcp:127.0.0.53:53", "ask:1:allowed.test"],
                concat!($code, "\ncode 0 answers 1 synthetic"), Says(Strict, TCP, GIVEN)),
        )*]
    };
}

/// The header of a query, and `allowed.test` for an A record.
macro_rules! packet {
    ($flags:literal, $counts:literal, $rest:literal) => {
        concat!(r"packet:\x07\x09", $flags, $counts, $rest)
    };
}

pub(super) const CASES: &[EgressCase] = sent![
    "v6" "an AAAA query" "ask:28:allowed.test", "code 0 answers 0",
    "ns" "an NS query" "ask:2:allowed.test", "code 4 answers 0",
    "cname" "a CNAME query" "ask:5:allowed.test", "code 4 answers 0",
    "soa" "an SOA query" "ask:6:allowed.test", "code 4 answers 0",
    "null" "a NULL query" "ask:10:allowed.test", "code 4 answers 0",
    "ptr" "a PTR query" "ask:12:1.0.0.127.in-addr.arpa", "code 4 answers 0",
    "mx" "an MX query" "ask:15:allowed.test", "code 4 answers 0",
    "txt" "a TXT query" "ask:16:allowed.test", "code 4 answers 0",
    "txt-denied" "a TXT query for an unlisted name" "ask:16:mfzwk43u.canary.test", "code 4 answers 0",
    "srv" "an SRV query" "ask:33:allowed.test", "code 4 answers 0",
    "svcb" "an SVCB query" "ask:64:allowed.test", "code 4 answers 0",
    "https" "an HTTPS query" "ask:65:allowed.test", "code 4 answers 0",
    "axfr" "an AXFR query" "ask:252:allowed.test", "code 4 answers 0",
    "any" "an ANY query" "ask:255:allowed.test", "code 4 answers 0",
    "denied" "a query for an unlisted name" "ask:1:mfzwk43u.canary.test", "code 3 answers 0",
    "upper" "an allowed name in capitals" "ask:1:ALLOWED.TEST", "code 0 answers 1 synthetic",
    "below" "a subdomain of an allowed name" "ask:1:mfzwk43u.allowed.test", "code 3 answers 0",
    "address" "an address as a name" "ask:1:127.0.0.1", "code 3 answers 0",
    "hex" "an address as a name, in hexadecimal" "ask:1:0x7f.1", "code 3 answers 0",
    "root" "the root name" "ask:1:", "code 3 answers 0",
    "nul" "a NUL in a name" r"ask:1:evil\x00.allowed.test", "code 3 answers 0",
    "dot" "a dot inside a label" packet!(r"\x01\x00", r"\x00\x01\x00\x00\x00\x00\x00\x00",
        r"\x0cevil.allowed\x04test\x00\x00\x01\x00\x01"), "code 3 answers 0",
    "high" "bytes above ASCII in a name" r"ask:1:\xc3\xa9vil.test", "code 3 answers 0",
    "chaos" "a query of another class" packet!(r"\x01\x00", r"\x00\x01\x00\x00\x00\x00\x00\x00",
        r"\x07allowed\x04test\x00\x00\x01\x00\x03"), "code 4 answers 0",
    "two" "two questions" packet!(r"\x01\x00", r"\x00\x02\x00\x00\x00\x00\x00\x00",
        r"\x07allowed\x04test\x00\x00\x01\x00\x01\x04evil\x04test\x00\x00\x01\x00\x01"), "code 1 answers 0",
    "none" "no question" packet!(r"\x01\x00", r"\x00\x00\x00\x00\x00\x00\x00\x00", ""), "code 1 answers 0",
    "answer" "a query with an answer in it" packet!(r"\x01\x00", r"\x00\x01\x00\x01\x00\x00\x00\x00",
        r"\x07allowed\x04test\x00\x00\x01\x00\x01\xc0\x0c\x00\x01\x00\x01\x00\x00\x00\x3c\x00\x04\x7f\x00\x00\x01"),
        "code 1 answers 0",
    "many" "more questions than fit" packet!(r"\x01\x00", r"\xff\xff\xff\xff\xff\xff\xff\xff", ""), "code 1 answers 0",
    "loop" "a name that points at itself" packet!(r"\x01\x00", r"\x00\x01\x00\x00\x00\x00\x00\x00",
        r"\xc0\x0c\x00\x01\x00\x01"), "code 1 answers 0",
    "loop-two" "two pointers to each other" packet!(r"\x01\x00", r"\x00\x01\x00\x00\x00\x00\x00\x00",
        r"\x01a\xc0\x10\xc0\x0c\x00\x01\x00\x01"), "code 1 answers 0",
    "pointer" "a name that points into the header" packet!(r"\x01\x00", r"\x00\x01\x00\x00\x00\x00\x00\x00",
        r"\xc0\x00\x00\x01\x00\x01"), "code 1 answers 0",
    "label" "a label of an unused type" packet!(r"\x01\x00", r"\x00\x01\x00\x00\x00\x00\x00\x00",
        r"\x41a\x00\x00\x01\x00\x01"), "code 1 answers 0",
    "past" "a label that goes past the end" packet!(r"\x01\x00", r"\x00\x01\x00\x00\x00\x00\x00\x00", r"\x3fabc"),
        "code 1 answers 0",
    "cut" "a truncated query" packet!(r"\x01\x00", r"\x00\x01\x00\x00\x00\x00\x00\x00", r"\x07allowed\x04te"),
        "code 1 answers 0",
    "update" "a zone update" packet!(r"\x28\x00", r"\x00\x01\x00\x00\x00\x00\x00\x00",
        r"\x07allowed\x04test\x00\x00\x06\x00\x01"), "code 4 answers 0",
    "truncated" "a query marked as truncated" packet!(r"\x03\x00", r"\x00\x01\x00\x00\x00\x00\x00\x00",
        r"\x07allowed\x04test\x00\x00\x01\x00\x01"), "code 1 answers 0",
    "edns" "a query that asks for a long answer" packet!(r"\x01\x00", r"\x00\x01\x00\x00\x00\x00\x00\x01",
        r"\x07allowed\x04test\x00\x00\x01\x00\x01\x00\x00\x29\xff\xff\x00\x00\x00\x00\x00\x00"),
        "code 0 answers 1 synthetic",
    "edns-cut" "an extension that goes past the end" packet!(r"\x01\x00", r"\x00\x01\x00\x00\x00\x00\x00\x01",
        r"\x07allowed\x04test\x00\x00\x01\x00\x01\x00\x00\x29\xff\xff\x00\x00\x00\x00\xff\xff"),
        "code 0 answers 1 synthetic",
];
