//! Text of others that is shown to a person: an escape sequence, a control character or one that
//! turns the direction of writing is made visible and not obeyed.

use std::{borrow::Cow, fmt::Write};

/// True for a character that acts on a terminal or hides its neighbours instead of being seen.
fn acts(c: char) -> bool {
    c.is_control()
        || matches!(c,
            '\u{ad}' | '\u{61c}' | '\u{180e}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}'
            | '\u{2060}'..='\u{206f}' | '\u{feff}' | '\u{fff9}'..='\u{fffb}'
            | '\u{e0000}'..='\u{e007f}')
}

/// A line of plain text, with characters that act on a terminal shown as `\u{1b}`.
pub fn line(text: &str) -> Cow<'_, str> {
    escaped(text, acts, |shown, c| shown.extend(c.escape_unicode()))
}

/// Plain text of several lines.
pub fn lines(text: &str) -> Cow<'_, str> {
    let acts = |c| acts(c) && !matches!(c, '\n' | '\t');
    escaped(text, acts, |shown, c| shown.extend(c.escape_unicode()))
}

/// Escapes the characters of a JSON text that act on a terminal; its line breaks stay.
pub fn json(text: &str) -> Cow<'_, str> {
    let acts = |c| acts(c) && c != '\n';
    escaped(text, acts, |shown, c| {
        for unit in c.encode_utf16(&mut [0; 2]) {
            // Writing to a string does not fail.
            let _written = write!(shown, "\\u{unit:04x}");
        }
    })
}

/// At most so many characters of one line of plain text, for a name.
pub fn name(text: &str, most: usize) -> String {
    text.chars().filter(|c| !acts(*c)).take(most).collect()
}

fn escaped(
    text: &str,
    acts: impl Fn(char) -> bool,
    show: impl Fn(&mut String, char),
) -> Cow<'_, str> {
    if !text.contains(&acts) {
        return Cow::Borrowed(text);
    }
    let mut shown = String::with_capacity(text.len() + 16);
    for c in text.chars() {
        match acts(c) {
            true => show(&mut shown, c),
            false => shown.push(c),
        }
    }
    Cow::Owned(shown)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_acts_is_seen() {
        assert_eq!(line("\x1b]0;x\x07\x1b[2J"), r"\u{1b}]0;x\u{7}\u{1b}[2J");
        assert_eq!(line("a\nb\tc"), r"a\u{a}b\u{9}c");
        assert_eq!(lines("a\nb\tc\r\n"), "a\nb\tc\\u{d}\n");
        // The one-byte CSI of C1, an override of direction, a mark of no width.
        assert_eq!(line("\u{9b}2J\u{202e}gpj\u{feff}"), r"\u{9b}2J\u{202e}gpj\u{feff}");
        assert!(matches!(line("größe 日本 🐝"), Cow::Borrowed(_)));
        assert_eq!(name("\x1b[2Jab\u{202e}cd", 5), "[2Jab");
    }

    proptest::proptest! {
        #[test]
        fn json_stays_the_same_json(text in ".{0,40}") {
            let value = serde_json::json!({ "text": text, "more": ["\u{9b}\u{e0041}\u{202e}"] });
            let whole = serde_json::to_string_pretty(&value).expect("plain data");
            let shown = json(&whole);
            proptest::prop_assert!(!shown.chars().any(|c| acts(c) && c != '\n'));
            let read: serde_json::Value = serde_json::from_str(&shown).expect("JSON");
            proptest::prop_assert_eq!(read, value);
        }
    }
}
