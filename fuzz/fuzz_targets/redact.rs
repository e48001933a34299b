//! Checks that a secret inserted anywhere into any text is never shown, whether the text comes whole or in pieces.
#![no_main]

use std::sync::LazyLock;

use libfuzzer_sys::fuzz_target;
use ralph_core::redact::{Redactor, StreamRedactor};
use ralph_core::secret::Secret;

const PLAIN: &str = "hunter2-hunter2";
const ODD: &str = "pa\"ss/wörd+1";
/// The secrets in the encodings in which they may be written.
const FORMS: &[&str] =
    &[PLAIN, ODD, "aHVudGVyMi1odW50ZXIy", "pa%22ss%2Fw%C3%B6rd%2B1", "pa%22ss%2fw%c3%b6rd%2b1", "pa\\\"ss\\/wörd+1"];

static REDACTOR: LazyLock<Redactor> =
    LazyLock::new(|| Redactor::new([PLAIN, ODD].map(|value| ("KEY".to_owned(), Secret::new(value)))));

// The first byte selects the encoding and the size of the pieces, the second the position.
fuzz_target!(|input: &[u8]| {
    let [choice, place, text @ ..] = input else { return };
    let (choice, place) = (usize::from(*choice), usize::from(*place));
    let text = String::from_utf8_lossy(text);
    let form = FORMS[choice % FORMS.len()];
    let at = text.floor_char_boundary(text.len() * place / 255);
    let planted = format!("{}{form}{}", &text[..at], &text[at..]);

    let whole = REDACTOR.redact(&planted);
    for form in FORMS {
        assert!(!whole.contains(form), "{whole:?} shows {form:?}");
    }

    let mut stream = StreamRedactor::new(&REDACTOR);
    let pieces = planted.as_bytes().chunks(choice / FORMS.len() * 7 + 1);
    let mut streamed: String = pieces.map(|piece| stream.push(piece)).collect();
    streamed.push_str(&stream.finish());
    assert_eq!(streamed, whole, "splitting makes no difference");
});
