//! Any bytes as the beginning of a TLS connection: cut anywhere it is read the same, and a real server never reads
//! another name out of it.
#![no_main]

use libfuzzer_sys::fuzz_target;
use ralph_proxy::fuzzing::{Heard, hello, name_for_a_server};

// The first byte says where the bytes are cut.
fuzz_target!(|input: &[u8]| {
    let [place, bytes @ ..] = input else { return };
    let heard = hello(bytes);
    let cut = bytes.len() * usize::from(*place) / 255;
    match hello(&bytes[..cut]) {
        Heard::More => (),
        early => assert_eq!(early, heard, "it changed its mind after {cut} bytes"),
    }
    if let (Heard::Whole(ours), Some(theirs)) = (&heard, name_for_a_server(bytes)) {
        let same = ours.as_deref().is_some_and(|ours| ours.eq_ignore_ascii_case(&theirs));
        assert!(same, "{ours:?} is {theirs:?} to a server");
    }
});
