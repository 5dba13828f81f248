//! Searches of real trees: these sources and Debian's documentation.

use std::path::Path;

use hivekeep_file_engine::FileRoot;

use super::{
    programs::{output, paths},
    searches::{OWN_RULES, compare_grep, glob},
};

/// Sources of this repository, without what was built.
fn sources() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."))
}

#[test]
fn these_sources_are_searched_as_ripgrep_does() {
    let mut found = 0;
    for pattern in
        [r"^use \w+_std", r"\bDir\b", "—|€", r"unwrap_or_default\(\)$", "nothing has this [0-9]{9}"]
    {
        found += compare_grep(sources(), pattern, false);
        found += compare_grep(sources(), pattern, true);
    }
    assert!(found > 100, "{found}");
}

#[test]
fn debians_documentation_is_searched_as_ripgrep_does() {
    let folder = Path::new("/usr/share/doc");
    for pattern in [r"^License: Expat", "(?i)copyright holders? and", "größ|é", r"\x{fffd}"] {
        compare_grep(folder, pattern, false);
    }
    assert!(compare_grep(folder, "Permission is hereby granted", false) > 10);
}

#[test]
fn real_trees_are_listed_as_find_and_ripgrep_do() {
    for folder in [sources(), Path::new("/usr/share/doc")] {
        let root = FileRoot::folder(folder).expect("opened");
        for name in ["*.rs", "copyright", "*[!a-z]*.gz", "?????", "*"] {
            let words = [".", "!", "-type", "d", "-name", name, "-print0"];
            assert_eq!(
                glob(&root, name, false).paths,
                paths(&output(folder, "find", &words)),
                "{name}"
            );
        }
    }
    let root = FileRoot::folder(sources()).expect("opened");
    let words = [&["--no-config", "--files", "--null", "./"][..], &OWN_RULES[..]].concat();
    assert_eq!(glob(&root, "**", true).paths, paths(&output(sources(), "rg", &words)));
}
