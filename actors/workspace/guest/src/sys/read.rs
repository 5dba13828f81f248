//! Reading into memory that was never written.
#![allow(unsafe_code)]

use std::fs::File;

use rustix::io::{Errno, pread};

/// Appends what one read at this place of the file gives, `most` bytes at most and no
/// more than there is room for. To clear a mebibyte first costs an emulated CPU half
/// as much as to read it from memory.
///
/// # Errors
/// As read(2).
pub fn append(file: &File, bytes: &mut Vec<u8>, most: usize, at: u64) -> Result<usize, Errno> {
    let spare = bytes.spare_capacity_mut();
    let room = most.min(spare.len());
    let read = pread(file, &mut spare[..room], at)?.0.len();
    // SAFETY: the kernel has written so many bytes behind those that there were.
    unsafe { bytes.set_len(bytes.len() + read) };
    Ok(read)
}
