//! Answers any bytes as a DNS question: with its own id or not at all, and only about what was asked.
#![no_main]

use libfuzzer_sys::fuzz_target;
use ralph_proxy::fuzzing::dns;

fuzz_target!(|message: &[u8]| {
    let Some((name, answer)) = dns(message) else { return };
    assert_eq!(answer[..2], message[..2], "another question's number");
    assert!(answer[2] & 0x80 != 0, "not an answer");
    assert!(answer.len() <= message.len() + 16, "an answer far longer than its question");
    // Two servers would answer each other forever.
    assert_eq!(dns(&answer), None, "an answer is answered");
    if let Some(name) = name {
        let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
        assert!(name.len() <= 255 && name.bytes().all(plain), "{name:?}");
    }
});
