//! Requests of programs to the gateway of their model.
#![no_main]

// The two files alone: all that executions are built from would be instrumented otherwise.
#[path = "../../../actors/agent/src/gateway/fuzzing.rs"]
mod fuzzing;
#[allow(dead_code)]
#[path = "../../../actors/agent/src/gateway/request.rs"]
mod request;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| fuzzing::gateway_request(bytes));
