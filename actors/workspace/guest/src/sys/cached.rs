//! How much of a file is in memory.
#![allow(unsafe_code)]

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;

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
