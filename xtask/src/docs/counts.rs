//! Counts in pages: a number between a comment that names what is counted and an empty comment.

use std::collections::BTreeMap;
use std::fmt::Write;

use anyhow::{Context, Result, ensure};

/// Before the name of what is counted.
const OPEN: &str = "<!-- count: ";
/// Behind the number.
const CLOSE: &str = "<!-- -->";

/// Numbers by what is counted.
pub(super) type Counts = BTreeMap<&'static str, usize>;

/// Counts of the index of tools and of the frozen contract.
pub(super) fn of(index: &str, frozen: &str) -> Result<Counts> {
    let frozen: Vec<serde_json::Value> = serde_json::from_str(frozen)?;
    let tools = index.lines().filter(|line| line.starts_with("| [")).count();
    ensure!(tools > 0 && !frozen.is_empty(), "no tools were found to be counted");
    Ok(Counts::from([("tools", tools), ("contract", frozen.len())]))
}

pub(super) fn has_any(page: &str) -> bool {
    page.contains(OPEN)
}

/// The page with these numbers in their places.
pub(super) fn with(page: &str, counts: &Counts) -> Result<String> {
    let mut parts = page.split(OPEN);
    let mut written = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let (name, rest) = part.split_once(" -->").context("a count's comment has no end")?;
        let (old, after) = rest
            .split_once(CLOSE)
            .with_context(|| format!("the count of `{name}` has no `{CLOSE}` behind it"))?;
        // Anything else would be somebody's prose.
        let number = old.bytes().all(|byte| byte.is_ascii_digit());
        ensure!(number, "the count of `{name}` is to be digits, and is `{old}`");
        let count = counts.get(name).with_context(|| {
            let known: Vec<_> = counts.keys().copied().collect();
            format!("nothing counts `{name}`; counted are: {}", known.join(", "))
        })?;
        write!(written, "{OPEN}{name} -->{count}{CLOSE}{after}")?;
    }
    Ok(written)
}
