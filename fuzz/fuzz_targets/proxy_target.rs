//! Parses any text as a target: a valid one has one spelling, and reads the same when it is parsed again.
#![no_main]

use libfuzzer_sys::fuzz_target;
use ralph_core::egress::EgressTarget;

fuzz_target!(|text: &str| {
    for usual in [None, Some(443)] {
        let target = match EgressTarget::parse_authority(text, usual) {
            Ok(target) => target,
            Err(refused) => {
                assert!(!refused.to_string().is_empty(), "refused without a reason");
                continue;
            }
        };
        let shown = target.to_string();
        assert_eq!(EgressTarget::parse_authority(&shown, None).as_ref(), Ok(&target), "{shown}");
        assert_eq!(EgressTarget::new(target.host(), target.port()).as_ref(), Ok(&target), "{shown}");
        let odd = |c: char| !c.is_ascii_graphic() || c.is_ascii_uppercase() || "@/\\?#%".contains(c);
        assert!(!shown.contains(odd), "{shown:?}");
        // Two spellings of one address would be checked separately but dial the same host.
        if let Some(address) = target.ip_address() {
            assert_eq!(address.to_canonical(), address, "{shown}");
        }
    }
});
