//! Tests that no text in an event can break the screen: frames stay in place, and no escape sequence gets through.

use proptest::prelude::*;
use ratatui::buffer::Buffer;
use ratatui::crossterm::event::KeyCode;
use serde_json::json;

use super::super::model::WatchMessage;
use super::fixture::{WatchFixture, run_started_json};

/// Generates text of the kind that breaks screens.
fn hostile_text() -> impl Strategy<Value = String> {
    let piece = prop_oneof![
        any::<String>(),
        Just("\u{1b}[2J\u{1b}[H".to_owned()),
        Just("\u{1b}]0;mine\u{7}".to_owned()),
        Just("\u{9b}31m".to_owned()),
        Just("\u{202e}\u{2066}\u{200f}".to_owned()),
        Just("日本語👩‍👩‍👧‍👦🇩🇪e\u{301}\u{200b}\u{fe0f}".to_owned()),
        Just("\r\n\t\u{b}\u{85}\u{2028}".to_owned()),
        Just("x".repeat(5000)),
        Just("│╮╯ ✓ next: ".to_owned()),
    ];
    proptest::collection::vec(piece, 0..5).prop_map(|pieces| pieces.concat())
}

/// Returns a run in which every text field has this text.
fn fixture_with_text(text: &str, n: u32) -> WatchFixture {
    let mut first = run_started_json();
    for name in ["title", "run"] {
        first[name] = text.into();
    }
    for at in 0..4 {
        for name in ["text", "id", "milestone"] {
            first["boxes"][at][name] = text.into();
        }
    }
    for role in ["default", "fallback"] {
        first["profiles"][role]["name"] = text.into();
    }
    let mut story = WatchFixture::from_started(&first);
    let asked = json!({"kind": "needs-decision", "why": text});
    let events = [
        json!({"type": "sandbox-ready", "sandbox": text, "backend": text, "isolated": true, "start": "c".repeat(40), "head": "c".repeat(40), "reclaim": [text]}),
        json!({"type": "baseline-checked", "checks": [{"proves": [text], "command": text, "verdict": "slow"}]}),
        json!({"type": "iteration-started", "n": n, "profile": text, "because": text, "head": text, "tree": text}),
        json!({"type": "model-called", "n": n, "call": 0, "profile": text, "model": text, "answer": {"kind": "invalid", "error": text},
            "usage": {"input": u64::MAX, "cached_input": 0, "cache_write": 0, "output": u64::MAX, "reasoning": 0}, "cost": u64::MAX, "duration_ms": u64::MAX}),
        json!({"type": "action-started", "n": n, "index": u32::MAX, "kind": text, "brief": text, "before": {"kind": "nothing"}}),
        json!({"type": "log", "level": "warn", "text": text}),
        json!({"type": "check-finished", "n": n, "stage": "iteration", "command": text, "proves": [text], "code": i32::MIN, "timed_out": false, "duration_ms": 1, "output": text}),
        json!({"type": "iteration-finished", "n": n, "outcome": "progress", "head": text, "summary": text, "sample": {"newly_verified": n}, "verified": []}),
        json!({"type": "gutter-scored", "n": n, "score": {"total": 1e300, "a": 0.0, "b": 0.0, "c": 0.0, "evidence": [text], "veto": text}}),
        json!({"type": "mitigation-applied", "n": n, "rung": "fallback", "profile": text, "why": text}),
        json!({"type": "commit-imported", "n": n, "sha": "", "commits": 1, "findings": [{"rule": text, "path": text, "detail": text, "stop": false}]}),
        json!({"type": "pushed", "to": text, "branch": "ralph/t/x", "sha": "c".repeat(40)}),
        json!({"type": "pr-opened", "url": format!("https://{text}"), "number": u64::MAX}),
        json!({"type": "pr-updated", "url": text, "number": 1, "why": text}),
        json!({"type": "ci-changed", "state": "failed", "checks": [text]}),
        json!({"type": "policy-denied", "host": text, "port": 0, "rule": text, "count": u64::MAX}),
        json!({"type": "control-applied", "control": {"type": "set-profile", "name": text}, "by": text}),
        json!({"type": "paused", "reason": asked, "next": text}),
        json!({"type": "resumed", "by": text}),
        json!({"type": "run-finished", "verdict": {"state": "failed", "reason": asked}, "next": text}),
    ];
    for event in &events {
        story.advance(1).push_event(event);
    }
    story
}

/// Checks that no cell can move the cursor and that the frames are intact.
fn check_screen_intact(buffer: &Buffer) -> Result<(), TestCaseError> {
    let area = buffer.area;
    for y in 0..area.height {
        for x in 0..area.width {
            let symbol = buffer[(x, y)].symbol();
            prop_assert!(
                symbol.chars().all(|c| !c.is_control() && !('\u{202a}'..='\u{202e}').contains(&c)),
                "{symbol:?} at {x},{y}"
            );
        }
        // Every row fills the screen exactly.
        let row: String = (0..area.width).map(|x| buffer[(x, y)].symbol()).collect();
        prop_assert!(super::super::text_layout::display_width(&row) <= usize::from(area.width) * 2, "{row}");
    }
    if area.width >= 70 && area.height >= 20 {
        let frame = "╭╮╰╯│";
        // The last panel is the log: its frame ends two rows above the end, or three when there is a message below.
        let right = area.width - 1;
        let closed = (area.height - 3..area.height).any(|y| buffer[(right, y)].symbol() == "╯");
        prop_assert!(closed, "the log is not closed");
        let top = (0..area.height).find(|y| buffer[(0, *y)].symbol() == "╭");
        let top = top.ok_or_else(|| TestCaseError::fail("no panel"))?;
        let bottom = (0..area.height).rfind(|y| buffer[(0, *y)].symbol() == "╰");
        for y in top..bottom.unwrap_or(top) {
            prop_assert!(frame.contains(buffer[(0, y)].symbol()), "row {y} lost its left edge");
            prop_assert!(frame.contains(buffer[(right, y)].symbol()), "row {y} lost its right edge");
        }
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 32, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn no_text_breaks_a_screen(text in hostile_text(), n in any::<u32>(), keys in "[a-z?]{0,6}") {
        let mut story = fixture_with_text(&text, n);
        for c in keys.chars().filter(|c| *c != 'q') {
            story.press(c);
        }
        story.model.update(WatchMessage::Pasted(text.clone()));
        for (width, height) in [(80, 24), (120, 40), (40, 12)] {
            check_screen_intact(&story.buffer(width, height))?;
        }
        story.model.mode = super::super::model::InputMode::Browse;
        for _ in 0..5 {
            story.press_code(KeyCode::Tab);
            check_screen_intact(&story.buffer(80, 24))?;
        }
    }

    #[test]
    fn any_size_can_be_drawn(width in 1_u16..200, height in 1_u16..70, keys in "[a-z?]{0,3}", tabs in 0..5) {
        let mut story = WatchFixture::new();
        story.five_iterations();
        for _ in 0..tabs {
            story.press_code(KeyCode::Tab);
        }
        for c in keys.chars() {
            story.press(c);
        }
        story.press_code(KeyCode::PageUp);
        story.screen(width, height);
    }
}
