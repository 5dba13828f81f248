//! Resources of the host: workspaces, memory and disk as quotas count them, and the low watermark of free disk
//! space. Whatever begins something large on the host's disk asks for room first: below the floor it is
//! refused, so that running work and the journal have the rest.

use std::path::Path;
#[cfg(any(test, feature = "test-util"))]
use std::sync::Arc;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{Layer, ToolError, codes};

/// An amount of everything that is counted.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Resources {
    /// Workspaces.
    pub workspaces: u64,
    /// Memory in MiB.
    pub memory_mb: u64,
    /// Disk in GiB.
    pub disk_gb: u64,
}

impl Resources {
    /// Resources of one workspace of this size.
    pub fn workspace(memory_mb: u64, disk_gb: u64) -> Self {
        Self { workspaces: 1, memory_mb, disk_gb }
    }

    /// Sum, saturating.
    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        Self {
            workspaces: self.workspaces.saturating_add(other.workspaces),
            memory_mb: self.memory_mb.saturating_add(other.memory_mb),
            disk_gb: self.disk_gb.saturating_add(other.disk_gb),
        }
    }

    /// Difference, never below zero.
    #[must_use]
    pub fn minus(self, other: Self) -> Self {
        Self {
            workspaces: self.workspaces.saturating_sub(other.workspaces),
            memory_mb: self.memory_mb.saturating_sub(other.memory_mb),
            disk_gb: self.disk_gb.saturating_sub(other.disk_gb),
        }
    }

    /// Minimum of each amount.
    #[must_use]
    pub fn lesser(self, other: Self) -> Self {
        Self {
            workspaces: self.workspaces.min(other.workspaces),
            memory_mb: self.memory_mb.min(other.memory_mb),
            disk_gb: self.disk_gb.min(other.disk_gb),
        }
    }

    /// Product with a count, saturating.
    #[must_use]
    pub fn times(self, count: u64) -> Self {
        Self {
            workspaces: self.workspaces.saturating_mul(count),
            memory_mb: self.memory_mb.saturating_mul(count),
            disk_gb: self.disk_gb.saturating_mul(count),
        }
    }

    /// First amount that exceeds `limit`: its name, what is wanted, the limit.
    pub fn first_over(self, limit: Self) -> Option<(&'static str, u64, u64)> {
        [
            ("workspaces", self.workspaces, limit.workspaces),
            ("memory_mb", self.memory_mb, limit.memory_mb),
            ("disk_gb", self.disk_gb, limit.disk_gb),
        ]
        .into_iter()
        .find(|(_, wanted, limit)| wanted > limit)
    }
}

/// Check of free space on the host's file systems against the configured floor. Cheap to clone.
#[derive(Debug, Clone, Default)]
pub struct Room {
    floor_bytes: u64,
    /// Free space that tests set instead of the file system's.
    #[cfg(any(test, feature = "test-util"))]
    free: Option<Arc<std::sync::atomic::AtomicU64>>,
}

/// Free space of a file system, and the floor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shortage {
    /// Bytes free for users other than root.
    pub free_bytes: u64,
    /// Bytes that must be free.
    pub floor_bytes: u64,
}

/// Divisor that caps the floor at a part of the file system, so that a small one is not below it
/// for ever.
const PART: u64 = 10;

impl Room {
    /// Makes a check with this floor; 0 never refuses.
    // Only tests have a second field.
    #[allow(clippy::needless_update)]
    pub fn with_floor_mb(floor_mb: u64) -> Self {
        Self { floor_bytes: floor_mb.saturating_mul(1 << 20), ..Self::default() }
    }

    /// Makes a check against free space, in bytes, that the test sets.
    #[cfg(any(test, feature = "test-util"))]
    pub fn from_counter(floor_bytes: u64, free: Arc<std::sync::atomic::AtomicU64>) -> Self {
        Self { floor_bytes, free: Some(free) }
    }

    /// Free space and floor of the file system of this path; `None` if the path does not exist.
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

    /// Shortage on the file system of this path, if any. A path that cannot be inspected lacks
    /// nothing: whoever writes there gets the error.
    pub fn shortage(&self, path: &Path) -> Option<Shortage> {
        self.look(path).filter(|found| found.free_bytes < found.floor_bytes)
    }

    /// Checks that something large may be begun at this path.
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
    use std::sync::atomic::{AtomicU64, Ordering::SeqCst};

    use proptest::prelude::*;

    use super::*;

    fn resources() -> impl Strategy<Value = Resources> {
        let number = || prop_oneof![0..5_u64, Just(u64::MAX)];
        (number(), number(), number()).prop_map(|(workspaces, memory_mb, disk_gb)| Resources {
            workspaces,
            memory_mb,
            disk_gb,
        })
    }

    proptest! {
        #[test]
        fn each_kind_of_resource_is_counted_by_itself(a in resources(), b in resources(), count in 0..4_u64) {
            let each = |of: Resources| [of.workspaces, of.memory_mb, of.disk_gb];
            let both = |of: fn(u64, u64) -> u64| [0, 1, 2].map(|at| of(each(a)[at], each(b)[at]));
            prop_assert_eq!(each(a.plus(b)), both(u64::saturating_add));
            prop_assert_eq!(each(a.minus(b)), both(u64::saturating_sub));
            prop_assert_eq!(each(a.lesser(b)), both(u64::min));
            prop_assert_eq!(each(a.times(count)), each(a).map(|of| of.saturating_mul(count)));
            let over = (0..3).find(|at| each(a)[*at] > each(b)[*at]);
            let named = over.map(|at| (["workspaces", "memory_mb", "disk_gb"][at], each(a)[at], each(b)[at]));
            prop_assert_eq!(a.first_over(b), named);
        }
    }

    #[test]
    fn a_workspace_is_one() {
        let one = Resources { workspaces: 1, memory_mb: 2, disk_gb: 3 };
        assert_eq!(Resources::workspace(2, 3), one);
    }

    #[test]
    fn nothing_new_is_begun_below_the_floor() {
        let free = Arc::new(AtomicU64::new(100 << 20));
        let room = Room::from_counter(100 << 20, free.clone());
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
