//! The wire between daemon and guest, in both directions, in pieces of any size.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| hivekeep_protocol::fuzzing::frames(bytes));
