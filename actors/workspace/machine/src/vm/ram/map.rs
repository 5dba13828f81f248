//! Guest memory seen from the daemon.
//!
//! A memfd's pages are mapped, compared and copied through raw pointers: while the guest runs they
//! change at any time, so no reference to them is ever made. That is sound because a torn copy is
//! only a copy that a later pass, with the guest standing still, finds to differ.
#![allow(unsafe_code)]

use std::io;
use std::os::fd::AsFd;
use std::ptr::NonNull;

use rustix::fs::SealFlags;
use rustix::mm::{MapFlags, ProtFlags};

/// Page size of x86.
pub(super) const PAGE_BYTES: usize = 4096;
static ZERO_PAGE: [u8; PAGE_BYTES] = [0; PAGE_BYTES];

/// A whole memfd.
#[derive(Debug)]
pub(super) struct Mapping {
    at: NonNull<u8>,
    len: usize,
    writable: bool,
}

// SAFETY: the pointer is to memory that belongs to no thread; it is only read and written by the
// functions below, which make no reference to memory that others change.
unsafe impl Send for Mapping {}
// SAFETY: as above.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Maps `len` bytes of a memfd that can no longer shrink: touching a page beyond the end of a
    /// file would kill the daemon, and the guest's QEMU must not be able to bring that about.
    pub(super) fn of(memfd: impl AsFd, len: usize, writable: bool) -> io::Result<Self> {
        let meta = rustix::fs::fstat(&memfd)?;
        let sealed = rustix::fs::fcntl_get_seals(&memfd)?.contains(SealFlags::SHRINK);
        if !sealed || usize::try_from(meta.st_size) != Ok(len) || len == 0 {
            return Err(io::Error::other("not the memory of a guest of this size"));
        }
        let write = if writable { ProtFlags::WRITE } else { ProtFlags::empty() };
        let (protection, flags) = (ProtFlags::READ | write, MapFlags::SHARED);
        // SAFETY: a new mapping at an address of the kernel's choice touches nothing that exists.
        let at =
            unsafe { rustix::mm::mmap(std::ptr::null_mut(), len, protection, flags, memfd, 0)? };
        let at = NonNull::new(at.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(Self { at, len, writable })
    }

    /// Length in pages.
    pub(super) fn pages(&self) -> usize {
        self.len / PAGE_BYTES
    }

    fn page(&self, page: usize) -> *mut u8 {
        assert!(page < self.pages(), "a page of this mapping");
        // SAFETY: inside the mapping, as just checked.
        unsafe { self.at.as_ptr().add(page * PAGE_BYTES) }
    }

    /// True when the page holds nothing but zeroes.
    pub(super) fn is_zero(&self, page: usize) -> bool {
        same(self.page(page), ZERO_PAGE.as_ptr())
    }

    /// Makes a page of this mapping equal to the same page of another; returns whether it was not.
    pub(super) fn take(&self, page: usize, from: &Self) -> bool {
        assert!(self.writable, "mapped to be written");
        let (to, from) = (self.page(page), from.page(page));
        if same(to, from) {
            return false;
        }
        // SAFETY: both are whole pages of living mappings that do not overlap, the target writable.
        unsafe { std::ptr::copy_nonoverlapping(from, to, PAGE_BYTES) };
        true
    }

    /// Bytes of a memfd that is sealed against writing, and so never change.
    pub(super) fn sealed_bytes(&self, range: std::ops::Range<usize>) -> &[u8] {
        assert!(!self.writable && range.start <= range.end && range.end <= self.len);
        // SAFETY: inside the mapping; nobody can write it, which `ram::Sealed` stands for.
        unsafe { std::slice::from_raw_parts(self.at.as_ptr().add(range.start), range.len()) }
    }

    /// Bytes of a memfd that nobody else has seen yet.
    pub(super) fn own_bytes(&mut self, range: std::ops::Range<usize>) -> &mut [u8] {
        assert!(self.writable && range.start <= range.end && range.end <= self.len);
        // SAFETY: inside the mapping, which is borrowed mutably; the caller made the memfd and has
        // given it to nobody.
        unsafe { std::slice::from_raw_parts_mut(self.at.as_ptr().add(range.start), range.len()) }
    }
}

fn same(one: *const u8, other: *const u8) -> bool {
    // SAFETY: both point to a whole page.
    unsafe { libc::memcmp(one.cast(), other.cast(), PAGE_BYTES) == 0 }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: the mapping is this value's own, and nothing borrows from it any more.
        let unmapped = unsafe { rustix::mm::munmap(self.at.as_ptr().cast(), self.len) };
        debug_assert!(unmapped.is_ok(), "an own mapping can be unmapped");
    }
}
