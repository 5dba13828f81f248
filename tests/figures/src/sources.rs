//! The files of a checkout that people write.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

/// A text file.
pub struct Source {
    /// Relative to the root.
    pub path: String,
    pub text: String,
}

impl Source {
    /// Whether it holds tests only.
    pub fn is_test(&self) -> bool {
        self.is_below(&["tests"])
    }

    /// Whether it is no test, and nothing that stands in for something in tests.
    pub fn ships(&self) -> bool {
        !self.is_below(&["tests", "test_util", "fake", "fakes", "fixture", "fixtures"])
    }

    /// Whether it, or a folder that it is in, has one of these names.
    fn is_below(&self, names: &[&str]) -> bool {
        let path = Path::new(&self.path).with_extension("");
        path.components().any(|part| names.iter().any(|name| part.as_os_str() == *name))
    }
}

/// Every file below `root` with one of these endings, in a stable order.
///
/// # Errors
/// When one cannot be read.
pub fn sources(root: &Path, endings: &[&str]) -> io::Result<Vec<Source>> {
    let mut paths = Vec::new();
    walk(root, &mut paths)?;
    paths.retain(|path| endings.iter().any(|ending| path.to_string_lossy().ends_with(ending)));
    paths.sort();
    let read = |path: &PathBuf| {
        let name = |error| io::Error::other(format!("{}: {error}", path.display()));
        let text = fs::read_to_string(path).map_err(name)?;
        let path = path.strip_prefix(root).expect("walked from there");
        Ok(Source { path: path.to_string_lossy().into_owned(), text })
    };
    paths.iter().map(read).collect()
}

fn walk(folder: &Path, found: &mut Vec<PathBuf>) -> io::Result<()> {
    const LEFT_OUT: [&str; 4] = [".git", "target", "node_modules", ".hivekeep"];
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let kind = entry.file_type()?;
        if kind.is_dir() && !LEFT_OUT.iter().any(|name| entry.file_name() == *name) {
            walk(&entry.path(), found)?;
        } else if kind.is_file() {
            found.push(entry.path());
        }
    }
    Ok(())
}
