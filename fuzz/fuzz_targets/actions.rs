//! Parses any text as the reply of a model: what is accepted means the same after it is serialized and parsed again.
#![no_main]

use libfuzzer_sys::fuzz_target;
use ralph_core::action::{self, ParsedReply};

fuzz_target!(|text: &str| {
    match action::parse(text) {
        Ok(ParsedReply { reply, .. }) => {
            let written = serde_json::to_string(&reply).expect("a reply can be written");
            assert_eq!(action::parse(&written), Ok(ParsedReply { reply, repaired: false }));
        }
        Err(invalid) => assert!(!invalid.message.is_empty(), "refused without a reason"),
    }
});
