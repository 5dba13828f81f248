//! Calls of tools in the text of a model's answer.
#![no_main]

// The two files alone: all that models are asked with would be instrumented otherwise.
#[allow(dead_code)]
#[path = "../../../actors/model/src/text_tools/decoder.rs"]
mod decoder;
#[path = "../../../actors/model/src/text_tools/fuzzing.rs"]
mod fuzzing;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| fuzzing::tool_text(bytes));
