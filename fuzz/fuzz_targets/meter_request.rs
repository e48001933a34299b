//! Parses any body as a request to a model: what is sent has an output limit, and reads the same when it is parsed
//! again.
#![no_main]

use libfuzzer_sys::fuzz_target;
use ralph_proxy::meter::{MeteredRequest, ModelCallKind};

// The first byte selects the API of the request, the second the output limit.
fuzz_target!(|input: &[u8]| {
    let [wire, most, body @ ..] = input else { return };
    let call = match wire % 4 {
        0 => ModelCallKind::Messages,
        1 => ModelCallKind::Chat,
        2 => ModelCallKind::Responses,
        _ => ModelCallKind::Gemini { model: "g".to_owned(), stream: false },
    };
    // One token for each of the most choices there can be is the least limit that is ever written.
    let most = u64::from(*most) * 16 + 128;
    let request = match MeteredRequest::parse(&call, body) {
        Ok(request) => request,
        Err(refused) => {
            assert!(!refused.to_string().is_empty(), "refused without a reason");
            return;
        }
    };
    assert!(!request.model().is_empty(), "the request names no model");
    assert!(request.input() > 0, "an empty prompt");
    let (input, wanted) = (request.input(), request.wanted_output());
    let written = request.write(most);
    let again = MeteredRequest::parse(&call, &written.body).expect("what was written can be read");
    let limit = again.wanted_output().expect("what was written has a limit");
    assert!(limit <= most && wanted.is_none_or(|wanted| limit <= wanted), "{limit} of {most}");
    // A limit and a request for usage may have been added.
    assert!(again.input() <= input + 64, "{} is more than {input}", again.input());
    let twice = again.write(most);
    assert!(twice.changed.is_empty() && !twice.usage_added, "{:?}", twice.changed);
    assert_eq!(twice.body, written.body, "writing twice is writing once");
});
