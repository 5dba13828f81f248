//! Decoder of texts that others wrote, by the encoding that the sender or the text names, or as UTF-8.

use std::borrow::Cow;

pub use encoding_rs::Encoding;
use encoding_rs::{UTF_8, UTF_16BE, UTF_16LE, WINDOWS_1252};

/// Beginning of a page in which it may name its encoding.
const PRESCAN_BYTES: usize = 1024;

/// Markup of a text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TextMarkup {
    /// A page, which may name its encoding in a `meta` element or as XML does.
    Html,
    /// Anything else; XML names its encoding in its first line.
    Other,
}

/// A decoded text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DecodedText<'b> {
    /// Text without a byte order mark.
    pub text: Cow<'b, str>,
    /// Name of the encoding, as the web has it.
    pub encoding: &'static str,
    /// Whether bytes were no characters of the encoding and were replaced.
    pub malformed: bool,
}

/// Encoding of a label, as `latin1` or `Shift_JIS`.
pub fn named(label: &str) -> Option<&'static Encoding> {
    Encoding::for_label(label.trim().as_bytes())
}

/// Decodes a text by its byte order mark, by the encoding `told` by its sender, by the one that it names, or
/// as UTF-8 if valid; `None` where nothing says the encoding.
pub fn decode<'b>(
    bytes: &'b [u8],
    told: Option<&'static Encoding>,
    markup: TextMarkup,
) -> Option<DecodedText<'b>> {
    let marked = Encoding::for_bom(bytes).map(|(encoding, _)| encoding);
    let known = marked.or(told).or_else(|| declared(bytes, markup));
    let known = known.or_else(|| std::str::from_utf8(bytes).is_ok().then_some(UTF_8));
    known.map(|encoding| decoded(bytes, encoding))
}

/// Like [`decode`], with windows-1252 where nothing says the encoding: pages had it before they could say.
pub fn decode_page<'b>(
    bytes: &'b [u8],
    told: Option<&'static Encoding>,
    markup: TextMarkup,
) -> DecodedText<'b> {
    decode(bytes, told, markup).unwrap_or_else(|| decoded(bytes, WINDOWS_1252))
}

fn decoded<'b>(bytes: &'b [u8], encoding: &'static Encoding) -> DecodedText<'b> {
    let (text, used, malformed) = encoding.decode(bytes);
    DecodedText { text, encoding: used.name(), malformed }
}

/// Encoding that a text names itself.
fn declared(bytes: &[u8], markup: TextMarkup) -> Option<&'static Encoding> {
    // XML in UTF-16 without a byte order mark.
    match bytes {
        [b'<', 0, b'?', 0, ..] => return Some(UTF_16LE),
        [0, b'<', 0, b'?', ..] => return Some(UTF_16BE),
        _ => {}
    }
    let start: String = bytes[..bytes.len().min(PRESCAN_BYTES)]
        .iter()
        .map(|byte| char::from(*byte).to_ascii_lowercase())
        .collect();
    let prolog = start.strip_prefix("<?xml").and_then(|rest| rest.split_once("?>"));
    let of_xml = prolog.and_then(|(prolog, _)| label(prolog, "encoding"));
    let of_html = || match markup {
        TextMarkup::Html => start.match_indices("<meta").find_map(|(at, _)| {
            label(start[at..].split('>').next().unwrap_or_default(), "charset")
        }),
        TextMarkup::Other => None,
    };
    // A text that names UTF-16 in single bytes is not in UTF-16.
    let readable = |encoding: &'static Encoding| match encoding.name() {
        "UTF-16LE" | "UTF-16BE" => UTF_8,
        _ => encoding,
    };
    of_xml.or_else(of_html).and_then(named).map(readable)
}

/// Value behind `key =` in a declaration, with or without quotes.
fn label<'t>(declaration: &'t str, key: &str) -> Option<&'t str> {
    declaration.match_indices(key).find_map(|(at, _)| {
        let value = declaration[at + key.len()..].trim_start().strip_prefix('=')?;
        let value = value.trim_start().trim_start_matches(['"', '\'']).trim_start();
        let ends = |letter: char| !(letter.is_ascii_alphanumeric() || "_:.-".contains(letter));
        value.split(ends).next().filter(|label| !label.is_empty())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_read_by_its_mark_its_sender_its_own_words_or_as_utf_8() {
        use TextMarkup::{Html, Other};
        let bytes = |parts: &[&[u8]]| parts.concat();
        let utf16 = |text: &str, mark: bool| {
            let units = mark.then_some(0xfeff).into_iter().chain(text.encode_utf16());
            units.flat_map(u16::to_le_bytes).collect::<Vec<_>>()
        };
        for (text, told, markup, read, encoding) in [
            (bytes(&[b"<meta charset=windows-1251><p>\xcf\xf0"]), None, Html, "Пр", "windows-1251"),
            (
                bytes(&[b"<meta http-equiv=x content='text/html; charset=\"shift_jis\"'>\x93\xfa"]),
                None,
                Html,
                "日",
                "Shift_JIS",
            ),
            (bytes(&[b"<?xml version='1.0' encoding='KOI8-R'?>\xd0"]), None, Other, "п", "KOI8-R"),
            (bytes(&[b"<?XML encoding = \"euc-jp\" ?>\xc6\xfc"]), None, Html, "日", "EUC-JP"),
            (utf16("# Тест", true), None, Other, "# Тест", "UTF-16LE"),
            (utf16("<?xml version='1.0'?>é", false), None, Other, "é", "UTF-16LE"),
            (bytes(&["\u{feff}# é".as_bytes()]), named("latin1"), Other, "# é", "UTF-8"),
            (bytes(&[b"\xe9"]), named("latin1"), Other, "é", "windows-1252"),
            (bytes(&["é<meta charset=utf-16>".as_bytes()]), None, Html, "é", "UTF-8"),
            (bytes(&[b"<meta charset=nonsense>e"]), None, Html, "e", "UTF-8"),
        ] {
            let decoded = decode(&text, told, markup).expect(encoding);
            assert!(decoded.text.contains(read), "{decoded:?}");
            assert_eq!((decoded.encoding, decoded.malformed), (encoding, false));
            assert!(!decoded.text.starts_with('\u{feff}'));
        }
        assert_eq!(decode(b"\xe9", None, Html), None);
        assert_eq!(decode_page(b"\xe9", None, Html).text, "é");
        let cut = decode(b"<meta charset=shift_jis>\x93", None, Html).expect("it says so");
        assert!(cut.malformed && cut.text.ends_with('\u{fffd}'), "{cut:?}");
    }
}
