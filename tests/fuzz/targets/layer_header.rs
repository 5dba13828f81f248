//! The first bytes of a layer of a guest's disk.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    if let Some(header) = bytes.first_chunk() {
        let _ = hivekeep_machine::layer::header::check(header);
    }
});
