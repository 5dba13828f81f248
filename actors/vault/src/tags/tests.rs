//! Detection of tags in text.

use proptest::prelude::*;

use super::*;

/// Tags in a text.
fn inline(text: &str) -> Vec<String> {
    let found = super::inline(text, &|| false).unwrap();
    assert!(!found.more);
    found.tags
}

#[test]
fn a_tag_is_one_where_the_text_is_text() {
    let text = "---\ntags: no\n# nor-this\n---\n#first at the start, a#no, (#no)\n# heading #second\n\
        `#no` and ``a ` #no`` but #third/part.\n\n```\n#no\n```\n~~~sh\n#no\n```\n#no\n~~~\n\n\
        > - ```\n>   #no\n>   ```\n\n    #no indented\n\n$#no$ <b title=\"x #no\"> [x](#no) \\#no\n\
        #123 #1a #FIRST #ümlaut-🚀 #\n";
    assert_eq!(inline(text), ["first", "second", "third/part", "1a", "ümlaut-🚀"]);
}

#[test]
fn a_fence_that_is_never_closed_hides_the_rest() {
    assert_eq!(inline("#a\n```\n#b\n"), ["a"]);
    assert_eq!(inline("`#a\n#b"), ["b"]);
}

#[test]
fn a_tag_is_found_by_those_above_it() {
    let has = |tag: &str, wanted| {
        super::has(&format!("#{tag}"), &Map::new(), wanted, &|| false).unwrap() == Some(true)
    };
    assert!(has("a/b", "A") && has("a", "a") && !has("ab", "a") && !has("a", "a/b"));
}

#[test]
fn tags_are_found_in_so_much_of_a_note_and_so_many_of_them() {
    let many = |count: usize| (0..count).map(|n| format!("#t{n} #T{n} ")).collect::<String>();
    let tags = |text: &str| super::inline(text, &|| false).unwrap();
    let (all, more) = (tags(&many(MOST)), tags(&many(MOST + 1)));
    assert_eq!((all.tags.len(), all.more), (MOST, false));
    assert_eq!((more.tags.len(), more.more), (MOST, true));
    assert!(super::all(&Map::new(), &more).more);
    let front = front::read("---\ntags: [x]\n---\n").unwrap();
    let whole = super::all(&front, &all);
    assert_eq!((whole.tags.len(), whole.tags[0].as_str(), whole.more), (MOST, "x", true));
    // A tag after the searched part is not found, and the result says so.
    let long = format!("#first\n{}\n#last\n", "word ".repeat(LOOKED_THROUGH_BYTES / 5));
    let found = tags(&long);
    assert_eq!((found.tags, found.more), (vec!["first".to_owned()], true));
    let has = |tag: &str| has(&long, &front, tag, &|| false).unwrap();
    assert_eq!((has("first"), has("x"), has("last")), (Some(true), Some(true), None));
    assert_eq!(super::has("#a", &front, "last", &|| false).unwrap(), Some(false));
    // A tag at the boundary is not cut.
    let cut = format!("{}#tag{}", "w ".repeat(LOOKED_THROUGH_BYTES / 2 - 2), "x".repeat(99));
    assert!(tags(&cut).tags.is_empty());
}

#[test]
fn what_is_deep_in_quotes_costs_no_more_than_what_is_not() {
    let deep = format!("{}#a\n\n    #no\n\n#b `#no`\n", "> ".repeat(MOST_IN_EACH_OTHER));
    assert_eq!(inline(&deep), ["a", "b"]);
    let looks = |text: &str| {
        let looks = std::cell::Cell::new(0);
        super::inline(text, &|| {
            looks.set(looks.get() + 1);
            false
        })
        .unwrap();
        looks.get()
    };
    // A quote is two events of the parser; those beyond the bound are text.
    let bound = looks(&format!("{}#a", "> ".repeat(MOST_IN_EACH_OTHER)));
    assert!(looks(&format!("{}#a", "> ".repeat(50_000))) <= bound + 10);
    assert!(looks(&format!("{}#a", "1. ".repeat(50_000))) <= 2 * bound + 10);
}

#[test]
fn looking_for_tags_ends_when_nobody_waits() {
    let stopped = std::cell::Cell::new(0);
    let stop = || {
        stopped.set(stopped.get() + 1);
        stopped.get() > 5
    };
    for text in ["*a* ".repeat(100) + "#a", "#a ".repeat(100)] {
        stopped.set(0);
        assert!(matches!(super::inline(&text, &stop), Err(Error::Cancelled)));
        assert_eq!(stopped.get(), 6);
    }
}

#[test]
fn what_is_no_tag_is_not_taken_for_one() {
    assert_eq!(parse(" #a/b "), Some("a/b"));
    for no in ["", "#", "12", "a b", "a,b", "a#b", "-", &"x".repeat(201)] {
        assert_eq!(parse(no), None, "{no}");
    }
}

proptest! {
    #[test]
    fn code_never_has_tags(before in "[a-z #\n]{0,20}", code in "[a-z #]{1,20}", fence in "`{3,5}|~{3,5}") {
        let text = format!("{before}\n\n{fence}\n#x{code}x #secret\n{fence}\n#after\n");
        let tags = inline(&text);
        prop_assert!(!tags.iter().any(|tag| tag == "secret"), "{text:?}: {tags:?}");
        prop_assert!(tags.iter().any(|tag| tag == "after"), "{text:?}: {tags:?}");
    }
}
