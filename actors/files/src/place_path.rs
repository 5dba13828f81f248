//! Path in a place: what a caller writes, made relative to the place's root.

use std::fmt;

use hivekeep_kernel::{Layer, ToolError};

use crate::codes;

/// Size of a path in bytes, as the kernel limits it.
const MAX_BYTES: usize = 4096;

/// Relative path without NUL that has at no point more `..` than folders; `.` is the root. Links in it
/// are the kernel's to judge.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct PlacePath(String);

impl PlacePath {
    /// Parses a path: absolute ones begin at the place's root.
    ///
    /// # Errors
    /// `invalid_path`, or `outside_place` for one that leaves the root.
    pub(crate) fn parse(text: &str) -> Result<Self, ToolError> {
        let refuse = |what: &str| {
            ToolError::new(Layer::Actor, codes::INVALID_PATH, format!("the path {what}"))
                .next("name a path relative to the place's root, with `/` between folders")
        };
        if text.is_empty() {
            return Err(refuse("is empty"));
        }
        if text.len() > MAX_BYTES {
            return Err(refuse(&format!("has {} bytes, {MAX_BYTES} are allowed", text.len())));
        }
        if text.contains('\0') {
            return Err(refuse("has a NUL character"));
        }
        let mut depth = 0_i64;
        for part in text.split('/') {
            depth += match part {
                "" | "." => 0,
                ".." => -1,
                _ => 1,
            };
            if depth < 0 {
                return Err(outside(text));
            }
        }
        let relative = text.trim_start_matches('/');
        Ok(Self(if relative.is_empty() { ".".to_owned() } else { relative.to_owned() }))
    }

    /// Path for the kernel.
    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }

    /// Folder and name of what it names; `None` for one without a name of its own, such as the root.
    pub(crate) fn split(&self) -> Option<(&str, &str)> {
        let path = self.0.trim_end_matches('/');
        let (parent, name) = path.rsplit_once('/').unwrap_or((".", path));
        let parent = if parent.is_empty() { "." } else { parent };
        (!matches!(name, "" | "." | "..")).then_some((parent, name))
    }

    /// Path of what a link at this one names.
    ///
    /// # Errors
    /// As [`Self::parse`]; an absolute target leads out.
    pub(crate) fn linked(&self, target: &str) -> Result<Self, ToolError> {
        if target.starts_with('/') {
            return Err(outside(&self.0));
        }
        let parent = self.split().map_or(".", |(parent, _)| parent);
        Self::parse(&format!("{parent}/{target}"))
    }
}

impl fmt::Display for PlacePath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Refuses a path that leads out of its place.
pub(crate) fn outside(path: &str) -> ToolError {
    let message = format!("`{path}` leads out of its place");
    ToolError::new(Layer::Actor, codes::OUTSIDE_PLACE, message)
        .next("name a path below the place's root")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_begin_at_the_root_and_stay_below_it() {
        for (text, path) in [("/", "."), (".", "."), ("//a/b", "a/b"), ("a/../b", "a/../b")] {
            assert_eq!(PlacePath::parse(text).expect(text).as_str(), path);
        }
        for text in ["..", "a/../..", "/../etc", "a/b/../../../x", "./.."] {
            assert!(PlacePath::parse(text).expect_err(text).is(codes::OUTSIDE_PLACE), "{text}");
        }
        for text in [String::new(), "a\0b".to_owned(), "x".repeat(4097)] {
            assert!(PlacePath::parse(&text).expect_err("refused").is(codes::INVALID_PATH));
        }
    }

    #[test]
    fn a_name_is_apart_from_its_folder() {
        let split = |text: &str| {
            let path = PlacePath::parse(text).expect(text);
            path.split().map(|(parent, name)| (parent.to_owned(), name.to_owned()))
        };
        let is = |parent: &str, name: &str| Some((parent.to_owned(), name.to_owned()));
        assert_eq!((split("a"), split("/a/b/")), (is(".", "a"), is("a", "b")));
        assert_eq!((split("/"), split("a/.."), split(".")), (None, None, None));
    }
}
