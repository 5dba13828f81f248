use std::fs;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use proptest::prelude::*;
use tempfile::TempDir;

use super::*;
use crate::folder::VaultFolder;
use crate::path::Scope;
use crate::{Options, tags};

fn vault(notes: &[(String, String)], options: &Options) -> (TempDir, VaultView) {
    let dir = tempfile::tempdir().unwrap();
    for (path, text) in notes {
        let at = dir.path().join("vault").join(path);
        fs::create_dir_all(at.parent().unwrap()).unwrap();
        fs::write(at, text).unwrap();
    }
    let changes = tokio::sync::broadcast::channel(1).0;
    let folder = Arc::new(VaultFolder::open(options, &dir.path().join("vault"), changes).unwrap());
    (dir, VaultView { folder, scope: Scope::whole() })
}

fn ask(query: &str) -> SearchParams<'_> {
    SearchParams {
        query,
        regex: false,
        case_sensitive: true,
        whole_word: false,
        context_lines: 2,
        at: NotePath::default(),
        tag: None,
        max_results: 20,
        timeout: Duration::from_secs(30),
        threads: 3,
    }
}

fn run(vault: &VaultView, ask: &SearchParams<'_>) -> Result<SearchResults, Error> {
    search(
        vault,
        ask,
        &SearchCallbacks { stopped: &|| false, progress: &|_, _| {}, every: PROGRESS },
    )
}

/// Reference search, in the plainest way.
fn plainly(notes: &[(String, String)], ask: &SearchParams<'_>) -> Vec<SearchRow> {
    let pattern = if ask.regex { ask.query.to_owned() } else { regex::escape(ask.query) };
    let case = if ask.case_sensitive { "" } else { "(?i)" };
    let pattern = regex::Regex::new(&format!("{case}(?:{pattern})")).unwrap();
    let mut notes: Vec<_> = notes.to_vec();
    notes.sort();
    let mut hits = Vec::new();
    for (path, text) in &notes {
        let front = crate::front::read(text).unwrap_or_default();
        let inline = tags::inline(text, &|| false).unwrap();
        let has = |wanted: &str| {
            let under = format!("{wanted}/");
            let all = tags::all(&front, &inline).tags.into_iter().map(|tag| tag.to_lowercase());
            all.into_iter().any(|tag| tag == wanted || tag.starts_with(&under))
        };
        if ask.tag.is_some_and(|tag| !has(tag)) {
            continue;
        }
        let lines: Vec<&str> = text.lines().collect();
        for (nth, line) in lines.iter().enumerate().filter(|(_, line)| pattern.is_match(line)) {
            let (first, last) = (nth.saturating_sub(ask.context_lines), nth + ask.context_lines);
            let context = lines[first..lines.len().min(last + 1)].join("\n");
            let line_number = nth as u64 + 1;
            hits.push(SearchRow {
                path: path.clone(),
                line_number,
                line: (*line).to_owned(),
                context,
            });
        }
    }
    hits
}

fn notes() -> impl Strategy<Value = Vec<(String, String)>> {
    let line = "[abA ]{0,6}(#[ab]/?[ab]?)?|---|tags: [ab]|```";
    let text = prop::collection::vec(line, 0..9).prop_flat_map(|lines| {
        prop::sample::select(vec!["\n", "\r\n"])
            .prop_map(move |end| lines.join(end) + if lines.len() % 2 == 0 { end } else { "" })
    });
    prop::collection::btree_map("([a-c]/){0,2}[a-f ]{1,2}x\\.md", text, 0..80)
        .prop_map(|notes| notes.into_iter().collect())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(100))]

    #[test]
    fn a_search_finds_what_a_plain_one_finds(
        notes in notes(),
        query in prop::sample::select(vec!["a", "b", "A", "ab", "a b", "^a", "b$", "a+b?", ".", "(a|b)#", "^$", "\\s", "[^a]b"]),
        regex in any::<bool>(),
        case_sensitive in any::<bool>(),
        context_lines in 0usize..4,
        tag in prop::option::of("[ab]"),
        max_results in 1usize..60,
        threads in 1usize..5,
    ) {
        let (_dir, vault) = vault(&notes, &Options::default());
        let ask = SearchParams { regex, case_sensitive, context_lines, tag: tag.as_deref(), max_results, threads, ..ask(query) };
        let found = run(&vault, &ask).unwrap();
        let plain = plainly(&notes, &ask);
        prop_assert_eq!(found.cut, (plain.len() > max_results).then_some(SearchLimit::Results));
        prop_assert_eq!(&found.hits[..], &plain[..plain.len().min(max_results)]);
    }
}

