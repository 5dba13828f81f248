//! The first line of a client of the socket.
#![no_main]

// The three files alone: all that the daemon is built from would be instrumented otherwise.
#[path = "../../../doors/server/src/fuzzing.rs"]
mod fuzzing;
#[allow(dead_code)]
#[path = "../../../doors/server/src/hello.rs"]
mod hello;
#[allow(dead_code)]
#[path = "../../../doors/server/src/line_splitter.rs"]
mod line_splitter;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| fuzzing::hello(bytes));
