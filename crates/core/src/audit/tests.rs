//! Tests how tampering with a file is detected and reported.

use jiff::Timestamp;
use proptest::prelude::*;

use super::super::{
    AuditChain, AuditRecordCaps, AuditRecordClass, AuditScanner, MAX_ALARMS, MAX_CREDENTIAL_USES, MAX_DENIED,
    MAX_OTHERS,
};
use super::*;
use crate::money::MicroUsd;
use crate::price::TokenUsage;

const RUN: &str = "01k3v7r2m9abcdef";

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(1_770_000_000 + second).unwrap()
}

/// Returns a record with every field filled.
fn full(n: u64) -> AuditRecord {
    let text = |word: &str| Some(format!("{word}-{n}"));
    AuditRecord {
        at: at(i64::try_from(n).unwrap()),
        sandbox: "box".to_owned(),
        kind: AuditRecordKind::Exchange,
        entry: text("route"),
        decision: text("allowed"),
        reason: text("rule"),
        remedy: text("x.io"),
        host: text("x.io"),
        port: Some(443),
        address: text("192.0.2.1"),
        method: text("GET"),
        path: text("/a"),
        status: Some(200),
        sent: Some(10 + n),
        received: Some(20 + n),
        tokens: Some(TokenUsage {
            input: n,
            cached_input: 1,
            cache_write: 2,
            output: 3,
            reasoning: 4,
            ..TokenUsage::default()
        }),
        cost: Some(MicroUsd(77)),
        charge: text("reported"),
        credential: text("anthropic"),
        route: text("anthropic"),
        model: text("m"),
        count: Some(1),
        bytes: Some(2),
        ..AuditRecord::default()
    }
}

fn denied(host: &str) -> AuditRecord {
    AuditRecord { decision: Some("denied".to_owned()), host: Some(host.to_owned()), ..AuditRecord::default() }
}

fn write(chain: &mut AuditChain, record: AuditRecord) -> String {
    let line = chain.next_line(record);
    let record = AuditRecord::parse(line.trim_end().as_bytes()).unwrap();
    chain.advance(line.trim_end().as_bytes(), record.seq, record.at);
    line
}

/// Returns a file with this number of records, and its anchor.
fn file(run: &str, lines: u64) -> (Vec<String>, AuditAnchor) {
    let mut chain = AuditChain::begin(run);
    let written = (1..=lines).map(|n| write(&mut chain, full(n))).collect();
    (written, AuditAnchor { event: 9, head: chain.head().clone() })
}

fn verify_file(text: &[u8], anchors: &[AuditAnchor]) -> Result<AuditVerification, AuditFault> {
    let mut verify = AuditVerifier::new(RUN, anchors.iter().cloned());
    for line in text.split_inclusive(|byte| *byte == b'\n') {
        if !verify.read_line(line) {
            break;
        }
    }
    verify.finish()
}

#[track_caller]
fn check(lines: &[String], anchors: &[AuditAnchor], want: &str) {
    let result = match verify_file(lines.concat().as_bytes(), anchors) {
        Ok(report) => format!("{} lines, {} unanchored", report.head.lines, report.unanchored()),
        Err(fault) => {
            assert!(!fault.as_str().is_empty() && fault.hint(RUN).is_some());
            fault.to_string()
        }
    };
    assert_eq!(result, want);
}

#[test]
fn an_unchanged_file_verifies() {
    let (lines, anchor) = file(RUN, 5);
    check(&lines, std::slice::from_ref(&anchor), "5 lines, 0 unanchored");
    check(&lines, &[], "5 lines, 5 unanchored");
    check(&[], &[], "0 lines, 0 unanchored");
    let (more, _) = file(RUN, 8);
    check(&more, &[anchor], "8 lines, 3 unanchored");
    assert_eq!(
        lines[0].trim_end(),
        format!(
            r#"{{"seq":1,"format":1,"at":"2026-02-02T02:40:01Z","sandbox":"box","kind":"exchange","entry":"route-1","decision":"allowed-1","reason":"rule-1","remedy":"x.io-1","host":"x.io-1","port":443,"address":"192.0.2.1-1","method":"GET-1","path":"/a-1","status":200,"sent":11,"received":21,"tokens":{{"input":1,"cached_input":1,"cache_write":2,"output":3,"reasoning":4}},"cost":77,"charge":"reported-1","credential":"anthropic-1","route":"anthropic-1","model":"m-1","count":1,"bytes":2,"prev":"{}"}}"#,
            crate::hash::sha256(RUN.as_bytes())
        )
    );
}

