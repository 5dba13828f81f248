//! The files of the checkout that people write.

use std::path::PathBuf;
use std::process::Command;

use serde_json::Value;

pub(super) use hivekeep_figures::Source;

pub(super) fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

/// Every file with one of these endings, in a stable order.
pub(super) fn sources(endings: &[&str]) -> Vec<Source> {
    let found = hivekeep_figures::sources(&root(), endings).expect("the checkout can be read");
    assert!(!found.is_empty(), "no file ends with {endings:?}");
    found
}

/// Folders with the daemon's own code. Rules for it read all of them.
const OURS: [&str; 4] = ["actors/", "config/", "doors/", "src/"];

/// Whether a file below the root is the daemon's own, and none of its tests' or of what builds it.
pub(super) fn is_ours(path: &str) -> bool {
    OURS.iter().any(|folder| path.starts_with(folder))
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
