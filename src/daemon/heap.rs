//! Giving memory back after a burst of calls.
//!
//! The C library keeps what was freed between pieces still in use. A thousand
//! calls at once leave some 20 MiB that way, which nobody needs again soon.
#![allow(unsafe_code)]

use std::time::Duration;

/// Between two rounds.
const EVERY: Duration = Duration::from_secs(10);

/// Gives freed memory back to the kernel, again and again. Ends when dropped.
pub(super) async fn give_back() {
    loop {
        tokio::time::sleep(EVERY).await;
        let _ended_with_the_runtime = tokio::task::spawn_blocking(trim).await;
    }
}

#[cfg(target_env = "gnu")]
fn trim() {
    // SAFETY: malloc_trim takes the allocator's own locks and may run at any time.
    let _whether_there_was_any = unsafe { libc::malloc_trim(0) };
}

#[cfg(not(target_env = "gnu"))]
fn trim() {}
