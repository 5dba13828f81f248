//! The few system calls that no safe crate offers. All unsafe code of the guest is here and in this folder, but for one
//! self-test's.
//!
//! Here are requests to the kernel that exist only as ioctls, a heap that keeps what is freed, reads into memory that was
//! never written, and pages of files that are in memory. By default the C library returns freed memory above 128 KiB to
//! the kernel at once. Data chunks are of that order, so each one would be mapped, faulted in page by page and unmapped
//! again; under software emulation that costs more than all the copying.
#![allow(unsafe_code)]

pub mod descriptors;
pub mod fs_ids;
pub mod signals;
pub mod spawn;

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};

use rustix::io::{Errno, pread};

/// `_IOW('f', 16, u64)` of Linux's ext4.h.
const EXT4_IOC_RESIZE_FS: u64 = 0x4008_6610;
/// `_IOW('R', 3, int[2])` and `_IO('R', 7)` of Linux's random.h.
const RNDADDENTROPY: u64 = 0x4008_5203;
const RNDRESEEDCRNG: u64 = 0x5207;
/// `_IOWR('X', 119, int)` and `_IOWR('X', 120, int)` of Linux's fs.h.
const FIFREEZE: u64 = 0xc004_5877;
const FITHAW: u64 = 0xc004_5878;
/// Most bytes credited at once.
pub const MAX_ENTROPY_BYTES: usize = 512;

fn check(result: libc::c_int) -> io::Result<()> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Grows a mounted ext4 file system to `blocks` of its own blocks.
///
/// # Errors
/// As the kernel says: not ext4, no privilege, nothing to grow into.
pub fn resize_ext4(mounted: BorrowedFd<'_>, blocks: u64) -> io::Result<()> {
    // SAFETY: the request reads one u64 through the pointer.
    check(unsafe { libc::ioctl(mounted.as_raw_fd(), EXT4_IOC_RESIZE_FS as _, &raw const blocks) })
}

/// Writes out a mounted file system and blocks writes to it.
///
/// # Errors
/// As the kernel says: frozen already, or without the privilege.
pub fn freeze(mounted: impl AsFd) -> io::Result<()> {
    // SAFETY: the request takes no argument.
    check(unsafe { libc::ioctl(mounted.as_fd().as_raw_fd(), FIFREEZE as _, 0) })
}

/// Ends [`freeze`].
///
/// # Errors
/// When it is not frozen.
pub fn thaw(mounted: impl AsFd) -> io::Result<()> {
    // SAFETY: the request takes no argument.
    check(unsafe { libc::ioctl(mounted.as_fd().as_raw_fd(), FITHAW as _, 0) })
}

#[repr(C)]
struct PoolInfo {
    entropy_bits: libc::c_int,
    size_bytes: libc::c_int,
    bytes: [u8; MAX_ENTROPY_BYTES],
}

/// Adds random bytes to the kernel's pool, credits them, and reseeds from it.
/// Returns how many were credited.
///
/// # Errors
/// When the privilege is missing (sandbox).
pub fn add_entropy(bytes: &[u8]) -> io::Result<u32> {
    let used = bytes.len().min(MAX_ENTROPY_BYTES);
    if used == 0 {
        return Ok(0);
    }
    let random = std::fs::File::open("/dev/urandom")?;
    let size = i32::try_from(used).expect("at most 512");
    let mut info =
        PoolInfo { entropy_bits: size * 8, size_bytes: size, bytes: [0; MAX_ENTROPY_BYTES] };
    info.bytes[..used].copy_from_slice(&bytes[..used]);
    // SAFETY: the first request reads `size_bytes` bytes of the struct's array, the
    // second takes no argument.
    unsafe {
        check(libc::ioctl(random.as_raw_fd(), RNDADDENTROPY as _, &raw const info))?;
        check(libc::ioctl(random.as_raw_fd(), RNDRESEEDCRNG as _))?;
    }
    Ok(used as u32)
}

/// Brings the loopback interface up.
///
/// # Errors
/// Without the privilege, or in a kernel without networking.
pub fn loopback_up() -> io::Result<()> {
    let socket = std::net::UdpSocket::bind("0.0.0.0:0")?;
    // SAFETY: an all-zero ifreq is valid; both requests read and write only it.
    unsafe {
        let mut request: libc::ifreq = std::mem::zeroed();
        request.ifr_name[0] = b'l' as libc::c_char;
        request.ifr_name[1] = b'o' as libc::c_char;
        let fd = socket.as_fd().as_raw_fd();
        check(libc::ioctl(fd, libc::SIOCGIFFLAGS as _, &raw mut request))?;
        request.ifr_ifru.ifru_flags |= (libc::IFF_UP | libc::IFF_RUNNING) as libc::c_short;
        check(libc::ioctl(fd, libc::SIOCSIFFLAGS as _, &raw const request))
    }
}

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
