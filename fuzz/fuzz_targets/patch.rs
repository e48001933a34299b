//! Applies any patch to any file, with a NUL between them: an applied patch changes as many lines as it says.
#![no_main]

use libfuzzer_sys::fuzz_target;
use ralph_core::patch;

fuzz_target!(|input: &str| {
    let Some((original, diff)) = ralph_fuzz::pair(input) else { return };
    let (added, removed) = patch::stat(diff);
    match patch::apply(original, diff) {
        Ok(patched) => {
            assert_ne!(patched, original, "a patch that changes nothing is an error");
            assert_eq!(lines(&patched) + removed, lines(original) + added, "+{added} -{removed}");
        }
        Err(error) => assert!(!error.to_string().is_empty(), "refused without a reason"),
    }
});

fn lines(text: &str) -> usize {
    text.split_terminator('\n').count()
}
