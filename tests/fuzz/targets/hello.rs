//! The first line of a client of the socket.
#![no_main]

// The two files alone: all that the daemon is built from would be instrumented otherwise.
#[allow(dead_code)]
#[path = "../../../src/doors/line_splitter.rs"]
mod line_splitter;
#[allow(dead_code)]
#[path = "../../../src/doors/hello.rs"]
mod hello;

use line_splitter::{LineSplitter, SplitOutcome};
use hello::ClientHello;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let (mut cutter, mut rest) = (LineSplitter::new(4096), bytes);
    while !rest.is_empty() {
        let (used, cut) = cutter.feed(rest);
        assert!(used > 0, "it goes on");
        rest = &rest[used..];
        if cut == SplitOutcome::Line
            && let Ok(hello) = serde_json::from_slice::<ClientHello>(cutter.line())
        {
            let again = serde_json::to_vec(&hello).expect("serialises");
            assert_eq!(serde_json::from_slice::<ClientHello>(&again).expect("our own"), hello);
        }
    }
});
