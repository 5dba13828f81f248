//! Tolerant reading of JSON that others wrote.
//!
//! A program whose strings are of UTF-16 may cut one within a letter and write the half as an escape, `\ud83d`,
//! which is no letter. Halves that meet are one letter, a lone one is U+FFFD, and so are bytes that are no UTF-8.

use std::borrow::Cow;

use serde::de::DeserializeOwned;
use serde_json::{Number, Value};

/// Length of an escape of a code unit.
const ESCAPE_BYTES: usize = 6;

/// Reads JSON.
///
/// # Errors
/// For what is no JSON whatever its letters are, or is not the value.
pub fn from_slice<T: DeserializeOwned>(json: &[u8]) -> serde_json::Result<T> {
    serde_json::from_slice(json).or_else(|error| match mended(json) {
        // Most is well-formed, and is looked at once.
        Cow::Borrowed(_) => Err(error),
        Cow::Owned(mended) => serde_json::from_str(&mended),
    })
}

/// Reads JSON.
///
/// # Errors
/// As [`from_slice`].
pub fn from_str<T: DeserializeOwned>(json: &str) -> serde_json::Result<T> {
    from_slice(json.as_bytes())
}

/// A text without the code fence around it.
pub fn without_fence(text: &str) -> &str {
    let text = text.trim();
    let inner = text.strip_prefix("```").and_then(|rest| rest.strip_suffix("```"));
    // The first line has the language.
    inner.and_then(|inner| inner.split_once('\n')).map_or(text, |(_, body)| body.trim())
}

/// Reads the body of a request. One that is not the value as it stands is read once more, with integers in
/// place of numbers without a fraction, `5.0`, and without its members that are null.
///
/// # Errors
/// As [`from_slice`], of the body as it stands.
pub fn body<T: DeserializeOwned>(json: &[u8]) -> serde_json::Result<T> {
    from_slice(json).or_else(|error| {
        let Ok(mut value) = from_slice::<Value>(json) else { return Err(error) };
        let as_it_stands = value.clone();
        if let Value::Object(members) = &mut value {
            members.retain(|_, member| !member.is_null());
        }
        write_integers(&mut value);
        // Other faults, as a member that is there twice, stay errors.
        if value == as_it_stands {
            return Err(error);
        }
        serde_json::from_value(value).map_err(|_| error)
    })
}

fn write_integers(value: &mut Value) {
    match value {
        Value::Number(number) => {
            if let Some(integer) = integer(number) {
                *number = integer;
            }
        }
        Value::Array(items) => items.iter_mut().for_each(write_integers),
        Value::Object(members) => members.values_mut().for_each(write_integers),
        _ => {}
    }
}

/// The integer that a number is, within 64 bits; a float without a fraction is one.
pub fn integer(number: &Number) -> Option<Number> {
    if !number.is_f64() {
        return Some(number.clone());
    }
    let float = number.as_f64().filter(|float| float.fract() == 0.0)?;
    // The sum has no -0, and the text of a whole float neither point nor exponent.
    let text = format!("{:.0}", float + 0.0);
    text.parse::<u64>().map(Number::from).or_else(|_| text.parse::<i64>().map(Number::from)).ok()
}

/// JSON whose texts are well-formed, in place of some whose may not be.
pub fn mended(json: &[u8]) -> Cow<'_, str> {
    let text = String::from_utf8_lossy(json);
    let lone = lone_halves(&text);
    if lone.is_empty() {
        return text;
    }
    let mut mended = String::with_capacity(text.len());
    let mut from = 0;
    for LoneHalf { at, .. } in lone {
        mended.push_str(&text[from..at]);
        mended.push_str("\\ufffd");
        from = at + ESCAPE_BYTES;
    }
    mended.push_str(&text[from..]);
    mended.into()
}

/// A half of a letter without its other.
struct LoneHalf {
    at: usize,
    unit: u16,
}

fn lone_halves(json: &str) -> Vec<LoneHalf> {
    let bytes = json.as_bytes();
    let (mut lone, mut at) = (Vec::new(), 0);
    // A backslash is in strings alone, and begins an escape there.
    while let Some(next) = bytes.get(at..).and_then(|rest| rest.iter().position(|it| *it == b'\\'))
    {
        at += next;
        let Some(unit) = unit_at(bytes, at) else {
            at += 2;
            continue;
        };
        let follows = unit_at(bytes, at + ESCAPE_BYTES);
        match unit {
            0xd800..=0xdbff if follows.is_some_and(is_second) => at += ESCAPE_BYTES,
            0xd800..=0xdfff => lone.push(LoneHalf { at, unit }),
            _ => {}
        }
        at += ESCAPE_BYTES;
    }
    lone
}

fn is_second(unit: u16) -> bool {
    (0xdc00..=0xdfff).contains(&unit)
}

/// Code unit that is escaped at a place.
fn unit_at(bytes: &[u8], at: usize) -> Option<u16> {
    let digits = bytes.get(at..at + ESCAPE_BYTES)?.strip_prefix(b"\\u")?;
    u16::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()
}

/// Reader of a text that comes in many pieces of JSON, where a letter may be cut between two of them.
#[derive(Debug, Default)]
pub struct JsonPieces {
    /// First half of a letter at the end of a string of the last piece.
    held: Option<u16>,
}

