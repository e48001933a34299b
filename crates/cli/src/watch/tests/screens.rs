//! Golden screens. `RALPH_BLESS=1 cargo nextest run -p ralph-cli -E 'test(screens::)'` writes them anew; look at them then.

use std::path::Path;

use ratatui::crossterm::event::KeyCode;
use serde_json::json;

use super::super::model::Heard;
use super::story::Story;

const SIZES: [(u16, u16); 3] = [(80, 24), (120, 40), (40, 12)];

/// Compares a story with its picture at every size.
#[track_caller]
fn check(name: &str, mut story: Story) {
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
    let mut story = Story::begin();
    story.wait(4);
    check("preparing", story);
}

#[test]
fn running() {
    let mut story = Story::begin();
    story.worked().told(&json!({"type": "pr-opened", "url": "https://github.com/ann/shop/pull/12", "number": 12}));
    story.iteration(6, "sonnet").called(6, 330_000).acting(6, "npm test -- --grep session").wait(41);
    check("running", story);
}

#[test]
fn gutter() {
    let mut story = Story::begin();
    story.worked().done(6, "action-failed", 0, &["M1.1", "M1.2"], 0.5);
    story.done(7, "action-failed", 0, &["M1.1", "M1.2"], 0.8).told(&json!({"type": "mitigation-applied", "n": 7,
        "rung": "rotate", "profile": "sonnet", "why": "the last iterations went in circles"}));
    story.iteration(8, "sonnet").wait(3);
    check("gutter", story);
}

#[test]
fn paused_by_quota() {
    let mut story = Story::begin();
    story.worked().told(&json!({"type": "paused", "reason": {"kind": "quota", "until": "2026-03-04T12:00:00Z"},
        "next": "nothing: it goes on by itself, or ralph resume d1vn1bc09rwx"}));
    story.wait(600);
    check("paused-quota", story);
}

#[test]
fn budget_spent() {
    let mut story = Story::begin();
    story.worked().iteration(6, "sonnet").called(6, 8_700_000).told(&json!({"type": "budget-warned", "limit": "cost",
        "percent": 95}));
    story.ended(6, "progress", 0, &["M1.1", "M1.2"], 0.0).told(&json!({"type": "run-finished",
        "verdict": {"state": "failed", "reason": {"kind": "budget", "limit": "cost"}},
        "next": "ralph resume d1vn1bc09rwx --add-cost 5"}));
    check("budget-spent", story);
}

#[test]
fn succeeded() {
    let mut story = Story::begin();
    story.worked().done(6, "progress", 2, &["M1.1", "M1.2", "M2.1", "M2.2"], 0.0);
    story.told(
        &json!({"type": "pushed", "to": "origin", "branch": "ralph/auth-007/fix-the-login", "sha": "809bd5f5e4"}),
    );
    story.told(&json!({"type": "pr-opened", "url": "https://github.com/ann/shop/pull/12", "number": 12}));
    story.wait(9).told(&json!({"type": "check-finished", "n": 6, "stage": "proof", "command": "npm test",
        "proves": ["test"], "code": 0, "timed_out": false, "duration_ms": 8000, "output": "8b47"}));
    story.told(&json!({"type": "run-finished", "verdict": {"state": "succeeded"},
        "next": "ralph diff d1vn1bc09rwx, then merge ralph/auth-007/fix-the-login"}));
    check("succeeded", story);
}

#[test]
fn crashed() {
    let mut story = Story::begin();
    story.worked().iteration(6, "sonnet").wait(300).model.update(Heard::Driven(false));
    check("crashed", story);
}

#[test]
fn asking() {
    let mut story = Story::begin();
    story.worked().iteration(6, "sonnet");
    story.pressed('n');
    story.typed("use the store in src/session.ts");
    check("note", story);

    let mut story = Story::begin();
    story.worked().iteration(6, "sonnet");
    story.pressed('f');
    story.pressed_code(KeyCode::Down);
    check("profiles", story);

    let mut story = Story::begin();
    story.worked().iteration(6, "sonnet");
    story.pressed('?');
    check("help", story);

    let mut story = Story::begin();
    story.worked().iteration(6, "sonnet");
    story.pressed('p');
    story.wait(12);
    check("pausing", story);
}

#[test]
fn scrolled() {
    let mut story = Story::begin();
    story.worked();
    story.pressed_code(KeyCode::PageUp);
    story.iteration(6, "sonnet").called(6, 330_000);
    check("scrolled", story);
}

#[test]
fn many_boxes_show_the_open_ones() {
    let mut first = super::story::started();
    let boxes: Vec<_> = (0..60)
        .map(|n| json!({"id": format!("M{}.{}", n / 10, n % 10), "text": "one of many", "milestone": format!("M{}", n / 10), "proofs": ["true"]}))
        .collect();
    first["boxes"] = boxes.into();
    let verified: Vec<String> = (0..25).map(|n| format!("M{}.{}", n / 10, n % 10)).collect();
    let verified: Vec<&str> = verified.iter().map(String::as_str).collect();
    let mut story = Story::of(&first);
    story.ready().done(1, "progress", 25, &verified, 0.0);
    check("many-boxes", story);
}

#[test]
fn each_panel_has_the_screen_to_itself() {
    for (tabs, name) in [(1, "log"), (2, "iterations"), (3, "boxes"), (4, "budgets")] {
        let mut story = Story::begin();
        story.worked();
        for _ in 0..tabs {
            story.pressed_code(KeyCode::Tab);
        }
        check(&format!("alone-{name}"), story);
    }
    let mut story = Story::begin();
    story.worked();
    let all = story.screen(80, 24);
    for _ in 0..5 {
        story.pressed_code(KeyCode::Tab);
    }
    assert_eq!(story.screen(80, 24), all, "the circle closes");
    story.pressed_code(KeyCode::BackTab);
    story.pressed_code(KeyCode::Tab);
    assert_eq!(story.screen(80, 24), all, "and turns both ways");
}

#[test]
fn a_lost_folder_is_told() {
    let mut story = Story::begin();
    story.worked().model.update(Heard::Gone);
    let screen = story.screen(80, 24);
    assert!(screen.contains("the folder of the run is gone") && screen.contains("next: ralph ls"), "{screen}");
    assert_eq!(story.pressed('r'), None);
    assert!(story.screen(80, 24).contains("nothing can be asked of it"));
}

#[test]
fn an_unreadable_history_is_told() {
    let mut story = Story::begin();
    story.worked().model.update(Heard::Unreadable("event 31 is damaged".to_owned()));
    let screen = story.screen(80, 24);
    assert!(screen.contains("event 31 is damaged") && screen.contains("next: ralph logs d1vn1bc09rwx"), "{screen}");
}
