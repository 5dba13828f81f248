//! Entries for the fuzz targets: a guest that answers the handshake with anything.

use std::io::Cursor;

use super::{carrier::Connection, handshake};

/// The guest's bytes from the beginning of a connection. The first says of which kind it is.
pub fn handshake(bytes: &[u8]) {
    let Some((kind, bytes)) = bytes.split_first() else { return };
    let reader = Box::new(Cursor::new(bytes.to_vec()));
    let connection = Connection { reader, writer: Box::new(tokio::io::sink()) };
    let runtime = tokio::runtime::Builder::new_current_thread().build();
    runtime
        .expect("a runtime without threads")
        .block_on(handshake::answered(connection, kind % 2 == 1));
}
