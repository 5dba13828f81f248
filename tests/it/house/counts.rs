//! Numbers of tools, crates and tests in pages are written by `cargo xtask docs`, never by hand: what
//! is typed is wrong with the next change.

use super::{assert_none, sources::sources};

/// What has a number that changes often.
const COUNTED: [&str; 5] = ["tools", "families", "crates", "declarations", "tests"];
/// Numbers below this are said of what the same sentence lists.
const FEW: usize = 20;
const TENS: [&str; 9] =
    ["twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety", "hundred"];

/// Pages that record what was at a time, or are generated whole.
const RECORDS: [&str; 7] = [
    "docs/decisions/",
    "docs/tools/",
    "docs/conformance.md",
    "docs/nightly.md",
    "docs/performance.md",
    "docs/soak.md",
    "CHANGELOG.md",
];

/// The line without the numbers between the markers that `cargo xtask docs` knows.
fn without_marked(line: &str) -> String {
    let mut parts = line.split("<!-- count: ");
    let first = parts.next().unwrap_or_default().to_owned();
    parts
        .fold(first, |kept, part| kept + part.split_once("<!-- -->").map_or("", |(_, after)| after))
}

fn is_many(word: &str) -> bool {
    let digits = word.replace(',', "");
    digits.parse::<usize>().is_ok_and(|number| number >= FEW)
        || word.split('-').any(|part| TENS.contains(&part))
}

/// The number and what it is of, with at most one word between them.
fn typed(line: &str) -> Option<String> {
    let line = without_marked(line).to_lowercase();
    let bare = |word: &str| word.trim_matches(|c: char| !c.is_alphanumeric()).to_owned();
    let words: Vec<String> = line.split_whitespace().map(bare).collect();
    words.iter().enumerate().find_map(|(at, word)| {
        let before = &words[at.saturating_sub(2)..at];
        let number = before.iter().find(|word| is_many(word))?;
        COUNTED.contains(&word.as_str()).then(|| format!("{number} … {word}"))
    })
}

#[test]
fn no_count_is_typed_by_hand() {
    let mut findings = Vec::new();
    for page in sources(&[".md"]) {
        let records = RECORDS.iter().any(|record| page.path.starts_with(record));
        if records || page.path.contains("/src/") {
            continue;
        }
        for (number, line) in (1..).zip(page.text.lines()) {
            let typed = typed(line);
            findings.extend(typed.map(|typed| format!("{}:{number}: {typed}", page.path)));
        }
    }
    assert_none(
        "counted by `cargo xtask docs`, see xtask/src/docs/counts.rs, or left out",
        &findings,
    );
}

#[test]
fn typed_counts_are_seen_and_marked_ones_are_not() {
    for line in [
        "- **A hundred and thirty-four tools**: execution",
        "has 146 tools",
        "(48 tests on Chromium)",
        "1,204 own tests",
        "<!-- count: tools -->146<!-- --> tools in 39 families",
    ] {
        assert!(typed(line).is_some(), "{line}");
    }
    for line in [
        "<!-- count: tools -->146<!-- --> tools",
        "three tools to find the rest",
        "40 minutes, and then the tests",
        "tools and 100 machines",
    ] {
        assert_eq!(typed(line), None, "{line}");
    }
}
