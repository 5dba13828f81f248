//! Fuzz targets: decoders of what is read back from the disk, damaged or not.

use crate::values::{self, BaseKey};
use crate::{JournalEvent, Seq};

/// Decodes a key, and a key and a value, of the database.
///
/// # Panics
/// See [`frame`] and [`key`].
pub fn journal(bytes: &[u8]) {
    frame(bytes);
    key(bytes);
}

/// Decodes a key and a value of the database. Whatever passes the check must be what was written.
///
/// # Panics
/// Panics when something passes that was not written.
fn frame(bytes: &[u8]) {
    let (key, value) = bytes.split_at(bytes.len().min(9));
    if let Ok((seq, content)) = values::unwrap(key, value) {
        assert_eq!(values::wrap(key, seq, content), value);
        // Contents that damage left whole are not trusted any further either.
        let _ = JournalEvent::decode(seq, content);
    }
    // A sound frame around anything reaches the readers behind the check.
    let sound = values::wrap(key, Seq::FIRST, value);
    assert_eq!(values::unwrap(key, &sound), Ok((Seq::FIRST, value)));
    let _ = JournalEvent::decode(Seq::FIRST, value);
}

/// Decodes a key of the database.
///
/// # Panics
/// Panics when a key that is read is not the one that would be written.
fn key(bytes: &[u8]) {
    let base = values::split_piece(bytes).map_or(bytes, |(base, _)| base);
    if let Ok(decoded) = BaseKey::decode(base) {
        assert_eq!(decoded.encode(), base);
    }
}

#[test]
fn the_corpus_and_its_mutations_are_taken() {
    hivekeep_replay::replay("journal", journal);
}
