//! Heap settings: freed memory is rarely given back.
//!
//! By default the C library returns freed memory above 128 KiB to the kernel at
//! once. Data chunks are of that order, so each one would be mapped, faulted in
//! page by page and unmapped again; under software emulation that costs more than
//! all the copying.
#![allow(unsafe_code)]

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
