//! Tag finder: tags of the front matter, and `#tag` in the text outside code.

use std::borrow::Cow;
use std::collections::HashSet;
use std::ops::{ControlFlow, Range};

use pulldown_cmark::{Event, Options, Parser, Tag};
use serde_json::{Map, Value};

use crate::{Error, front};

pub(crate) use front::plain;
use front::{fold, tags_of};

#[cfg(test)]
mod tests;

/// Maximum length of a tag, in characters.
const MAX_CHARS: usize = 200;
/// Maximum number of tags reported of one note.
const MOST: usize = 10_000;
/// Maximum size of a note's text searched for tags: the parser uses up to 64 bytes for each byte of
/// text.
pub(crate) const LOOKED_THROUGH_BYTES: usize = 1024 * 1024;
/// Maximum number of quotes and lists nested on one line. The parser checks all of them again on
/// each line that follows.
const MOST_IN_EACH_OTHER: usize = 100;

/// Distinct tags, whatever the case of their letters, in order.
#[derive(Debug, Default)]
pub(crate) struct DistinctTags {
    pub(crate) tags: Vec<String>,
    /// True if there may be more than these.
    pub(crate) more: bool,
    folded: HashSet<String>,
}

impl DistinctTags {
    /// Adds a tag. False if there is no room for another one.
    fn add(&mut self, tag: &str) -> bool {
        let folded = fold(tag);
        if self.folded.contains(&folded) {
            return true;
        }
        if self.tags.len() == MOST {
            self.more = true;
            return false;
        }
        self.folded.insert(folded);
        self.tags.push(tag.to_owned());
        true
    }
}

/// Tags in the text after the front matter. Code, mathematics and HTML have none.
///
/// # Errors
/// [`Error::Cancelled`].
pub(crate) fn inline(text: &str, stopped: &dyn Fn() -> bool) -> Result<DistinctTags, Error> {
    let mut found = DistinctTags::default();
    let whole = each(text, stopped, &mut |tag| match found.add(tag) {
        true => ControlFlow::Continue(()),
        false => ControlFlow::Break(()),
    })?;
    found.more |= !whole;
    Ok(found)
}

/// All tags of a note, those of the front matter first.
pub(crate) fn all(front: &Map<String, Value>, inline: &DistinctTags) -> DistinctTags {
    let mut all = DistinctTags { more: inline.more, ..DistinctTags::default() };
    for tag in tags_of(front).iter().chain(&inline.tags) {
        if !all.add(tag) {
            break;
        }
    }
    all
}

/// True if a note has a tag, or one below it. `None` if it is not found and not all of the text was
/// searched.
///
/// # Errors
/// [`Error::Cancelled`].
pub(crate) fn has(
    text: &str,
    front: &Map<String, Value>,
    wanted: &str,
    stopped: &dyn Fn() -> bool,
) -> Result<Option<bool>, Error> {
    let wanted = fold(wanted);
    let mut found = tags_of(front).iter().any(|tag| is_under(tag, &wanted));
    if found {
        return Ok(Some(true));
    }
    let whole = each(text, stopped, &mut |tag| {
        found = is_under(tag, &wanted);
        if found { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    })?;
    Ok((found || whole).then_some(found))
}

/// True if a tag is the wanted one, which is folded, or below it: `a/b` is found by `a`.
fn is_under(tag: &str, wanted: &str) -> bool {
    fold(tag).strip_prefix(wanted).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

/// Calls `take` for each occurrence of a tag in the text. False if a part was not searched.
fn each(
    text: &str,
    stopped: &dyn Fn() -> bool,
    take: &mut dyn FnMut(&str) -> ControlFlow<()>,
) -> Result<bool, Error> {
    let (_, whole) = front::body(text);
    let body = looked_through(whole);
    let all = body.len() == whole.len();
    if !body.contains('#') {
        return Ok(all);
    }
    let hidden = hidden(body, stopped)?;
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
        if stopped() {
            return Err(Error::Cancelled);
        }
        if is_tag(&rest[..end]) && take(&rest[..end]).is_break() {
            break;
        }
    }
    Ok(all)
}

/// Prefix of the text that is searched: whole lines, or of a longer line whole words.
fn looked_through(body: &str) -> &str {
    if body.len() <= LOOKED_THROUGH_BYTES {
        return body;
    }
    let part = &body[..body.floor_char_boundary(LOOKED_THROUGH_BYTES)];
    let end = part.rfind('\n').or_else(|| part.rfind(char::is_whitespace));
    &part[..end.map_or(0, |end| end + 1)]
}

/// Ranges where a `#` does not begin a tag: in order, not nested.
fn hidden(body: &str, stopped: &dyn Fn() -> bool) -> Result<Vec<Range<usize>>, Error> {
    let options = Options::ENABLE_MATH | Options::ENABLE_TABLES | Options::ENABLE_FOOTNOTES;
    let body = flat(body);
    let mut hidden: Vec<Range<usize>> = Vec::new();
    for (event, range) in Parser::new_ext(&body, options).into_offset_iter() {
        if stopped() {
            return Err(Error::Cancelled);
        }
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
    Ok(hidden)
}

/// Text in which markers nested too deep in quotes and lists are replaced by a letter, byte for
/// byte.
fn flat(body: &str) -> Cow<'_, str> {
    let mut too_deep = Vec::new();
    let mut start = 0;
    for line in body.split_inclusive('\n') {
        let bytes = line.as_bytes();
        let begins = |at: &usize| match bytes[*at] {
            b'>' => true,
            b'-' | b'+' | b'*' | b'.' | b')' => {
                bytes.get(at + 1).is_none_or(u8::is_ascii_whitespace)
            }
            _ => false,
        };
        let head = bytes.iter().take_while(|byte| b" \t>-+*.)0123456789".contains(byte)).count();
        let deep = (0..head).filter(begins).nth(MOST_IN_EACH_OTHER);
        too_deep.extend(deep.map(|at| start + at));
        start += line.len();
    }
    if too_deep.is_empty() {
        return Cow::Borrowed(body);
    }
    let mut bytes = body.as_bytes().to_vec();
    for at in too_deep {
        bytes[at] = b'x';
    }
    Cow::Owned(String::from_utf8(bytes).expect("one ASCII character stands for another"))
}

/// Parses a tag as a caller writes it, with or without `#`.
pub(crate) fn parse(text: &str) -> Option<&str> {
    let tag = plain(text);
    (is_tag(tag) && tag.chars().all(is_part) && tag.chars().count() <= MAX_CHARS).then_some(tag)
}

/// True for a tag by Obsidian's rule: letters, digits, `_`, `-` and `/`, and at least one that is
/// not a digit.
fn is_tag(tag: &str) -> bool {
    tag.chars().any(|c| !c.is_numeric() && !matches!(c, '/' | '-' | '_'))
}

fn is_part(c: char) -> bool {
    c.is_alphanumeric()
        || matches!(c, '_' | '-' | '/' | '\u{200d}' | '\u{fe0f}')
        // Emoji and other signs: everything outside ASCII except space and punctuation.
        || (!c.is_ascii() && !c.is_whitespace() && !is_punctuation(c))
}

fn is_punctuation(c: char) -> bool {
    matches!(u32::from(c), 0x80..=0xbf | 0x2000..=0x206f | 0x3000..=0x303f | 0xff00..=0xff0f | 0xff1a..=0xff20)
}
