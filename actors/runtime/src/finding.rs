//! Health checks: findings of `hivekeep check` on a host, before a daemon runs or beside it.

use std::path::Path;

use hivekeep_kernel::{Room, Shortage};
use serde::Serialize;

use crate::Folders;

/// Subject of a check.
#[derive(Debug, Clone)]
pub struct Host {
    /// Folders of the daemon. They need not exist yet.
    pub folders: Folders,
    /// Check of free disk space.
    pub room: Room,
}

/// Result of one check.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// Subject in a word or two.
    pub what: String,
    /// True if nothing is wrong.
    pub ok: bool,
    /// True if nothing works without it; otherwise something is slower or missing.
    pub needed: bool,
    /// Description for people.
    pub detail: String,
    /// Remedy for people.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub remedy: Option<String>,
    /// Name of the Debian package that fixes it. The remedy is then how to install it.
    #[serde(skip)]
    pub package: Option<&'static str>,
}

impl Finding {
    /// Makes a finding without a problem.
    pub fn good(what: impl Into<String>, detail: impl Into<String>) -> Self {
        let (what, detail) = (what.into(), detail.into());
        Self { what, ok: true, needed: true, detail, remedy: None, package: None }
    }

    /// Makes a finding of something missing or wrong, with its remedy.
    pub fn bad(
        what: impl Into<String>,
        detail: impl Into<String>,
        remedy: impl Into<String>,
    ) -> Self {
        Self { ok: false, remedy: Some(remedy.into()), ..Self::good(what, detail) }
    }

    /// Marks it as optional: something is slower or missing without it.
    #[must_use]
    pub fn optional(self) -> Self {
        self.needed(false)
    }

    /// Sets whether anything works without it.
    #[must_use]
    pub fn needed(mut self, needed: bool) -> Self {
        self.needed = needed;
        self
    }

    /// Sets the package that fixes it.
    #[must_use]
    pub fn package(mut self, package: Option<&'static str>) -> Self {
        self.package = package;
        self
    }

    /// Compares free space below a path with the floor below which nothing new is begun.
    pub fn space(what: &str, path: &Path, room: &Room) -> Self {
        let shown = path.display();
        let Some(Shortage { free_bytes, floor_bytes }) = room.look(path) else {
            return Self::bad(
                what,
                format!("{shown} cannot be inspected"),
                "repair the file system",
            );
        };
        let (free, floor) = (bytes(free_bytes), bytes(floor_bytes));
        if free_bytes < floor_bytes {
            let detail = format!("{shown} has {free} left, below its floor of {floor}");
            return Self::bad(what, detail, "free some space: nothing new is begun until then");
        }
        Self::good(what, format!("{shown} ({free} free, floor {floor})"))
    }
}

/// Formats an amount for people: `812 B`, `3.4 MiB`.
pub fn bytes(bytes: u64) -> String {
    const UNITS: [&str; 4] = ["KiB", "MiB", "GiB", "TiB"];
    if bytes < 1024 {
        return format!("{bytes} B");
    }
    let mut size = bytes as f64 / 1024.0;
    let mut unit = 0;
    while size >= 1024.0 && unit + 1 < UNITS.len() {
        size /= 1024.0;
        unit += 1;
    }
    format!("{size:.1} {}", UNITS[unit])
}
