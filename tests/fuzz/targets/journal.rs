//! Keys and values of the journal's database.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| hivekeep_store::fuzzing::journal(bytes));
