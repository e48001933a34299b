//! Verifies any bytes as an audit log: verifying does not panic, its records stay plain lines, and the log can be
//! continued.
#![no_main]

use libfuzzer_sys::fuzz_target;
use ralph_core::audit::{AuditFileEnd, AuditRecord, AuditScanner, AuditVerifier};

const RUN: &str = "01k3v7r2m9abcdef";

fuzz_target!(|input: &[u8]| {
    let sound = is_sound(input);
    for line in input.split(|byte| *byte == b'\n') {
        let Some(record) = AuditRecord::parse(line) else { continue };
        let written = record.to_json();
        assert!(written.bytes().all(|byte| (b' '..=b'~').contains(&byte)), "{written:?} is not one plain line");
        assert_eq!(
            AuditRecord::parse(written.as_bytes()),
            Some(record),
            "a record is the same when it is parsed again"
        );
    }
    let text = continued(input);
    // A file that was sound, or only cut off, is sound again once the cut is marked.
    let cut = input.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
    let torn = AuditRecord::parse(&input[cut..]).is_none();
    if sound || (torn && is_sound(&input[..cut])) {
        assert!(is_sound(&text), "{:?}", String::from_utf8_lossy(&text));
    }
});

fn is_sound(text: &[u8]) -> bool {
    let mut verify = AuditVerifier::new(RUN, []);
    for line in text.split_inclusive(|byte| *byte == b'\n') {
        if !verify.read_line(line) {
            break;
        }
    }
    verify.finish().map_err(|fault| assert!(!fault.to_string().contains(char::is_control))).is_ok()
}

fn continued(text: &[u8]) -> Vec<u8> {
    let mut open = AuditScanner::new(RUN);
    for line in text.split_inclusive(|byte| *byte == b'\n') {
        open.read_line(line);
    }
    let AuditFileEnd { mut chain, damage, ended, .. } = open.finish();
    let mut out = text.to_vec();
    if !ended {
        out.push(b'\n');
    }
    if damage.is_some() || !ended {
        let line = chain.damaged_line(damage.as_ref(), AuditRecord::default().at, "cut off");
        let seq = chain.head().lines.saturating_add(1);
        chain.advance(line.trim_end().as_bytes(), seq, AuditRecord::default().at);
        out.extend_from_slice(line.as_bytes());
    }
    out.extend_from_slice(chain.next_line(AuditRecord::default()).as_bytes());
    out
}