impl JsonPieces {
    /// The piece with well-formed texts, and whether the half that was held before it stays alone. A first half
    /// at the end of a string is held until the next piece.
    pub fn next<'p>(&mut self, piece: &'p str) -> (Cow<'p, str>, bool) {
        let held = self.held.take();
        let lone = lone_halves(piece);
        if lone.is_empty() {
            return (piece.into(), held.is_some());
        }
        let (mut mended, mut from, mut joined) = (String::with_capacity(piece.len()), 0, false);
        for LoneHalf { at, unit } in lone {
            mended.push_str(&piece[from..at]);
            from = at + ESCAPE_BYTES;
            let (begins, ends) = (piece[..at].ends_with('"'), piece[from..].starts_with('"'));
            match held {
                Some(first) if begins && is_second(unit) && !joined => {
                    mended.push_str(&format!("\\u{first:04x}\\u{unit:04x}"));
                    joined = true;
                }
                _ if ends && !is_second(unit) && self.held.is_none() => self.held = Some(unit),
                _ => mended.push_str("\\ufffd"),
            }
        }
        mended.push_str(&piece[from..]);
        (mended.into(), held.is_some() && !joined)
    }

    /// Whether the text ended in half a letter.
    pub fn ends_in_half(&self) -> bool {
        self.held.is_some()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    #[test]
    fn halves_that_meet_are_joined_and_a_lone_one_is_replaced() {
        for (text, read) in [
            (r"cut \ud83d here", "cut \u{fffd} here"),
            (r"\ud83d\ude00", "\u{1f600}"),
            (r"\ud83d\ud83d\ude00\ude00", "\u{fffd}\u{1f600}\u{fffd}"),
            (r"\ude00\uD83D", "\u{fffd}\u{fffd}"),
            (r"\\ud83d \\\ud83d", "\\ud83d \\\u{fffd}"),
            (r"\u00e9\n\ud83d", "é\n\u{fffd}"),
        ] {
            let json = format!("{{\"a\\ud800\":[\"{text}\"]}}");
            let value: Value = from_str(&json).expect(text);
            assert_eq!(value, json!({ "a\u{fffd}": [read] }), "{text}");
        }
        assert_eq!(from_slice::<String>(b"\"a\xed\xa0\xbdb\xff\"").expect("read"), {
            "a\u{fffd}\u{fffd}\u{fffd}b\u{fffd}"
        });
        for broken in [r#""\ud83"#, r#""\ud83d"#, r#""\u12"#, r"\", "", r#""\x""#] {
            assert!(from_str::<Value>(broken).is_err(), "{broken}");
        }
    }

    #[test]
    fn a_body_is_read_however_its_numbers_and_nulls_are_spelled() {
        #[derive(Debug, PartialEq, serde::Deserialize)]
        struct Asked {
            secs: u8,
            #[serde(default)]
            tags: Vec<i64>,
            also: Option<f64>,
        }
        let asked = |secs, tags: &[i64], also| Asked { secs, tags: tags.to_vec(), also };
        for (json, read) in [
            (r#"{"secs":5,"also":5.0}"#, Some(asked(5, &[], Some(5.0)))),
            (r#"{"secs":5.0,"tags":null,"also":null}"#, Some(asked(5, &[], None))),
            (r#"{"secs":5e0,"tags":[-2.0],"also":0.5}"#, Some(asked(5, &[-2], Some(0.5)))),
            (r#"{"secs":5.5}"#, None),
            (r#"{"secs":256.0}"#, None),
            (r#"{"secs":null}"#, None),
            (r#"{"secs":"5"}"#, None),
            (r#"{"secs":5,"secs":6}"#, None),
        ] {
            assert_eq!(body(json.as_bytes()).ok(), read, "{json}");
        }
        let error = body::<Asked>(br#"{"secs":null}"#).expect_err("no number").to_string();
        assert!(error.contains("null"), "of the body as it stands: {error}");
    }

    #[test]
    fn a_letter_that_is_cut_between_two_pieces_is_whole() {
        let mut pieces = JsonPieces::default();
        let mut next = |text: &str| {
            let piece = format!(r#"{{"t":"{text}"}}"#);
            let (piece, alone) = pieces.next(&piece);
            let value: Value = serde_json::from_str(&piece).expect(&piece);
            (value["t"].as_str().expect("a text").to_owned(), alone)
        };
        let text = |text: &str, alone| (text.to_owned(), alone);
        assert_eq!(next(r"a\ud83d"), text("a", false));
        assert_eq!(next(r"\ude00b"), text("\u{1f600}b", false));
        assert_eq!(next(r"\ud83d"), text("", false));
        assert_eq!(next("c"), text("c", true), "the half was alone");
        assert_eq!(next(r"\ude00\ud83d"), text("\u{fffd}", false));
        assert_eq!(next(r"\ud83d"), text("", true));
        assert!(pieces.ends_in_half());
    }

    proptest! {
        #[test]
        fn what_is_well_formed_stays_as_it_is(text in ".{0,40}") {
            let json = serde_json::to_string(&text).expect("a string");
            prop_assert_eq!(mended(json.as_bytes()), json.clone());
            let escaped: String = text.encode_utf16().map(|unit| format!("\\u{unit:04x}")).collect();
            let read: String = from_str(&format!("\"{escaped}\"")).expect("a string");
            prop_assert_eq!(read, text);
        }
    }
}
