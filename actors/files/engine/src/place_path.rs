//! Path in a place: what a caller writes, made relative to the place's root.

use std::{
    fmt,
    path::{Path, PathBuf},
};

use crate::{FileError, FileErrorKind};

/// Size of a path in bytes, as the kernel limits it.
const MAX_BYTES: usize = 4096;

/// Relative path without NUL that has at no point more `..` than folders; `.` is the root. Links in it
/// are the kernel's to judge.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PlacePath {
    path: String,
    /// The root is `/` of a guest: it is shown, and absolute links stay in it.
    system: bool,
}

impl PlacePath {
    /// Parses a path: absolute ones begin at the place's root.
    ///
    /// # Errors
    /// `InvalidPath`, or `Outside` for one that leaves the root.
    pub fn parse(text: &str) -> Result<Self, FileError> {
        Self::of(text, false)
    }

    /// Parses a path of a guest: relative ones begin at the absolute path `home`.
    ///
    /// # Errors
    /// As [`Self::parse`].
    pub fn in_system(home: &str, text: &str) -> Result<Self, FileError> {
        if text.starts_with('/') || text.is_empty() {
            return Self::of(text, true);
        }
        Self::of(&format!("{home}/{text}"), true)
    }

    fn of(text: &str, system: bool) -> Result<Self, FileError> {
        let refuse =
            |what: &str| FileError::new(FileErrorKind::InvalidPath, format!("the path {what}"));
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
        let path = if relative.is_empty() { "." } else { relative };
        Ok(Self { path: path.to_owned(), system })
    }

    /// Path for the kernel.
    pub fn as_str(&self) -> &str {
        &self.path
    }

    /// Path from the root of the guest.
    pub(crate) fn in_root(&self) -> PathBuf {
        Path::new("/").join(&self.path)
    }

    /// Path that those of a walk begin with.
    pub(crate) fn shown(&self) -> PathBuf {
        let relative = Path::new(&self.path).components().filter(|part| part.as_os_str() != ".");
        let root = self.system.then_some(Path::new("/"));
        root.into_iter().chain(relative.map(|part| Path::new(part.as_os_str()))).collect()
    }

    /// Folder and name of what it names; `None` for one without a name of its own, such as the root.
    pub fn split(&self) -> Option<(&str, &str)> {
        let path = self.path.trim_end_matches('/');
        let (parent, name) = path.rsplit_once('/').unwrap_or((".", path));
        let parent = if parent.is_empty() { "." } else { parent };
        (!matches!(name, "" | "." | "..")).then_some((parent, name))
    }

    /// Path of what a link at this one names.
    ///
    /// # Errors
    /// As [`Self::parse`]; out of a place an absolute target leads, too.
    pub(crate) fn linked(&self, target: &str) -> Result<Self, FileError> {
        match target.starts_with('/') {
            true if self.system => Self::of(target, true),
            true => Err(outside(&self.path)),
            false => {
                let parent = self.split().map_or(".", |(parent, _)| parent);
                Self::of(&format!("{parent}/{target}"), self.system)
            }
        }
    }
}

impl fmt::Display for PlacePath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.system, self.path.as_str()) {
            (true, ".") => f.write_str("/"),
            (true, path) => write!(f, "/{path}"),
            (false, path) => f.write_str(path),
        }
    }
}

/// Refuses a path that leads out of its place.
pub(crate) fn outside(path: impl fmt::Display) -> FileError {
    FileError::new(FileErrorKind::Outside, format!("`{path}` leads out of its place"))
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
            assert!(
                PlacePath::parse(text).expect_err(text).kind == FileErrorKind::Outside,
                "{text}"
            );
        }
        for text in [String::new(), "a\0b".to_owned(), "x".repeat(4097)] {
            assert!(
                PlacePath::parse(&text).expect_err("refused").kind == FileErrorKind::InvalidPath
            );
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
