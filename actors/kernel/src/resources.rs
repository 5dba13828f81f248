//! Resource vector: workspaces, memory and disk as quotas count them.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

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