/// No byte of any field can be changed, in the first line, in the middle or at the anchored end.
#[test]
fn changing_any_byte_is_detected() {
    let (lines, anchor) = file(RUN, 4);
    for place in [0, 1, 3] {
        for at in 0..lines[place].len() - 1 {
            let mut bytes: Vec<Vec<u8>> = lines.iter().map(|line| line.clone().into_bytes()).collect();
            bytes[place][at] ^= 1;
            let fault = verify_file(&bytes.concat(), std::slice::from_ref(&anchor)).expect_err("a byte was changed");
            let line = place as u64 + 1;
            // A change in the last line is revealed only by the anchor, and an extra newline makes two lines of one.
            let near = fault.line().is_none_or(|found| found == line || found == line + 1);
            assert!(near && !matches!(fault, AuditFault::Short { .. }), "line {line} byte {at}: {fault}");
        }
    }
}

#[test]
fn tampering_is_reported() {
    let (lines, anchor) = file(RUN, 6);
    let anchors = std::slice::from_ref(&anchor);
    let with = |change: &dyn Fn(&mut Vec<String>)| {
        let mut lines = lines.clone();
        change(&mut lines);
        lines
    };
    let field = |line: usize, from: &'static str, to: &'static str| {
        with(&|lines: &mut Vec<String>| {
            assert!(lines[line].contains(from));
            lines[line] = lines[line].replacen(from, to, 1);
        })
    };
    for (from, to) in [
        ("\"seq\":3", "\"seq\":4"),
        ("allowed-3", "denied-3"),
        ("x.io-3", "y.io-3"),
        ("\"port\":443", "\"port\":444"),
        ("\"cost\":77", "\"cost\":7"),
        ("anthropic-3", "nobody-3"),
        ("02:40:03", "02:40:04"),
        ("\"prev\":\"", "\"prev\":\"0"),
    ] {
        check(&field(2, from, to), anchors, "line 3 was changed");
    }
    check(&field(0, "\"port\":443", "\"port\":1"), anchors, "line 1 was changed");
    check(
        &field(5, "\"port\":443", "\"port\":1"),
        anchors,
        "line 6 is not the one that event 9 anchored: it or an earlier line was rewritten",
    );
    check(&field(5, "\"prev\":\"", "\"prev\":\"0"), anchors, "line 6 was changed");
    check(&field(4, "\"port\":443", "\"port\":1"), anchors, "line 5 was changed");
    check(&field(2, "\"port\":443,", "\"port\":443,,"), anchors, "line 3 is not a record");
    check(
        &field(0, "\"format\":1", "\"format\":2"),
        anchors,
        "the file is written in format 2, and this ralph reads up to 1",
    );

    check(&with(&|lines| drop(lines.remove(2))), anchors, "record 3 is missing before line 3");
    check(&with(&|lines| drop(lines.drain(..2))), anchors, "records 1 to 2 are missing before line 1");
    check(&with(&|lines| drop(lines.pop())), anchors, "the file ends after 5 records, and event 9 says there were 6");
    check(&with(&|lines| lines.clear()), anchors, "the file ends after 0 records, and event 9 says there were 6");
    check(&with(&|lines| lines.swap(1, 2)), anchors, "line 2 is out of order: it holds record 3 instead of 2");
    check(&with(&|lines| lines.swap(1, 4)), anchors, "line 2 is out of order: it holds record 5 instead of 2");
    check(&with(&|lines| lines.insert(2, lines[1].clone())), anchors, "line 3 is a duplicate: it holds record 2 again");
    check(&with(&|lines| lines.insert(2, "\n".to_owned())), anchors, "line 3 is not a record");
    check(&with(&|lines| lines.truncate(0)), &[], "0 lines, 0 unanchored");
    let torn = with(&|lines| {
        let last = lines.pop().unwrap();
        lines.push(last[..40].to_owned());
    });
    check(&torn, anchors, "line 6 is torn: it ends after 40 bytes without a newline");

    // Forged lines.
    let forged = |prev: &str| AuditRecord { seq: 7, prev: prev.to_owned(), ..full(7) }.to_json() + "\n";
    check(&with(&|lines| lines.push(forged("00"))), anchors, "line 7 was changed");
    check(&with(&|lines| lines.push(forged(&anchor.head.hash))), anchors, "7 lines, 1 unanchored");

    // The whole file rewritten, with a valid chain.
    let mut chain = AuditChain::begin(RUN);
    let rewritten: Vec<String> = (1..=6).map(|n| write(&mut chain, full(n + 1))).collect();
    check(&rewritten, anchors, "line 6 is not the one that event 9 anchored: it or an earlier line was rewritten");
    check(&rewritten, &[], "6 lines, 6 unanchored");
    let (other, _) = file("01k3v7r2m9zzzzzz", 6);
    check(&other, anchors, "line 1 begins the file of another run, or was changed");
    // More anchors reveal an earlier first line.
    let early = AuditAnchor { event: 4, head: file(RUN, 2).1.head };
    check(
        &rewritten,
        &[early, anchor.clone()],
        "line 2 is not the one that event 4 anchored: it or an earlier line was rewritten",
    );
}

