//! Tests what each key does, what is shown until its event arrives, and what is refused.

use ralph_core::control_request::Control;
use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use serde_json::{Value, json};

use super::super::model::{WatchEffect, WatchExit, WatchMessage};
use super::fixture::WatchFixture;

fn running_fixture() -> WatchFixture {
    let mut story = WatchFixture::new();
    story.five_iterations().start_iteration(6, "sonnet");
    story
}

fn control_applied_json(control: &Control) -> Value {
    json!({"type": "control-applied", "control": control, "by": "a person"})
}

/// Presses keys, expects a control and that it is pending until its events arrive.
#[track_caller]
fn check(keys: &str, want: &Control, pending: &str, events: &[Value], done: &str) {
    let mut story = running_fixture();
    story.write_diagnosis(5, &["look first", "then leap"]);
    let (last, first) =
        keys.chars().collect::<Vec<_>>().split_last().map(|(last, first)| (*last, first.to_vec())).unwrap();
    story.type_text(&first.into_iter().collect::<String>());
    let effect = if last == '\n' { story.press_code(KeyCode::Enter) } else { story.press(last) };
    assert_eq!(effect, Some(WatchEffect::Send(want.clone())), "{keys}");
    let shows = |story: &mut WatchFixture, words: &str| story.screen(80, 24).contains(words);
    assert!(shows(&mut story, pending), "{keys}: {}", story.screen(80, 24));
    // The run has accepted the control, but only its event ends the pending state.
    story.model.update(WatchMessage::Answered { kind: "other", outcome: Ok(()) });
    assert!(shows(&mut story, pending), "{keys}");
    for event in events {
        assert!(shows(&mut story, pending), "{keys}");
        story.push_event(event);
    }
    assert!(!shows(&mut story, pending) && shows(&mut story, done), "{keys}: {}", story.screen(80, 24));
}

#[test]
fn every_control_is_pending_until_its_event() {
    let asked = json!({"kind": "asked"});
    check(
        "p",
        &Control::Pause,
        "pausing after the action under way",
        &[
            control_applied_json(&Control::Pause),
            json!({"type": "paused", "reason": asked, "next": "ralph resume d1vn1bc09rwx"}),
        ],
        "it is paused",
    );
    let stopped = json!({"type": "run-finished", "verdict": {"state": "stopped", "reason": asked}, "next": "ralph ls"});
    check(
        "sy",
        &Control::Stop,
        "stopping",
        &[control_applied_json(&Control::Stop), stopped],
        "it is stopped; its commits are kept",
    );
    for (keys, control, pending, done) in [
        ("r", Control::Rotate { why: None }, "asking for a fresh session", "starts with a fresh session"),
        ("d", Control::Diagnose, "asking for a diagnosis", "a diagnosis was asked for"),
        ("nmind the gap\n", Control::Note { text: "mind the gap".to_owned() }, "leaving the note", "reads your note"),
        ("gno sudo\n", Control::Guardrail { text: "no sudo".to_owned() }, "putting up the sign", "sees your sign"),
        ("f3\n", Control::SetProfile { name: "opus".to_owned() }, "changing to profile opus", "it works with opus"),
        ("a2\n", Control::ApplyProposal { number: 2 }, "applying proposal 2", "proposal 2 is applied"),
    ] {
        check(keys, &control, pending, &[control_applied_json(&control)], done);
    }
}

#[test]
fn a_second_press_sends_nothing() {
    let mut story = running_fixture();
    assert_eq!(story.press('p'), Some(WatchEffect::Send(Control::Pause)));
    assert_eq!(story.press('p'), None);
    assert_eq!(story.press('r'), Some(WatchEffect::Send(Control::Rotate { why: None })));
    assert!(story.screen(120, 40).contains("pausing after the action under way 0s · asking for a fresh session 0s"));
}

#[test]
fn refusals_are_shown() {
    let mut story = running_fixture();
    story.press('d');
    let why = "`diagnose` is not offered by this version".to_owned();
    story.model.update(WatchMessage::Answered { kind: "diagnose", outcome: Err(why.clone()) });
    let screen = story.screen(80, 24);
    assert!(screen.contains(&format!("✗ {why}")) && !screen.contains("asking for a diagnosis"), "{screen}");
    // It stays long enough to be read, then disappears.
    assert!(story.advance(30).screen(80, 24).contains(&why));
    assert!(!story.advance(60).screen(80, 24).contains(&why));
    // The control can be sent again.
    assert_eq!(story.press('d'), Some(WatchEffect::Send(Control::Diagnose)));
    let mut story = running_fixture();
    assert_eq!(story.press('a'), None);
    assert!(story.screen(80, 24).contains("there is no proposal to apply; d asks for a diagnosis"));
}

