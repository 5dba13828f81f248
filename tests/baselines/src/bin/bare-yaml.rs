//! Parser of all YAML files of a folder, and nothing more. What a check of them is measured against.
//!
//! `bare-yaml DIR` prints their number.
#![allow(clippy::print_stdout, reason = "the output is the point")]

use std::fs;

use anyhow::{Context, Result};

fn main() -> Result<()> {
    let mut folders = vec![std::env::args().nth(1).context("a folder is missing")?.into()];
    let mut files = 0;
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir::<std::path::PathBuf>(folder)? {
            let path = entry?.path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|it| it == "yaml" || it == "yml") {
                let text = fs::read_to_string(path)?;
                // Some of a corpus are no YAML.
                let _parsed = serde_saphyr::from_multiple::<serde_json::Value>(&text);
                files += 1;
            }
        }
    }
    println!("{files}");
    Ok(())
}
