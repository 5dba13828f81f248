//! The files of the checkout that people write.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

/// A text file; the path is relative to the root.
pub(super) struct Source {
    pub(super) path: String,
    pub(super) text: String,
}

impl Source {
    /// A file that holds tests only.
    pub(super) fn is_test(&self) -> bool {
        let path = Path::new(&self.path);
        path.components().any(|part| part.as_os_str() == "tests") || path.ends_with("tests.rs")
    }
}

pub(super) fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

/// Every file with one of these endings, in a stable order.
pub(super) fn sources(endings: &[&str]) -> Vec<Source> {
    let mut found = Vec::new();
    walk(&root(), &mut |path| {
        let name = path.to_string_lossy();
        if endings.iter().any(|ending| name.ends_with(ending)) {
            let text = fs::read_to_string(path).unwrap_or_else(|error| panic!("{name}: {error}"));
            let path = path.strip_prefix(root()).expect("walked from there");
            found.push(Source { path: path.to_string_lossy().into_owned(), text });
        }
    });
    found.sort_by(|a, b| a.path.cmp(&b.path));
    assert!(!found.is_empty(), "no file ends with {endings:?}");
    found
}

fn walk(folder: &Path, visit: &mut dyn FnMut(&Path)) {
    const LEFT_OUT: [&str; 4] = [".git", "target", "node_modules", ".hivekeep"];
    for entry in fs::read_dir(folder).expect("a folder of ours") {
        let entry = entry.expect("an entry");
        let kind = entry.file_type().expect("its kind");
        if kind.is_dir() && !LEFT_OUT.iter().any(|name| entry.file_name() == *name) {
            walk(&entry.path(), visit);
        } else if kind.is_file() {
            visit(&entry.path());
        }
    }
}

/// What cargo says of the workspace's packages; needs no network.
pub(super) fn packages() -> Vec<Value> {
    let output = Command::new(env!("CARGO"))
        .args(["metadata", "--offline", "--no-deps", "--format-version", "1"])
        .current_dir(root())
        .output()
        .expect("cargo runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let metadata: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    metadata["packages"].as_array().expect("packages").clone()
}
