//! Table of versions in the documentation.

use std::fs;

use anyhow::{Context, Result, bail};

use super::Driven;
use crate::repo::Repo;

/// Lines around the table.
const BEGIN: &str = "<!-- versions: compared by `cargo xtask test --only e2b` -->";
const END: &str = "<!-- end of versions -->";

/// Holds the table of the documentation against what was driven.
pub(super) fn compare(repo: &Repo, rows: &[(String, Driven)]) -> Result<()> {
    let page = repo.root.join("docs/e2b.md");
    let text = fs::read_to_string(&page)?;
    let table = table(rows);
    let found = text.split_once(BEGIN).and_then(|(_, rest)| rest.split_once(END));
    let (found, _) = found.with_context(|| format!("{} has no table", page.display()))?;
    if found.trim() != table.trim() {
        bail!("docs/e2b.md has another table; this is what was driven:\n{table}");
    }
    Ok(())
}

/// A row for each run, with what the version has and what it has not.
fn table(rows: &[(String, Driven)]) -> String {
    let mut text =
        "| SDK | version | isolation | driven | not there |\n|---|---|---|---|---|\n".to_owned();
    for (language, Driven { version, isolation, features }) in rows {
        let named = |there: bool| {
            let names = features.iter().filter(|(_, is)| **is == there).map(|(name, _)| &**name);
            names.collect::<Vec<_>>().join(", ")
        };
        let (has, lacks) = (named(true), named(false));
        text += &format!("| {language} | {version} | {isolation} | {has} | {lacks} |\n");
    }
    text
}
