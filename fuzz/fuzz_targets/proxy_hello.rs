//! Parses any bytes as the beginning of a TLS connection: the result is the same wherever they are cut, and a real
//! server never reads another name from them.
#![no_main]

use libfuzzer_sys::fuzz_target;
use ralph_proxy::fuzzing::{FuzzedHello, client_hello, rustls_server_name};

// The first byte selects where the bytes are cut.
fuzz_target!(|input: &[u8]| {
    let [place, bytes @ ..] = input else { return };
    let whole = client_hello(bytes);
    let cut = bytes.len() * usize::from(*place) / 255;
    match client_hello(&bytes[..cut]) {
        FuzzedHello::Incomplete => (),
        early => assert_eq!(early, whole, "the result changed after {cut} bytes"),
    }
    if let (FuzzedHello::Complete(ours), Some(theirs)) = (&whole, rustls_server_name(bytes)) {
        let same = ours.as_deref().is_some_and(|ours| ours.eq_ignore_ascii_case(&theirs));
        assert!(same, "{ours:?} is {theirs:?} to a server");
    }
});
