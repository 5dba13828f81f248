//! Table of versions in the documentation.

use std::fs;

use anyhow::{Context, Result, bail};

use super::Driven;
use crate::repo::Repo;

/// Lines around the table.
const BEGIN: &str = "<!-- versions: compared by `cargo xtask test --only e2b` -->";
const END: &str = "<!-- end of versions -->";
const HEAD: [&str; 2] =
    ["| SDK | version | isolation | driven | not there |", "|---|---|---|---|---|"];

/// Holds the table of the documentation against what was driven. `others` are rows that were left out for a turn of
/// theirs; none is told when a whole isolation was left out.
pub(super) fn compare(repo: &Repo, rows: &[(String, Driven)], others: Option<usize>) -> Result<()> {
    let page = repo.root.join("docs/e2b.md");
    let text = fs::read_to_string(&page)?;
    let found = text.split_once(BEGIN).and_then(|(_, rest)| rest.split_once(END));
    let (found, _) = found.with_context(|| format!("{} has no table", page.display()))?;
    let (table, driven) = (found.trim().lines().collect::<Vec<_>>(), lines(rows));
    if let Some(problem) = problem(&table, &driven, others) {
        let driven = driven.join("\n");
        bail!("the table of docs/e2b.md {problem}; this is what was driven:\n{driven}");
    }
    Ok(())
}

/// A row for each run, with what the version has and what it has not.
fn lines(rows: &[(String, Driven)]) -> Vec<String> {
    let line = |(language, driven): &(String, Driven)| {
        let Driven { version, isolation, features } = driven;
        let named = |there: bool| {
            let names = features.iter().filter(|(_, is)| **is == there).map(|(name, _)| &**name);
            names.collect::<Vec<_>>().join(", ")
        };
        let (has, lacks) = (named(true), named(false));
        format!("| {language} | {version} | {isolation} | {has} | {lacks} |")
    };
    rows.iter().map(line).collect()
}

/// What is wrong with a table: its rows that were driven are those lines, in their order, and it has as many others as
/// were left out.
fn problem(table: &[&str], driven: &[String], others: Option<usize>) -> Option<String> {
    let Some(rows) = table.strip_prefix(&HEAD) else { return Some("has another head".to_owned()) };
    let mut rest = rows.iter();
    if let Some(missing) = driven.iter().find(|line| !rest.any(|row| row == line)) {
        return Some(format!("lacks this row, or has it at another place: {missing}"));
    }
    let (all, wanted) = (rows.len(), driven.len() + others?);
    (all != wanted).then(|| format!("has {all} rows, not {wanted}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_that_were_driven_are_in_the_table_and_no_row_is_of_nothing() {
        let driven = |rows: &[&str]| rows.iter().map(|row| (*row).to_owned()).collect::<Vec<_>>();
        let table = [HEAD[0], HEAD[1], "| new |", "| older |", "| old |"];
        let found = |rows: &[&str], others| problem(&table, &driven(rows), others);
        assert_eq!(found(&["| new |", "| older |", "| old |"], Some(0)), None);
        assert_eq!(found(&["| new |", "| old |"], Some(1)), None, "one has its turn");
        assert_eq!(found(&["| old |"], None), None, "no machines here");
        assert!(found(&["| new |", "| odd |"], Some(1)).is_some_and(|it| it.contains("| odd |")));
        assert!(found(&["| old |", "| new |"], None).is_some_and(|it| it.contains("place")));
        assert!(found(&["| new |", "| old |"], Some(0)).is_some_and(|it| it.contains("3 rows")));
        assert!(problem(&["| new |"], &[], None).is_some());
    }
}
