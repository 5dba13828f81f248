//! Memory: a heap that keeps what is freed, reads into what was never written, pages of files.
//!
//! By default the C library returns freed memory above 128 KiB to the kernel at once. Data chunks are of that
//! order, so each one would be mapped, faulted in page by page and unmapped again; under software emulation that
//! costs more than all the copying.
#![allow(unsafe_code)]

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;

use rustix::io::{Errno, pread};

/// Freed memory that is kept for the next chunks: more than what is on the way
/// for the calls of a busy connection.
const KEPT_BYTES: libc::c_int = 8 * 1024 * 1024;
/// Larger pieces are still mapped and unmapped each by itself.
const MAPPED_ABOVE_BYTES: libc::c_int = 4 * 1024 * 1024;

/// Sets that. To be called before other threads allocate.
pub fn keep_freed_memory() {
    let options = [
        (libc::M_TRIM_THRESHOLD, KEPT_BYTES),
        (libc::M_MMAP_THRESHOLD, MAPPED_ABOVE_BYTES),
        // Chunks are filled on one thread and freed on another: one heap for all.
        (libc::M_ARENA_MAX, 1),
    ];
    for (option, value) in options {
        // SAFETY: mallopt takes two numbers and touches the allocator's own state
        // only. That it may refuse one changes nothing but speed.
        let _ = unsafe { libc::mallopt(option, value) };
    }
}

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

/// The number of cachestat(2), the same on every architecture. Linux 6.5 and later.
const SYS_CACHESTAT: libc::c_long = 451;

/// `struct cachestat_range` of Linux's mman.h.
#[repr(C)]
struct Range {
    offset: u64,
    len: u64,
}

/// `struct cachestat`: pages.
#[repr(C)]
#[derive(Default)]
struct Counts {
    cached: u64,
    dirty: u64,
    writeback: u64,
    evicted: u64,
    recently_evicted: u64,
}

/// Pages of the page cache within this range of the file. To try a read that may not
/// wait would tell it too, but such a read has the kernel read ahead what is missing.
///
/// # Errors
/// An older kernel, or a file without a page cache.
pub fn pages(file: &File, offset: u64, len: u64) -> io::Result<u64> {
    let range = Range { offset, len };
    let mut counts = Counts::default();
    // SAFETY: the call reads the one and writes the other structure, both of the
    // kernel's layout.
    let result = unsafe {
        libc::syscall(SYS_CACHESTAT, file.as_raw_fd(), &raw const range, &raw mut counts, 0)
    };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(counts.cached) }
}
