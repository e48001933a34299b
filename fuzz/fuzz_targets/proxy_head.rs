//! Parses any bytes as a request head, and as a stream of requests: the strict reader passes complete messages on and
//! nothing else, however the stream was cut.
#![no_main]

use libfuzzer_sys::fuzz_target;
use ralph_proxy::fuzzing::{request_head, strict_http1};

// The first byte selects the size of the pieces in which the stream arrives.
fuzz_target!(|input: &[u8]| {
    let [step, bytes @ ..] = input else { return };
    if let Some((method, target, host)) = request_head(bytes) {
        assert!(!method.is_empty() && method.bytes().all(|byte| byte.is_ascii_uppercase() || byte == b'-'));
        assert!(target.bytes().all(|byte| byte.is_ascii_graphic()), "{target:?}");
        let line = |text: &str| !text.contains(['\r', '\n', '\0']);
        assert!(host.as_deref().is_none_or(line), "{host:?}");
    }
    let (whole, heads) = strict_http1(bytes, usize::MAX);
    let (pieces, same) = strict_http1(bytes, usize::from(*step));
    assert_eq!((&whole, heads), (&pieces, same), "splitting makes a difference");
    if let Some(whole) = whole {
        assert!(bytes.starts_with(&whole), "something was changed");
        // What was let through once is let through again.
        assert_eq!(strict_http1(&whole, usize::MAX), (Some(whole.clone()), heads));
        assert_eq!(heads == 0, whole.is_empty());
    }
});
