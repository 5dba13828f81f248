//! Fuzz target: the first line of a client of the socket.

use super::hello::ClientHello;
use super::line_splitter::{LineSplitter, SplitOutcome};

/// Splits lines and reads those that are a hello.
///
/// # Panics
/// When a hello is read that is written as another.
pub fn hello(bytes: &[u8]) {
    let (mut splitter, mut rest) = (LineSplitter::new(4096), bytes);
    while !rest.is_empty() {
        let (used, outcome) = splitter.feed(rest);
        assert!(used > 0, "it goes on");
        rest = &rest[used..];
        if outcome == SplitOutcome::Line
            && let Ok(hello) = serde_json::from_slice::<ClientHello>(splitter.line())
        {
            let again = serde_json::to_vec(&hello).expect("serialises");
            assert_eq!(serde_json::from_slice::<ClientHello>(&again).expect("our own"), hello);
        }
    }
}

#[test]
fn the_corpus_and_its_mutations_are_taken() {
    hivekeep_replay::replay("hello", hello);
}
