//! Where things are found, and what every crate carries.

use std::fs;
use std::path::Path;

use super::{
    assert_none,
    sources::{is_ours, packages, root, sources},
};

const LICENCE: &str = "MIT OR Apache-2.0";

#[test]
fn every_crate_carries_licence_and_lints_and_opens_with_its_purpose() {
    let mut findings = Vec::new();
    for package in packages() {
        let name = package["name"].as_str().unwrap();
        if package["license"] != LICENCE {
            findings.push(format!("{name}: its licence is not {LICENCE}"));
        }
        if package["publish"] != serde_json::json!([]) {
            findings.push(format!("{name}: it could be published"));
        }
        let manifest = package["manifest_path"].as_str().unwrap();
        if !fs::read_to_string(manifest).unwrap().contains("[lints]\nworkspace = true") {
            findings.push(format!("{name}: it does not take the workspace's lints"));
        }
        for target in package["targets"].as_array().unwrap() {
            let path = target["src_path"].as_str().unwrap();
            if !fs::read_to_string(path).unwrap().starts_with("//!") {
                findings.push(format!("{path}: does not open with its purpose"));
            }
        }
    }
    for file in ["LICENSE-MIT", "LICENSE-APACHE"] {
        if !root().join(file).exists() {
            findings.push(format!("{file} is missing"));
        }
    }
    assert_none("what a crate carries", &findings);
}

#[test]
fn a_module_is_a_file_beside_its_folder() {
    let code = sources(&[".rs"]);
    let named_mod = code.iter().filter(|source| Path::new(&source.path).ends_with("mod.rs"));
    let found: Vec<_> = named_mod.map(|source| source.path.clone()).collect();
    assert_none("`foo.rs` and `foo/`, never `foo/mod.rs`", &found);
}

#[test]
fn the_program_is_a_thin_door_to_its_library() {
    let main = fs::read_to_string(root().join("src/main.rs")).unwrap();
    assert!(main.lines().count() <= 60, "src/main.rs has {} lines", main.lines().count());
    let modules = main.lines().filter(|line| line.trim_start().starts_with("mod ")).count();
    assert_eq!(modules, 0, "src/main.rs would compile the library twice");
}

/// The crates' folders below the root.
fn folders() -> Vec<String> {
    let folder = |package: &serde_json::Value| {
        let manifest = package["manifest_path"].as_str().expect("a path");
        let below = manifest.trim_start_matches(root().to_str().expect("UTF-8"));
        below.trim_end_matches("Cargo.toml").trim_matches('/').to_owned()
    };
    packages().iter().map(folder).filter(|folder| !folder.is_empty()).collect()
}

fn times(page: &str, cell: &str) -> usize {
    let row = format!("| `{cell}` |");
    page.lines().filter(|line| line.starts_with(&row)).count()
}

#[test]
fn every_crate_is_on_its_page_and_on_its_side() {
    let read = |path: &str| fs::read_to_string(root().join(path)).unwrap();
    let (architecture, list) = (read("docs/architecture.md"), read("config/src/families.rs"));
    let (platform, _) = architecture.split_once("| **families** |").expect("a row between them");
    let code = sources(&[".rs"]);
    let mut findings = Vec::new();
    for folder in folders() {
        let beside = ["tests/", "xtask"].iter().any(|start| folder.starts_with(start));
        if !beside && !is_ours(&format!("{folder}/")) {
            findings.push(format!("tests/it/house/sources.rs: no rule reads {folder}"));
        }
        if times(&architecture, &folder) != 1 {
            findings.push(format!("docs/architecture.md: a row for {folder}"));
        }
        let Some(name) = folder.strip_prefix("actors/") else { continue };
        // A crate's folder may have others below it.
        let src = format!("{folder}/src/");
        let ours = code.iter().filter(|source| source.path.starts_with(&src) && source.ships());
        let texts: Vec<_> = ours.map(|source| source.text.as_str()).collect();
        let has = |needle: &str| texts.iter().any(|text| text.contains(needle));
        if times(platform, &folder) == 1 && has("\ntools! {") {
            findings
                .push(format!("docs/architecture.md: {folder} has tools, and is not a platform"));
        }
        let listed = list.contains(&format!(": hivekeep_{}::", name.replace("workspace/", "")));
        if has("\nimpl Family for ") != listed {
            findings.push(format!("config/src/families.rs: {name} is listed: {listed}"));
        }
    }
    assert_none("a crate is named where crates are", &findings);
}
