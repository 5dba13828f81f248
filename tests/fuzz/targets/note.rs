//! Notes of the vault: front matter and tags.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| hivekeep_vault::fuzzing::note(bytes));
