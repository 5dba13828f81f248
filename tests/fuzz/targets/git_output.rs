//! What a guest's git prints, and addresses of repositories.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| hivekeep_git::fuzzing::output(bytes));