#[test]
fn words_folders_and_nested_tags_narrow_a_search() {
    let notes = [("a/one.md", "#topic/sub cat\nconcat\n"), ("b.md", "cat\nCat\n")];
    let notes = notes.map(|(path, text)| (path.to_owned(), text.to_owned()));
    let (_dir, vault) = vault(&notes, &Options::default());
    let lines = |ask: &SearchParams<'_>| {
        let found = run(&vault, ask).unwrap();
        found
            .hits
            .into_iter()
            .map(|hit| format!("{}:{}", hit.path, hit.line_number))
            .collect::<Vec<_>>()
    };
    assert_eq!(lines(&ask("cat")), ["a/one.md:1", "a/one.md:2", "b.md:1"]);
    assert_eq!(lines(&SearchParams { whole_word: true, ..ask("cat") }), ["a/one.md:1", "b.md:1"]);
    assert_eq!(
        lines(&SearchParams { tag: Some("Topic"), ..ask("cat") }),
        ["a/one.md:1", "a/one.md:2"]
    );
    let at = NotePath::parse("a").unwrap();
    assert_eq!(lines(&SearchParams { at, case_sensitive: false, ..ask("CAT") }).len(), 2);
    let nowhere = NotePath::parse("nowhere").unwrap();
    assert!(matches!(
        run(&vault, &SearchParams { at: nowhere, ..ask("x") }),
        Err(Error::NotFound { .. })
    ));
}

#[test]
fn a_note_is_searched_before_and_behind_a_nul() {
    let (_dir, vault) = vault(&[("a.md".into(), "x\n\0\nx\0\n".into())], &Options::default());
    let found = run(&vault, &ask("x")).unwrap();
    let lines: Vec<_> = found.hits.iter().map(|hit| (hit.line_number, &*hit.line)).collect();
    assert_eq!(lines, [(1, "x"), (3, "x\0")]);
    assert_eq!((found.searched, found.skipped_count), (1, 0));
}

#[test]
fn what_is_not_searched_is_named() {
    let notes = [("big.md", "x".repeat((1 << 20) + 1)), ("a.md", "x".to_owned())];
    let notes = notes.map(|(path, text)| (path.to_owned(), text));
    let (dir, vault) = vault(&notes, &Options { max_note_mb: 1, ..Options::default() });
    fs::write(dir.path().join("out.md"), "x").unwrap();
    std::os::unix::fs::symlink(dir.path().join("out.md"), dir.path().join("vault/link.md"))
        .unwrap();
    let found = run(&vault, &ask("x")).unwrap();
    assert_eq!((found.hits.len(), found.searched, found.skipped_count), (1, 1, 2));
    let skipped: Vec<_> = found.skipped.iter().map(|one| one.path.as_str()).collect();
    assert_eq!(skipped, ["big.md", "link.md"]);
    assert!(found.skipped[0].reason.contains("1048577"), "{:?}", found.skipped);
}

#[test]
fn results_bytes_and_lines_are_bounded() {
    let long = format!("{}ä{}\n", "x".repeat(999), "y".repeat(5_000));
    let (_dir, vault) = vault(
        &[("a.md".to_owned(), long.repeat(3_000))],
        &Options { max_note_mb: 64, ..Options::default() },
    );
    let found = run(&vault, &SearchParams { max_results: 10_000, ..ask("xy") }).unwrap();
    assert!(found.hits.is_empty());
    let found =
        run(&vault, &SearchParams { max_results: 10_000, context_lines: 20, ..ask("xä") }).unwrap();
    assert_eq!(found.cut, Some(SearchLimit::Bytes));
    let bytes: usize = found.hits.iter().map(SearchRow::bytes).sum();
    assert!(bytes <= RESULT_BYTES && bytes > RESULT_BYTES / 2, "{bytes}");
    let line = &found.hits[0].line;
    assert!(line.len() < 1_100 && line.ends_with("x[... 5002 bytes]"), "{}", &line[990..]);
}

#[test]
fn a_search_ends_when_nobody_waits_or_its_time_is_over() {
    let notes: Vec<_> = (0..300).map(|n| (format!("{n:03}.md"), "a line\n".repeat(50))).collect();
    let (_dir, vault) = vault(&notes, &Options::default());
    let late = run(&vault, &SearchParams { timeout: Duration::ZERO, ..ask("line") }).unwrap();
    assert_eq!((late.cut, late.hits.len()), (Some(SearchLimit::Time), 0));
    let looked = AtomicUsize::new(0);
    let watch = SearchCallbacks {
        stopped: &|| looked.fetch_add(1, Relaxed) > 40,
        progress: &|_, _| {},
        every: PROGRESS,
    };
    let all = SearchParams { max_results: 100_000, ..ask("line") };
    assert!(matches!(search(&vault, &all, &watch), Err(Error::Cancelled)));
    let gone = AtomicBool::new(true);
    let watch =
        SearchCallbacks { stopped: &|| gone.load(Relaxed), progress: &|_, _| {}, every: PROGRESS };
    assert!(matches!(search(&vault, &all, &watch), Err(Error::Cancelled)));
}

