use clap::{Parser, error::ErrorKind};

use super::*;
use crate::Arguments;

const INDEX_PAGE: &str = "# Tools\n\n## [one & two](one-two.md)\n\n| tool | what it does |\n|---|---|\n\
    | [`a`](one-two.md#a) | Do a [thing] |\n| [`b`](one-two.md#b) | Do b |\n";

#[test]
fn tools_are_listed_by_family_between_the_markers() {
    let table = table(INDEX_PAGE).unwrap();
    assert_eq!(
        table,
        "| family | tools |\n|---|---|\n| [one & two](docs/tools/one-two.md) | `a` `b` |\n"
    );
    let page = "before\n<!-- tools: written by `cargo xtask docs` -->\nold\n\
                <!-- end of tools -->\nafter";
    let written = with_table(page, &table).unwrap();
    assert!(written.contains(&table) && !written.contains("old"), "{written}");
    assert!(written.starts_with("before\n") && written.ends_with("\nafter"), "{written}");
    assert_eq!(with_table(&written, &table).unwrap(), written);
    assert!(with_table("no markers", &table).is_err());
}

#[test]
fn counts_take_the_place_of_numbers_and_of_nothing_else() {
    let counts =
        counts::of(INDEX_PAGE, r#"[{"name": "a"}, {"name": "b"}, {"name": "c"}]"#).unwrap();
    let page = "<!-- count: tools -->134<!-- --> tools, <!-- count: contract --><!-- --> frozen";
    let written = "<!-- count: tools -->2<!-- --> tools, <!-- count: contract -->3<!-- --> frozen";
    let filled = |path, text| filled(path, text, &counts, "table\n");
    assert_eq!(filled("a.md", page).unwrap().as_deref(), Some(written));
    assert_eq!(filled("a.md", "134 tools").unwrap(), None);
    for wrong in [
        "<!-- count: stars -->1<!-- -->",
        "<!-- count: tools -->1",
        "<!-- count: tools -->x<!-- -->",
    ] {
        let error = format!("{:#}", filled("docs/a.md", wrong).unwrap_err());
        assert!(error.starts_with("docs/a.md: "), "{error}");
    }
    assert!(counts::of("# Tools\n", "[1]").is_err());
}

#[test]
fn a_changed_a_missing_and_a_left_over_file_are_stale() {
    let root = tempfile::tempdir().unwrap();
    fs::create_dir_all(root.path().join("docs/tools")).unwrap();
    let kept = [("config.toml", "a"), ("docs/errors.md", "old"), ("docs/tools/gone.md", "b")];
    for (path, text) in kept {
        fs::write(root.path().join(path), text).unwrap();
    }
    let files = [("config.toml", "a"), ("docs/errors.md", "new"), ("docs/tools/missing.md", "c")];
    let files = files.map(|(path, text)| (path.to_owned(), text.to_owned())).into();
    let stale = stale(root.path(), &files).unwrap();
    assert_eq!(
        stale,
        [
            "docs/errors.md is stale",
            "docs/tools/missing.md is stale",
            "docs/tools/gone.md belongs to nothing"
        ]
    );
    assert_eq!(names(&root.path().join("no-such-folder")).unwrap(), Vec::<String>::new());
}

/// Words behind each `cargo xtask` of a text, to the end of its code or to the first quote; without
/// `[OPTIONAL]` and `{{a recipe's}}`.
fn commands(text: &str) -> Vec<Vec<&str>> {
    let behind = text.lines().flat_map(|line| line.split("cargo xtask").skip(1));
    let code = behind.map(|rest| rest.split(['`', '#', '<', '|', '"']).next().unwrap_or_default());
    code.map(|code| code.split_whitespace().filter(|word| !word.starts_with(['[', '{'])).collect())
        .collect()
}

/// What clap says against a command that a page names; an argument that the page leaves out, or
/// writes as a placeholder, is not wrong.
fn unknown(words: &[&str]) -> Option<String> {
    let error = Arguments::try_parse_from([&["cargo xtask"], words].concat()).err()?;
    let wrong = [ErrorKind::InvalidSubcommand, ErrorKind::UnknownArgument];
    wrong.contains(&error.kind()).then(|| error.to_string())
}

#[test]
fn every_command_that_a_page_names_is_one() {
    let root = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/.."));
    let pages = hivekeep_figures::sources(root, &[".md", "justfile", ".ci/run"]).unwrap();
    let pages: Vec<_> =
        pages.iter().filter(|page| !page.path.starts_with("docs/decisions/")).collect();
    assert!(pages.iter().any(|page| page.path == "CONTRIBUTING.md"));
    let mut findings = Vec::new();
    for page in pages {
        let wrong = commands(&page.text).into_iter().filter_map(|words| unknown(&words));
        findings.extend(wrong.map(|error| format!("{}: {error}", page.path)));
    }
    assert!(findings.is_empty(), "{}", findings.join("\n"));
}

#[test]
fn a_command_that_is_unknown_is_seen() {
    let text =
        "`cargo xtask docs --check` and\n    cargo xtask image [NAME]  # builds\n`cargo xtask`";
    assert_eq!(commands(text), [vec!["docs", "--check"], vec!["image"], vec![]]);
    assert!(unknown(&["docs", "--check"]).is_none() && unknown(&[]).is_none());
    assert!(unknown(&["dox"]).is_some() && unknown(&["docs", "--chek"]).is_some());
}
