//! Tests writing, continuing, damaging, flooding and killing the writer of the audit log.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::process::{Command, Stdio};
use std::time::Duration;

use ralph_core::audit::{AuditFault, AuditRecordClass, AuditVerification, MAX_DENIED};
use ralph_core::egress::address;
use ralph_core::event::EventLogLevel;
use ralph_core::money::MicroUsd;
use ralph_core::policy::PolicyMode;
use ralph_core::price::TokenUsage;
use ralph_core::secret::Secret;
use ralph_proxy::egress_events::{
    AlarmKind, ChargeBasis, ChargedCall, DecisionReason, EgressAlarm, EgressDecision, EgressEntry, EgressExchange,
    EgressTunnel, RequestSummary,
};
use ralph_proxy::meter::GatewayRefusal;
use ralph_proxy::sent_bytes_alarm::OutflowMeter;
use serde_json::{Value, json};
use tempfile::TempDir;

use super::super::{AuditReader, path, verify};
use super::*;

const RUN: &str = "01k3v7r2m9abcdef";

fn folder(dir: &TempDir) -> RunFolder {
    let folder = RunFolder::at(dir.path().join(RUN));
    fs::create_dir_all(folder.path()).unwrap();
    folder
}

fn redactor() -> Redactor {
    Redactor::new([("KEY".to_owned(), Secret::new("hunter2-hunter2"))])
}

fn denied(host: &str) -> EgressEvent {
    let why = DecisionReason::Mode(PolicyMode::Allowlist);
    EgressEvent::Decision(EgressDecision {
        entry: EgressEntry::Connect,
        host: host.to_owned(),
        port: 443,
        request: None,
        allowed: false,
        why,
        address: None,
    })
}

