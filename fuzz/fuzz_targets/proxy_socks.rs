//! Any bytes as a SOCKS conversation: no more is taken than came, and what is missing is waited for.
#![no_main]

use libfuzzer_sys::fuzz_target;
use ralph_proxy::fuzzing::socks;

fuzz_target!(|bytes: &[u8]| {
    let Some((greeted, asked, target)) = socks(bytes) else { return };
    assert!(greeted >= 2 && greeted + asked <= bytes.len(), "more was taken than came");
    // What follows changes nothing.
    let more = [bytes, b"\x16\x03\x01"].concat();
    assert_eq!(socks(&more), Some((greeted, asked, target.clone())));
    if asked > 0 {
        assert_eq!(socks(&bytes[..greeted + asked - 1]), None, "it did not wait for the end");
    }
    if let Some(target) = target {
        assert!(target.port() > 0 && target.host().is_ascii(), "{target}");
    }
});
