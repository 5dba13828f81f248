//! Header validator: accepts only layers as this program and its QEMU write them.
//!
//! QEMU writes a layer while a guest runs in it. A guest that has broken out of its processor can
//! write anything there, and qemu-img, which runs as the daemon, follows what a header names: a
//! backing file, a data file elsewhere. So a header that names anything is refused.
//!
//! The fields are those of QEMU's `docs/interop/qcow2.rst`, version 3.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

use super::CLUSTER_BYTES;

/// Size of the fixed part, including the compression type and its padding.
pub const HEADER_BYTES: usize = 112;
const MAGIC: [u8; 4] = *b"QFI\xfb";
/// Feature bit of an image that was not closed: harmless, because its reference counts are written
/// through.
const DIRTY: u64 = 1;
/// Maximum size of a disk, with room to spare.
const MAX_BYTES: u64 = 1 << 50;

/// Size of the disk in bytes, if the layer is valid.
pub(super) fn virtual_size(layer: &Path) -> io::Result<u64> {
    let mut bytes = [0; HEADER_BYTES];
    File::open(layer)?.read_exact_at(&mut bytes, 0)?;
    check(&bytes).map_err(|why| io::Error::new(io::ErrorKind::InvalidData, why))
}

/// Clears the backing file that a layer names, and returns the size of the disk in bytes, if the
/// layer is otherwise valid.
pub(super) fn without_backing(layer: &Path) -> io::Result<u64> {
    // Offset and length of the name: none.
    File::options().write(true).open(layer)?.write_all_at(&[0; 12], 8)?;
    virtual_size(layer)
}

/// Validates a header and returns the size of the disk in bytes.
///
/// # Errors
/// Reason why the header is refused.
pub fn check(header: &[u8; HEADER_BYTES]) -> Result<u64, &'static str> {
    let u32_at = |at: usize| header[at..at + 4].iter().fold(0, |n, byte| n << 8 | u64::from(*byte));
    let u64_at = |at: usize| u32_at(at) << 32 | u32_at(at + 4);
    let size_bytes = u64_at(24);
    let wrong = [
        (header[..4] != MAGIC, "it is not qcow2"),
        (u32_at(4) != 3, "it is not of version 3"),
        (u64_at(8) != 0 || u32_at(16) != 0, "it names a backing file"),
        (u32_at(20) != u64::from(CLUSTER_BYTES.ilog2()), "its clusters are not of 64 KiB"),
        (size_bytes == 0 || size_bytes > MAX_BYTES, "its size is not that of a disk"),
        (u32_at(32) != 0, "it is encrypted"),
        (u32_at(60) != 0, "it has internal snapshots"),
        (u64_at(72) & !DIRTY != 0, "it has features that no layer has, such as a data file"),
    ];
    match wrong.iter().find(|(is, _)| *is) {
        Some((_, why)) => Err(why),
        None => Ok(size_bytes),
    }
}

#[cfg(test)]
mod tests {
    use super::super::make_top;
    use super::*;

    #[test]
    fn what_a_header_could_name_is_not_let_through() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("layer");
        make_top(&path, 5 << 30).unwrap();
        assert_eq!(virtual_size(&path).unwrap(), 5 << 30);
        let mut sound = [0; HEADER_BYTES];
        File::open(&path).unwrap().read_exact_at(&mut sound, 0).unwrap();
        // Bytes of magic, version, backing file, clusters, size, encryption, snapshots, data file.
        for at in [0, 7, 15, 19, 23, 24, 35, 63, 79] {
            let mut other = sound;
            other[at] ^= 0x04;
            assert!(check(&other).is_err(), "byte {at}");
        }
        let mut dirty = sound;
        dirty[79] = 1;
        assert_eq!(check(&dirty), Ok(5 << 30));
        std::fs::write(&path, "short").unwrap();
        assert!(virtual_size(&path).is_err());
    }
}