fn lines(folder: &RunFolder) -> Vec<Value> {
    let text = fs::read_to_string(path(folder)).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[track_caller]
fn verified_report(folder: &RunFolder) -> AuditVerification {
    verify(folder).unwrap().unwrap_or_else(|fault| panic!("{fault}"))
}

/// The record of every kind of event, as written.
#[test]
fn records_of_each_event() {
    let dir = tempfile::tempdir().unwrap();
    let folder = folder(&dir);
    let audit_log = AuditLog::open(&folder, redactor()).unwrap();
    let exchanged = EgressExchange {
        entry: EgressEntry::Route,
        host: "api.x.io".to_owned(),
        port: 443,
        method: "POST".to_owned(),
        path: "/v1/messages?key=hunter2-hunter2".to_owned(),
        status: Some(200),
        refused: None,
        sent: 10,
        received: 20,
        credential: Some("anthropic".to_owned()),
        call: Some(ChargedCall {
            id: 1,
            route: "anthropic".to_owned(),
            model: "m".to_owned(),
            answered_by: Some("other".to_owned()),
            usage: TokenUsage { input: 5, output: 6, ..TokenUsage::default() },
            cost: MicroUsd(77),
            charge: ChargeBasis::Reported,
            limits: Vec::new(),
        }),
    };
    let inner = EgressDecision {
        entry: EgressEntry::Socks,
        host: "inner.x.io".to_owned(),
        port: 80,
        request: None,
        allowed: false,
        why: DecisionReason::InternalAddress(address::IpAddressKind::Private),
        address: Some("10.0.0.1".parse().unwrap()),
    };
    let refused = |path: &str| {
        let (host, request) = ("y.io".to_owned(), Some(RequestSummary::new("POST", path)));
        let (allowed, why, address) = (false, DecisionReason::RequestNotAllowed, None);
        EgressEvent::Decision(EgressDecision {
            entry: EgressEntry::Connect,
            host,
            port: 443,
            request,
            allowed,
            why,
            address,
        })
    };
    let all = [
        denied("hunter2-hunter2.x.io"),
        denied("y.io"),
        EgressEvent::Decision(inner),
        EgressEvent::Exchange(exchanged.clone()),
        EgressEvent::Exchange(EgressExchange {
            path: "/a".repeat(2000),
            call: None,
            credential: None,
            status: None,
            ..exchanged.clone()
        }),
        EgressEvent::Exchange(EgressExchange {
            path: "/v1/files".to_owned(),
            call: None,
            status: Some(403),
            refused: Some(Box::new(GatewayRefusal::Endpoint("`hunter2-hunter2` is not an endpoint".to_owned()))),
            ..exchanged.clone()
        }),
        EgressEvent::Exchange(EgressExchange {
            call: None,
            status: Some(502),
            refused: Some(Box::new(GatewayRefusal::Upstream("it does not answer".to_owned()))),
            ..exchanged
        }),
        EgressEvent::Tunnel(EgressTunnel {
            entry: EgressEntry::Connect,
            host: "pypi.org".to_owned(),
            port: 443,
            sent: 1234,
            received: 56,
            took: Duration::from_millis(7890),
        }),
        EgressEvent::Alarm(EgressAlarm {
            what: AlarmKind::OutflowExceeded { limit: 64 << 20 },
            credential: String::new(),
            host: "pypi.org".to_owned(),
            port: 443,
        }),
        EgressEvent::Alarm(EgressAlarm {
            what: AlarmKind::PhantomMisdirected,
            credential: "anthropic".to_owned(),
            host: "evil.io".to_owned(),
            port: 443,
        }),
        EgressEvent::BudgetSpent { route: "anthropic".to_owned(), model: "m".to_owned(), why: "spent".to_owned() },
        EgressEvent::Restarted { why: "it died\n\u{1b}[31m".to_owned() },
        refused("/o/r?key=hunter2-hunter2"),
        refused("/hunter2-hunter2"),
    ];
    for event in &all {
        audit_log.write("box", event);
    }
    audit_log.record_closed("box");
    let head = audit_log.flush_and_head().unwrap();
    assert_eq!(head.lines, 15);
    let mut written = lines(&folder);
    let long = written[4]["path"].take();
    assert_eq!(long.as_str().unwrap(), format!("{}…", "/a".repeat(512)));
    for line in &mut written {
        let line = line.as_object_mut().unwrap();
        assert_eq!(line.remove("sandbox"), Some(json!("box")));
        for name in ["seq", "at", "prev", "format"] {
            line.remove(name);
        }
    }
    let tokens = json!({"input": 5, "cached_input": 0, "cache_write": 0, "output": 6, "reasoning": 0});
    let why = "no rule names it, and the network policy is `allowlist`";
    let other = "the rules for this host allow other requests, and none allows this one";
    assert_eq!(
        Value::Array(written),
        json!([
            {"kind": "decision", "entry": "connect", "decision": "denied", "reason": why,
             "host": "[redacted:KEY].x.io", "port": 443},
            {"kind": "decision", "entry": "connect", "decision": "denied", "reason": why, "remedy": "y.io",
             "host": "y.io", "port": 443},
            {"kind": "decision", "entry": "socks", "decision": "denied", "reason": "its address is a private address",
             "remedy": "10.0.0.1:80", "host": "inner.x.io", "port": 80, "address": "10.0.0.1"},
            {"kind": "exchange", "entry": "route", "decision": "allowed", "reason": "`other` says it answered",
             "host": "api.x.io", "port": 443, "method": "POST", "path": "/v1/messages", "status": 200, "sent": 10, "received": 20, "tokens": tokens,
             "cost": 77, "charge": "reported", "credential": "anthropic", "route": "anthropic", "model": "m"},
            {"kind": "exchange", "entry": "route", "decision": "allowed", "host": "api.x.io", "port": 443,
             "method": "POST", "path": null, "sent": 10, "received": 20},
            {"kind": "exchange", "entry": "route", "decision": "denied", "reason": "`[redacted:KEY]` is not an endpoint",
             "host": "api.x.io", "port": 443, "method": "POST", "path": "/v1/files", "status": 403, "sent": 10,
             "received": 20, "credential": "anthropic"},
            {"kind": "exchange", "entry": "route", "decision": "allowed", "reason": "it does not answer",
             "host": "api.x.io", "port": 443, "method": "POST", "path": "/v1/messages", "status": 502, "sent": 10,
             "received": 20, "credential": "anthropic"},
            {"kind": "tunnel", "entry": "connect", "decision": "allowed", "host": "pypi.org", "port": 443, "sent": 1234,
             "received": 56, "took_ms": 7890},
            {"kind": "alarm", "reason": "the run has sent out more than 64 MiB", "host": "pypi.org", "port": 443},
            {"kind": "alarm", "reason": "a phantom credential was sent to a host it is not for",
             "host": "evil.io", "port": 443, "credential": "anthropic"},
            {"kind": "spent", "reason": "spent", "route": "anthropic", "model": "m"},
            {"kind": "restarted", "reason": "it died\n\u{1b}[31m"},
            {"kind": "decision", "entry": "connect", "decision": "denied", "reason": other, "remedy": "POST y.io/o/r",
             "host": "y.io", "port": 443, "method": "POST", "path": "/o/r"},
            {"kind": "decision", "entry": "connect", "decision": "denied", "reason": other, "host": "y.io", "port": 443,
             "method": "POST", "path": "/[redacted:KEY]"},
            {"kind": "closed"},
        ])
    );
    let text = fs::read_to_string(path(&folder)).unwrap();
    assert!(!text.contains("hunter2") && text.is_ascii() && !text.contains('\u{1b}'));
    assert_eq!(fs::metadata(path(&folder)).unwrap().permissions().mode() & 0o777, 0o600);
    assert_eq!(verified_report(&folder).head, head);
    let events = audit_log.take_denial_events();
    assert!(
        matches!(
            &events[..],
            [
                Event::PolicyDenied { count: 1, .. },
                Event::PolicyDenied { .. },
                Event::PolicyDenied { .. },
                Event::Log { level: EventLogLevel::Warn, .. },
                Event::PolicyDenied { .. },
                Event::Log { level: EventLogLevel::Error, .. },
                Event::Log { level: EventLogLevel::Error, .. },
                Event::Log { level: EventLogLevel::Warn, .. },
                Event::Log { level: EventLogLevel::Warn, .. },
                Event::PolicyDenied { request: Some(_), remedy: Some(_), .. },
                Event::PolicyDenied { request: Some(_), remedy: None, .. },
            ]
        ),
        "{events:?}"
    );
    assert_eq!(audit_log.take_denial_events(), []);
    drop(audit_log);
    // A new writer continues the outflow count, from requests and tunnels.
    let audit_log = AuditLog::open(&folder, redactor()).unwrap();
    let counted = audit_log.outflow(&OutflowMeter::new(Some(5), 0));
    assert_eq!((counted.sent(), counted.limit()), (10 + 10 + 10 + 1234, Some(5)));
    assert_eq!(audit_log.outflow(&OutflowMeter::new(Some(7), 0)).limit(), Some(5), "one count for all sandboxes");
    assert_eq!(audit_log.outflow(&OutflowMeter::new(None, 0)).limit(), None);
}

#[test]
fn one_log_is_shared_and_continued() {
    let dir = tempfile::tempdir().unwrap();
    let folder = folder(&dir);
    let audit_log = AuditLog::open(&folder, redactor()).unwrap();
    assert!(Arc::ptr_eq(&audit_log, &AuditLog::open(&folder, redactor()).unwrap()));
    let threads: Vec<_> = (0..4)
        .map(|n| {
            let audit_log = audit_log.clone();
            std::thread::spawn(move || (0..50).for_each(|_| audit_log.write(&format!("box-{n}"), &denied("x.io"))))
        })
        .collect();
    for thread in threads {
        thread.join().unwrap();
    }
    drop(audit_log);
    let audit_log = AuditLog::open(&folder, redactor()).unwrap();
    audit_log.write("box", &denied("x.io"));
    let report = verified_report(&folder);
    assert_eq!((report.head.lines, report.damaged), (201, 0));
    assert_eq!(report.head, audit_log.flush_and_head().unwrap());
}

#[test]
fn locked_by_another_process() {
    let dir = tempfile::tempdir().unwrap();
    let folder = folder(&dir);
    let held = File::create(path(&folder)).unwrap();
    held.lock().unwrap();
    assert!(matches!(AuditLog::open(&folder, redactor()), Err(Error::Locked { .. })));
}

#[test]
fn a_torn_line_is_marked() {
    let dir = tempfile::tempdir().unwrap();
    let folder = folder(&dir);
    let write = || AuditLog::open(&folder, redactor()).unwrap().write("box", &denied("x.io"));
    write();
    write();
    let text = fs::read(path(&folder)).unwrap();
    fs::write(path(&folder), &text[..text.len() - 20]).unwrap();
    assert!(matches!(verify(&folder).unwrap(), Err(AuditFault::Torn { line: 2, .. })));
    write();
    let report = verified_report(&folder);
    assert_eq!((report.head.lines, report.damaged), (3, 1));
    let mut reader = AuditReader::new(&folder);
    let mut kinds = Vec::new();
    while let Some(entry) = reader.next().unwrap() {
        kinds.push(entry.record.map(|record| (record.kind, record.bytes)));
    }
    let torn = Some((text.len() / 2 - 20) as u64);
    let decision = Some((AuditRecordKind::Decision, None));
    assert_eq!(kinds.len(), 4);
    assert_eq!((kinds[0], kinds[1], kinds[3]), (decision, None, decision));
    let Some((AuditRecordKind::Damaged, bytes)) = kinds[2] else { panic!("{kinds:?}") };
    // The first line carries the format, so the second is a little shorter than half.
    assert!(bytes < torn && bytes > torn.map(|torn| torn - 20), "{bytes:?}");
}

#[test]
fn unwritten_records_are_counted() {
    let dir = tempfile::tempdir().unwrap();
    let folder = folder(&dir);
    let audit_log = AuditLog::open(&folder, redactor()).unwrap();
    audit_log.write("box", &denied("x.io"));
    let good = {
        let mut state = audit_log.shared.lock_state();
        // Like a full disk: neither the write nor the truncation works.
        let reading = File::open(path(&folder)).unwrap();
        std::mem::replace(&mut state.file, reading)
    };
    audit_log.write("box", &denied("x.io"));
    audit_log.write("box", &denied("x.io"));
    assert!(audit_log.take_error().is_some());
    assert_eq!(audit_log.take_error(), None);
    // Half of a line was written.
    fs::OpenOptions::new().append(true).open(path(&folder)).unwrap().write_all(b"{\"seq\":2,").unwrap();
    audit_log.shared.lock_state().file = good;
    audit_log.write("box", &denied("x.io"));
    let report = verified_report(&folder);
    assert_eq!((report.head.lines, report.skipped, report.damaged), (3, 2, 0));
}

#[test]
fn excess_records_are_counted() {
    let dir = tempfile::tempdir().unwrap();
    let folder = folder(&dir);
    let audit_log = AuditLog::open(&folder, redactor()).unwrap();
    audit_log.shared.lock_state().rate_cap =
        AuditRecordCaps::with_written([(AuditRecordClass::Denied, MAX_DENIED - 2)]);
    for _ in 0..7 {
        audit_log.write("box", &denied("x.io"));
    }
    assert_eq!(verified_report(&folder).head.lines, 2);
    audit_log.flush_and_head().unwrap();
    let report = verified_report(&folder);
    assert_eq!((report.head.lines, report.skipped), (3, 5));
    audit_log.write("box", &denied("x.io"));
    drop(audit_log);
    let report = verified_report(&folder);
    assert_eq!((report.head.lines, report.skipped), (4, 6), "and at the end");
}

/// The process that the test below kills: it writes until it dies.
#[test]
#[expect(clippy::disallowed_methods, reason = "the test passes its parameters to the child process in a variable")]
fn writes_until_it_is_killed() {
    let Some(place) = std::env::var_os("RALPH_TEST_AUDIT") else { return };
    let audit_log = AuditLog::open(&RunFolder::at(place.into()), redactor()).unwrap();
    for n in 0..10_000_000_u64 {
        audit_log.write("box", &denied(&format!("{n}.x.io")));
        // Every line the reader sees here was preceded by its record.
        writeln!(io::stdout(), "wrote {}", n + 1).unwrap();
    }
}

#[test]
fn a_kill_loses_nothing_that_was_written() {
    let dir = tempfile::tempdir().unwrap();
    let folder = folder(&dir);
    let mut before = 0;
    for round in 1..=5_u64 {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "audit::writer::tests::writes_until_it_is_killed", "--nocapture"])
            .env("RALPH_TEST_AUDIT", folder.path())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut count = 0;
        let mut reader = BufReader::new(child.stdout.take().unwrap());
        let mut line = String::new();
        let mut last = 0;
        while reader.read_line(&mut line).unwrap() > 0 {
            if let Some(n) = line.trim().strip_prefix("wrote ") {
                last = n.parse().unwrap();
                count += 1;
            }
            line.clear();
            if count == 40 * round {
                child.kill().unwrap();
            }
        }
        child.wait().unwrap();
        assert!(last >= 40 * round);
        let report = verified_report(&folder);
        assert!(report.head.lines >= before + last, "{} < {before} + {last}", report.head.lines);
        before = report.head.lines;
    }
}
