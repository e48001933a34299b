//! Parses any text after a valid front matter, so that the fuzzer spends its time on Markdown.
#![no_main]

use libfuzzer_sys::fuzz_target;

const FRONT: &str = "---\ntask_id: t\ntest_command: \"true\"\n---\n";

fuzz_target!(|body: &str| ralph_fuzz::task(&format!("{FRONT}{body}")));
