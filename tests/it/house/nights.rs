//! What takes a night was run, and not long ago.

use std::process::Command;

use hivekeep_skip::skip;

use super::{assert_none, sources::root};

const PAGE: &str = include_str!("../../../docs/nightly.md");
/// Parts of `cargo xtask test --nightly`.
const PARTS: [&str; 4] = ["vm", "fuzz", "soak", "others"];
/// Commits after which an outcome says nothing any more.
const MOST_COMMITS: u32 = 400;

/// What is wrong with a part's row, where a commit is so many commits old.
fn finding(page: &str, part: &str, age: impl Fn(&str) -> Option<u32>) -> Option<String> {
    let start = format!("| {part} |");
    let Some(row) = page.lines().find(|line| line.starts_with(&start)) else {
        return Some(format!("{part} has no row"));
    };
    let cells: Vec<&str> = row.split('|').map(str::trim).collect();
    let (outcome, commit) = (cells[2], cells.get(3).copied().unwrap_or_default());
    if outcome.starts_with("red") {
        return Some(format!("{part} is {outcome}"));
    }
    match age(commit) {
        None => Some(format!("{part}: {commit} is not a commit before this one")),
        Some(commits) => (commits > MOST_COMMITS).then(|| {
            format!("{part} is {commits} commits old; run `cargo xtask test --nightly {part}`")
        }),
    }
}

#[test]
fn each_part_of_a_night_is_green_and_recent() {
    let git = |args: &[&str]| {
        let output = Command::new("git").args(args).current_dir(root()).output().ok()?;
        output.status.success().then(|| String::from_utf8_lossy(&output.stdout).trim().to_owned())
    };
    if git(&["rev-parse", "--is-shallow-repository"]).as_deref() != Some("false") {
        return skip("this checkout has no history");
    }
    let age = |commit: &str| {
        git(&["merge-base", "--is-ancestor", commit, "HEAD"])?;
        git(&["rev-list", "--count", &format!("{commit}..HEAD")])?.parse().ok()
    };
    let findings: Vec<_> = PARTS.iter().filter_map(|part| finding(PAGE, part, age)).collect();
    assert_none("docs/nightly.md", &findings);
}

#[test]
fn a_red_an_old_and_a_missing_outcome_are_seen() {
    let page = "| vm | green | abc | x |\n| soak | red: leaks | abc | x |\n";
    assert_eq!(finding(page, "vm", |_| Some(MOST_COMMITS)), None);
    assert!(finding(page, "vm", |_| Some(MOST_COMMITS + 1)).is_some());
    assert!(finding(page, "vm", |_| None).is_some());
    assert!(finding(page, "soak", |_| Some(0)).is_some());
    assert!(finding(page, "others", |_| Some(0)).is_some());
}
