//! Removal of the attributes of a page's tags, which its text does without.
//!
//! A tokenizer of HTML compares each attribute with all earlier ones of its tag, so a tag of a hundred
//! thousand costs minutes. Tags are recognised as in the standard: not in a comment, and not in a script.

/// Elements whose contents have no tags but their own end.
pub(super) const RAW: [&str; 4] = ["script", "style", "noscript", "iframe"];

/// Where in a tag its bytes are read.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Within {
    /// Between attributes.
    Tag,
    /// Behind a `/` between them.
    Slash,
    Name,
    AfterName,
    BeforeValue,
    Value,
    Quoted(u8),
}

/// The page with bare tags, in time of its own size.
pub(super) fn removed(page: &str) -> String {
    let mut bare = String::with_capacity(page.len());
    let mut rest = page;
    while let Some(at) = rest.find('<') {
        let (text, found) = rest.split_at(at);
        bare.push_str(text);
        let name = tag_name(found);
        if name.is_empty() {
            let (other, after) = found.split_at(other_end(found));
            bare.push_str(other);
            rest = after;
            continue;
        }
        let (end, closes_itself) = attributes_end(found.as_bytes(), name.len());
        let Some(after) = found.get(end + 1..) else {
            // The page ends in it, so it is none.
            return bare;
        };
        bare.push_str(name);
        bare.push_str(if closes_itself { "/>" } else { ">" });
        let raw = RAW.iter().find(|raw| name[1..].eq_ignore_ascii_case(raw));
        let (contents, after) = after.split_at(raw.map_or(0, |raw| raw_end(after, raw)));
        bare.push_str(contents);
        rest = after;
    }
    bare.push_str(rest);
    bare
}

fn is_space(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t' | b'\n' | b'\r' | 0x0c)
}

fn ends_name(byte: u8) -> bool {
    is_space(byte) || matches!(byte, b'/' | b'>')
}

/// `<name` or `</name` of a tag; nothing for what is none.
fn tag_name(text: &str) -> &str {
    let begins = if text.starts_with("</") { 2 } else { 1 };
    let name = text.get(begins..).unwrap_or_default();
    if !name.starts_with(|first: char| first.is_ascii_alphabetic()) {
        return "";
    }
    let length = name.bytes().position(ends_name).unwrap_or(name.len());
    &text[..begins + length]
}

/// Length of what begins like a tag and is a comment, a declaration or a letter.
fn other_end(text: &str) -> usize {
    let to = |end: Option<usize>, length| end.map_or(text.len(), |at| at + length);
    if !["<!", "<?", "</"].iter().any(|begin| text.starts_with(begin)) {
        return 1;
    }
    let Some(comment) = text.strip_prefix("<!--") else { return to(text.find('>'), 1) };
    if comment.starts_with('>') || comment.starts_with("->") {
        return to(text.find('>'), 1);
    }
    let mut dashes = comment.match_indices('-').map(|(at, _)| at);
    let ends = |at: &usize| ["-->", "--!>"].iter().any(|end| comment[*at..].starts_with(end));
    let end = dashes.find(ends).map(|at| at + text.len() - comment.len());
    to(end, if end.is_some_and(|at| text[at..].starts_with("-->")) { 3 } else { 4 })
}

/// Length of the contents of an element without tags.
fn raw_end(text: &str, name: &str) -> usize {
    let ends = |at: &usize| {
        let after = &text.as_bytes()[at + 2..];
        let (is, next) = (after.get(..name.len()), after.get(name.len()));
        is.is_some_and(|is| is.eq_ignore_ascii_case(name.as_bytes()))
            && next.is_some_and(|next| ends_name(*next))
    };
    text.match_indices("</").map(|(at, _)| at).find(ends).unwrap_or(text.len())
}

/// Place of the `>` that ends a tag, and whether the tag closes itself.
fn attributes_end(tag: &[u8], from: usize) -> (usize, bool) {
    use Within::{AfterName, BeforeValue, Name, Quoted, Slash, Tag, Value};
    let mut within = Tag;
    for (at, &byte) in tag.iter().enumerate().skip(from) {
        within = match (within, byte) {
            (Quoted(quote), byte) if byte == quote => Tag,
            (Quoted(_), _) => within,
            (_, b'>') => return (at, within == Slash),
            (BeforeValue, b'"' | b'\'') => Quoted(byte),
            (BeforeValue, byte) if is_space(byte) => BeforeValue,
            (BeforeValue, _) => Value,
            (Value, byte) => {
                if is_space(byte) {
                    Tag
                } else {
                    Value
                }
            }
            (Tag | Slash | Name | AfterName, b'/') => Slash,
            (Name | AfterName, b'=') => BeforeValue,
            (Name | AfterName, byte) if is_space(byte) => AfterName,
            (Tag | Slash, byte) if is_space(byte) => Tag,
            (Tag | Slash | Name | AfterName, _) => Name,
        };
    }
    (tag.len(), false)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tags_lose_their_attributes_and_everything_else_stays() {
        for (page, bare) in [
            ("a<p class=x id='>' title=\"</p>\">b</p >", "a<p>b</p>"),
            ("<svg viewBox=\"0 0\" /><br/><a href=x/>y", "<svg/><br/><a>y"),
            ("<a =x y= z>t", "<a>t"),
            ("1 < 2 <3 </3><?php a > b", "1 < 2 <3 </3><?php a > b"),
            ("<!doctype html><!-- <a b=c> --><i j>", "<!doctype html><!-- <a b=c> --><i>"),
            ("<!--><b c=d><!-- e --!><f g>", "<!--><b><!-- e --!><f>"),
            (
                "<SCRIPT src=x>if (a<b c) {}</scripts></Script x>y",
                "<SCRIPT>if (a<b c) {}</scripts></Script>y",
            ),
            ("<style>p<q r>", "<style>p<q r>"),
            ("t<a href=\"x>y", "t"),
            ("<a<b c>d", "<a<b>d"),
            ("é<p ü=ö>ä<", "é<p>ä<"),
        ] {
            assert_eq!(removed(page), bare, "{page}");
        }
    }
}
