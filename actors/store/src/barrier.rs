//! Write barrier: interposes a function of the C library, so that what the database takes for a
//! sync is one.
//!
//! sled reuses a segment of its log once newer copies of the segment's pages were written and
//! `sync_file_range` was called for them. That call does not empty a disk's write cache: a power
//! cut could keep the new pages and lose the copies, which were acknowledged long ago. Nothing
//! above sled can put a sync in between, so this function answers the call with `fdatasync`. The
//! linker prefers it to that of the C library.

#![allow(unsafe_code)]

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use libc::{c_int, c_uint, off64_t};

static CALLED: AtomicBool = AtomicBool::new(false);

/// True once the database was seen to call the function: its own flush is then a sync and needs no
/// other.
pub(crate) fn holds() -> bool {
    CALLED.load(Relaxed)
}

/// Makes all of a file durable, including its length, whatever part was asked for.
///
/// # Safety
/// No precondition: a bad descriptor is an error.
#[unsafe(no_mangle)]
extern "C" fn sync_file_range(fd: c_int, _from: off64_t, _bytes: off64_t, _how: c_uint) -> c_int {
    CALLED.store(true, Relaxed);
    // SAFETY: takes no pointer.
    unsafe { libc::fdatasync(fd) }
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_database_calls_it() {
        let dir = tempfile::tempdir().unwrap();
        let db = sled::open(dir.path()).unwrap();
        super::CALLED.store(false, super::Relaxed);
        db.insert("key", "value").unwrap();
        db.flush().unwrap();
        assert!(super::holds(), "its flush is answered by the C library");
    }
}
