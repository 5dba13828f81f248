//! Every link in the documentation leads somewhere.

use std::fs;
use std::path::{Path, PathBuf};

use super::{
    assert_none,
    sources::{root, sources},
};

/// Link targets in Markdown, code left out.
fn targets(text: &str) -> Vec<String> {
    let mut found = Vec::new();
    for line in prose(text) {
        let line = without_code(line);
        for (at, _) in line.match_indices("](") {
            let rest = &line[at + 2..];
            found.extend(rest.split_once(')').map(|(target, _)| target.to_owned()));
        }
        let definition = line.strip_prefix('[').and_then(|rest| rest.split_once("]: "));
        found.extend(definition.map(|(_, target)| target.trim().to_owned()));
    }
    found
}

/// The lines outside of fences.
fn prose(text: &str) -> impl Iterator<Item = &str> {
    let mut fenced = false;
    text.lines().filter(move |line| {
        let fence = line.trim_start().starts_with("```");
        fenced ^= fence;
        !fenced && !fence
    })
}

fn without_code(line: &str) -> String {
    line.split('`').step_by(2).collect()
}

/// The anchors that a page's headings make.
fn anchors(text: &str) -> Vec<String> {
    let headings = prose(text).filter(|line| line.starts_with('#'));
    let anchor = |heading: &str| -> String {
        let title = heading.trim_start_matches('#').trim().to_lowercase();
        let kept = title.chars().filter(|c| c.is_alphanumeric() || " -_".contains(*c));
        kept.map(|c| if c == ' ' { '-' } else { c }).collect()
    };
    headings.map(anchor).collect()
}

fn broken(page: &Path, text: &str, target: &str) -> bool {
    if target.contains("://") || target.starts_with("mailto:") {
        return false;
    }
    let (path, anchor) = target.split_once('#').unwrap_or((target, ""));
    let (path, text): (PathBuf, String) = if path.is_empty() {
        (page.to_owned(), text.to_owned())
    } else {
        let path = page.parent().expect("a page is in a folder").join(path);
        if !path.exists() {
            return true;
        }
        let text = fs::read_to_string(&path).unwrap_or_default();
        (path, text)
    };
    let page = path.extension().is_some_and(|extension| extension == "md");
    page && !anchor.is_empty() && !anchors(&text).iter().any(|known| known == anchor)
}

#[test]
fn every_link_leads_somewhere() {
    let mut findings = Vec::new();
    // Beside code lie pieces of pages, whose links count from where the page will be.
    let pages = sources(&[".md"]).into_iter().filter(|page| !page.path.contains("/src/"));
    for page in pages {
        let path = root().join(&page.path);
        let dead = targets(&page.text).into_iter().filter(|to| broken(&path, &page.text, to));
        findings.extend(dead.map(|to| format!("{}: {to}", page.path)));
    }
    assert_none("links that lead nowhere", &findings);
}

#[test]
fn a_dead_link_is_seen() {
    let text = "# A page\n[ok](#a-page) [dead](no/such/file.md) [far](https://example.org)\n\
                `[code](gone.md)`\n```\n[fenced](gone.md)\n```\n[ref]: also-gone.md\n";
    let page = root().join("README.md");
    let all = targets(text);
    assert_eq!(all, ["#a-page", "no/such/file.md", "https://example.org", "also-gone.md"]);
    let dead: Vec<_> = all.iter().filter(|to| broken(&page, text, to)).collect();
    assert_eq!(dead, ["no/such/file.md", "also-gone.md"]);
    assert!(broken(&page, text, "#no-such-heading"));
}
