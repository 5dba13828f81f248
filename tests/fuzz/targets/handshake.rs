//! A guest that answers the daemon's handshake with anything.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| hivekeep_link::fuzzing::handshake(bytes));