#[test]
fn open_proposals_are_offered_with_their_descriptions() {
    let mut story = running_fixture();
    story
        .write_diagnosis(3, &["an old advice", "a second one"])
        .write_diagnosis(5, &["a new advice"])
        .write_diagnosis(6, &[]);
    story.press('a');
    let screen = story.screen(80, 24);
    let at = |words: &str| screen.find(words).unwrap_or_else(|| panic!("{words} in {screen}"));
    assert!(at("▸ 1 proposal 3: put up a sign: when a check is red, a new advice") < at("2 proposal 1: "), "{screen}");
    assert!(at("an old advice") < at("3 proposal 2: put up a sign: when a check is red, a second one"), "{screen}");
    assert_eq!(story.press_code(KeyCode::Enter), Some(WatchEffect::Send(Control::ApplyProposal { number: 3 })));
    story.push_event(&control_applied_json(&Control::ApplyProposal { number: 3 }));
    story.push_event(&control_applied_json(&Control::ApplyProposal { number: 1 }));
    story.press('a');
    assert!(!story.screen(80, 24).contains("an old advice"));
    assert_eq!(story.press_code(KeyCode::Enter), Some(WatchEffect::Send(Control::ApplyProposal { number: 2 })));
    story.push_event(&control_applied_json(&Control::ApplyProposal { number: 2 }));
    assert_eq!(story.press('a'), None);
    assert!(story.screen(80, 24).contains("there is no proposal to apply"));
    // A text that is too long for its line is shown in full below.
    story.write_diagnosis(
        6,
        &["first this, then that, and after all of it the very last thing that is to be done here"],
    );
    story.press('a');
    let screen = story.screen(80, 24);
    assert!(screen.contains("…") && screen.contains("thing that is to be done here"), "{screen}");
    story.press_code(KeyCode::Esc);
    // An unreadable file is reported, and nothing is offered.
    story.write_diagnosis(7, &["the newest"]);
    story.model.update(WatchMessage::Proposals(Err("the proposals cannot be read".to_owned())));
    assert!(story.screen(80, 24).contains("✗ the proposals cannot be read"));
}

#[test]
fn only_profiles_the_agent_supports_are_offered() {
    let mut agent = super::fixture::run_started_json();
    agent["engine"] = "agent".into();
    agent["agent"] = json!({"name": "claude", "session_s": 1, "idle_s": 1, "grace_s": 1});
    for (started, doctor) in [(super::fixture::run_started_json(), true), (agent, false)] {
        let mut story = WatchFixture::from_started(&started);
        story.press('f');
        let screen = story.screen(80, 24);
        assert_eq!((screen.contains("2 sonnet"), screen.contains("3 opus")), (true, doctor), "{screen}");
    }
}

#[test]
fn the_profile_of_a_pending_diagnosis_is_named() {
    const AWAITED: &str = "waiting for a diagnosis by opus";
    let seen = |story: &mut WatchFixture| story.advance(5).screen(120, 40).contains(AWAITED);
    let answer = |kind: &str| {
        json!({"type": "model-called", "n": 5, "call": 0, "profile": "opus", "model": "anthropic/opus", "cost": 1,
            "answer": {"kind": kind, "error": "no", "proposals": 1, "response": ""}, "duration_ms": 1,
            "usage": {"input": 1, "cached_input": 0, "cache_write": 0, "output": 1, "reasoning": 0}})
    };
    // Requested by the ladder.
    let mut story = WatchFixture::new();
    story.five_iterations().full_iteration(6, "no-progress", 0, &["M1.1", "M1.2"], 0.8);
    assert!(!seen(&mut story));
    story.push_event(&json!({"type": "mitigation-applied", "n": 6, "rung": "diagnose", "profile": "glm", "why": "w"}));
    assert!(seen(&mut story));
    story.push_event(&answer("invalid"));
    assert!(seen(&mut story), "it is asked once more");
    story.push_event(&answer("diagnosis"));
    story.write_diagnosis(6, &["look first"]);
    assert!(!seen(&mut story));
    // Requested every few iterations.
    let mut started = super::fixture::run_started_json();
    started["diagnose"] = json!({"apply": "approve", "every": 5});
    let mut story = WatchFixture::from_started(&started);
    assert!(seen(story.five_iterations()));
    // Requested by the user, once the iteration has ended.
    let mut story = running_fixture();
    story.push_event(&control_applied_json(&Control::Diagnose));
    assert!(!seen(&mut story));
    assert!(seen(story.end_iteration(6, "progress", 0, &["M1.1", "M1.2"], 0.0)));
    // At rest, and then at rest again.
    let mut story = WatchFixture::new();
    story.five_iterations().push_event(&json!({"type": "paused", "reason": {"kind": "asked"}, "next": "n"}));
    assert!(!seen(&mut story));
    story.push_event(&control_applied_json(&Control::Diagnose));
    assert_eq!(story.model.run.activity.as_ref().map(|activity| activity.text.as_str()), Some(AWAITED));
    story.write_diagnosis(5, &["look first"]);
    assert_eq!(story.model.run.activity, None);
}

