//! Parses any bytes as a SOCKS handshake: no more is consumed than arrived, and an incomplete handshake is not
//! decided.
#![no_main]

use libfuzzer_sys::fuzz_target;
use ralph_proxy::fuzzing::socks;

fuzz_target!(|bytes: &[u8]| {
    let Some((greeted, asked, target)) = socks(bytes) else { return };
    assert!(greeted >= 2 && greeted + asked <= bytes.len(), "more was consumed than arrived");
    // Further bytes change nothing.
    let more = [bytes, b"\x16\x03\x01"].concat();
    assert_eq!(socks(&more), Some((greeted, asked, target.clone())));
    if asked > 0 {
        assert_eq!(socks(&bytes[..greeted + asked - 1]), None, "an incomplete handshake was decided");
    }
    if let Some(target) = target {
        assert!(target.port() > 0 && target.host().is_ascii(), "{target}");
    }
});
