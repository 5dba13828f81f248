//! Fuzz targets: the first bytes of a layer of a guest's disk.

use crate::layer;

/// Checks a header.
pub fn layer_header(bytes: &[u8]) {
    if let Some(header) = bytes.first_chunk() {
        let _ = layer::check(header);
    }
}

#[test]
fn the_corpus_and_its_mutations_are_taken() {
    hivekeep_replay::replay("layer_header", layer_header);
}
