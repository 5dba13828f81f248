//! Lines of the Agent Client Protocol, from an editor or from a program in a machine.
#![no_main]

// Two files alone: all that agents are built from would be instrumented otherwise.
#[allow(dead_code)]
#[path = "../../../actors/agent/src/acp/frames.rs"]
mod frames;
#[path = "../../../actors/agent/src/acp/fuzzing.rs"]
mod fuzzing;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| fuzzing::frames(bytes));