#[test]
fn cancelled_input_does_nothing() {
    let mut story = running_fixture();
    for keys in ["sn", "sq", "s\u{1b}"] {
        assert_eq!(keys.chars().filter_map(|c| story.press(c)).count(), 0, "{keys:?}");
    }
    story.press('n');
    assert_eq!(story.press_code(KeyCode::Enter), None, "an empty note");
    story.press('n');
    story.type_text("psq");
    assert_eq!(story.press_code(KeyCode::Esc), None, "a note that was given up");
    // Pasted letters are not key presses.
    story.model.update(WatchMessage::Pasted("sy\nq".to_owned()));
    assert!(!story.screen(80, 24).contains("stop this run"));
    story.press('n');
    story.model.update(WatchMessage::Pasted("two\nlines \u{1b}[31mred".to_owned()));
    let text = "two lines red".to_owned();
    assert_eq!(story.press_code(KeyCode::Enter), Some(WatchEffect::Send(Control::Note { text })));
}

#[test]
fn a_line_can_be_edited() {
    let mut story = running_fixture();
    story.press('g');
    story.type_text("never ever touchh");
    story.press_code(KeyCode::Backspace);
    story.model.update(WatchMessage::Key(KeyEvent::new(KeyCode::Char('w'), KeyModifiers::CONTROL)));
    story.type_text("lie");
    let text = "never ever lie".to_owned();
    assert_eq!(story.press_code(KeyCode::Enter), Some(WatchEffect::Send(Control::Guardrail { text })));
}

#[test]
fn p_pauses_or_resumes() {
    let rest = |story: &mut WatchFixture, verdict: Value| {
        story.push_event(
            &json!({"type": "run-finished", "verdict": verdict, "next": "ralph resume d1vn1bc09rwx --add-cost 5"}),
        );
    };
    let mut paused = running_fixture();
    paused.push_event(&json!({"type": "paused", "reason": {"kind": "asked"}, "next": "ralph resume d1vn1bc09rwx"}));
    assert!(paused.screen(80, 24).contains("p resume"));
    assert_eq!(paused.press('p'), Some(WatchEffect::ResumeRun));
    assert!(paused.screen(80, 24).contains("going on"));
    paused.push_event(&json!({"type": "resumed", "by": "a person"}));
    assert!(paused.screen(80, 24).contains("it goes on"));
    assert_eq!(paused.press('p'), Some(WatchEffect::Send(Control::Pause)));

    let mut crashed = running_fixture();
    crashed.model.update(WatchMessage::Live(false));
    let screen = crashed.screen(80, 24);
    assert!(
        screen.contains("no process works on this run") && screen.contains("ralph resume d1vn1bc09rwx"),
        "{screen}"
    );
    assert_eq!(crashed.press('p'), Some(WatchEffect::ResumeRun));

    let mut failed = running_fixture();
    rest(&mut failed, json!({"state": "failed", "reason": {"kind": "budget", "limit": "cost"}}));
    assert_eq!(failed.press('p'), None);
    assert!(failed.screen(80, 24).contains("✗ it has failed; next: ralph resume d1vn1bc09rwx --add-cost 5"));

    let mut done = running_fixture();
    rest(&mut done, json!({"state": "succeeded"}));
    assert_eq!(done.press('p'), None);
    assert!(done.screen(80, 24).contains("it has succeeded: there is nothing left to do"));
}

#[test]
fn quitting() {
    assert_eq!(running_fixture().press('q'), Some(WatchEffect::Exit(WatchExit::Requested)));
    assert_eq!(running_fixture().press_code(KeyCode::Esc), Some(WatchEffect::Exit(WatchExit::Requested)));
    for (key, want) in [('c', WatchEffect::Exit(WatchExit::Interrupted)), ('z', WatchEffect::Suspend)] {
        let mut story = running_fixture();
        // Also while text is being typed.
        story.press('n');
        let key = KeyEvent::new(KeyCode::Char(key), KeyModifiers::CONTROL);
        assert_eq!(story.model.update(WatchMessage::Key(key)), Some(want));
    }
    let mut story = running_fixture();
    story.press('?');
    assert_eq!(story.press('q'), None, "it closes the help first");
}

#[test]
fn scrolling_pauses_following() {
    let mut story = running_fixture();
    assert!(story.screen(80, 24).contains("Log following"));
    story.press_code(KeyCode::Up);
    story.press_code(KeyCode::Up);
    assert!(story.screen(80, 24).contains("Log stopped here · 2 rows below · End follows"));
    let seen = |story: &mut WatchFixture| {
        story.screen(80, 24).lines().rev().skip(2).take(6).map(str::to_owned).collect::<Vec<_>>()
    };
    let before = seen(&mut story);
    story.model_call(6, 1);
    assert_eq!(seen(&mut story), before, "the view moved while it was scrolled");
    story.press_code(KeyCode::Home);
    assert!(story.screen(80, 24).contains("run d1vn1bc09rwx · Fix the login"));
    story.press_code(KeyCode::End);
    assert!(story.screen(80, 24).contains("Log following"));
}
