//! The first bytes of a layer of a guest's disk.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| hivekeep_machine::fuzzing::layer_header(bytes));
