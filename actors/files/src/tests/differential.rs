//! Searches against ripgrep's and find's own programs on the same trees.

use std::{fs, path::Path, process::Command};

use serde_json::json;
use tempfile::TempDir;

use super::stage::Stage;
use crate::{Options, PlaceOptions};

/// Lines that a program prints, sorted; a program that is missing fails the test.
fn lines(folder: &Path, program: &str, args: &[&str]) -> Vec<String> {
    let output = Command::new(program).args(args).current_dir(folder).output();
    let output = output.unwrap_or_else(|error| panic!("{program} (cargo xtask setup): {error}"));
    let text = String::from_utf8_lossy(&output.stdout);
    let mut lines: Vec<_> = text.lines().map(|line| line.trim_end().to_owned()).collect();
    lines.sort();
    lines
}

fn sorted(list: &serde_json::Value) -> Vec<String> {
    let list = list.as_array().expect("a list").iter();
    let mut list: Vec<_> = list.map(|line| line.as_str().expect("text").to_owned()).collect();
    list.sort();
    list
}

async fn over(folder: &Path) -> Stage {
    let place = PlaceOptions { folder: folder.to_owned(), read_only: true };
    let places = [("tree".to_owned(), place)].into();
    let options = Options { places, ..Options::default() };
    Stage::of(options, TempDir::new().expect("a folder")).await
}

#[tokio::test]
async fn searches_of_these_sources_are_ripgreps_and_finds() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let stage = over(&folder).await;
    for pattern in ["fn ", r"^use \w+", r"\bDir\b", "—|€", r"\}$", "nothing has this [0-9]{9}"]
    {
        let args = json!({ "path": ".", "pattern": pattern, "limit": 5000 });
        let ours = sorted(&stage.good("grep", args).await["matches"]);
        let theirs =
            lines(&folder, "rg", &["-n", "--no-heading", "--no-ignore", "--hidden", "--", pattern]);
        // Lines that are cut are not compared.
        assert!(theirs.iter().all(|line| line.len() < 500), "{pattern}");
        assert_eq!(ours, theirs, "{pattern}");
    }
    for (pattern, name) in [("*.rs", "*.rs"), ("**/w*", "w*"), ("tests/**", "*")] {
        let top = if pattern.starts_with("tests") { "tests" } else { "." };
        let args = json!({ "path": ".", "pattern": pattern, "limit": 10_000 });
        let ours = sorted(&stage.good("glob", args).await["paths"]);
        let theirs = lines(&folder, "find", &[top, "-type", "f", "-name", name]);
        let theirs: Vec<_> =
            theirs.iter().map(|path| path.trim_start_matches("./").to_owned()).collect();
        assert_eq!(ours, theirs, "{pattern}");
    }
}

#[tokio::test]
async fn ignored_files_are_those_that_ripgrep_ignores() {
    let folder = TempDir::new().expect("a folder");
    for (path, text) in [
        (".gitignore", "*.log\n/build\n!keep.log\ndocs/*.tmp\n# a comment\n\\#odd\n"),
        ("a.log", ""),
        ("keep.log", ""),
        ("build/x", ""),
        ("src/build/x", ""),
        ("docs/a.tmp", ""),
        ("docs/b/a.tmp", ""),
        ("#odd", ""),
        ("src/.gitignore", "!*.log\ntarget/\n"),
        ("src/b.log", ""),
        ("src/target/o", ""),
        ("src/lib/target", ""),
        (".git/config", ""),
        ("src/deep/c.log", ""),
    ] {
        let path = folder.path().join(path);
        fs::create_dir_all(path.parent().expect("it has one")).expect("made");
        fs::write(path, text).expect("written");
    }
    let stage = over(folder.path()).await;
    let args = json!({ "path": ".", "pattern": "**", "gitignore": true, "limit": 10_000 });
    let ours = sorted(&stage.good("glob", args).await["paths"]);
    let rg = [
        "--files",
        "--hidden",
        "--no-require-git",
        "--no-ignore-parent",
        "--no-ignore-global",
        "--glob",
        "!.git",
    ];
    assert_eq!(ours, lines(folder.path(), "rg", &rg));
}
