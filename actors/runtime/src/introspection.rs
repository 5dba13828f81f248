//! Knowledge of the daemon about itself: its tools as MCP lists them, its configuration, and findings of
//! `hivekeep check` on a host, before a daemon runs or beside it. Boot offers the ports before any family is
//! mounted.

use std::{path::Path, sync::Arc, time::Duration};

use async_trait::async_trait;
use hivekeep_kernel::{Room, Shortage, ToolSpec};
use serde::Serialize;
use serde_json::Value;

use crate::Folders;

/// Tool as clients see it.
#[derive(Debug, Clone)]
pub struct ToolSchemas {
    /// Name as declared.
    pub name: &'static str,
    /// Family that it is listed under.
    pub family: &'static str,
    /// JSON Schema of its input.
    pub input: Value,
    /// JSON Schema of its output.
    pub output: Value,
}

/// Key of the configuration with its value.
#[derive(Debug, Clone)]
pub struct ConfigValue {
    /// Section and key, joined by dots.
    pub key: String,
    /// Value in force; secrets are redacted by their type.
    pub value: Value,
    /// Layer that set it.
    pub source: String,
}

/// Knowledge of the daemon about itself.
#[async_trait]
pub trait Introspection: Send + Sync {
    /// Version of the daemon.
    fn version(&self) -> &'static str;

    /// Time since its start.
    fn uptime(&self) -> Duration;

    /// Tools in the order of their declaration.
    fn tools(&self) -> &[ToolSchemas];

    /// JSON Schema of the configuration.
    fn config_schema(&self) -> &Value;

    /// Effective configuration, in the order of the shipped file; secrets are redacted by their type.
    fn config(&self) -> &Value;

    /// Keys that somebody set.
    fn config_set(&self) -> &[ConfigValue];

    /// File that it was read from, if any.
    fn config_file(&self) -> Option<String>;

    /// Findings of `hivekeep check` on this host. They take seconds: a recent answer is given again,
    /// and one check runs at a time.
    async fn findings(&self) -> Vec<Finding>;
}

/// A tool of the catalogue.
#[derive(Debug, Clone)]
pub struct CataloguedTool {
    /// Declaration, with everything but the schemas.
    pub spec: &'static ToolSpec,
    /// Name of the source that it comes from; `None` for the daemon's own.
    pub server: Option<String>,
    /// MCP tool object by the declared name, with both schemas.
    pub tool: Value,
}

/// All tools. The view of a call says which of them its caller may know of.
pub trait ToolCatalogue: Send + Sync {
    /// The tools as they are now: the daemon's own in the order of their declaration, then those of
    /// sources. The same list until they change.
    fn tools(&self) -> Arc<Vec<CataloguedTool>>;
}

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
