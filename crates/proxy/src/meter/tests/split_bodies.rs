//! Tests that answers may arrive in any pieces, contain anything, and be longer than what is kept in memory.

use bytes::Bytes;
use proptest::prelude::*;

use super::super::{MeteredAnswer, ModelCallKind, UsageTee};
use super::usage_streams::{BLOCK, CHUNK, COUNT, DELTA, EVENTS, FINISH, START, STOP, events};

/// Passes a body on in pieces and returns what came out and what was read.
fn pass(mut tee: UsageTee, body: &[u8], cuts: &[usize]) -> (Vec<u8>, MeteredAnswer) {
    let mut places: Vec<usize> = cuts.iter().map(|cut| cut % (body.len() + 1)).collect();
    places.extend([0, body.len()]);
    places.sort_unstable();
    let mut out = Vec::new();
    for pair in places.windows(2) {
        out.extend(tee.pass(Bytes::copy_from_slice(&body[pair[0]..pair[1]])));
    }
    out.extend(tee.finish());
    assert_eq!(tee.finish(), "", "only the first call returns the rest");
    (out, tee.snapshot())
}

#[track_caller]
fn check_dropped(body: &str, want: &str) {
    for (body, want) in [
        (body.to_owned(), want.to_owned()),
        (body.replace('\n', "\r\n"), want.replace('\n', "\r\n")),
        (body.replace('\n', "\r"), want.replace('\n', "\r")),
    ] {
        let cuts: Vec<usize> = (0..body.len()).collect();
        for cuts in [&[][..], &cuts[..]] {
            let (out, seen) = pass(UsageTee::new(&ModelCallKind::Chat, Some(EVENTS), true), body.as_bytes(), cuts);
            assert_eq!(String::from_utf8_lossy(&out), want);
            assert!(seen.usage.is_some(), "dropped, but read");
        }
    }
}

#[test]
fn a_usage_chunk_the_client_did_not_request_is_dropped() {
    let data = |list: &[&str]| format!("data: {}\n\n", list.join("\n\ndata: "));
    let lone =
        r#"{"choices":[{"index":0,"delta":{"content":null}}],"usage":{"prompt_tokens":1,"completion_tokens":1}}"#;
    check_dropped(&data(&[CHUNK, FINISH, COUNT, "[DONE]"]), &data(&[CHUNK, FINISH, "[DONE]"]));
    check_dropped(&data(&[CHUNK, FINISH, lone, "[DONE]"]), &data(&[CHUNK, FINISH, "[DONE]"]));
    check_dropped(&data(&[CHUNK, FINISH, COUNT]), &data(&[CHUNK, FINISH]));
    // Unterminated, and between comments.
    check_dropped(&format!("{}data: {COUNT}", data(&[CHUNK])), &data(&[CHUNK]));
    check_dropped(&format!(": a\n\n: b\ndata: {COUNT}\n\n: c\n\n"), ": a\n\n: b\n: c\n\n");
    // Usage in a chunk that also has content was the provider's own choice.
    let both = r#"{"choices":[{"delta":{},"finish_reason":"stop"}],"usage":{"prompt_tokens":1,"completion_tokens":1}}"#;
    check_dropped(&data(&[CHUNK, both, "[DONE]"]), &data(&[CHUNK, both, "[DONE]"]));
}

#[test]
fn content_is_not_held_back() {
    let mut tee = UsageTee::new(&ModelCallKind::Chat, Some(EVENTS), true);
    assert_eq!(tee.pass(Bytes::from_static(b": wait\n")), ": wait\n");
    assert_eq!(tee.pass(Bytes::from_static(b"data: {}\n")), "");
    assert_eq!(tee.pass(Bytes::from_static(b"\r")), "data: {}\n\r");
    assert_eq!(tee.pass(Bytes::from_static(b"\ndata: {")), "\n");
    assert_eq!(tee.finish(), "data: {");
}

