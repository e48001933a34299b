//! Parses any text as a task file.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|source: &str| ralph_fuzz::task(source));
