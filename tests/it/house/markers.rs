//! What may not be written: signs of unfinished work, places of one machine,
//! names of other systems. The needles are put together here, so that this file
//! does not find itself.

use super::{
    assert_none,
    sources::{Source, sources},
};

/// Signs that something is not done.
const UNFINISHED: [&str; 9] = [
    concat!("to", "do!"),
    concat!("TO", "DO"),
    concat!("FIX", "ME"),
    concat!("XX", "X"),
    concat!("HA", "CK"),
    concat!("db", "g!("),
    concat!("unimpl", "emented!"),
    concat!("not impl", "emented"),
    concat!("not yet impl", "emented"),
];

/// Places that exist on one machine or one network only.
const PLACES: [&str; 9] = [
    concat!("/wo", "rk/main"),
    concat!("/wo", "rk/shared"),
    concat!("/wo", "rk/tmp"),
    concat!("/ho", "me/"),
    concat!("/Us", "ers/"),
    concat!("py", "pi.org"),
    concat!("registry.npm", "js.org"),
    concat!("index.crates", ".io"),
    concat!("snapshot.de", "bian.org"),
];

/// Other systems. The first name is also the first word of tools that answer to it.
const NAMES: [&str; 3] = [concat!("ae", "gis"), concat!("agent", "iso"), concat!("100", "monkeys")];

/// The needle as a word of its own: no letter, digit or path on either side.
fn has_word(line: &str, needle: &str) -> bool {
    let inside = |c: char| c.is_alphanumeric() || c == '_';
    line.match_indices(needle).any(|(at, _)| {
        let before = line[..at].chars().next_back();
        let after = line[at + needle.len()..].chars().next();
        let closed = needle.ends_with(inside);
        let opened = needle.starts_with(inside);
        !(opened && before.is_some_and(inside) || closed && after.is_some_and(inside))
    })
}

/// An absolute path begins at the needle; `a/b/c/` is none of ours.
fn has_place(line: &str, place: &str) -> bool {
    line.match_indices(place).any(|(at, _)| {
        let before = line[..at].chars().next_back();
        !(place.starts_with('/')
            && before.is_some_and(|c| c.is_alphanumeric() || "._-}/$~".contains(c)))
    })
}

fn has_name(line: &str, name: &str) -> bool {
    let line = line.to_lowercase();
    line.match_indices(name).any(|(at, _)| {
        let after = line[at + name.len()..].chars().next();
        // A tool's name goes on with a dot or an underscore; the anchor of its heading has no dots.
        !(after.is_some_and(|c| c == '.' || c == '_') || line[..at].ends_with(".md#"))
    })
}

/// `#[ignore]` without a reason; with one it reads `#[ignore = "why"]`.
fn ignores(line: &str) -> bool {
    line.trim_start().starts_with(concat!("#[ign", "ore]"))
}

/// A text says `X is no Y`, where `X is not a Y` is read at once.
fn denies(line: &str) -> bool {
    let mut found = line.match_indices(concat!(" is n", "o "));
    found.any(|(at, denial)| {
        let (before, after) = (&line[..at], &line[at + denial.len()..]);
        let in_text = before.matches('"').count() % 2 == 1;
        let other =
            before.ends_with("there") || ["more", "longer"].iter().any(|it| after.starts_with(it));
        in_text && !other
    })
}

fn findings(source: &Source) -> Vec<String> {
    let mut found = Vec::new();
    for (number, line) in source.text.lines().enumerate() {
        let mut add = |what: &str| found.push(format!("{}:{}: {what}", source.path, number + 1));
        if !source.path.ends_with(".md") {
            UNFINISHED.iter().filter(|word| has_word(line, word)).for_each(|word| add(word));
        }
        PLACES.iter().filter(|place| has_place(line, place)).for_each(|place| add(place));
        NAMES.iter().filter(|name| has_name(line, name)).for_each(|name| add(name));
        if source.path.ends_with(".rs") && denies(line) {
            add("say `is not`");
        }
        if ignores(line) {
            add("a test is ignored without a reason");
        }
    }
    found
}

#[test]
fn nothing_unfinished_and_nothing_foreign_is_written_down() {
    let written = sources(&[".rs", ".toml", ".md", ".sh", ".service", ".py", ".mjs", ".ci/run"]);
    let found: Vec<_> = written.iter().flat_map(findings).collect();
    assert_none("do it, or say in docs/limits.md that it is missing", &found);
}

#[test]
fn each_kind_of_finding_is_seen() {
    let lines = |text: String| findings(&Source { path: "a.rs".to_owned(), text }).len();
    for needle in UNFINISHED {
        assert!(lines(format!("    {needle} something")) > 0, "{needle}");
    }
    for place in PLACES {
        assert_eq!(lines(format!("read(\"{place}x\")")), 1, "{place}");
    }
    for name in NAMES {
        assert_eq!(lines(format!("// as {name} does")), 1, "{name}");
    }
    assert_eq!(lines(format!("{}task_execute", concat!("ae", "gis_"))), 0);
    assert_eq!(lines(concat!("#[ign", "ore]\nfn a() {}").to_owned()), 1);
    assert_eq!(lines(concat!("#[ign", "ore = \"needs a disk of 1 TiB\"]").to_owned()), 0);
    assert_eq!(lines(concat!("why(\"it is n", "o file\")").to_owned()), 1);
    assert_eq!(lines(concat!("why(\"there is n", "o file\") // a b is n", "o file").to_owned()), 0);
    assert_eq!(lines(concat!("overlay/wo", "rk/main and XX", "XX").to_owned()), 0);
}
