//! Tags: those of the front matter, and `#tag` in the text where it is text.

use std::ops::Range;

use pulldown_cmark::{Event, Options, Parser, Tag};
use serde_json::{Map, Value};

use crate::front;

pub(crate) use front::{plain, same};

/// The longest tag, in characters.
const MAX_CHARS: usize = 200;

/// The tags in the text after the front matter, each once, in their order. Code, mathematics and
/// HTML have none.
pub(crate) fn inline(text: &str) -> Vec<String> {
    let (_, body) = front::body(text);
    let mut found: Vec<String> = Vec::new();
    if !body.contains('#') {
        return found;
    }
    let hidden = hidden(body);
    let mut hidden = hidden.iter().peekable();
    for (at, _) in body.match_indices('#') {
        while hidden.next_if(|range| range.end <= at).is_some() {}
        let covered = hidden.peek().is_some_and(|range| range.contains(&at));
        let opens = body[..at].chars().next_back().is_none_or(char::is_whitespace);
        if covered || !opens {
            continue;
        }
        let rest = &body[at + 1..];
        let end = rest.find(|c| !is_part(c)).unwrap_or(rest.len());
        let tag = &rest[..end];
        if is_tag(tag) && !found.iter().any(|one| same(one, tag)) {
            found.push(tag.to_owned());
        }
    }
    found
}

/// Where a `#` is no sign of a tag: in order, none in another.
fn hidden(body: &str) -> Vec<Range<usize>> {
    let options = Options::ENABLE_MATH | Options::ENABLE_TABLES | Options::ENABLE_FOOTNOTES;
    let mut hidden: Vec<Range<usize>> = Vec::new();
    for (event, range) in Parser::new_ext(body, options).into_offset_iter() {
        let covers = matches!(
            event,
            Event::Code(_)
                | Event::InlineMath(_)
                | Event::DisplayMath(_)
                | Event::Html(_)
                | Event::InlineHtml(_)
                | Event::Start(Tag::CodeBlock(_) | Tag::HtmlBlock)
        );
        if covers && hidden.last().is_none_or(|last| last.end <= range.start) {
            hidden.push(range);
        }
    }
    hidden
}

/// Every tag of a note, those of the front matter first. Of malformed front matter, none.
pub(crate) fn all(text: &str, front: &Map<String, Value>) -> Vec<String> {
    let mut all: Vec<String> = Vec::new();
    for tag in front::tags_of(front).into_iter().chain(inline(text)) {
        if !all.iter().any(|one| same(one, &tag)) {
            all.push(tag);
        }
    }
    all
}

/// Whether a tag is the wanted one or below it: `a/b` is found by `a`.
pub(crate) fn is_under(tag: &str, wanted: &str) -> bool {
    let (tag, wanted) = (tag.to_lowercase(), wanted.to_lowercase());
    tag.strip_prefix(&wanted).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

/// A tag as a caller writes it, with or without `#`.
pub(crate) fn parse(text: &str) -> Option<&str> {
    let tag = plain(text);
    (is_tag(tag) && tag.chars().all(is_part) && tag.chars().count() <= MAX_CHARS).then_some(tag)
}

/// Obsidian's rule: letters, digits, `_`, `-` and `/`, and at least one that is no digit.
fn is_tag(tag: &str) -> bool {
    tag.chars().any(|c| !c.is_numeric() && !matches!(c, '/' | '-' | '_'))
}

fn is_part(c: char) -> bool {
    c.is_alphanumeric()
        || matches!(c, '_' | '-' | '/' | '\u{200d}' | '\u{fe0f}')
        // Emoji and other signs: everything outside ASCII that is no space or punctuation.
        || (!c.is_ascii() && !c.is_whitespace() && !is_punctuation(c))
}

fn is_punctuation(c: char) -> bool {
    matches!(u32::from(c), 0x80..=0xbf | 0x2000..=0x206f | 0x3000..=0x303f | 0xff00..=0xff0f | 0xff1a..=0xff20)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

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
        assert!(
            is_under("a/b", "A")
                && is_under("a", "a")
                && !is_under("ab", "a")
                && !is_under("a", "a/b")
        );
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
}
