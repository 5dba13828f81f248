//! Path in a volume: what a caller writes, made relative to the volume's root.

use std::fmt;

use hivekeep_kernel::{Layer, ToolError};

use crate::codes;

/// Size of a path in bytes, as the kernel limits it.
const MAX_BYTES: usize = 4096;

/// Relative path without NUL that has at no point more `..` than folders; `.` is the root. Links in it
/// are the kernel's to judge.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct VolumePath(String);

impl VolumePath {
    /// Parses a path: absolute ones begin at the volume's root.
    ///
    /// # Errors
    /// `invalid_path`.
    pub(crate) fn parse(text: &str) -> Result<Self, ToolError> {
        if text.is_empty() || text.len() > MAX_BYTES || text.contains('\0') {
            return Err(refused(format!("the path has to be 1 to {MAX_BYTES} bytes without NUL")));
        }
        let mut parts = Vec::new();
        for part in text.split('/') {
            match part {
                "" | "." => {}
                ".." => {
                    parts.pop().ok_or_else(|| outside(text))?;
                }
                name => parts.push(name),
            }
        }
        // A folder that is left again is not passed: it may be a link to another.
        Ok(Self(if parts.is_empty() { ".".to_owned() } else { parts.join("/") }))
    }

    /// Path for the kernel.
    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }

    /// Folder and name.
    ///
    /// # Errors
    /// `invalid_path` for the root, which has no name.
    pub(crate) fn split(&self) -> Result<(&str, &str), ToolError> {
        if self.0 == "." {
            return Err(refused("the root of a volume cannot be written or deleted".to_owned()));
        }
        Ok(self.0.rsplit_once('/').unwrap_or((".", &self.0)))
    }
}

impl fmt::Display for VolumePath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Refuses a path that leads out of its volume.
pub(crate) fn outside(path: &str) -> ToolError {
    refused(format!("`{path}` leads out of its volume"))
}

fn refused(message: String) -> ToolError {
    ToolError::new(Layer::Actor, codes::INVALID_PATH, message)
        .next("name a path relative to the volume's root, with `/` between folders")
}
