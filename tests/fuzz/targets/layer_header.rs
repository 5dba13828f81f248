//! The header of a disk layer.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| hivekeep_workspace::fuzzing::layer_header(bytes));
