//! Listings and their pages.

use proptest::prelude::*;
use rustix::thread::CapabilitySet;

use super::*;
use crate::search::{PROGRESS, SearchCallbacks, SearchLimit, SearchParams, search};

#[test]
fn a_listing_has_notes_and_folders_by_path_and_nothing_else() {
    let home = Home::new();
    for path in ["b.md", "a/z.md", "a/deep/y.MD", "c.txt", ".git/x.md", "a/.trash/x.md", "a b.md"] {
        home.put(path, "text");
    }
    let rows = |path: &str, recursive| {
        let listed = home.vault.list(&note(path), &wanted(recursive), &|| false).unwrap();
        listed.rows.into_iter().map(|row| row.path).collect::<Vec<_>>()
    };
    assert_eq!(rows("", false), ["a", "a b.md", "b.md"]);
    assert_eq!(rows("", true), ["a", "a b.md", "a/deep", "a/deep/y.MD", "a/z.md", "b.md"]);
    assert_eq!(rows("a/", false), ["a/deep", "a/z.md"]);
    assert_eq!(
        code(home.vault.list(&note("nowhere"), &wanted(false), &|| false)),
        "note_not_found"
    );
    assert_eq!(code(home.vault.list(&note(""), &wanted(true), &|| true)), "cancelled");
    let stats = home.vault.stats(2, &|| false).unwrap();
    assert_eq!((stats.notes, stats.folders, stats.size_bytes, stats.recent.len()), (4, 2, 16, 2));
}

fn paths(vault: &VaultView, at: &str, wanted: &ListingParams) -> (Vec<String>, bool) {
    let listed = vault.list(&note(at), wanted, &|| false).unwrap();
    (listed.rows.into_iter().map(|row| row.path).collect(), listed.truncated)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]

    #[test]
    fn pages_after_each_other_are_the_whole_list(
        files in prop::collection::btree_set("([ab !]{1,2}/){0,3}[ab !0]{1,2}\\.md", 0..30),
        limit in 1usize..6,
        notes_only in any::<bool>(),
        at in prop::sample::select(vec!["", "a", "b"]),
        nowhere in "[ab !/]{0,5}",
    ) {
        let home = Home::new();
        fs::create_dir_all(home.at("a")).unwrap();
        fs::create_dir_all(home.at("b")).unwrap();
        for file in &files {
            home.put(file, "x");
        }
        let wanted = ListingParams { notes_only, ..wanted(true) };
        let (whole, more) = paths(&home.vault, at, &wanted);
        prop_assert!(whole.is_sorted() && !more, "{whole:?}");
        let below = files.iter().filter(|file| at.is_empty() || file.starts_with(&format!("{at}/")));
        let notes: Vec<_> = whole.iter().filter(|path| path.ends_with(".md")).collect();
        prop_assert_eq!(notes, below.collect::<Vec<_>>());
        let mut pages = Vec::new();
        loop {
            let after = pages.last().cloned();
            let (page, more) = paths(&home.vault, at, &ListingParams { after, limit, ..wanted.clone() });
            prop_assert_eq!(more, page.len() == limit && pages.len() + limit < whole.len());
            pages.extend(page);
            if !more {
                break;
            }
        }
        prop_assert_eq!(&pages, &whole);
        // Pages may also begin after a path that does not exist.
        let (rest, _) = paths(&home.vault, at, &ListingParams { after: Some(nowhere.clone()), ..wanted });
        prop_assert_eq!(rest, whole.into_iter().filter(|path| *path > nowhere).collect::<Vec<_>>());
    }
}

/// A page visits the folders on the way to its position, and none before or after it.
#[test]
fn a_page_enters_no_folder_that_it_does_not_need() {
    let home = Home::new();
    for folder in 0..100 {
        home.put(&format!("{folder:02}/one.md"), "x");
    }
    let looked = std::cell::Cell::new(0);
    let stopped = || {
        looked.set(looked.get() + 1);
        false
    };
    let after = Some("50/one.md".to_owned());
    let page = ListingParams { after, limit: 3, notes_only: true, ..wanted(true) };
    let listed = home.vault.list(&note(""), &page, &stopped).unwrap();
    let names: Vec<_> = listed.rows.into_iter().map(|row| row.path).collect();
    assert_eq!(
        (names, listed.truncated),
        (["51/one.md", "52/one.md", "53/one.md"].map(str::to_owned).into(), true)
    );
    // All hundred folders, and the contents of five of them: the one it starts from, three, and the
    // next.
    assert_eq!(looked.get(), 105);
}

/// An unreadable folder hides no other, and is reported.
#[test]
fn folders_that_cannot_be_read_are_told() {
    let home = Home::new();
    for path in ["a.md", "closed/b.md", "names/c.md", "z/d.md"] {
        home.put(path, "x");
    }
    // Root may read everything; this thread no longer may.
    let mut sets = rustix::thread::capabilities(None).unwrap();
    sets.effective.remove(CapabilitySet::DAC_OVERRIDE | CapabilitySet::DAC_READ_SEARCH);
    rustix::thread::set_capabilities(None, sets).unwrap();
    let mode = |path: &str, mode| {
        fs::set_permissions(home.at(path), fs::Permissions::from_mode(mode)).unwrap();
    };
    mode("closed", 0o000);
    // Names are readable, but nothing about them.
    mode("names", 0o400);
    let listed = paths(&home.vault, "", &wanted(true));
    let stats = home.vault.stats(9, &|| false);
    let ask = SearchParams {
        query: "x",
        regex: false,
        case_sensitive: true,
        whole_word: false,
        context_lines: 0,
        at: NotePath::default(),
        tag: None,
        max_results: 9,
        timeout: std::time::Duration::from_secs(60),
        threads: 1,
    };
    let watch = SearchCallbacks { stopped: &|| false, progress: &|_, _| {}, every: PROGRESS };
    let found = search(&home.vault, &ask, &watch);
    mode("closed", 0o700);
    mode("names", 0o700);
    let all = ["a.md", "closed", "names", "z", "z/d.md"].map(str::to_owned);
    assert_eq!(listed, (all.into(), true));
    let stats = stats.unwrap();
    assert_eq!((stats.notes, stats.folders, stats.truncated), (2, 3, true));
    let found = found.unwrap();
    assert_eq!((found.hits.len(), found.searched, found.cut), (2, 2, Some(SearchLimit::Notes)));
    let skipped: Vec<_> = found.skipped.iter().map(|one| one.path.as_str()).collect();
    assert_eq!(skipped, ["closed/", "names/"]);
}