#[test]
fn a_note_is_searched_in_stretches_as_it_is_at_once() {
    let text = "one two\n\nthree\none\nfour one\n\none".repeat(3);
    let room = matcher::Room { hits: 8, bytes: 1_000, context_lines: 1 };
    for regex in ["one", "^one$", "^$", "e\\b", "[^x]*"] {
        let hits = |most| {
            let question = CompiledQuery::new(&SearchParams { regex: true, ..ask(regex) }).unwrap();
            let question = question.shown(most);
            question.hits(&mut question.searcher(), text.as_bytes(), room, &|| false).unwrap()
        };
        let whole = hits(1_000);
        assert!(whole.len() > 2, "{regex}");
        for most in [14, 15, 20, 40] {
            assert_eq!(hits(most), whole, "{regex} in stretches of {most}");
        }
    }
}

/// A search takes one step for each state of a large pattern at each byte.
#[test]
fn large_patterns_are_stopped_within_a_note_and_get_no_endless_lines() {
    let large = SearchParams { regex: true, threads: 1, ..ask("[ab]{0,2000}[cd]") };
    let lines = ("lines.md".to_owned(), "xyz xyz\n".repeat(1 << 18));
    let (_dir, vault) = vault(
        &[
            ("a.md".to_owned(), "abc\n".to_owned()),
            ("line.md".to_owned(), "x".repeat(1 << 20)),
            lines,
        ],
        &Options::default(),
    );
    let found = run(&vault, &large).unwrap();
    assert_eq!((found.hits.len(), found.searched, found.skipped_count), (1, 2, 1), "{found:?}");
    assert_eq!(found.skipped[0].path, "line.md");
    assert!(found.skipped[0].reason.contains("1048576 bytes"), "{:?}", found.skipped);
    let looked = AtomicUsize::new(0);
    let watch = SearchCallbacks {
        stopped: &|| looked.fetch_add(1, Relaxed) > 6,
        progress: &|_, _| {},
        every: PROGRESS,
    };
    assert!(matches!(search(&vault, &large, &watch), Err(Error::Cancelled)));
}

#[test]
fn a_note_of_which_not_all_was_looked_through_for_the_tag_is_named() {
    let word = "word\n".repeat(500_000);
    let notes = [("a.md", format!("#a\n{word}")), ("b.md", format!("{word}#a\n"))];
    let notes = notes.map(|(path, text)| (path.to_owned(), text));
    let (_dir, vault) = vault(&notes, &Options::default());
    let found =
        run(&vault, &SearchParams { tag: Some("a"), max_results: 3, ..ask("word") }).unwrap();
    assert_eq!((found.hits.len(), found.cut), (3, Some(SearchLimit::Results)));
    let found = run(&vault, &SearchParams { tag: Some("A"), ..ask("#a") }).unwrap();
    assert_eq!((found.hits.len(), found.skipped_count), (1, 1), "{found:?}");
    assert_eq!((found.hits[0].path.as_str(), found.skipped[0].path.as_str()), ("a.md", "b.md"));
}

#[test]
fn what_is_no_query_is_refused() {
    let (_dir, vault) = vault(&[], &Options::default());
    for (query, regex) in
        [("", false), ("(", true), ("a\nb", true), ("a\\nb", true), ("(x{1000}){1000}", true)]
    {
        let refused = run(&vault, &SearchParams { regex, ..ask(query) });
        assert!(matches!(refused, Err(Error::Pattern(_))), "{query:?}");
    }
    assert!(matches!(run(&vault, &ask(&"x".repeat(1_025))), Err(Error::Pattern(_))));
    assert!(run(&vault, &ask("(")).unwrap().hits.is_empty());
}

#[test]
fn how_far_a_long_search_is_is_told() {
    let notes: Vec<_> = (0..100).map(|n| (format!("{n:03}.md"), "line\n".to_owned())).collect();
    let (_dir, vault) = vault(&notes, &Options::default());
    let told = std::sync::Mutex::new(Vec::new());
    let progress = |done: usize, all: usize| told.lock().unwrap().push((done, all));
    let watch = SearchCallbacks { stopped: &|| false, progress: &progress, every: Duration::ZERO };
    let none = search(&vault, &SearchParams { threads: 1, ..ask("nowhere") }, &watch).unwrap();
    assert_eq!((none.searched, none.hits.len()), (100, 0));
    let all: Vec<_> = (1..=100).map(|done| (done, 100)).collect();
    assert_eq!(told.into_inner().unwrap(), all);
}