/// Opens a file as a resumed run does, and appends one more record.
fn resumed(text: &str) -> String {
    let mut open = AuditScanner::new(RUN);
    for line in text.as_bytes().split_inclusive(|byte| *byte == b'\n') {
        open.read_line(line);
    }
    let mut found = open.finish();
    let mut out = text.to_owned();
    if !found.ended {
        out.push('\n');
    }
    if found.damage.is_some() || !found.ended {
        let line = found.chain.damaged_line(found.damage.as_ref(), at(50), "cut off");
        let record = AuditRecord::parse(line.trim_end().as_bytes()).unwrap();
        found.chain.advance(line.trim_end().as_bytes(), record.seq, record.at);
        out.push_str(&line);
    }
    out.push_str(&write(&mut found.chain, full(60)));
    out
}

#[test]
fn a_torn_line_is_marked_and_the_chain_continues() {
    let (lines, anchor) = file(RUN, 3);
    let whole = lines.concat();
    let before = lines[..2].concat();
    let anchors = [AuditAnchor { event: 3, head: file(RUN, 2).1.head }];
    // For every cut of the line: nothing of it, all of it but the newline, and in between.
    for cut in before.len()..=whole.len() {
        let text = resumed(&whole[..cut]);
        let report =
            verify_file(text.as_bytes(), &anchors).unwrap_or_else(|fault| panic!("cut at {cut}: {fault}\n{text}"));
        let clean = cut == before.len() || cut == whole.len();
        assert_eq!(report.damaged, u64::from(!clean), "cut at {cut}");
        let marker = text.lines().find(|line| line.contains("\"kind\":\"damaged\""));
        let bytes = marker.and_then(|line| AuditRecord::parse(line.as_bytes()).unwrap().bytes);
        let want = if cut + 1 == whole.len() { 0 } else { (cut - before.len()) as u64 };
        assert_eq!(bytes, (!clean).then_some(want), "cut at {cut}");
        // And again, if the marker was cut off as well.
        let again = resumed(&text[..text.len() - 300]);
        assert_eq!(verify_file(again.as_bytes(), &anchors).map(|report| report.damaged >= 1), Ok(true), "{again}");
    }
    // The first line of the file.
    let text = resumed(&whole[..17]);
    assert_eq!(verify_file(text.as_bytes(), &[]).map(|report| (report.head.lines, report.damaged)), Ok((2, 1)));
    // What was cut off is part of the chain.
    let text = resumed(&whole[..whole.len() - 50]);
    let changed = text.replacen("allowed-3", "allowed-4", 1);
    assert_eq!(verify_file(changed.as_bytes(), &anchors), Err(AuditFault::Unreadable { line: 3 }));
    // A marker does not excuse a file that lacks what was anchored.
    assert_eq!(
        verify_file(text.as_bytes(), std::slice::from_ref(&anchor)).map_err(|fault| fault.as_str()),
        Err("rewritten")
    );
}

/// Returns a record of a credential that was used in an uncharged request.
fn credential_use() -> AuditRecord {
    AuditRecord { tokens: None, cost: None, charge: None, decision: Some("allowed".to_owned()), ..full(1) }
}

fn alarm() -> AuditRecord {
    AuditRecord { kind: AuditRecordKind::Alarm, credential: Some("KEY".to_owned()), ..AuditRecord::default() }
}

fn tunnel() -> AuditRecord {
    AuditRecord { kind: AuditRecordKind::Tunnel, ..AuditRecord::default() }
}

/// Returns a record of a call that the provider refused, or that was never sent.
fn unpaid_call() -> AuditRecord {
    AuditRecord { charge: Some("nothing".to_owned()), cost: Some(MicroUsd::ZERO), ..full(1) }
}

