//! Health checks: what `hivekeep check` finds on a host, before a daemon runs or beside it.

use std::path::Path;

use hivekeep_kernel::{Room, Shortage};
use serde::Serialize;

use crate::Folders;

/// What a check looks at.
#[derive(Debug, Clone)]
pub struct Host {
    /// Where the daemon keeps things. They need not be there yet.
    pub folders: Folders,
    /// The floor of free space.
    pub room: Room,
}

/// One thing looked at.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// What, in a word or two.
    pub what: String,
    /// Whether it is as it should be.
    pub ok: bool,
    /// Without it nothing works; otherwise something is slower or missing.
    pub needed: bool,
    /// What was found, for people.
    pub detail: String,
    /// What mends it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub remedy: Option<String>,
    /// The package that mends it, named as Debian names it. The remedy is then how to install it.
    #[serde(skip)]
    pub package: Option<&'static str>,
}

impl Finding {
    /// As it should be.
    pub fn good(what: impl Into<String>, detail: impl Into<String>) -> Self {
        let (what, detail) = (what.into(), detail.into());
        Self { what, ok: true, needed: true, detail, remedy: None, package: None }
    }

    /// Missing or wrong, with what to do about it.
    pub fn bad(
        what: impl Into<String>,
        detail: impl Into<String>,
        remedy: impl Into<String>,
    ) -> Self {
        Self { ok: false, remedy: Some(remedy.into()), ..Self::good(what, detail) }
    }

    /// Something is slower or missing without it.
    #[must_use]
    pub fn optional(self) -> Self {
        self.needed(false)
    }

    /// Whether anything works without it.
    #[must_use]
    pub fn needed(mut self, needed: bool) -> Self {
        self.needed = needed;
        self
    }

    /// The package that mends it.
    #[must_use]
    pub fn package(mut self, package: Option<&'static str>) -> Self {
        self.package = package;
        self
    }

    /// Free space below a path against the floor below which nothing new is begun.
    pub fn space(what: &str, path: &Path, room: &Room) -> Self {
        let shown = path.display();
        let Some(Shortage { free_bytes, floor_bytes }) = room.look(path) else {
            return Self::bad(what, format!("{shown} cannot be looked at"), "mend the file system");
        };
        let (free, floor) = (bytes(free_bytes), bytes(floor_bytes));
        if free_bytes < floor_bytes {
            let detail = format!("{shown} has {free} left, below its floor of {floor}");
            return Self::bad(what, detail, "free some space: nothing new is begun until then");
        }
        Self::good(what, format!("{shown} ({free} free, floor {floor})"))
    }
}

/// An amount for people: `812 B`, `3.4 MiB`.
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