#[test]
fn overlong_bodies_are_passed_on_but_not_read() {
    let whole = events(&[START, DELTA, STOP]);
    let long = format!("{}data: {}\n\n", events(&[START, DELTA]), "x".repeat(600)) + &events(&[STOP]);
    for added in [false, true] {
        let tee = || UsageTee::with_limits(&ModelCallKind::Messages, Some(EVENTS), added, 500, 500);
        assert!(pass(tee(), whole.as_bytes(), &[]).1.complete);
        let (out, seen) = pass(tee(), long.as_bytes(), &[]);
        assert_eq!(out, long.as_bytes());
        assert_eq!((seen.complete, seen.usage.map(|usage| usage.output)), (false, Some(7)));
    }
    let body = r#"{"usage":{"input_tokens":1,"output_tokens":1}}"#;
    for (most, complete) in [(body.len(), true), (body.len() - 1, false)] {
        let (out, seen) =
            pass(UsageTee::with_limits(&ModelCallKind::Messages, None, false, 9, most), body.as_bytes(), &[7]);
        assert_eq!((out.as_slice(), seen.complete), (body.as_bytes(), complete));
    }
    // An endless event, with no line too long.
    let lines = "id: 1\n".repeat(500);
    let (out, seen) =
        pass(UsageTee::with_limits(&ModelCallKind::Chat, Some(EVENTS), true, 500, 500), lines.as_bytes(), &[]);
    assert_eq!((out.as_slice(), seen), (lines.as_bytes(), MeteredAnswer::default()));
}

fn calls() -> impl Strategy<Value = ModelCallKind> {
    let gemini = ModelCallKind::Gemini { model: "g".to_owned(), stream: true };
    prop_oneof![Just(ModelCallKind::Messages), Just(ModelCallKind::Chat), Just(ModelCallKind::Responses), Just(gemini)]
}

/// Valid events, broken ones and noise, with all line ends.
fn stream() -> impl Strategy<Value = Vec<u8>> {
    let known = prop::sample::select(vec![
        START,
        BLOCK,
        DELTA,
        STOP,
        CHUNK,
        FINISH,
        COUNT,
        "[DONE]",
        "{",
        "{}",
        "[]",
        "{\"usage\":{}}",
    ]);
    let end = prop::sample::select(vec!["\n", "\r\n", "\r"]);
    let event = (known, end.clone(), end, any::<bool>()).prop_map(|(data, end, other, cut)| {
        let whole = format!("data: {data}{end}{other}");
        if cut { whole.chars().take(whole.len() / 2).collect() } else { whole }
    });
    let noise = "(data|event|:| |\r|\n|\r\n|\\{|\"|é){0,8}";
    let piece = prop_oneof![4 => event, 1 => noise.prop_map(String::from)];
    proptest::collection::vec(piece, 0..8).prop_map(|pieces| pieces.concat().into_bytes())
}

proptest! {
    #[test]
    fn splitting_the_body_makes_no_difference(
        call in calls(),
        body in stream(),
        cuts in proptest::collection::vec(0..4000usize, 0..12),
        added in any::<bool>(),
        labelled in any::<bool>(),
        most in prop_oneof![Just(9000usize), 1..300usize],
    ) {
        let tee = || UsageTee::with_limits(&call, labelled.then_some(EVENTS), added, most, most);
        let whole = pass(tee(), &body, &[]);
        prop_assert_eq!(&pass(tee(), &body, &cuts), &whole);
        let each: Vec<usize> = (0..body.len()).collect();
        prop_assert_eq!(&pass(tee(), &body, &each), &whole);
        if added {
            // Whether or not the client gets a chunk, the meter has read it.
            let seen = pass(UsageTee::with_limits(&call, labelled.then_some(EVENTS), false, most, most), &body, &[]).1;
            if most == 9000 {
                prop_assert_eq!(seen, whole.1);
            }
        } else {
            prop_assert_eq!(whole.0, body);
        }
    }

    #[test]
    fn never_panics(call in calls(), body in proptest::collection::vec(any::<u8>(), 0..200), added in any::<bool>()) {
        let _ = pass(UsageTee::new(&call, None, added), &body, &[3]);
        let _ = pass(UsageTee::new(&call, Some(EVENTS), added), &body, &[3]);
    }
}