#[test]
fn records_over_the_cap_are_counted() {
    let mut caps = AuditRecordCaps::with_written([(AuditRecordClass::Denied, MAX_DENIED - 1)]);
    assert!(caps.admit(&denied("a.io")) && !caps.has_unreported());
    for _ in 0..3 {
        assert!(!caps.admit(&denied("a.io")));
    }
    assert!(caps.admit(&AuditRecord { decision: Some("allowed".to_owned()), ..AuditRecord::default() }));
    let skipped: Vec<(AuditRecordKind, Option<u64>)> =
        caps.take_skipped_records().iter().map(|record| (record.kind, record.count)).collect();
    assert_eq!(skipped, [(AuditRecordKind::Skipped, Some(3))]);
    assert!(!caps.has_unreported() && caps.take_skipped_records().is_empty());
}

/// A class that reached its cap does not affect the others.
#[test]
fn caps_are_independent() {
    let all: [(AuditRecordClass, u64, &dyn Fn() -> AuditRecord, &str); 4] = [
        (
            AuditRecordClass::Denied,
            MAX_DENIED,
            &|| denied("a.io"),
            "refusals after the first 100000 of the run are only counted",
        ),
        (
            AuditRecordClass::CredentialUse,
            MAX_CREDENTIAL_USES,
            &credential_use,
            "uses of credentials after the first 100000 of the run are only counted",
        ),
        (AuditRecordClass::Alarm, MAX_ALARMS, &alarm, "alarms after the first 10000 of the run are only counted"),
        (
            AuditRecordClass::Other,
            MAX_OTHERS,
            &unpaid_call,
            "records after the first 1000000 of the run are only counted",
        ),
    ];
    for (full_up, most, _, words) in all {
        let mut caps = AuditRecordCaps::with_written([(full_up, most)]);
        for (class, _, record, _) in all {
            assert_eq!(caps.admit(&record()), class != full_up, "{class:?} when {full_up:?} is full");
        }
        let skipped: Vec<_> =
            caps.take_skipped_records().into_iter().map(|record| (record.count, record.reason)).collect();
        assert_eq!(skipped, [(Some(1), Some(words.to_owned()))]);
        assert!(caps.admit(&full(1)), "a charged call is always written");
        assert!(
            caps.admit(&AuditRecord { kind: AuditRecordKind::Alarm, ..AuditRecord::default() }),
            "an alarm about the whole run is always written"
        );
    }
}

/// Scanning a file gives the same counts as writing it.
#[test]
fn scanned_counts_equal_written_counts() {
    let mut chain = AuditChain::begin(RUN);
    let (mut open, mut written) = (AuditScanner::new(RUN), AuditRecordCaps::default());
    for record in
        [denied("a.io"), credential_use(), credential_use(), alarm(), tunnel(), unpaid_call(), full(1), full(2)]
    {
        assert!(written.admit(&record));
        open.read_line(write(&mut chain, record).as_bytes());
    }
    assert_eq!(open.finish().caps, written);
    assert_eq!(
        written,
        AuditRecordCaps::with_written([
            (AuditRecordClass::Denied, 1),
            (AuditRecordClass::CredentialUse, 2),
            (AuditRecordClass::Alarm, 1),
            (AuditRecordClass::Other, 2)
        ])
    );
}

proptest! {
    /// Whatever a client writes, its record is one line without control characters that parses back to the same record.
    #[test]
    fn hostile_text_is_one_plain_line(
        text in "(?s).{0,60}", host in "\\PC{0,40}|[\\x00-\\x1f\\x7f\u{80}-\u{9f}\u{202e}\u{2028}\"\\\\]{0,20}"
    ) {
        let record = AuditRecord { host: Some(host), path: Some(text.clone()), reason: Some(text), ..full(1) };
        let mut chain = AuditChain::begin(RUN);
        let first = write(&mut chain, record.clone());
        let second = write(&mut chain, full(2));
        prop_assert!(first.ends_with('\n') && first.trim_end().bytes().all(|byte| (b' '..=b'~').contains(&byte)));
        let read = AuditRecord::parse(first.trim_end().as_bytes()).unwrap();
        prop_assert_eq!(&read, &AuditRecord { seq: 1, format: Some(1), prev: read.prev.clone(), ..record });
        prop_assert_eq!(verify_file((first + &second).as_bytes(), &[]).unwrap().head.lines, 2);
    }

    #[test]
    fn hostile_files_never_panic(text in "(?s).{0,80}|(\\{\"seq\":[0-9]{1,20},\"at\":\"2026-01-02T03:04:05Z\",\"kind\":\"(damaged|decision)\",\"prev\":\"\"\\}\n){0,4}") {
        let _ = verify_file(text.as_bytes(), &[AuditAnchor { event: 1, head: AuditHead { lines: 1, hash: String::new() } }]);
        let text = resumed(&text);
        prop_assert!(text.ends_with('\n'));
    }
}
