//! Text replacement and its limits.

use proptest::prelude::*;

use super::*;

#[test]
fn text_is_replaced_as_it_is_and_patterns_with_their_groups() {
    let home = Home::new();
    home.put("a.md", "one.two one-two\n$1 end\n");
    let replace = |old: &str, regex, new: &str| {
        let replacement = TextReplacement::new(old, new, regex).unwrap();
        home.vault.replace(&note("a.md"), &replacement, &|| false).unwrap()
    };
    assert_eq!(replace("one.two", false, "$1"), 1);
    assert_eq!(home.text("a.md"), "$1 one-two\n$1 end\n");
    assert_eq!(replace("^(.)1", true, "${1}2"), 2);
    assert_eq!(home.text("a.md"), "$2 one-two\n$2 end\n");
    let before = fs::metadata(home.at("a.md")).unwrap().ino();
    assert_eq!(replace("nowhere", false, "x"), 0);
    assert_eq!(fs::metadata(home.at("a.md")).unwrap().ino(), before, "not written anew");
    for bad in ["(", "(x{1000}){1000}", &"x".repeat(100_000)] {
        assert_eq!(code(TextReplacement::new(bad, "", true)), "invalid_pattern");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1_000))]

    /// Compares with the library, also where the text is shown to the pattern in windows.
    #[test]
    fn a_pattern_replaces_what_the_library_replaces(
        text in "[ab\n\r ä]{0,30}",
        old in prop::sample::select(vec![
            "a", "a*", "^", "$", "^$", "\\b", "(a)(b)?", "(?P<n>.)b", ".*", "(?s).+", "\\n", "[^a]", "\\s+$",
            "\\A.", ".\\z", "(?-m)^a", "(?-m)b$", "x?", "(a|b\n)", "\\B", "ä|$",
        ]),
        new in prop::sample::select(vec!["", "-", "$0$0", "<$1|$2>", "${n}!", "$$1", "${", "$9"]),
        most in 1usize..40,
    ) {
        let whole = regex::RegexBuilder::new(old).multi_line(true).crlf(true).build().unwrap();
        let expected = whole.replace_all(&text, new).into_owned();
        let count = whole.find_iter(&text).count();
        let pieces = TextReplacement::new(old, new, true).unwrap().shown(most);
        match pieces.apply(&note("a.md"), &text, 1_000, &|| false) {
            Ok(done) => prop_assert_eq!(done, (expected, count)),
            Err(Error::PatternTooSlow { .. }) => {
                prop_assert!(text.split_inclusive('\n').any(|line| line.len() >= most) || text.len() > most)
            }
            Err(error) => prop_assert!(false, "{error}"),
        }
    }
}

#[test]
fn no_more_is_made_than_a_note_may_have() {
    let home = Home::with(Options { max_note_mb: 1, ..Options::default() });
    let big = "x".repeat(1 << 20);
    home.put("a.md", &big);
    // Would be 1 GiB, if it were made.
    for (old, new) in [("(?s).+", "$0".repeat(1_000)), ("(x)", "$1".repeat(1_000))] {
        let huge = TextReplacement::new(old, &new, true).unwrap();
        let refused = home.vault.replace(&note("a.md"), &huge, &|| false).unwrap_err();
        let Error::TooLarge { bytes, most, .. } = refused else { panic!("{refused}") };
        assert!(most == 1 << 20 && bytes <= 2 * most, "{bytes} bytes were made");
    }
    assert_eq!(home.text("a.md"), big);
}

#[test]
fn who_does_not_wait_any_more_stops_a_replacement_between_two_matches() {
    let home = Home::new();
    home.put("a.md", "a".repeat(1_000));
    let looked = std::cell::Cell::new(0);
    let stopped = || {
        looked.set(looked.get() + 1);
        looked.get() > 10
    };
    for (old, is_pattern) in [(".*[^a-z]|[a-z]", true), ("a", false)] {
        looked.set(0);
        let replacement = TextReplacement::new(old, "b", is_pattern).unwrap();
        let done = home.vault.replace(&note("a.md"), &replacement, &stopped);
        assert_eq!((code(done), looked.get()), ("cancelled", 11));
    }
    assert_eq!(home.text("a.md"), "a".repeat(1_000));
}

#[test]
fn a_pattern_that_is_too_large_for_a_note_is_refused_and_one_for_lines_is_not() {
    let home = Home::new();
    home.put("a.md", "word and word\n".repeat(100_000));
    home.put("line.md", "word and word ".repeat(100_000));
    let replace = |path: &str, old: &str| {
        let replacement = TextReplacement::new(old, "", true).unwrap();
        home.vault.replace(&note(path), &replacement, &|| false)
    };
    // The engine may take one step for each of its states at each byte, and nothing stops it there.
    assert_eq!(code(replace("a.md", "(?s)(.{0,100}x){9}")), "pattern_too_slow");
    assert_eq!(code(replace("a.md", "(.{0,100}x){9}")), "done");
    assert_eq!(code(replace("line.md", "(.{0,100}x){9}")), "pattern_too_slow");
    assert_eq!(replace("line.md", "(?s)word\\s").unwrap(), 200_000);
}

#[test]
fn a_long_line_is_looked_through_once_for_its_end() {
    let home = Home::new();
    home.put("a.md", ",".repeat(1 << 20) + "\r\n");
    assert_eq!(home.vault.replace(&note("a.md"), &plain(",", "\n"), &|| false).unwrap(), 1 << 20);
    assert_eq!(home.text("a.md"), "\r\n".repeat((1 << 20) + 1));
}
