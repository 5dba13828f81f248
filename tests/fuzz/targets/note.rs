//! Notes of the vault: front matter and tags.
#![no_main]

libfuzzer_sys::fuzz_target!(|text: &str| hivekeep_vault::fuzzing::note(text));
