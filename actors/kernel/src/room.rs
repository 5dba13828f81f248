//! A low watermark of free disk space. What begins something large on the host's disk asks here
//! first: below the floor it is refused, so that what goes on, and the journal, have the rest.

use std::path::Path;
#[cfg(any(test, feature = "test-util"))]
use std::sync::Arc;

use crate::{Layer, ToolError, codes};

/// Free space of the host's file systems against the floor of the configuration. Cheap to clone.
#[derive(Debug, Clone, Default)]
pub struct Room {
    floor_bytes: u64,
    /// For tests: asked instead of the file system.
    #[cfg(any(test, feature = "test-util"))]
    free: Option<Arc<std::sync::atomic::AtomicU64>>,
}

/// A file system with less free space than there is to be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shortage {
    /// What is free for others than root.
    pub free_bytes: u64,
    /// What has to be.
    pub floor_bytes: u64,
}

/// The floor is at most this part of a file system: a small one is not below it for ever.
const PART: u64 = 10;

impl Room {
    /// With this floor; 0 never refuses.
    pub fn with_floor_mb(floor_mb: u64) -> Self {
        Self { floor_bytes: floor_mb.saturating_mul(1 << 20), ..Self::default() }
    }

    /// One whose free space, in bytes, is told.
    #[cfg(any(test, feature = "test-util"))]
    pub fn told(floor_bytes: u64, free: Arc<std::sync::atomic::AtomicU64>) -> Self {
        Self { floor_bytes, free: Some(free) }
    }

    /// What is free where this path is, and what has to be. Nothing of a path that is not there.
    pub fn look(&self, path: &Path) -> Option<Shortage> {
        #[cfg(any(test, feature = "test-util"))]
        if let Some(free) = &self.free {
            let free_bytes = free.load(std::sync::atomic::Ordering::SeqCst);
            return Some(Shortage { free_bytes, floor_bytes: self.floor_bytes });
        }
        let fs = rustix::fs::statvfs(path).ok()?;
        let size_bytes = fs.f_blocks.saturating_mul(fs.f_frsize);
        Some(Shortage {
            free_bytes: fs.f_bavail.saturating_mul(fs.f_frsize),
            floor_bytes: self.floor_bytes.min(size_bytes / PART),
        })
    }

    /// What is missing where this path is, if anything. A path that cannot be looked at lacks
    /// nothing: whoever writes there hears of it.
    pub fn shortage(&self, path: &Path) -> Option<Shortage> {
        self.look(path).filter(|found| found.free_bytes < found.floor_bytes)
    }

    /// Whether something large may be begun where this path is.
    ///
    /// # Errors
    /// `host_disk_full` with the figures.
    pub fn admit(&self, path: &Path) -> Result<(), ToolError> {
        let Some(Shortage { free_bytes, floor_bytes }) = self.shortage(path) else {
            return Ok(());
        };
        let message = format!(
            "the host's disk has {} MiB left, and nothing new is begun below {} MiB",
            free_bytes >> 20,
            floor_bytes >> 20,
        );
        Err(ToolError::new(Layer::Machine, codes::HOST_DISK_FULL, message)
            .next(
                "free space on the host: destroy workspaces or delete snapshots that are not \
                 needed; `hivekeep check` shows the folders",
            )
            .detail("free_bytes", free_bytes)
            .detail("floor_bytes", floor_bytes)
            .retry_after(std::time::Duration::from_secs(30)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicU64, Ordering::SeqCst};

    #[test]
    fn nothing_new_is_begun_below_the_floor() {
        let free = Arc::new(AtomicU64::new(100 << 20));
        let room = Room::told(100 << 20, free.clone());
        assert_eq!(room.admit(Path::new("/")), Ok(()));
        free.store((100 << 20) - 1, SeqCst);
        let refused = room.admit(Path::new("/")).unwrap_err();
        assert_eq!(refused.code, "host_disk_full");
        assert!(refused.retryable && refused.next_step.is_some());
        assert!(refused.message.contains("99 MiB") && refused.message.contains("100 MiB"));
    }

    #[test]
    fn a_floor_is_no_larger_than_a_part_of_its_file_system() {
        let found = Room::with_floor_mb(u64::MAX).look(Path::new("/")).unwrap();
        let fs = rustix::fs::statvfs("/").unwrap();
        assert_eq!(found.floor_bytes, fs.f_blocks * fs.f_frsize / 10);
        assert_eq!(Room::with_floor_mb(0).shortage(Path::new("/")), None);
        assert_eq!(Room::with_floor_mb(1).look(Path::new("/there/is/none")), None);
    }
}
