//! Tests how events are written and read, including those of older versions.

use super::*;

#[test]
fn lines_round_trip() {
    let line = EventLine {
        seq: 7,
        at: "2026-01-02T03:04:05.678Z".parse().unwrap(),
        passed_ms: None,
        event: Event::BudgetWarned { limit: BudgetKind::Cost, percent: 80 },
    };
    let text = line.to_json();
    assert_eq!(text, r#"{"seq":7,"at":"2026-01-02T03:04:05.678Z","type":"budget-warned","limit":"cost","percent":80}"#);
    assert_eq!(EventLine::parse(&text).unwrap(), line);
    assert_eq!(EventLine::parse_canonical(&text), Some(line.clone()));
    assert_eq!(EventLine::parse_any_order(&text).unwrap(), line);
    let line = EventLine { passed_ms: Some(12), ..line };
    let text = line.to_json();
    assert!(text.contains(r#""at":"2026-01-02T03:04:05.678Z","passed_ms":12,"type":"#), "{text}");
    assert_eq!(EventLine::parse(&text).unwrap(), line);
}

/// Checks that the fast parser, if it accepts a line, agrees with the general one.
#[track_caller]
fn check_both(text: &str) {
    if let Some(short) = EventLine::parse_canonical(text) {
        assert_eq!(EventLine::parse_any_order(text).ok(), Some(short), "{text}");
    }
}

#[test]
fn the_fast_parser_agrees_with_the_general_one() {
    let at = "2026-01-02T03:04:05Z";
    let moved = format!(r#"{{"type":"resumed","seq":7,"by":"cli","at":"{at}"}}"#);
    assert_eq!(EventLine::parse_canonical(&moved), None);
    assert_eq!(EventLine::parse(&moved).unwrap().seq, 7);
    for text in [
        format!(r#"{{"seq":7,"at":"{at}","type":"resumed","by":"cli"}}"#),
        format!(r#"{{"seq":07,"at":"{at}","type":"resumed","by":"cli"}}"#),
        format!(r#"{{"seq":,"at":"{at}","type":"resumed","by":"cli"}}"#),
        format!(r#"{{"seq":-7,"at":"{at}","type":"resumed","by":"cli"}}"#),
        format!(r#"{{"seq":99999999999999999999,"at":"{at}","type":"resumed","by":"cli"}}"#),
        format!(r#"{{"seq":7,"at":"{at}","type":"resumed","by":"cli","seq":8}}"#),
        format!(r#"{{"seq":7,"at":"{at}","type":"resumed","by":"cli","at":"{at}"}}"#),
        format!(r#"{{"seq":7,"at":"{at}","type":"resumed","by":"cli"}} x"#),
        format!(r#"{{"seq":7,"at":"{at}","type":"resumed","by":"cli","passed_ms":3}}"#),
        r#"{"seq":7,"at":"yesterday","type":"resumed","by":"cli"}"#.to_owned(),
    ] {
        check_both(&text);
    }
}

proptest::proptest! {
    #[test]
    fn hostile_lines_never_panic(seq in "[0-9]{0,3}|.{0,4}", at in ".{0,9}|2026-01-02T03:04:05Z", rest in ".{0,40}") {
        let tail = format!(r#""resumed","by":"cli"{rest}"#);
        for tail in [rest, format!("{tail}}}"), tail] {
            let text = format!(r#"{{"seq":{seq},"at":"{at}","type":{tail}"#);
            check_both(&text);
            let _ = EventLine::parse(&text);
        }
    }
}

#[test]
fn unknown_fields_are_ignored_and_unknown_events_are_errors() {
    let known = r#"{"seq":1,"at":"2026-01-02T03:04:05Z","type":"resumed","by":"cli","mood":"good"}"#;
    assert_eq!(EventLine::parse(known).unwrap().event, Event::Resumed { by: "cli".to_owned() });
    for bad in [r#"{"seq":1,"at":"2026-01-02T03:04:05Z","type":"danced"}"#, "{", "", "[]"] {
        assert!(matches!(EventLine::parse(bad), Err(BadEventLine::Unknown(_))), "{bad}");
    }
}
