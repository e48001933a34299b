//! Passes any bytes through as the answer of a model: they are unchanged, and mean the same in any pieces.
#![no_main]

use libfuzzer_sys::fuzz_target;
use ralph_proxy::meter::{MeteredAnswer, ModelCallKind, UsageTee};

// The first byte selects the API of the answer and what is known about it, the second the size of its pieces.
fuzz_target!(|input: &[u8]| {
    let [choice, size, body @ ..] = input else { return };
    let call = match choice % 4 {
        0 => ModelCallKind::Messages,
        1 => ModelCallKind::Chat,
        2 => ModelCallKind::Responses,
        _ => ModelCallKind::Gemini { model: "g".to_owned(), stream: true },
    };
    let kind = (choice & 4 != 0).then_some("text/event-stream");
    let added = choice & 8 != 0;
    let whole = pass(UsageTee::new(&call, kind, added), body, body.len().max(1));
    assert_eq!(
        pass(UsageTee::new(&call, kind, added), body, usize::from(*size) + 1),
        whole,
        "splitting makes no difference"
    );
    let (out, seen) = pass(UsageTee::new(&call, kind, false), body, body.len().max(1));
    assert!(out == body, "not a byte is changed");
    assert_eq!(seen, whole.1, "what the client does not get is read all the same");
    assert!(whole.0.len() <= body.len(), "nothing is added");
});

fn pass(mut tee: UsageTee, body: &[u8], size: usize) -> (Vec<u8>, MeteredAnswer) {
    let mut out = Vec::new();
    for piece in body.chunks(size) {
        out.extend_from_slice(&tee.pass(piece.to_vec().into()));
    }
    out.extend_from_slice(&tee.finish());
    (out, tee.snapshot())
}
