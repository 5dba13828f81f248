//! Texts of DAGs: their references, dotenv files, output files and parameters.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| hivekeep_plan::fuzzing::text(bytes));
