//! Entries for the fuzz targets: what a guest, its git and its disks may hold.

pub use crate::git::fuzzing::output as git_output;
pub use crate::link::fuzzing::handshake;

/// The first bytes of a layer.
pub fn layer_header(bytes: &[u8]) {
    if let Some(header) = bytes.first_chunk() {
        let _ = crate::driver::layer::header::check(header);
    }
}
