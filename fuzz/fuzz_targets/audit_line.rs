//! Any bytes as an audit file: it is judged without a panic, its records stay plain lines, and it can be gone on with.
#![no_main]

use libfuzzer_sys::fuzz_target;
use ralph_core::audit::{Found, Open, Record, Verify};

const RUN: &str = "01k3v7r2m9abcdef";

fuzz_target!(|input: &[u8]| {
    let sound = judged(input);
    for line in input.split(|byte| *byte == b'\n') {
        let Some(record) = Record::parse(line) else { continue };
        let written = record.to_json();
        assert!(written.bytes().all(|byte| (b' '..=b'~').contains(&byte)), "{written:?} is not one plain line");
        assert_eq!(Record::parse(written.as_bytes()), Some(record), "a record says the same when it is read again");
    }
    let text = gone_on(input);
    // A file that was sound, or only cut off, is sound again once the cut is marked.
    let cut = input.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
    let torn = Record::parse(&input[cut..]).is_none();
    if sound || (torn && judged(&input[..cut])) {
        assert!(judged(&text), "{:?}", String::from_utf8_lossy(&text));
    }
});

fn judged(text: &[u8]) -> bool {
    let mut verify = Verify::new(RUN, []);
    for line in text.split_inclusive(|byte| *byte == b'\n') {
        if !verify.line(line) {
            break;
        }
    }
    verify.end().map_err(|fault| assert!(!fault.to_string().contains(char::is_control))).is_ok()
}

fn gone_on(text: &[u8]) -> Vec<u8> {
    let mut open = Open::new(RUN);
    for line in text.split_inclusive(|byte| *byte == b'\n') {
        open.line(line);
    }
    let Found { mut chain, damage, ended, .. } = open.end();
    let mut out = text.to_vec();
    if !ended {
        out.push(b'\n');
    }
    if damage.is_some() || !ended {
        let line = chain.damaged(damage.as_ref(), Record::default().at, "cut off");
        let seq = chain.head().lines.saturating_add(1);
        chain.follow(line.trim_end().as_bytes(), seq, Record::default().at);
        out.extend_from_slice(line.as_bytes());
    }
    out.extend_from_slice(chain.line(Record::default()).as_bytes());
    out
}
