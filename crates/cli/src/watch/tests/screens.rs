//! Golden screens. `RALPH_BLESS=1 cargo nextest run -p ralph-cli -E 'test(screens::)'` rewrites
//! them; review the result.

#![expect(clippy::disallowed_methods, reason = "`RALPH_BLESS` asks for new files")]

use std::path::Path;

use ratatui::crossterm::event::KeyCode;
use serde_json::json;

use super::super::model::WatchMessage;
use super::fixture::WatchFixture;

const SIZES: [(u16, u16); 3] = [(80, 24), (120, 40), (40, 12)];

/// Compares a run with its golden screen at every size.
#[track_caller]
fn check(name: &str, mut story: WatchFixture) {
    for (width, height) in SIZES {
        let found = story.screen(width, height);
        let path = Path::new(env!("CARGO_MANIFEST_DIR"))
            .join("src/watch/tests/screens")
            .join(format!("{name}-{width}x{height}.txt"));
        if std::env::var_os("RALPH_BLESS").is_some_and(|bless| bless == "1") {
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(&path, found).unwrap();
            continue;
        }
        let want = std::fs::read_to_string(&path).unwrap_or_default();
        assert!(found == want, "{name} at {width}x{height} is drawn differently now:\n{found}");
    }
}

#[test]
fn preparing() {
    let mut story = WatchFixture::new();
    story.advance(4);
    check("preparing", story);
}

#[test]
fn running() {
    let mut story = WatchFixture::new();
    story
        .five_iterations()
        .push_event(&json!({"type": "pr-opened", "url": "https://github.com/ann/shop/pull/12", "number": 12}));
    story.start_iteration(6, "sonnet").model_call(6, 330_000).start_action(6, "npm test -- --grep session").advance(41);
    check("running", story);
}

#[test]
fn gutter() {
    let mut story = WatchFixture::new();
    story.five_iterations().full_iteration(6, "action-failed", 0, &["M1.1", "M1.2"], 0.5);
    story
        .full_iteration(7, "action-failed", 0, &["M1.1", "M1.2"], 0.8)
        .push_event(&json!({"type": "mitigation-applied", "n": 7,
        "rung": "rotate", "profile": "sonnet", "why": "the last iterations went in circles"}));
    story.start_iteration(8, "sonnet").advance(3);
    check("gutter", story);
}

#[test]
fn paused_by_quota() {
    let mut story = WatchFixture::new();
    story
        .five_iterations()
        .push_event(&json!({"type": "paused", "reason": {"kind": "quota", "until": "2026-03-04T12:00:00Z"},
        "next": "nothing: it goes on by itself, or ralph resume d1vn1bc09rwx"}));
    story.advance(600);
    check("paused-quota", story);
}

#[test]
fn budget_spent() {
    let mut story = WatchFixture::new();
    story
        .five_iterations()
        .start_iteration(6, "sonnet")
        .model_call(6, 8_700_000)
        .push_event(&json!({"type": "budget-warned", "limit": "cost",
        "percent": 95}));
    story.end_iteration(6, "progress", 0, &["M1.1", "M1.2"], 0.0).push_event(&json!({"type": "run-finished",
        "verdict": {"state": "failed", "reason": {"kind": "budget", "limit": "cost"}},
        "next": "ralph resume d1vn1bc09rwx --add-cost 5"}));
    check("budget-spent", story);
}

#[test]
fn succeeded() {
    let mut story = WatchFixture::new();
    story.five_iterations().full_iteration(6, "progress", 2, &["M1.1", "M1.2", "M2.1", "M2.2"], 0.0);
    story.push_event(
        &json!({"type": "pushed", "to": "origin", "branch": "ralph/auth-007/fix-the-login", "sha": "809bd5f5e4d6e3896d6d4709d04294950b3fc692"}),
    );
    story.push_event(&json!({"type": "pr-opened", "url": "https://github.com/ann/shop/pull/12", "number": 12}));
    story.advance(9).push_event(&json!({"type": "check-finished", "n": 6, "stage": "proof", "command": "npm test",
        "proves": ["test"], "code": 0, "timed_out": false, "duration_ms": 8000, "output": "8b47"}));
    story.push_event(&json!({"type": "run-finished", "verdict": {"state": "succeeded"},
        "next": "ralph diff d1vn1bc09rwx, then merge ralph/auth-007/fix-the-login"}));
    check("succeeded", story);
}

