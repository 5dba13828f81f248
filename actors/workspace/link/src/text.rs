//! Text rendering of command output.

/// Captured bytes as text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CapturedText {
    /// Text in valid UTF-8; when truncated it ends with a notice of the bytes shown and in all.
    pub text: String,
    /// True if there was more than is shown.
    pub truncated: bool,
}

/// Renders `bytes`, the first part of an output of `total_bytes`.
///
/// A character is never split: when output follows that is not shown, an incomplete character at
/// the cut is left out. Bytes that are not UTF-8 at all become U+FFFD.
pub fn capped_text(bytes: &[u8], total_bytes: u64) -> CapturedText {
    let truncated = total_bytes > bytes.len() as u64;
    let shown = if truncated { &bytes[..whole_chars(bytes)] } else { bytes };
    let mut text = String::from_utf8_lossy(shown).into_owned();
    if truncated {
        if !text.is_empty() && !text.ends_with('\n') {
            text.push('\n');
        }
        text.push_str(&format!("[output truncated: {} of {total_bytes} bytes shown]", shown.len()));
    }
    CapturedText { text, truncated }
}

/// Length without a character that is cut off by the end of `bytes`.
fn whole_chars(bytes: &[u8]) -> usize {
    // A character has at most four bytes: an incomplete one starts in the last three.
    let from = bytes.len().saturating_sub(3);
    (from..bytes.len())
        .find(|&at| {
            let tail = &bytes[at..];
            bytes[at] >= 0xc0
                && std::str::from_utf8(tail)
                    .is_err_and(|error| error.valid_up_to() == 0 && error.error_len().is_none())
        })
        .unwrap_or(bytes.len())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn all_of_it_is_shown_as_it_is() {
        let all = capped_text("héllo".as_bytes(), 6);
        assert_eq!(all, CapturedText { text: "héllo".into(), truncated: false });
    }

    #[test]
    fn a_cut_names_shown_and_total_bytes() {
        let cut = capped_text(&"aé".as_bytes()[..2], 9);
        assert_eq!(cut.text, "a\n[output truncated: 1 of 9 bytes shown]");
        assert!(cut.truncated);
        assert_eq!(capped_text(b"", 5).text, "[output truncated: 0 of 5 bytes shown]");
    }

    #[test]
    fn rubbish_at_the_end_is_replaced_and_not_taken_for_a_cut_character() {
        assert!(capped_text(b"a\xff", 9).text.starts_with("a\u{fffd}\n"));
        assert_eq!(capped_text(b"a\xc3", 2).text, "a\u{fffd}");
    }

    proptest! {
        #[test]
        fn every_cut_of_a_text_shows_a_prefix_of_it(text in "\\PC{0,40}", cut in 0usize..200) {
            let cut = cut.min(text.len());
            let shown = capped_text(&text.as_bytes()[..cut], text.len() as u64);
            prop_assert_eq!(shown.truncated, cut < text.len());
            let body = match shown.text.rsplit_once("[output truncated: ") {
                Some((body, _)) if shown.truncated => body.strip_suffix('\n').unwrap_or(body),
                _ => shown.text.as_str(),
            };
            prop_assert!(text.starts_with(body), "{:?} is not a prefix of {:?}", body, text);
            prop_assert!(cut - body.len() <= 4, "at most one character is lost");
            let replaced = body.contains(char::REPLACEMENT_CHARACTER);
            prop_assert!(!replaced || text.contains(char::REPLACEMENT_CHARACTER));
        }

        #[test]
        fn any_bytes_make_text(bytes in proptest::collection::vec(any::<u8>(), 0..64), more in 0u64..9) {
            let text = capped_text(&bytes, bytes.len() as u64 + more);
            prop_assert_eq!(text.truncated, more > 0);
            prop_assert!(text.text.len() <= bytes.len() * 3 + 80);
        }
    }
}
