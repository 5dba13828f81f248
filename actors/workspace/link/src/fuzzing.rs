//! Fuzz targets: a guest that answers the handshake with anything.

use std::io::Cursor;

use super::{carrier::Connection, handshake};

/// Handshake with arbitrary bytes of a guest. The first byte selects the kind of connection.
pub fn handshake(bytes: &[u8]) {
    let Some((kind, bytes)) = bytes.split_first() else { return };
    let reader = Box::new(Cursor::new(bytes.to_vec()));
    let connection = Connection { reader, writer: Box::new(tokio::io::sink()) };
    let runtime = tokio::runtime::Builder::new_current_thread().build();
    runtime
        .expect("a runtime without threads")
        .block_on(handshake::answered(connection, kind % 2 == 1));
}

#[test]
fn the_corpus_and_its_mutations_are_taken() {
    hivekeep_replay::replay("handshake", handshake);
}