#[test]
fn crashed() {
    let mut story = WatchFixture::new();
    story.five_iterations().start_iteration(6, "sonnet").advance(300).model.update(WatchMessage::Live(false));
    check("crashed", story);
}

#[test]
fn asking() {
    let mut story = WatchFixture::new();
    story.five_iterations().start_iteration(6, "sonnet");
    story.press('n');
    story.type_text("use the store in src/session.ts");
    check("note", story);

    let mut story = WatchFixture::new();
    story.five_iterations().start_iteration(6, "sonnet");
    story.press('f');
    story.press_code(KeyCode::Down);
    check("profiles", story);

    let mut story = WatchFixture::new();
    story.five_iterations().start_iteration(6, "sonnet");
    story.press('?');
    check("help", story);

    let mut story = WatchFixture::new();
    story.five_iterations().start_iteration(6, "sonnet");
    story.press('p');
    story.advance(12);
    check("pausing", story);
}

#[test]
fn scrolled() {
    let mut story = WatchFixture::new();
    story.five_iterations();
    story.press_code(KeyCode::PageUp);
    story.start_iteration(6, "sonnet").model_call(6, 330_000);
    check("scrolled", story);
}

#[test]
fn many_boxes_show_the_open_ones() {
    let mut first = super::fixture::run_started_json();
    let boxes: Vec<_> = (0..60)
        .map(|n| json!({"id": format!("M{}.{}", n / 10, n % 10), "text": "one of many", "milestone": format!("M{}", n / 10), "proofs": ["true"]}))
        .collect();
    first["boxes"] = boxes.into();
    let verified: Vec<String> = (0..25).map(|n| format!("M{}.{}", n / 10, n % 10)).collect();
    let verified: Vec<&str> = verified.iter().map(String::as_str).collect();
    let mut story = WatchFixture::from_started(&first);
    story.sandbox_ready().full_iteration(1, "progress", 25, &verified, 0.0);
    check("many-boxes", story);
}

#[test]
fn each_panel_has_the_screen_to_itself() {
    for (tabs, name) in [(1, "log"), (2, "iterations"), (3, "boxes"), (4, "budgets")] {
        let mut story = WatchFixture::new();
        story.five_iterations();
        for _ in 0..tabs {
            story.press_code(KeyCode::Tab);
        }
        check(&format!("alone-{name}"), story);
    }
    let mut story = WatchFixture::new();
    story.five_iterations();
    let all = story.screen(80, 24);
    for _ in 0..5 {
        story.press_code(KeyCode::Tab);
    }
    assert_eq!(story.screen(80, 24), all, "the circle closes");
    story.press_code(KeyCode::BackTab);
    story.press_code(KeyCode::Tab);
    assert_eq!(story.screen(80, 24), all, "and turns both ways");
}

#[test]
fn a_lost_folder_is_reported() {
    let mut story = WatchFixture::new();
    story.five_iterations().model.update(WatchMessage::FolderGone);
    let screen = story.screen(80, 24);
    assert!(screen.contains("the folder of the run is gone") && screen.contains("next: ralph ls"), "{screen}");
    assert_eq!(story.press('r'), None);
    assert!(story.screen(80, 24).contains("nothing can be asked of it"));
}

#[test]
fn an_unreadable_history_is_reported() {
    let mut story = WatchFixture::new();
    story.five_iterations().model.update(WatchMessage::Unreadable("event 31 is damaged".to_owned()));
    let screen = story.screen(80, 24);
    assert!(screen.contains("event 31 is damaged") && screen.contains("next: ralph logs d1vn1bc09rwx"), "{screen}");
}
